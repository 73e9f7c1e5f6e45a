"""Exact numbers: which they are, that random programs keep to them, what comparison asks then."""

from __future__ import annotations

import doctest
from typing import Any

import attrs
import numpy as np
import pytest

from aotlite.testing import Program, differences
from aotlite.testing.coverage.cells import CELLS, POSSIBLE
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.generate import bodies
from aotlite.testing.generate.choices import LIBRARY
from aotlite.testing.generate.exact_steps import Exactly, has_exact_gradients, stays_exact
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe import exact_numbers
from aotlite.testing.observe.differences import NOT_EXACT, is_exact
from aotlite.testing.observe.exact_numbers import are_exact
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import COMPUTING
from tests.testing.helpers.examples import program

OF_BITS = [n for n in POSSIBLE if CELLS[n][0] == "view_dtype" and CELLS[n][1] == "pointwise"]
LEAF = {"setup": [["make", [1, [3], "float64", True]]], "args": ["$0"]}


def made(*numbers: float, dtype: str = "float64", grad: bool = False) -> Any:
    return LIBRARY.make(list(numbers), (len(numbers),), dtype, grad=grad)


def test_the_examples_of_the_docstrings_run() -> None:
    assert doctest.testmod(exact_numbers).failed == 0


@pytest.mark.parametrize(
    "numbers, dtype, exact",
    [
        ([2.0**50 - 1], "float64", True),
        ([2.0**50], "float64", False),
        ([2.0**20], "float32", False),
        ([2.0**20 - 1], "float32", True),
        ([1 / 1024], "float64", True),
        ([1 / 2048], "float64", False),
        ([2.0**45, 0.5], "float64", True),
        ([2.0**45, 1 / 64], "float64", False),
        ([float("nan")], "float64", False),
        ([float("-inf")], "float64", False),
        ([3 + 0.1j], "complex128", False),
        ([3 - 2j], "complex64", True),
        ([2**60], "int64", True),
        ([], "float64", True),
    ],
)
def test_numbers_are_exact_where_sums_of_them_are(
    numbers: list[Any], dtype: str, exact: bool
) -> None:
    assert exact == are_exact([np.array(numbers, dtype)])


def test_a_unit_is_that_of_all_arrays() -> None:
    assert not are_exact([np.array([0.25]), np.array([2.0**19], "float32")])
    assert are_exact([np.array([0.25]), np.array([2.0**17], "float32")])


# ------------------------------------------------------------------------------- random programs
def computed(given: Program) -> list[np.ndarray]:
    """What the computing steps of a program make, of floating dtypes."""
    found: list[np.ndarray] = []

    def watch(step: Step, args: list[Any], result: Any) -> None:
        if step.op in COMPUTING and "float" in str(result.dtype):
            found.append(np.array(result.detach().numpy()))

    for number in range(len(given.calls)):
        observe_call(LIBRARY, given, number, body_of(LIBRARY, given, watch))
    return found


def is_round(numbers: np.ndarray) -> bool:
    """Whether all are multiples of 1/1024: the upper half of a float64 is a round float32."""
    return bool((np.isfinite(numbers) & (numbers * 1024 == np.rint(numbers * 1024))).all())


