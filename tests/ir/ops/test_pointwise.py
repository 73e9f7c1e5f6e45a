"""Pointwise ops: numbers beside narrow dtypes, operators, what is refused and with which words."""

import operator

import ml_dtypes
import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError

# --------------------------------------------------------------- numbers beside narrow dtypes
FUNCTIONS = "add sub rsub mul div pow remainder fmod floor_divide lt eq copysign".split()


@pytest.mark.torch
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("number", [0.1, -2.7, 1 / 3])
def test_a_number_beside_bfloat16_is_rounded_where_pytorch_rounds_it(torch, function, number):
    """Products and quotients take it in float32, others as the tensor would hold it."""
    bits = np.arange(0x3C00, 0x4200, dtype=np.uint16)
    values = bits.view(ml_dtypes.bfloat16)
    ours = call(function, al.from_numpy(values.copy()), number).numpy()
    x = torch.from_numpy(bits.copy()).view(torch.bfloat16)
    theirs = getattr(torch, function)(x, number).float().numpy()
    np.testing.assert_array_equal(theirs, ours.astype(np.float32))


@pytest.mark.torch
@pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if f != "rsub"] + ["atan2", "hypot", "maximum"]
)
@pytest.mark.parametrize("first", [False, True])
def test_a_wider_tensor_of_no_dimensions_counts_where_pytorch_counts_it(torch, function, first):
    """As the second factor or divisor it counts as a number; else it is rounded to 16 bits."""
    bits = np.arange(0x3C00, 0x4200, dtype=np.uint16)
    ours = al.from_numpy(bits.view(ml_dtypes.bfloat16).copy()), al.tensor(0.3)
    theirs = torch.from_numpy(bits.copy()).view(torch.bfloat16), torch.tensor(0.3)
    if first:
        ours, theirs = ours[::-1], theirs[::-1]
    expected = getattr(torch, function)(*theirs).float().numpy()
    np.testing.assert_array_equal(expected, call(function, *ours).numpy().astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [(al.uint8, 300, 45), (al.uint8, -1, 0), (al.int8, 128, -127), (al.int64, 5, 6)],
)
def test_integers_wrap_and_so_do_numbers_beside_them(dtype, number, expected):
    x = al.tensor([1], dtype=dtype)
    assert [expected] == (x + number).tolist()
    assert [expected] == al.compile(lambda x: x + number)(x).tolist()
    assert [expected] == x.add_(number).tolist()


def test_sixteen_bits_are_rounded_once():
    """Twice would give 2048: 2049 is halfway between the neighbors 2048 and 2050."""
    x = al.tensor([2048.0], dtype=al.float16)
    assert [2050.0] == x.add(al.tensor([1.0009765625], dtype=al.float16), alpha=1.5).tolist()


# ------------------------------------------------------------------------------------ operators
TWO_SIDED = [
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.pow,
]


@pytest.mark.torch
@pytest.mark.parametrize("function", TWO_SIDED)
@pytest.mark.parametrize("number", [3, 2])
def test_operators_of_integers_equal_torch_on_either_side(torch, function, number):
    values = [1, 2, 5, 6]
    ours, theirs = al.tensor(values), torch.tensor(values)
    assert function(theirs, number).tolist() == function(ours, number).tolist()
    assert function(number, theirs).tolist() == function(number, ours).tolist()
    assert function(theirs, theirs).tolist() == function(ours, ours).tolist()


@pytest.mark.parametrize(
    "function",
    [
        operator.ifloordiv,
        operator.imod,
        operator.iand,
        operator.ior,
        operator.ixor,
        operator.ilshift,
        operator.irshift,
        operator.ipow,
    ],
)
def test_in_place_operators_write_their_first_operand(function):
    x = al.tensor([1, 2, 5, 6])
    expected = function(np.array([1, 2, 5, 6]), 3).tolist()
    given = x
    version = x.version
    x = function(x, 3)
    assert x is given
    assert x.version == version + 1
    assert expected == x.tolist()


def test_inversion_is_of_bits_of_integers_and_logical_of_bool():
    assert [-1, -2] == (~al.tensor([0, 1])).tolist()
    assert [True, False] == (~al.tensor([False, True])).tolist()


