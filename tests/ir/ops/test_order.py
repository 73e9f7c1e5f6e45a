"""Order, scans, norms, forms of reductions: ties, nan, named results, 16 bits, refusals."""

import pickle

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError
from tests.ir.helpers.op_oracle import assert_same

TIES = np.array([[2.0, 1.0, 2.0, 1.0, 2.0], [3.0, 3.0, 1.0, 0.0, 1.0]])


# ------------------------------------------------------------------------------------- ties
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "args"),
    [("topk", (3,)), ("kthvalue", (3,)), ("median", (1,)), ("nanmedian", (1,)), ("sort", ())],
)
def test_values_are_torchs_where_elements_tie(torch, name, args):
    """The indices may be others; they must lead to the values."""
    ties = np.tile(TIES, 10)
    theirs = getattr(torch.from_numpy(ties), name)(*args)
    ours = getattr(al.from_numpy(ties), name)(*args)
    assert theirs.values.tolist() == ours.values.tolist()
    index = ours.indices.numpy().reshape(2, -1)
    found = np.take_along_axis(ties, index, 1).reshape(ours.values.shape)
    assert found.tolist() == ours.values.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_keeps_the_order_of_equal_elements(dtype, descending):
    keys = np.random.default_rng(0).integers(0, 5, 200)
    found = al.from_numpy(keys).to(getattr(al, dtype)).sort(descending=descending)
    expected = sorted(range(200), key=lambda i: (-keys[i] if descending else keys[i], i))
    assert expected == found.indices.tolist()
    assert getattr(al, dtype) is found.values.dtype


