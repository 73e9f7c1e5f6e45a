"""Every op and composite, in every dtype, equals PyTorch, or differs as the table says."""

import warnings

import attrs
import numpy as np
import pytest

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DTYPES
from aotlite.ir.op import OPS
from aotlite.testing.laws.samples.sample import Sample
from tests.laws import pairs
from tests.laws.helpers.composites import entry
from tests.laws.twins.torch_twins import DIFFERENCES, known, without_known
from tests.samples import samples_of


@pytest.mark.torch
@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("name", "is_composite"),
    pairs.names(),
    ids=[entry(name) if is_composite else name for name, is_composite in pairs.names()],
)
def test_every_dtype_equals_torch(torch, name, is_composite):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdicts = [pairs.compare(torch, pairs.Pair(name, is_composite, d)) for d in DTYPES]
    assert [] == [line for verdict in verdicts for line in verdict.unknown]


@pytest.mark.torch
@pytest.mark.thinned(3)
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: f"{d.ops[0]}-{d.aspect}")
def test_a_known_difference_has_a_reason_and_is_one_where_it_shows(torch, difference):
    assert difference.reason
    for name in difference.ops if difference.everywhere else ():
        samples = _in_every_dtype(name)
        found = (pairs.aspects_that_differ(torch, name, s) for s in samples if difference.when(s))
        assert any(difference.aspect in aspects for aspects in found), name


def _in_every_dtype(name):
    """The op's samples, and what the comparison of dtypes makes of them."""
    yield from samples_of(name)
    own = pairs.Pair(name.removesuffix("()"), name not in OPS, dtypes.float64)
    for dtype in DTYPES:
        pair = attrs.evolve(own, dtype=dtype)
        for sample in pairs.samples_in(pair):
            yield sample
            yield from pairs.variants_in(pair, sample)


def test_an_excuse_of_elements_excuses_no_others():
    """Those that may differ on some CPUs: the test above cannot see that they are narrow."""
    infinity, nan = np.inf, np.nan
    sample = Sample((np.array([infinity, infinity, 1.0]), False))
    ours, theirs = np.array([infinity, infinity, 0.5]), np.array([nan, 2.0, nan])
    mended = without_known("gelu", sample, theirs, ours)
    np.testing.assert_array_equal([infinity, 2.0, nan], mended)
    assert not known("gelu", "values", sample)


def test_solutions_may_differ_as_far_as_the_matrix_magnifies_roundings():
    lower = np.array([[2.0, 9.0], [2.0, 1e-3]])  # what stands above the diagonal is not read
    sample = Sample((lower, np.array([[1.0], [1.0]])), {"upper": False})
    exact = np.array([[0.5], [0.0]])
    for error, is_known in [
        ([[0], [1e-13]], True),
        ([[0], [1e-11]], False),
        ([[1e-14], [0]], False),
    ]:
        got = exact + np.array(error)
        mended = without_known("linalg_solve_triangular", sample, exact, got)
        assert is_known == np.array_equal(mended, got)


@pytest.mark.parametrize(
    ("got", "each", "ulps"),
    [
        ([1.0, 2.0], True, 0),
        ([1.0 + 2**-23, 2.0], True, 1),
        ([1.0, 2.0 + 2**-21], True, 2),
        ([1.0 + 2**-23, 2.0], False, 0.5),
        ([np.inf, 2.0], True, np.inf),
        ([[1.0, 2.0]], True, np.inf),
    ],
)
def test_units_in_the_last_place_are_counted(got, each, ulps):
    """A comparison that cannot fail would compare nothing."""
    expected = np.array([1.0, 2.0], np.float32)
    found = pairs.ulps_between(expected, np.array(got, np.float32), dtypes.float32, each=each)
    assert ulps == found
