"""Reductions and scans equal PyTorch's: values, dtypes, strides, gradients, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError
from aotlite.ir.op import OPS
from aotlite.ir.op.schema import REQUIRED
from tests.ir.helpers.op_oracle import (
    FLOATS,
    as_ours,
    assert_same,
    check_gradients,
    compare,
    compare_gradients,
    dims_of,
    some_dims,
    strided_arrays,
)

EXAMPLES = settings(max_examples=40)


# ------------------------------------------------------------------------------ with PyTorch
@pytest.mark.torch
@pytest.mark.parametrize("name", ["sum", "any", "all"])
@EXAMPLES
@given(data=st.data())
def test_sums_and_truth_equal_torch(torch, name, data):
    a = data.draw(strided_arrays())
    dim, keepdim = data.draw(some_dims(a.ndim)), data.draw(st.booleans())
    compare(torch, name, getattr(torch, name), a, dim=dim, keepdim=keepdim)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["mean", "var"])
@EXAMPLES
@given(data=st.data())
def test_averages_equal_torch(torch, name, data):
    """Means of nothing and variances of one element are nan in both."""
    a = data.draw(strided_arrays(dtypes=FLOATS))
    dim, keepdim = data.draw(some_dims(a.ndim)), data.draw(st.booleans())
    more = {"correction": data.draw(st.sampled_from((0, 1, 2)))} if name == "var" else {}
    compare(torch, name, getattr(torch, name), a, dim=dim, keepdim=keepdim, **more)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["amax", "amin", "logsumexp"])
@EXAMPLES
@given(data=st.data())
def test_extremes_equal_torch(torch, name, data):
    a = data.draw(strided_arrays(min_size=1))
    dim, keepdim = data.draw(some_dims(a.ndim, least=1)), data.draw(st.booleans())
    compare(torch, name, getattr(torch, name), a, dim=dim, keepdim=keepdim)


@pytest.mark.torch
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["prod", "argmax", "argmin", "max_dim", "min_dim"])
@EXAMPLES
@given(data=st.data())
def test_reductions_over_one_dimension_equal_torch(torch, name, data):
    kinds = FLOATS + ("int64",)
    a = data.draw(strided_arrays(dtypes=kinds, min_size=0 if name == "prod" else 1))
    dim, keepdim = data.draw(dims_of(a.ndim)), data.draw(st.booleans())
    theirs = getattr(torch, name.removesuffix("_dim"))
    compare(
        torch, name, lambda *args, **kw: tuple_of(theirs(*args, **kw)), a, dim=dim, keepdim=keepdim
    )


def tuple_of(result):
    """A named tuple of PyTorch as a tuple."""
    return tuple(result) if isinstance(result, tuple) else result


@pytest.mark.torch
@pytest.mark.parametrize("name", ["prod", "argmax", "argmin"])
@EXAMPLES
@given(a=strided_arrays(dtypes=(*FLOATS, "int64"), min_size=1))
def test_reductions_of_everything_equal_torch(torch, name, a):
    compare(torch, name, getattr(torch, name), a)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cumsum", "softmax", "log_softmax"])
@EXAMPLES
@given(data=st.data())
def test_scans_and_softmax_equal_torch(torch, name, data):
    a = data.draw(strided_arrays(dtypes=(*FLOATS, "int64") if name == "cumsum" else FLOATS))
    compare(torch, name, getattr(torch, name), a, data.draw(dims_of(a.ndim)))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "var", "cumsum", "softmax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_accumulate_in_float32(torch, name, dtype):
    """Added up in float16, values near 1 stop growing at 2048; in bfloat16 at 256."""
    values = np.random.default_rng(0).uniform(0.9, 1.1, 3000).astype("f4")
    theirs = torch.from_numpy(values).to(getattr(torch, dtype))
    ours = al.from_numpy(values).to(getattr(al, dtype))
    args = (0,) if name in ("cumsum", "softmax") else ()
    assert_same(getattr(theirs, name)(*args), getattr(ours, name)(*args))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "softmax", "log_softmax"])
def test_a_given_dtype_is_that_of_the_computation(torch, name):
    """2**24 + 1 is no float32: the cast comes before the sum."""
    values = np.array([1 << 24, 1, 0], "i4")
    args = () if name in ("sum", "mean", "prod") else (0,)
    theirs = getattr(torch.from_numpy(values), name)(*args, dtype=torch.float64)
    assert_same(theirs, getattr(al.from_numpy(values), name)(*args, dtype=al.float64))


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["amax", "amin", "argmax", "argmin", "max", "min", "sum", "logsumexp"]
)
@pytest.mark.parametrize(
    "values",
    [[1.0, np.nan, 3.0, np.nan], [-np.inf, -np.inf], [np.inf, 1.0], [np.inf, -np.inf], [2.0, 2.0]],
)
def test_special_values_equal_torch(torch, name, values):
    a = np.array(values, "f4")
    theirs = getattr(torch.from_numpy(a), name)(0)
    assert_same(tuple_of(theirs), getattr(al.from_numpy(a), name)(0))


def _along_dim() -> list[str]:
    """The ops of one operand and a dimension, whose other parameters have defaults."""
    found = []
    for name, op in OPS.items():
        first, *rest = op.schema.parameters or (None,)
        dims = [p for p in rest if p.name == "dim"]
        others = [p for p in rest if p.name != "dim" and p.default is REQUIRED]
        if first is not None and first.name == "self" and dims == rest[:1] and dims and not others:
            found.append(name)
    return found


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", _along_dim())
def test_a_number_is_one_element_to_ops_along_a_dimension(name, dtype):
    """What a kernel does without dimensions is what it does with one of one element."""
    for value in (1.0, -1.0, 1000.0, -1000.0, 0.0, -0.0, np.inf, -np.inf, np.nan):
        number = al.tensor(value, dtype=getattr(al, dtype))
        try:
            found = getattr(al, name)(number.clone(), dim=0)
        except (al.ShapeError, IndexOutOfRangeError):  # of one dimension at least, as in PyTorch
            continue
        expected = getattr(al, name)(number.reshape(1), dim=0)
        for mine, theirs in zip(_tensors(found), _tensors(expected), strict=True):
            np.testing.assert_array_equal(mine.numpy(), theirs.reshape(mine.shape).numpy())
            signs = [np.signbit(each.numpy()[()]) for each in (mine, theirs.reshape(mine.shape))]
            assert np.isnan(mine.numpy()) or signs[0] == signs[1]


@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "prod", "amax", "var", "logsumexp"])
def test_loops_begin_a_sum_with_zero_whatever_the_dimensions(name):
    """As the kernels do: a sum of -0.0 alone is 0.0."""
    call = getattr(al, name)
    for shape in ((), (1,), (1, 1)):
        x = al.zeros(shape).neg()
        dims = {"dim": 0 if shape else ()} if name == "logsumexp" else {}
        with np.errstate(all="ignore"):
            eager, compiled = call(x, **dims), al.compile(call, backend="loops")(x, **dims)
        np.testing.assert_array_equal(eager.numpy(), compiled.numpy())
        np.testing.assert_array_equal(np.signbit(eager.numpy()), np.signbit(compiled.numpy()))


def _tensors(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.torch
def test_uint8_masks_stay_uint8(torch):
    compare(torch, "any", torch.any, np.array([0, 3], "u1"))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_are_three_ops_by_argument(torch, name):
    a, b = np.array([[1.0, 5.0], [7.0, 2.0]], "f4"), np.array([4.0, 4.0], "f4")
    ours, theirs = al.from_numpy(a), torch.from_numpy(a)
    for args in ((), (1,), (0, True), (b,)):
        mine = [as_ours(x) for x in args]
        yours = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in args]
        assert_same(tuple_of(getattr(theirs, name)(*yours)), getattr(ours, name)(*mine))


# ---------------------------------------------------------------------------------- gradients
CASES: dict[str, list[tuple]] = {
    "sum": [(None, False), ((0,), False), ((1, 0), True)],
    "mean": [(None, False), ((1,), False), ((-1, 0), True)],
    "prod": [(None, False), (0, False), (1, True)],
    "amax": [(None, False), ((0,), False), ((1,), True)],
    "amin": [(None, False), ((0,), True)],
    "max": [(0,), (1, True)],
    "min": [(0,), (1, True)],
    "var": [((0,),), (None,)],
    "cumsum": [(0,), (1,)],
    "logsumexp": [((0,), False), ((0, 1), True)],
    "softmax": [(0,), (1,)],
    "log_softmax": [(0,), (1,)],
}
SMOOTH = ("sum", "mean", "prod", "var", "cumsum", "logsumexp", "softmax", "log_softmax")
PAIRS = [(name, args) for name, cases in CASES.items() for args in cases]


def applied(name, args):
    def function(x):
        if name == "prod" and args[0] is None:
            return x.prod()  # the one overload of PyTorch that takes no dim
        return getattr(x, name)(*args)

    return function


@pytest.mark.torch
@pytest.mark.parametrize(("name", "args"), PAIRS)
def test_gradients_equal_torch(torch, name, args):
    a = np.array([[0.5, -1.0, 2.0, 0.5], [0.5, 3.0, 2.0, -0.25], [1.0, 0.75, -2.0, 0.5]])
    compare_gradients(torch, applied(name, args), applied(name, args), a)


@pytest.mark.parametrize(("name", "args"), [pair for pair in PAIRS if pair[0] in SMOOTH])
def test_gradients_equal_differences(name, args):
    a = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]])
    check_gradients(applied(name, args), a)


@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_prod_has_its_gradients_at_zeros(zeros, size):
    """`prod / x` would be 0/0; the second gradient with two zeros is where most formulas fail."""
    a = np.array([1.5, -2.0, 0.5, 3.0, -1.0])[:size]
    a[[z for z in zeros if z < size]] = 0
    check_gradients(lambda x: x.prod(), a)


def test_prod_of_an_empty_tensor_has_an_empty_gradient():
    x = al.zeros(0, requires_grad=True)
    x.prod().backward()
    assert x.grad.shape == (0,)


@pytest.mark.torch
def test_a_variance_of_one_element_has_a_nan_gradient(torch):
    compare_gradients(torch, lambda x: x.var(0), lambda x: x.var(0), np.array([[1.0, 2.0]]))


def test_ties_share_in_amax_and_not_in_max():
    x = al.tensor([2.0, 1.0, 2.0], requires_grad=True)
    x.amax(0).backward()
    assert x.grad.tolist() == [0.5, 0.0, 0.5]
    x.grad = None
    x.max(0)[0].backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "operands", "results"),
    [
        ("sum", (), ()),
        ("mean", (), ()),
        ("amax", (0,), (0,)),
        ("max_dim", (), (1,)),
        ("var", (0,), ()),
        ("cumsum", (), ()),
        ("logsumexp", (0,), (0,)),
        ("softmax", (), (0,)),
        ("log_softmax", (), (0,)),
    ],
)
def test_reductions_save_what_pytorch_saves(name, operands, results):
    assert OPS[name].vjp.saves((0,)) == (operands, results)


# ----------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.sum(2), IndexOutOfRangeError, "sum: dimension is 2, expected -2 to 1"),
        (
            lambda x: x.sum((0, -2)),
            ArgumentError,
            "sum: dimensions are (0, -2), expected each dimension once",
        ),
        (
            lambda x: x.long().mean(),
            DTypeError,
            "mean: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda x: x.long().softmax(0),
            DTypeError,
            "softmax: dtype is int64, expected a floating one",
        ),
        (
            lambda x: x.narrow(0, 0, 0).amax(),
            IndexOutOfRangeError,
            "amax: dimension 0 of shape (0, 3) has size 0, expected at least 1",
        ),
        (
            lambda x: x.narrow(1, 0, 0).argmin(1),
            IndexOutOfRangeError,
            "argmin: dimension 1 of shape (2, 0) has size 0, expected at least 1",
        ),
        (
            lambda x: x.to(al.complex64).amax(),
            DTypeError,
            "amax: dtype is complex64, expected a real one: complex has no order",
        ),
        (lambda x: x.cumsum(3), IndexOutOfRangeError, "cumsum: dimension is 3, expected -2 to 1"),
        (
            lambda x: x.sum("all"),
            ArgumentError,
            "sum: argument 'dim' is 'all', expected int[]?",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(call, error, message):
    with pytest.raises(error) as caught:
        call(al.ones(2, 3))
    assert str(caught.value) == message
