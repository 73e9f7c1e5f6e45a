"""Every op with a counterpart in PyTorch equals it: values, dtype, strides, gradients, saves.

Known differences are lines of one table, each with its reason (tests/laws/twins/torch_twins.py).
"""

import numpy as np
import pytest

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS
from aotlite.testing.laws.ops.gradient import forward, gradients, leaves_of, weights_of
from aotlite.testing.laws.ops.runs import bound, close, run, tensors_in
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES, has_gradient
from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import WITHOUT_TWIN, known, torch_value, twin_of, without_known
from tests.samples import samples_of

NAMES = [name for name in OPS if name not in WITHOUT_TWIN and name not in WITHOUT_SAMPLES]

# The order of summation differs, and vector units round elementary functions their own way.
# Those of 16 bits are rounded once from values that differ so: one unit apart at most.
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 2e-6,
    "float64": 1e-13,
    "complex64": 2e-6,
    "complex128": 1e-13,
}


def canonical(op, sample):
    """The canonical arguments with arrays, to be made tensors of either library."""
    holders = {}

    def hold(array):
        tensor = _Held(array)
        holders[id(tensor)] = tensor
        return tensor

    args = bound(op, sample, hold)
    return [_released(a) for a in args]


class _Held:
    meta = None

    def __init__(self, array):
        self.array = array


def _released(value):
    if isinstance(value, _Held):
        return value.array
    return tuple(map(_released, value)) if isinstance(value, tuple) else value


def torch_call(torch, op, sample, *, grad=False):
    """PyTorch's results, and its operands made leaves where `grad` asks for it."""
    args = [torch_value(torch, a) for a in canonical(op, sample)]
    leaves = []
    if grad:
        for tensor in _tensors(torch, args):
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                leaves.append(tensor.requires_grad_())
        if op.writes or op.name.endswith("_"):
            args[0] = args[0].clone()
    result = twin_of(torch, op.name)(*args)
    return _tensors(torch, result), leaves


def _tensors(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(torch, item)]
    return []


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_results_equal_torch(torch, name):
    op = OPS[name]
    for sample in samples_of(name):
        if known(name, "call", sample):
            with pytest.raises((RuntimeError, TypeError, IndexError)):
                torch_call(torch, op, sample)
            continue
        theirs, _ = torch_call(torch, op, sample)
        ours = run(op, bound(op, sample))
        assert len(theirs) == len(ours)
        for their, our in zip(theirs, ours, strict=True):
            _compare(name, sample, their, our)


def _compare(name, sample, their, our):
    found = {
        "shape": (tuple(their.shape), our.shape),
        "dtype": (str(their.dtype).removeprefix("torch."), our.dtype.name),
        "strides": (their.stride(), our.stride()),
    }
    for aspect, (expected, got) in found.items():
        assert expected == got or known(name, aspect, sample), (
            f"{name}{sample}: {aspect} is {got}, PyTorch has {expected}"
        )
    if our.dtype.name in TOLERANCE or not known(name, "dtype", sample):
        _compare_values(name, sample, their, our)


def numpy_of(their):
    """The values of PyTorch's tensor, those of 16 and 8 bits as float32, which NumPy knows."""
    values = their.detach().resolve_conj().resolve_neg()
    values = values.clone() if values._is_zerotensor() else values
    narrow = values.is_floating_point() and values.dtype.itemsize < 4
    return (values.float() if narrow else values).numpy()


def _compare_values(name, sample, their, our):
    expected = numpy_of(their)
    got = our.detach().array.astype(expected.dtype)
    others = without_known(name, sample, expected, got)
    same = close(others, got, TOLERANCE.get(our.dtype.name, 0))
    assert same or known(name, "values", sample), (
        f"{name}{sample}: the values are {our.tolist()}, PyTorch has {expected.tolist()}"
    )


DIFFERENTIABLE = [name for name in NAMES if has_gradient(OPS[name])]


def of_gradients(name):
    """The samples of an op whose first gradients are to be PyTorch's."""
    return [
        sample
        for sample in samples_of(name)
        if not known(name, "call", sample) and not known(name, "gradient", sample)
    ]


def of_writes(name):
    """Two samples of an op that are to save what PyTorch saves."""
    return [
        sample
        for sample in [each for each in samples_of(name) if each.smooth][:2]
        if not known(name, "saves", sample) and not known(name, "gradient", sample)
    ]


def test_few_ops_have_nothing_to_compare():
    counts = [sum(not of(name) for name in DIFFERENTIABLE) for of in (of_gradients, of_writes)]
    assert 12 * max(counts) <= len(DIFFERENTIABLE)


@pytest.mark.torch
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", list(filter(of_gradients, DIFFERENTIABLE)))
def test_first_gradients_equal_torch(torch, name):
    for sample in of_gradients(name):
        check_gradients(torch, name, sample)


