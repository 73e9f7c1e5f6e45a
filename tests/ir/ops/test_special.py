"""Special functions against mpmath, which computes with as many digits as one asks for."""

import mpmath
import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call

RNG = np.random.default_rng(0)
mpmath.mp.dps = 40


def units(name, exact, points, *args):
    """The largest distance from the exact values in units in the last place, above `NEAR_ROOT`."""
    got = call(name, al.from_numpy(points.copy()), *args).numpy()
    expected = np.array([float(exact(mpmath.mpf(float(x)))) for x in points])
    size = np.maximum(np.abs(expected), NEAR_ROOT)
    return float(np.max(np.abs(got - expected) / np.spacing(size)))


NEAR_ROOT = 0.5
"""Near a root the error is a few units of numbers of this size: there sums cancel."""

BELOW = -RNG.uniform(0.01, 20, 200)
ABOVE = np.concatenate(
    [RNG.uniform(0, 3, 200), RNG.uniform(3, 14, 100), 10 ** RNG.uniform(-10, 4, 100)]
)
AROUND = np.concatenate([k + RNG.uniform(-1e-6, 1e-6, 50) for k in (1, 2)])


def log_gamma(x):
    return mpmath.log(abs(mpmath.gamma(x)))


@pytest.mark.parametrize(
    ("name", "exact", "points", "limit"),
    [
        ("lgamma", log_gamma, ABOVE, 4),
        ("lgamma", log_gamma, BELOW, 8),
        ("digamma", mpmath.digamma, ABOVE, 16),
        ("digamma", mpmath.digamma, BELOW, 32),
        ("erf", mpmath.erf, RNG.uniform(-6, 6, 300), 4),
        ("erfc", mpmath.erfc, RNG.uniform(-6, 6, 300), 4),
        ("erfinv", mpmath.erfinv, RNG.uniform(-1, 1, 300), 8),
    ],
)
def test_special_functions_are_good_to_a_few_units(name, exact, points, limit):
    assert units(name, exact, points) <= limit


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_polygamma_is_good_to_a_few_units(n):
    points = RNG.uniform(0.01, 30, 200)
    assert units("polygamma_of", lambda x: mpmath.polygamma(n, x), points, n) <= 32


def relative(name, exact, points):
    got = call(name, al.from_numpy(points.copy())).numpy()
    expected = np.array([float(exact(mpmath.mpf(float(x)))) for x in points])
    return float(np.max(np.abs(got / expected - 1)))


def test_lgamma_keeps_its_digits_around_its_roots():
    assert relative("lgamma", log_gamma, AROUND) < 3e-15


def test_erfc_keeps_its_digits_where_it_is_tiny():
    assert relative("erfc", mpmath.erfc, RNG.uniform(3, 26, 200)) < 4e-15


def test_erfinv_keeps_its_digits_near_one():
    assert relative("erfinv", mpmath.erfinv, 1 - 10 ** RNG.uniform(-15, 0, 100)) < 2e-15


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("lgamma", [0.0, -1.0, -np.inf, np.inf, 1.0, 2.0], [np.inf] * 4 + [0.0, 0.0]),
        ("digamma", [0.0, -0.0, -1.0, np.inf, -np.inf], [-np.inf, np.inf, np.nan, np.inf, np.nan]),
        ("erfinv", [1.0, -1.0, 1.5, -0.0], [np.inf, -np.inf, np.nan, -0.0]),
        ("erfc", [np.inf, -np.inf, np.nan], [0.0, 2.0, np.nan]),
        ("logit", [0.0, 1.0, 0.5, -1.0], [-np.inf, np.inf, 0.0, np.nan]),
    ],
)
def test_values_at_poles_and_ends(name, x, expected):
    found = call(name, al.tensor(x, dtype=al.float64)).numpy()
    np.testing.assert_array_equal(found, np.array(expected))
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


def test_the_second_gradient_of_sinc_at_zero_is_there():
    """A mask over the quotient would give 0; PyTorch's does."""
    x = al.tensor([0.0], dtype=al.float64, requires_grad=True)
    (first,) = al.autograd.grad(x.sinc().sum(), x, create_graph=True)
    (second,) = al.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), [-(np.pi**2) / 3], rtol=1e-15)


def test_polygamma_takes_its_order_before_or_behind():
    x = al.tensor([0.5, 2.0])
    assert al.polygamma(1, x).tolist() == x.polygamma(1).tolist()
    assert al.polygamma(0, x).tolist() == x.digamma().tolist()
    with pytest.raises(al.AotliteError, match=r"polygamma: n is -1, expected an int from 0 to 170"):
        x.polygamma(-1)
