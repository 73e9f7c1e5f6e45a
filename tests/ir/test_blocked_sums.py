"""Kernels' sums of many numbers are as exact as sums of few (OPS-22)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.arrays import reducer
from aotlite.ir.ops.reduce import blocked_sums
from aotlite.ir.ops.reduce.blocked_sums import is_in_parts, sum_over

ROWS = 300_007
LONG_SUMS = {
    "sum": (lambda x, dim: x.sum(dim), lambda a, dim: a.sum(dim)),
    "mean": (lambda x, dim: x.mean(dim), lambda a, dim: a.mean(dim)),
    "nansum": (lambda x, dim: x.nansum(dim), lambda a, dim: a.sum(dim)),
    "norm": (lambda x, dim: x.norm(dim=dim), lambda a, dim: np.sqrt((a * a).sum(dim))),
    "logsumexp": (lambda x, dim: x.logsumexp(dim).exp(), lambda a, dim: np.exp(a).sum(dim)),
    "softmax": (lambda x, dim: x.softmax(dim[0]).amax(dim), None),
    "log_softmax": (lambda x, dim: x.log_softmax(dim[0]).exp().amax(dim), None),
    "var": (lambda x, dim: (x + 1000).var(dim), lambda a, dim: a.var(dim, ddof=1)),
    "std": (lambda x, dim: (x + 1000).std(dim), lambda a, dim: a.std(dim, ddof=1)),
}
LAYOUTS = {
    "rows": (lambda a: a, (0,)),
    "transposed": (lambda a: a.T, (1,)),
    "some columns": (lambda a: a[:, :2], (0,)),
    "all of some columns": (lambda a: a[:, :2], (0, 1)),
    "two axes": (lambda a: a[:300_000].reshape(600, 500, 3), (0, 1)),
    "outer axes": (lambda a: a[:300_000].reshape(600, 3, 500), (0, 2)),
}


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    return np.random.default_rng(0).random((ROWS, 3), np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LONG_SUMS)
def test_a_long_column_is_summed_as_exactly_as_a_row(name, layout, numbers):
    """Added up in order, float32 numbers lose three digits here; a variance loses all."""
    function, exact = LONG_SUMS[name]
    see, dims = LAYOUTS[layout]
    if exact is None:  # a softmax has one dimension
        if len(dims) > 1:
            return
        exact = lambda a, dim: np.exp(a).max(dim) / np.exp(a).sum(dim)
    array = see(numbers)
    tolerance = 2e-3 if name in ("var", "std") else 5e-6
    expected = pytest.approx(exact(array.astype(float), dims), rel=tolerance)
    x = al.from_numpy(array)
    for _ in range(2):  # by the kernel, and by the way that was kept
        assert function(x, dims).numpy() == expected


def test_ones_beyond_the_largest_odd_number_of_float32_are_counted():
    count = (1 << 24) + 1000
    ones = al.ones(()).expand(count, 2)
    assert ones.sum(0).tolist() == [count, count]
    compiled = al.compile(lambda x: x.sum(0), backend="reference")
    assert compiled(ones).tolist() == [count, count]


def test_sixteen_bits_are_summed_in_float32():
    x = al.ones(1 << 15, 3, dtype=al.float16) * 0.5
    assert x.sum(0).tolist() == [1 << 14] * 3
    assert x.bfloat16().sum(0).tolist() == [1 << 14] * 3


def test_what_a_backward_and_a_batch_norm_sum_is_exact(numbers):
    x = al.from_numpy(numbers)
    bias = al.zeros(3, requires_grad=True)
    ((x + bias) * x).sum().backward()
    assert bias.grad.numpy() == pytest.approx(numbers.sum(0, dtype=float), rel=5e-6)
    _, mean, var = al.ops.batch_norm_train(x + 1000, None, None, 0.0)
    assert mean.numpy() == pytest.approx(numbers.mean(0, dtype=float) + 1000, rel=1e-6)
    assert var.numpy() == pytest.approx(numbers.astype(float).var(0), rel=2e-3)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(blocked_sums, "PART", 4)
    monkeypatch.setattr(blocked_sums, "LONG", 6)
    monkeypatch.setattr(blocked_sums, "WIDE", 9)


@st.composite
def windows(draw):
    """An array of whole numbers with any strides, zeros and negative ones among them; axes."""
    shape = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    wide = tuple(n * draw(st.integers(1, 2)) for n in shape)
    a = np.arange(np.prod(wide, dtype=int), dtype=np.int64).reshape(wide) ** 2 % 1009
    a = a[tuple(slice(0, n) for n in shape)]
    a = a[tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in shape)]
    a = a.transpose(draw(st.permutations(range(a.ndim))))
    repeated = [i for i in range(a.ndim) if a.shape[i] and draw(st.integers(0, 3)) == 0]
    part = a[tuple(slice(0, 1) if i in repeated else slice(None) for i in range(a.ndim))]
    a = np.broadcast_to(part, a.shape)
    axes = draw(st.sets(st.integers(0, a.ndim - 1)).map(sorted))
    return a, tuple(i - draw(st.sampled_from([0, a.ndim])) for i in axes)


@pytest.mark.usefixtures("small_parts")
@settings(max_examples=400)
@given(windows(), st.booleans(), st.booleans())
def test_the_sum_of_parts_is_the_sum(window, keepdims, knows_strides):
    a, axes = window
    seen = a if knows_strides else a.view(_WithoutStrides)
    found = sum_over(_SHORT if knows_strides else np, seen, axes, keepdims=keepdims)
    expected = np.sum(a, axis=axes, keepdims=keepdims)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)
    if not is_in_parts(a.shape, a.strides, tuple(i % a.ndim for i in axes)):
        assert _columns(a, axes) <= 6


class _WithoutStrides(np.ndarray):
    """As an array of a library that says nothing of its strides."""

    strides = None  # type: ignore[assignment]


def _columns(a: np.ndarray, axes: tuple[int, ...]) -> int:
    """How many numbers NumPy adds up in order: all, or as many as its inner loop is run."""
    if not a.size or not axes:
        return 0
    kept = [i for i in range(a.ndim) if i not in [axis % a.ndim for axis in axes]]
    places = [kept.index(i) if i in kept else -1 for i in range(a.ndim)]
    loops = np.nditer(
        [None, a],
        ["external_loop", "reduce_ok"],
        [["readwrite", "allocate"], ["readonly"]],
        op_axes=[places, list(range(a.ndim))],
    )
    total, line = loops.value
    count = a.size // loops.operands[0].size
    return count if total.strides[0] else count // len(line)


def _checked_sum(a, axis, keepdims):
    assert _columns(a, axis) <= 6
    return np.sum(a, axis=axis, keepdims=keepdims)


_SHORT = SimpleNamespace(sum=_checked_sum, reshape=np.reshape)
"""NumPy, if it is asked for short sums only."""


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("dtype", [al.bool, al.int32, al.float32, al.bfloat16, al.complex64])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
def test_a_reducer_of_numpy_gives_the_bits_of_numpys_function(name, dtype, axes):
    a = np.random.default_rng(0).normal(size=(5, 7)).astype(dtype.numpy)
    if dtype is al.bfloat16 and name in ("any", "all"):
        a = a.astype(bool)  # as the kernels of these ops do
    for keepdims in (False, True):
        found = reducer(np, name)(a, axis=axes, keepdims=keepdims)
        asked = getattr(np, name)(a, axis=axes, keepdims=keepdims)
        assert found.dtype == asked.dtype and found.tobytes() == asked.tobytes()