def test_a_write_of_what_has_no_slope_cuts_the_gradient():
    """It let the gradient of the old values through."""
    x = al.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.gt_(4.0)
    (found,) = al.autograd.grad(y.sum(), x)
    assert [0.0, 0.0] == found.tolist()


# ------------------------------------------------------------------------------------- bad input
def refusal(kind, function):
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


I = al.tensor([1, 2])
F = al.tensor([1.0, 2.0])
B = al.tensor([True, False])
U = al.tensor([1, 2], dtype=al.uint16)


@pytest.mark.parametrize(
    ("kind", "function", "text"),
    [
        (ArgumentError, lambda: I // 0, "floor_divide: a divisor is 0, expected integers other"),
        (ArgumentError, lambda: I % al.tensor([0, 1]), "remainder: a divisor is 0, expected"),
        (ArgumentError, lambda: I.fmod(0), "fmod: a divisor is 0, expected integers other than 0"),
        (ArgumentError, lambda: I**-1, "pow: exponent is -1, expected at least 0, and a int64"),
        (ArgumentError, lambda: F.add(F, alpha=2j), "add: alpha is 2j, expected a number that"),
        (ArgumentError, lambda: I.add(I, alpha=0.5), "add: alpha is 0.5, expected a number that"),
        (ArgumentError, lambda: I.add(I, alpha=True), "add: alpha is True, expected a number, not"),
        (
            ArgumentError,
            lambda: F.div(2, rounding_mode="up"),
            "div: rounding_mode is 'up', expected None, 'floor' or 'trunc'",
        ),
        (ArgumentError, lambda: F.clamp(), "clamp: min and max are both None, expected at least"),
        (ArgumentError, lambda: F.clamp(F, 1), "clamp: one bound is a tensor and one a number"),
        (ArgumentError, lambda: al.celu(F, 0), "celu: alpha is 0, expected another number"),
        (ArgumentError, lambda: al.softshrink(F, -1), "softshrink: lambd is -1, expected at least"),
        (DTypeError, lambda: F & 1, "bitwise_and: dtype is float32, expected bool or an integer"),
        (DTypeError, lambda: B << 1.0, "bitwise_left_shift: dtype is float32, expected an integer"),
        (DTypeError, lambda: U + U, "add: dtype is uint16, expected one with arithmetic"),
        (DTypeError, lambda: I.silu(), "silu: dtype is int64, expected a floating or complex one"),
        (DTypeError, lambda: I.frac(), "frac: dtype is int64, expected a floating one"),
        (DTypeError, lambda: I.round(decimals=2), "round: dtype is int64, expected a floating one"),
        (
            DTypeError,
            lambda: F.lerp(F.double(), 0.5),
            "lerp: end has dtype float64, expected float",
        ),
        (DTypeError, lambda: F.lerp(F, I), "lerp: weight has dtype int64, expected float32, that"),
        (DTypeError, lambda: F.isclose(I), "isclose: other has dtype int64, expected float32"),
        (DTypeError, lambda: al.complex(F, I), "complex: imag has dtype int64, expected float32"),
        (DTypeError, lambda: F.addcmul(F, F, value=1j), "addcmul: a number is complex, expected a"),
        (DTypeError, lambda: F.heaviside(I), "heaviside: values has dtype int64, expected float32"),
        (ShapeError, lambda: al.prelu(al.ones(2, 3), al.ones(2)), "prelu: weight has 2 elements"),
        (
            ShapeError,
            lambda: al.prelu(F, al.ones(1, 1)),
            "prelu: weight has shape (1, 1), expected",
        ),
        (
            ShapeError,
            lambda: F.atan2(al.ones(3)),
            "atan2: shapes are (2,) and (3,), expected equal",
        ),
    ],
)
def test_bad_input_is_refused_by_name(kind, function, text):
    assert refusal(kind, function).startswith(text)


@pytest.mark.parametrize("name", ["floor_divide_", "remainder_", "fmod_", "div_floor_"])
def test_a_division_by_zero_leaves_the_destination_as_it_was(name):
    x = al.tensor([5, 6, 7])
    refusal(ArgumentError, lambda: call(name, x, al.tensor([1, 0, 2])))
    assert ([5, 6, 7], 0) == (x.tolist(), x.version)
