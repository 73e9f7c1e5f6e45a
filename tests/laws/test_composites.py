"""Every composite is what PyTorch's function is, and what its graph gives when it is compiled."""

import numpy as np
import pytest

import aotlite as al
import aotlite.ir.ops
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.gradient import weights_of
from aotlite.testing.laws.ops.runs import close, same_bits, tensors_in
from tests.laws.helpers.composites import (
    aliasing,
    arguments,
    call,
    compiled_call,
    entry,
    torch_arguments,
    torch_call_composite,
)
from tests.laws.test_torch import TOLERANCE, _tensors, numpy_of
from tests.laws.twins.torch_twins import WITHOUT_TWIN, known, without_known
from tests.samples import samples_of
from tests.thinning import thinned

COMPARED = [name for name in COMPOSITES if entry(name) not in WITHOUT_TWIN]


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_composite_has_samples(name):
    assert samples_of(entry(name))


@pytest.mark.rules("FUN-29", "FUN-13")
@pytest.mark.parametrize("name", thinned(COMPOSITES, 4))
def test_a_compiled_composite_gives_what_eager_gives(name):
    """On at most three samples from all parts of the list."""
    samples = list(samples_of(entry(name)))
    check_compiled(name, samples[:: -(-len(samples) // 3)])


@pytest.mark.long
@pytest.mark.parametrize("name", COMPOSITES)
def test_a_compiled_composite_gives_what_eager_gives_on_every_sample(name):
    check_compiled(name, samples_of(entry(name)))


def check_compiled(name, samples):
    for sample in samples:
        args, kwargs = arguments(sample)
        al.manual_seed(3)
        expected = call(name, args, kwargs)
        given, kwargs = arguments(sample)  # the first ones may have been written
        al.manual_seed(3)
        got = compiled_call(name, given, kwargs)
        pairs = list(zip(tensors_in(expected), tensors_in(got), strict=True))
        assert aliasing(args, expected) == aliasing(given, got), f"{name}{sample}"
        for a, b in pairs:
            assert a.meta is b.meta and same_bits(a.array, b.array), f"{name}{sample}"


@pytest.mark.torch
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", COMPARED)
def test_composites_equal_torch(torch, name):
    for sample in samples_of(entry(name)):
        theirs_in, theirs_kwargs = torch_arguments(torch, sample)
        if known(entry(name), "call", sample):
            with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
                torch_call_composite(torch, name, theirs_in, theirs_kwargs)
            continue
        theirs = torch_call_composite(torch, name, theirs_in, theirs_kwargs)
        args, kwargs = arguments(sample)
        ours = call(name, args, kwargs)
        expected, got = _tensors(torch, theirs), tensors_in(ours)
        assert len(expected) == len(got), f"{name}{sample}"
        for a, b in zip(expected, got, strict=True):
            _compare(name, sample, a, b)
        if not known(entry(name), "aliasing", sample):
            ours_alias = aliasing((args, tuple(kwargs.values())), ours)
            theirs_alias = aliasing((theirs_in, tuple(theirs_kwargs.values())), theirs, torch=torch)
            assert theirs_alias == ours_alias, f"{name}{sample}: aliasing"


def _compare(name, sample, their, our):
    found = {
        "shape": (tuple(their.shape), our.shape),
        "dtype": (str(their.dtype).removeprefix("torch."), our.dtype.name),
        "strides": (their.stride(), our.stride()),
    }
    for aspect, (expected, got) in found.items():
        assert expected == got or known(entry(name), aspect, sample), (
            f"{name}{sample}: {aspect} is {got}, PyTorch has {expected}"
        )
    values = their.detach().resolve_conj().resolve_neg()
    values = values.float() if values.dtype.itemsize < 4 and values.is_floating_point() else values
    expected = values.numpy()
    got = our.detach().array.astype(expected.dtype)
    others = without_known(entry(name), sample, expected, got)
    tolerance = TOLERANCE.get(our.dtype.name, 0)
    assert close(others, got, tolerance) or known(entry(name), "values", sample), (
        f"{name}{sample}: the values are {our.tolist()}, PyTorch has {their.tolist()}"
    )


def of_gradients(name):
    """The samples of a composite whose gradients are to be PyTorch's."""
    return [
        sample
        for sample in samples_of(entry(name))
        if sample.smooth
        and not known(entry(name), "gradient", sample)
        and not known(entry(name), "call", sample)
    ]


WITH_GRADIENTS = [name for name in COMPARED if of_gradients(name)]


def test_most_composites_have_gradients_to_compare():
    assert 3 * len(WITH_GRADIENTS) >= 2 * len(COMPARED)


@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_of_composites_equal_torch(torch, name):
    for sample in of_gradients(name):
        theirs_in, theirs_kwargs = torch_arguments(torch, sample)
        their_leaves = [
            t.requires_grad_()
            for t in _tensors(torch, theirs_in)
            if t.dtype.is_floating_point or t.dtype.is_complex
        ]
        args, kwargs = arguments(sample)
        leaves = [t.requires_grad_() for t in tensors_in(args) if t.dtype.is_differentiable]
        theirs = _tensors(torch, torch_call_composite(torch, name, theirs_in, theirs_kwargs))
        outs = [out for out in tensors_in(call(name, args, kwargs)) if out.requires_grad]
        theirs = [out for out in theirs if out.requires_grad]
        assert len(theirs) == len(outs), f"{name}{sample}"
        if not outs:
            continue
        weights = weights_of(outs)
        given = [torch.from_numpy(np.array(w.array)) for w in weights]
        expected = torch.autograd.grad(theirs, their_leaves, given, allow_unused=True)
        got = al.autograd.grad(outs, leaves, weights, allow_unused=True)
        for k, (a, b) in enumerate(zip(expected, got, strict=True)):
            assert (a is None) == (b is None), f"{name}{sample}: gradient {k}"
            if a is not None:
                wanted = numpy_of(a)
                assert close(wanted, b.array, 1e-12), (
                    f"{name}{sample}: gradient {k} is {b.tolist()}, PyTorch has {wanted.tolist()}"
                )


def test_a_composite_is_declared_once():
    from aotlite.ir.errors import GraphError
    from aotlite.ir.op.composite import composite

    for name in COMPOSITES:
        with pytest.raises(GraphError, match=f"the composite {name!r} is declared twice"):
            composite(name=name)(lambda self: self)
