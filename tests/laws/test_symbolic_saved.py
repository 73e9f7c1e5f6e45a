"""What a capture with symbols saves lies in the memory of what eager saves (DYN-4).

An operand is written after the op and before the backward: eager's backward raises an error where
the op saved the operand, or a view of it. A composite that copied where eager takes a view, so as
to assume nothing about sizes, would give a gradient instead.
"""

import pytest

import aotlite as al
import aotlite.ir.ops
import aotlite.nn.functional as F
from aotlite.eager.creation.from_data import call as call_op
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.runs import tensors_in
from tests.laws.helpers.composites import arguments, call, entry
from tests.samples import samples_of

EVERY = [*OPS, *[entry(name) for name in COMPOSITES]]
MENDED = ("mul_", "masked_select")
SOME = [*MENDED, *[name for name in EVERY[::61] if name not in MENDED]]
"""What the usual run looks at."""


def strided(tensor):
    """The values in memory of its own, in which they do not follow each other."""
    if not tensor.ndim:
        return tensor * 1
    return al.stack([tensor, tensor], -1)[..., 0] if tensor.ndim == 1 else (tensor.mT * 1).mT


LAYOUTS = {"contiguous": lambda tensor: tensor * 1, "strided": strided}


def function_of(name, sample, written, layout):
    composite = name.removesuffix("()") if name.endswith("()") or name not in OPS else None

    plain, kwargs = arguments(sample)

    def function(*leaves):
        given = iter([LAYOUTS[layout](leaf) for leaf in leaves])
        taken = []

        def put(value):
            if isinstance(value, (tuple, list)):
                return type(value)([put(each) for each in value])
            if isinstance(value, al.Tensor) and value.dtype.is_differentiable:
                taken.append(next(given))
                return taken[-1]
            return value

        args = put(plain)
        result = (
            call_op(name, *args, **kwargs) if composite is None else call(composite, args, kwargs)
        )
        taken[written].detach().mul_(2)
        return result

    return function


def outcome(function, leaves):
    """What the backward raises; None if it gives gradients."""
    al.manual_seed(3)
    parts = [each.sum() for each in tensors_in(function(*leaves)) if each.requires_grad]
    try:
        if parts and not any(part.is_complex() for part in parts):
            sum(parts[1:], parts[0]).backward()
    except al.AotliteError as error:
        return type(error).__name__, str(error)
    return None


def leaves_of(sample):
    args, _ = arguments(sample)
    found = [each for each in tensors_in(args) if each.dtype.is_differentiable]
    return [each.detach().clone().requires_grad_() for each in found]


def differing(name, most=2):
    """(sample, written operand, layout, eager's outcome, the compiled function's)."""
    for sample in [each for each in samples_of(name) if each.smooth][:most]:
        for written in range(len(leaves_of(sample))):
            for layout in LAYOUTS:
                function = function_of(name, sample, written, layout)
                try:
                    expected = outcome(function, leaves_of(sample))
                except Exception:  # the sample is refused in this layout, as by `view`
                    continue
                compiled = al.compile(function, dynamic=True, backend="reference")
                found = outcome(compiled, leaves_of(sample))
                if expected != found:
                    yield f"{sample}", written, layout, expected, found


@pytest.mark.rules("DYN-4")
@pytest.mark.parametrize("name", SOME)
def test_a_written_operand_is_told_as_by_eager(name):
    assert [] == list(differing(name, 1))


@pytest.mark.long
@pytest.mark.rules("DYN-4")
@pytest.mark.parametrize("name", EVERY)
def test_every_written_operand_is_told_as_by_eager(name):
    assert [] == list(differing(name))


PROGRAMS = {
    "a chain of matrices": lambda v: al.einsum("ij,jk,kl->il", v, v, v),
    "rows and columns": lambda v: al.einsum("ij,kj->ik", v, v + 1),
    "a product over two": lambda v: al.tensordot(v[None], v[..., None], ((1, 2), (0, 1))),
    "an outer product": lambda v: al.outer(v.mT.diagonal(), v.diagonal()),
    "kron": lambda v: al.kron(v.mT, v),
    "linear": lambda v: F.linear(v.reshape(1, *v.shape).transpose(0, 1), v.mean(0)[None]),
    "a mask": lambda v: v.masked_select(v > 1),
}


@pytest.mark.rules("DYN-4", "TEN-12")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_view_inside_a_composite_is_told_as_by_eager(name):
    def function(x):
        value = x * 2
        result = PROGRAMS[name](value)
        value.detach().mul_(2)
        return result

    compiled = al.compile(function, dynamic=True, backend="reference")
    for n in (3, 1, 0):
        expected, found = [
            outcome(each, [al.ones(n, n).requires_grad_()]) for each in (function, compiled)
        ]
        assert expected == found
        assert n < 2 or expected is not None
