"""Values that CuPy's own functions would give otherwise than the CPU does."""

import ml_dtypes
import numpy as np
import pytest

import aotlite as al

INF, NAN = float("inf"), float("nan")


def both(device, function, *values):
    """The result on the CPU and on the device, as bytes of the host."""
    here = [al.tensor(v) for v in values]
    found = function(*[x.to(device) for x in here])
    return function(*here).numpy().tobytes(), found.cpu().numpy().tobytes()


QUOTIENTS = [1.0, 6.0, -1.0, 5.0, 0.0, -0.0, 6e4, INF, NAN]
DIVISORS = [0.1, -0.1, INF, -INF, 3.0, 0.0, -0.0, NAN]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("divisor", DIVISORS)
def test_floats_are_divided_as_whole_numbers_of_times(device, dtype, divisor):
    """CuPy rounds 1.0 / 0.1 to 10 first: 0.1 is a little more than a tenth."""
    values = np.array(QUOTIENTS, dtype)
    expected, found = both(device, lambda x: x.floor_divide(divisor), values)
    assert expected == found
    expected, found = both(
        device, lambda x, y: x.floor_divide(y), values, np.full_like(values, divisor)
    )
    assert expected == found


LARGE = np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 7, -7, 0])


@pytest.mark.parametrize("name", ["fmod", "remainder"])
@pytest.mark.parametrize("divisor", [2, 3, -3, 2**60 + 1, -1])
def test_remainders_of_large_integers_are_exact(device, name, divisor):
    """CuPy's fmod of integers goes by way of float64."""
    for other in (divisor, np.full_like(LARGE, divisor)):
        values = (LARGE,) if isinstance(other, int) else (LARGE, other)
        expected, found = both(device, lambda x, y=divisor: getattr(x, name)(y), *values)
        assert expected == found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_several_nans_is_found(device, name, dtype):
    """CuPy gives that of any thread."""
    values = np.array([[1.0, NAN, 2.0, NAN], [INF, 3.0, INF, -INF]]).astype(dtype)
    for dim, keepdim in ((None, False), (0, False), (1, True)):
        expected, found = both(
            device, lambda x, dim=dim, kept=keepdim: getattr(x, name)(dim, kept), values
        )
        assert expected == found
    for extreme in ("max", "min"):
        expected, found = both(
            device, lambda x, extreme=extreme: getattr(x, extreme)(1).indices, values
        )
        assert expected == found


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", ml_dtypes.bfloat16])
def test_a_zero_keeps_its_sign(device, dtype):
    """CuPy fills an array without dimensions, and what is contiguous, with zero bytes."""
    zero = np.array(-0.0).astype(dtype)
    x = al.tensor(zero).to(device)
    assert zero.tobytes() == x.cpu().numpy().tobytes()
    y = al.zeros(3, dtype=x.dtype, device=device)
    y[0] = x
    y[1:].fill_(-0.0)
    assert [True] * 3 == np.signbit(y.cpu().numpy().real.astype(float)).tolist()
    assert "-0" in str(al.tensor(-0.0, device=device).item())


@pytest.mark.parametrize("batch", [(), (2,)])
def test_no_right_sides_have_no_solutions(device, batch):
    """CuPy divides by the bytes of one."""
    a = al.eye(3, device=device).expand((*batch, 3, 3))
    assert (*batch, 3, 0) == al.linalg.solve(a, al.zeros((*batch, 3, 0), device=device)).shape
    with pytest.raises(al.AotliteError, match="singular"):
        al.linalg.solve(a * 0, al.zeros((*batch, 3, 0), device=device))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("descending", [False, True])
def test_nans_of_both_signs_are_the_largest(device, dtype, descending):
    """CuPy sorts a line of floats by their bits; processors make nans that have a sign."""
    values = np.array([1.0, -NAN, -INF, NAN, INF, 0.0, -0.0], dtype)
    for shape in ((7,), (1, 7)):
        expected, found = both(
            device, lambda x: x.sort(descending=descending).indices, values.reshape(shape)
        )
        assert expected == found