def check_gradients(torch, name, sample):
    """Fails where a gradient, or its being None, is not PyTorch's."""
    op = OPS[name]
    theirs, their_leaves = torch_call(torch, op, sample, grad=True)
    theirs = [t for t in theirs if t.requires_grad]
    args = bound(op, sample)
    leaves = leaves_of(args)
    outs = [out for out in forward(op, args) if out.requires_grad]
    assert len(theirs) == len(outs), f"{name}{sample}: {len(outs)} results require grad"
    if not outs:
        return
    weights = weights_of(outs)
    given = [torch_value(torch, np.array(w.array)) for w in weights]
    expected = torch.autograd.grad(theirs, their_leaves, given, allow_unused=True)
    with np.errstate(all="ignore"):
        got = gradients(outs, leaves, weights)
    for k, (a, b) in enumerate(zip(expected, got, strict=True)):
        _compare_gradient(name, sample, k, a, b)


def _compare_gradient(name, sample, k, expected, got):
    what = f"{name}{sample}: the gradient of operand {k}"
    assert (expected is None) == (got is None), f"{what} is {got}, PyTorch has {expected}"
    if expected is not None:
        wanted = numpy_of(expected)
        assert str(expected.dtype).removeprefix("torch.") == got.dtype.name
        tolerance = 4 * max([TOLERANCE[a.dtype.name] for a in _floats(sample)], default=0)
        assert close(wanted, got.array.astype(wanted.dtype), tolerance), (
            f"{what} is {got.tolist()}, PyTorch has {wanted.tolist()}"
        )


def _floats(sample):
    """A gradient that passes through a narrower dtype is no better than that."""
    flat = [a for arg in sample.args for a in (arg if isinstance(arg, tuple) else (arg,))]
    return [a for a in flat if isinstance(a, np.ndarray) and a.dtype.name in TOLERANCE]


@pytest.mark.torch
@pytest.mark.parametrize("name", list(filter(of_writes, DIFFERENTIABLE)))
def test_writes_after_the_forward_raise_where_they_do_in_torch(torch, name):
    """What is saved is observable: it decides which later writes raise in the backward."""
    op = OPS[name]
    for sample in of_writes(name):
        count = len(tensors_in(bound(op, sample)))
        for k in range(count):
            ours, theirs = _raises(op, sample, k), _raises_in_torch(torch, op, sample, k)
            assert theirs == ours, (
                f"{name}{sample}: writing operand {k} before the backward raises: {ours}, in "
                f"PyTorch: {theirs}"
            )


def _raises(op, sample, k):
    import aotlite

    args = bound(op, sample)
    leaves = leaves_of(args)
    loss = [(o * w).sum() for o, w in _weighed(forward(op, args))]
    with aotlite.no_grad():
        tensors_in(args)[k].fill_(0)
    try:
        gradients(loss, leaves, [one.sum() * 0 + 1 for one in loss])
    except AotliteError:
        return True
    return False


def _weighed(outs):
    live = [out for out in outs if out.requires_grad]
    return list(zip(live, weights_of(live), strict=True))


def _raises_in_torch(torch, op, sample, k):
    args = [torch_value(torch, a) for a in canonical(op, sample)]
    tensors = _tensors(torch, args)
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()]
    called = [args[0].clone(), *args[1:]] if op.name.endswith("_") else args
    outs = [o for o in _tensors(torch, twin_of(torch, op.name)(*called)) if o.requires_grad]
    loss = [(o * torch.ones(o.shape, dtype=o.dtype)).sum() for o in outs]
    with torch.no_grad():
        tensors[k].fill_(0)
    try:
        torch.autograd.grad(loss, leaves, list(map(torch.ones_like, loss)), allow_unused=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return True
    return False


# ----------------------------------------------------------------------------- which dtypes
def as_dtype(value, dtype):
    """The sample's floats in another dtype."""
    if isinstance(value, tuple):
        return tuple(as_dtype(item, dtype) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.asarray(value).astype(dtype)
    return value


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "float32", "complex64"])
def test_ops_take_the_dtypes_that_torch_takes(torch, dtype):
    """An error of the library beneath, instead of one of ours, fails too."""
    wrong = []
    for name in NAMES:
        samples = samples_of(name)
        base = next((sample for sample in samples if sample.smooth), samples[0])
        args = tuple(as_dtype(a, dtype) for a in base.args)
        sample = Sample(args, base.kwargs)
        theirs, ours = _torch_dtype(torch, name, sample), _our_dtype(name, sample)
        if theirs != ours and not known(name, "call", sample):
            wrong.append((name, theirs, ours))
    assert [] == wrong


def _torch_dtype(torch, name, sample):
    try:
        results, _ = torch_call(torch, OPS[name], sample)
    except RuntimeError:
        return "refused"
    return str(results[0].dtype).removeprefix("torch.")


def _our_dtype(name, sample):
    try:
        return run(OPS[name], bound(OPS[name], sample))[0].dtype.name
    except AotliteError:
        return "refused"
