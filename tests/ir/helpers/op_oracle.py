"""Operands of every layout, and comparison of an op with PyTorch or with finite differences."""

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from aotlite import from_numpy
from aotlite.autograd import grad
from aotlite.eager.creation.from_data import call

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "int64", "bool")

# Rounding differs by the order of summation: a few units in the last place of the largest value.
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-12}


# ------------------------------------------------------------------------------------- operands
@st.composite
def strided_arrays(draw, dtypes=DTYPES, min_rank=0, max_rank=4, min_size=0, max_size=4):
    """Arrays that are contiguous, permuted, or have gaps; sizes 0 and 1 and ties come often."""
    shape = draw(shapes(min_rank, max_rank, min_size, max_size))
    return laid_out(draw, shape, draw(st.sampled_from(dtypes)))


def shapes(min_rank=0, max_rank=4, min_size=0, max_size=4):
    size = st.integers(min_size, max_size)
    return st.lists(size, min_size=min_rank, max_size=max_rank).map(tuple)


def laid_out(draw, shape, dtype):
    """An array of this shape and dtype; its memory order and its gaps are drawn."""
    order = draw(st.permutations(range(len(shape))))
    gap = draw(st.sampled_from((1, 1, 2)))
    base = values(
        [shape[i] for i in order[:-1]] + [shape[i] * gap for i in order[-1:]], dtype, draw
    )
    spaced = base[..., ::gap] if shape else base
    return spaced.transpose([order.index(i) for i in range(len(shape))])


def values(shape, dtype, draw):
    """Multiples of a quarter: few, so that there are ties, and small, so that sums are exact."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    whole = rng.integers(-8, 9, tuple(shape))
    return np.asarray(whole / (1 if dtype == "int64" else 4), dtype)


def dims_of(rank):
    """A dimension of a tensor of this rank, counted from either end."""
    return st.integers(-max(rank, 1), max(rank, 1) - 1)


def some_dims(rank, least=0):
    """Dimensions of a tensor of this rank, each once, in any order; without a least, None too."""
    room = max(rank, 1)
    dims = st.lists(dims_of(rank), min_size=least, max_size=room, unique_by=lambda d: d % room)
    return dims.map(tuple) if least else st.none() | dims.map(tuple)


# ------------------------------------------------------------------------- comparison with PyTorch
def as_torch(torch, value):
    """The same elements in the same layout for PyTorch; anything but an array unchanged."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], np.ndarray):
        return [as_torch(torch, item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def as_ours(value):
    """The same elements in the same layout for aotlite; anything but an array unchanged."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], np.ndarray):
        return [as_ours(item) for item in value]
    return from_numpy(value) if isinstance(value, np.ndarray) else value


def torch_numpy(theirs):
    theirs = theirs.detach()
    return theirs.float().numpy() if theirs.dtype.itemsize == 2 else theirs.numpy()


def assert_same(theirs, ours):
    """Dtype, shape, strides and values of one result, or of each of several."""
    if isinstance(theirs, (list, tuple)):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            assert_same(one, other)
        return
    assert str(theirs.dtype).removeprefix("torch.") == ours.dtype.name
    assert tuple(theirs.shape) == ours.shape
    assert theirs.stride() == ours.stride()
    assert_close(torch_numpy(theirs), ours.detach().array, ours.dtype.name)


def assert_close(expected, got, dtype):
    tolerance = TOLERANCE.get(dtype, 0)
    got = got.astype(expected.dtype)
    finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind in "fc" else expected
    scale = max(1.0, float(np.max(finite, initial=0)))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


def compare(torch, name, theirs, *args, **kwargs):
    """Checks that the op `name` has the values, dtype and strides of `theirs`."""
    expected = theirs(*[as_torch(torch, a) for a in args], **kwargs)
    assert_same(expected, call(name, *[as_ours(a) for a in args], **kwargs))


# --------------------------------------------------------------------------------------- gradients
def first_result(result):
    return result[0] if isinstance(result, (list, tuple)) else result


def cotangent(shape):
    """Fixed weights of the results, all different and none zero."""
    count = int(np.prod(shape))
    return np.cos(np.arange(count, dtype=np.float64) + 0.5).reshape(shape)


def compare_gradients(torch, ours, theirs, *arrays):
    """Checks that first and second gradients of the first result equal PyTorch's, in float64."""
    mine = [from_numpy(a.copy()).requires_grad_() for a in arrays]
    yours = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    out, other = first_result(ours(*mine)), first_result(theirs(*yours))
    weight = cotangent(out.shape)
    got = grad((out * from_numpy(weight)).sum(), mine, create_graph=True)
    expected = torch.autograd.grad(
        (other * torch.from_numpy(weight)).sum(), yours, create_graph=True
    )
    for a, b in zip(expected, got, strict=True):
        assert tuple(a.shape) == b.shape
        assert_close(a.detach().numpy(), b.detach().array, "float64")
    _compare_second(torch, mine, got, yours, expected)


def _compare_second(torch, mine, got, yours, expected):
    if not any(a.requires_grad for a in expected):
        assert not any(b.requires_grad for b in got) or _all_zero(_second(got, mine))
        return
    theirs = torch.autograd.grad(
        sum((a * torch.from_numpy(cotangent(a.shape))).sum() for a in expected),
        yours,
        allow_unused=True,
    )
    for array, a, b in zip(yours, theirs, _second(got, mine), strict=True):
        wanted = np.zeros(array.shape) if a is None else a.numpy()
        found = np.zeros(array.shape) if b is None else b.array
        assert_close(wanted, found, "float64")


def _second(got, mine):
    weighed = [(b * from_numpy(cotangent(b.shape))).sum() for b in got]
    total = weighed[0]
    for more in weighed[1:]:
        total = total + more
    if not total.requires_grad:
        return [None] * len(mine)
    return grad(total, mine, allow_unused=True)


def _all_zero(grads):
    return all(g is None or not g.array.any() for g in grads)


def check_gradients(function, *arrays):
    """Checks that first and second gradients agree with central differences.

    Float64 with a step of 1e-5: the difference quotient is off by about 1e-10 times the third
    derivative, and by 1e-11 of rounding; 1e-6 leaves room for both.
    """

    def value(*operands):
        out = first_result(function(*operands))
        return (out * from_numpy(cotangent(out.shape))).sum()

    def slope(*operands):
        leaves = [o if o.requires_grad else o.requires_grad_() for o in operands]
        parts = grad(value(*leaves), leaves, create_graph=True)
        return sum(
            ((p * from_numpy(cotangent(p.shape))).sum() for p in parts[1:]),
            (parts[0] * from_numpy(cotangent(parts[0].shape))).sum(),
        )

    for scalar in (value, slope):
        _check_differences(scalar, arrays)


def _check_differences(scalar, arrays):
    leaves = [from_numpy(a.copy()).requires_grad_() for a in arrays]
    total = scalar(*leaves)
    found = [None] * len(leaves)
    if total.requires_grad:
        found = grad(total, leaves, allow_unused=True)
    for position, exact in enumerate(found):
        quotient = _differences(scalar, arrays, position)
        exact = np.zeros(quotient.shape) if exact is None else exact.array
        np.testing.assert_allclose(exact, quotient, rtol=1e-6, atol=1e-6)


def _differences(scalar, arrays, position, step=1e-5):
    quotient = np.zeros(arrays[position].shape)
    for index in np.ndindex(quotient.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[position][index] += sign * step
            ends.append(scalar(*[from_numpy(a) for a in moved]).item())
        quotient[index] = (ends[0] - ends[1]) / (2 * step)
    return quotient