def test_random_programs_compute_round_numbers_and_their_worlds_are_exact() -> None:
    """Most of all those that look at memory in another dtype."""
    targets = [*OF_BITS[:: len(OF_BITS) // 40], *POSSIBLE[:: len(POSSIBLE) // 40]]
    for seed, target in enumerate(targets):
        given = draw(seed, target)
        numbers = computed(given)
        assert all(map(is_round, numbers)), (seed, target)
        assert all(abs(each).max(initial=0) < 2**25 for each in numbers), (seed, target)
        for world in given.run():
            assert is_exact(world), (seed, target)


def test_programs_that_were_not_kept_exact_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "stays_exact", lambda *_: True)
    targets = OF_BITS[:: len(OF_BITS) // 40]
    drawn = [draw(seed, target) for seed, target in enumerate(targets)]
    assert not all(is_round(each) for given in drawn for each in computed(given))


@pytest.mark.parametrize(
    "op, args, exact",
    [
        ("mul_", [made(3.0), 2], True),
        ("mul_", [made(2.0**20), made(2.0**10)], False),
        ("add", [made(2.0**24), made(2.0**24)], False),
        ("square_", [made(3000.0, dtype="float32")], False),
        ("sum", [made(*[2.0**23] * 8)], False),
        ("neg", [made(0.1)], False),
        ("copy_", [made(0.0), made(0.1)], True),
        ("copy_", [made(0, dtype="int64"), made(0.1)], False),
        ("copy_", [made(0.0), made(2**60, dtype="int64")], False),
        ("square_", [made(2**60, dtype="int64")], True),
        ("mul", [made(1.0), made(2**60, dtype="int64")], False),
    ],
)
def test_what_a_step_would_make_is_told_before_it_runs(
    op: str, args: list[Any], exact: bool
) -> None:
    before = [LIBRARY.bytes_of(arg) for arg in args if not isinstance(arg, int)]
    assert exact == stays_exact(LIBRARY, op, args)
    assert before == [LIBRARY.bytes_of(arg) for arg in args if not isinstance(arg, int)]


def test_a_run_is_watched_for_what_is_not_exact() -> None:
    """In a call of another one's body, numbers may be others."""
    body = program([["mul_", ["$0", "$0"]]], ["$1"])
    for number, broken in ((3.0, False), (2.0**26, True)):
        watch = Exactly(LIBRARY)
        body_of(LIBRARY, body, watch)(made(number))
        assert broken == watch.is_broken


@pytest.mark.parametrize("factor, exact", [(3, True), (0.1, False), (2.0**51, False)])
def test_gradients_are_looked_at_in_the_end(factor: float, exact: bool) -> None:
    leaf = made(1.0, 2.0, grad=True)
    assert exact == has_exact_gradients(LIBRARY, [leaf], [leaf * factor])
    assert has_exact_gradients(LIBRARY, [leaf.detach()], [leaf.detach() * factor])


# ------------------------------------------------------------------------------------ comparing
CUBE = program([["mul", ["$0", "$0"]], ["mul", ["$1", "$0"]]], ["$2"], LEAF)


def test_gradients_of_exact_programs_are_equal_to_the_last_bit() -> None:
    its = observe_call(LIBRARY, CUBE, 0, body_of(LIBRARY, CUBE))
    assert is_exact(its)
    off = [g and attrs.evolve(g, values=_next(g.values)) for g in its.grads]
    found = differences(attrs.evolve(its, grads=off), its)
    assert 1 == len(found)
    assert found[0].startswith("gradient of object 0")


def test_gradients_that_are_not_exact_may_differ_by_rounding() -> None:
    body = program([["mul", ["$0", 0.1]]], ["$1"], LEAF)
    its = observe_call(LIBRARY, body, 0, body_of(LIBRARY, body))
    assert not is_exact(its)
    off = [g and attrs.evolve(g, values=_next(g.values)) for g in its.grads]
    assert [] == differences(attrs.evolve(its, grads=off), its)
    far = [g and attrs.evolve(g, values=bytes(len(g.values))) for g in its.grads]
    found = differences(attrs.evolve(its, grads=far), its)
    assert NOT_EXACT == found[-1]
    assert found[0].startswith("gradient of object 0")


def _next(values: bytes) -> bytes:
    numbers = np.frombuffer(values)
    return np.nextafter(numbers, np.inf).tobytes()


def test_zeros_of_either_sign_and_any_nan_are_the_same_gradient() -> None:
    its = observe_call(LIBRARY, CUBE, 0, body_of(LIBRARY, CUBE))
    for one, other, same in ((0.0, -0.0, True), (np.nan, -np.nan, True), (0.0, np.nan, False)):
        worlds = []
        for number in (one, other):
            values = np.array([number] * 3).tobytes()
            grads = [g and attrs.evolve(g, values=values) for g in its.grads]
            worlds.append(attrs.evolve(its, grads=grads))
        assert same == (differences(*worlds) == [])


def test_bits_of_another_dtype_do_not_make_a_program_inexact() -> None:
    """They are moved, and compared bit for bit."""
    bits = program([["view_dtype", ["$0", "int64"]], ["add_", ["$1", 3]]], ["$0"], {
        "setup": [["make", [1, [3], "float64", False]]], "args": ["$0"],
    })  # fmt: skip
    its = observe_call(LIBRARY, bits, 0, body_of(LIBRARY, bits))
    assert its.has_bits
    assert is_exact(its)
    assert not is_exact(attrs.evolve(its, has_bits=False))
    same = program([["view_dtype", ["$0", "float64"]]], ["$0"], LEAF)
    assert not same.run()[0].has_bits