# -------------------------------------------------------------------------- sixteen bits
@pytest.mark.torch
@pytest.mark.parametrize("name", ["cumprod", "logcumsumexp", "cummax", "std", "nansum", "norm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_are_rounded_once(torch, name, dtype):
    values = np.random.default_rng(0).uniform(0.95, 1.05, 60).astype("f4")
    theirs = torch.from_numpy(values).to(getattr(torch, dtype))
    ours = al.from_numpy(values).to(getattr(al, dtype))
    args = (0,) if "cum" in name else ()
    expected, got = getattr(theirs, name)(*args), getattr(ours, name)(*args)
    assert_same(tuple(expected) if isinstance(expected, tuple) else expected, got)


@pytest.mark.torch
@pytest.mark.parametrize("values", [[1, np.inf, np.inf], [np.inf, 1j, np.nan], [-np.inf] * 3])
def test_complex_logs_of_sums_of_exponentials_hold_infinities(torch, values):
    values = np.array(values, "complex128")
    found = al.from_numpy(values).logcumsumexp(0).numpy()
    expected = torch.from_numpy(values).logcumsumexp(0).numpy()
    np.testing.assert_array_equal(expected.real, found.real)


# -------------------------------------------------------------------------- named results
def test_several_results_have_names():
    x = al.tensor([[1.0, 5.0], [7.0, 2.0]])
    found = x.max(0)
    assert ("values", "indices") == found._fields
    assert [7.0, 5.0] == found.values.tolist() and [1, 0] == found.indices.tolist()
    assert "max" == type(found).__name__
    assert ("min", "max") == al.aminmax(x)._fields
    assert type(found) is type(al.compile(lambda x: x.max(0))(x))
    assert (1, 2) == pickle.loads(pickle.dumps(type(found)(1, 2)))


def test_other_spellings_of_parameters_are_taken():
    x = al.tensor([[1.0, 5.0], [7.0, 2.0]])
    assert [6.0, 9.0] == al.sum(input=x, axis=1).tolist()
    assert [[5.0], [7.0]] == x.max(axis=1, keepdims=True).values.tolist()
    assert [18.0, 4.5] == al.var(input=x, axis=0).tolist()


def test_several_results_go_to_a_tuple_of_out():
    values, indices = al.zeros(3), al.zeros(3, dtype=al.int64)
    al.sort(al.tensor([3.0, 1.0, 2.0]), out=(values, indices))
    assert [1.0, 2.0, 3.0] == values.tolist() and [1, 2, 0] == indices.tolist()


def test_the_median_of_nothing_is_nan():
    assert np.isnan(al.zeros(0).median().item())
    with pytest.raises(IndexOutOfRangeError, match="median: dimension 0 of shape"):
        al.zeros(0, dtype=al.int64).median()


@pytest.mark.parametrize("values", [[1.0, 2.0, np.inf, 0.5], [0.0, 0.0, 3.0], [2.0]])
def test_the_gradient_of_cumprod_is_a_sum_of_products(torch, values):
    """PyTorch's is nan next to an infinity; elsewhere both are the sums of products."""
    x = al.tensor(values, dtype=al.float64, requires_grad=True)
    x.cumprod(0).sum().backward()
    expected = [
        sum(np.prod(np.delete(values[: j + 1], k)) for j in range(k, len(values)))
        for k in range(len(values))
    ]
    np.testing.assert_array_equal(expected, x.grad.numpy())


# ----------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.sort(2), IndexOutOfRangeError, "sort: dimension is 2, expected -2 to 1"),
        (
            lambda x: x.to(al.complex64).sort(),
            DTypeError,
            "sort: dtype is complex64, expected a real one: complex has no order",
        ),
        (lambda x: x.topk(4), IndexOutOfRangeError, "topk: k is 4, expected 0 to 3"),
        (lambda x: x.topk(-1, 0), IndexOutOfRangeError, "topk: k is -1, expected 0 to 2"),
        (lambda x: x.bool().topk(1), DTypeError, "topk: dtype is bool, expected one of numbers"),
        (lambda x: x.kthvalue(0), IndexOutOfRangeError, "kthvalue: k is 0, expected 1 to 3"),
        (
            lambda x: x.narrow(1, 0, 0).mode(),
            IndexOutOfRangeError,
            "mode: dimension 1 of shape (2, 0) has size 0, expected at least 1",
        ),
        (
            lambda x: x.median(keepdim=True),
            ArgumentError,
            "median: argument 'keepdim' is True without 'dim', expected a dim too",
        ),
        (
            lambda x: x.max(keepdim=True),
            ArgumentError,
            "max: argument 'keepdim' is True without 'dim', expected a dim too",
        ),
        (lambda x: x.max(0.5), ArgumentError, "max_dim: argument 'dim' is 0.5, expected int"),
        (lambda x: x.var("a"), ArgumentError, "var: argument 'dim' is 'a', expected int[]?"),
        (
            lambda x: x.std(0, 1),
            ArgumentError,
            "std: argument 'unbiased' is 1, expected a bool alone",
        ),
        (
            lambda x: al.var_mean(x, 0, True, correction=1),
            ArgumentError,
            "var_mean: argument 'unbiased' is True beside 'correction', expected a bool alone",
        ),
        (
            lambda x: x.var(axes=0),
            ArgumentError,
            "var: the call does not fit (got an unexpected keyword argument 'axes'), expected "
            "var(self, dim=None, unbiased=None, keepdim=False, *, correction=None)",
        ),
        (
            lambda x: x.long().std(),
            DTypeError,
            "std: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda x: x.long().nanmean(),
            DTypeError,
            "nanmean: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda x: x.to(al.complex64).nansum(),
            DTypeError,
            "nansum: dtype is complex64, expected a real one: complex has no order",
        ),
        (lambda x: x.cummax(2), IndexOutOfRangeError, "cummax: dimension is 2, expected -2 to 1"),
        (
            lambda x: x.cumprod(-3),
            IndexOutOfRangeError,
            "cumprod: dimension is -3, expected -2 to 1",
        ),
        (
            lambda x: x.long().logcumsumexp(0),
            DTypeError,
            "logcumsumexp: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda x: x.norm("x"),
            ArgumentError,
            "norm: argument 'p' is 'x', expected a number, 'fro' or 'nuc'",
        ),
        (
            lambda x: x.narrow(0, 0, 0).norm(float("inf")),
            IndexOutOfRangeError,
            "linalg_vector_norm: dimension 0 of shape (0, 3) has size 0, expected at least 1",
        ),
        (
            lambda x: x.norm(dtype=al.float16),
            DTypeError,
            "linalg_vector_norm: argument 'dtype' is float16, expected a floating one that holds "
            "float32",
        ),
        (
            lambda x: x.long().norm(),
            DTypeError,
            "linalg_vector_norm: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda x: al.zeros(2, 3, dtype=al.int64).cumsum_(0, dtype=al.float32),
            DTypeError,
            "cumsum_: the destination has dtype int64, expected one that takes a result of float32",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(call, error, message):
    with pytest.raises(error) as caught:
        call(al.ones(2, 3))
    assert str(caught.value) == message


def test_diff_of_order_0_leaves_out_what_is_put_around():
    x = al.tensor([1.0, 2.0])
    assert x.diff(0, prepend=x).tolist() == [1.0, 2.0]


def test_the_imaginary_part_of_logsumexp_is_that_of_a_logarithm():
    x = al.tensor([1 + 4j, 2 - 9j, 0.5j])
    expected = np.log(np.exp(x.numpy().astype(np.complex128)).sum())
    np.testing.assert_allclose(x.logsumexp(0).numpy(), expected, rtol=1e-5)
