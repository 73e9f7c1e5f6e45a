"""Random programs about aliasing and mutation: a sample of what `aotlite fuzz` runs.

test_fuzz.py is about the command. Rules: GEN-1, GEN-2, GEN-11..GEN-13.
"""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.testing import fuzz
from aotlite.testing.coverage.cells import CELLS, POSSIBLE
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.fuzzing.one_program import options_of, outcome, report
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences, same_numbers
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from aotlite.testing.shrinking import shrunk
from tests.testing.helpers.examples import EXAMPLES, program

SAMPLE = 24


@pytest.mark.parametrize("name", EXAMPLES)
def test_programs_that_once_differed_are_like_eager(name: str) -> None:
    given, options = EXAMPLES[name]
    found = outcome(given, {"verify": 2, **options})
    assert ([], []) == (found.found, found.refused)
    assert len(given.calls) == found.calls


@pytest.mark.slow("two dozen programs, each in eager and compiled")
@pytest.mark.rules("GEN-1", "GEN-2", "GEN-11", "GEN-12", "GEN-13")
def test_random_programs_are_like_eager() -> None:
    """Towards cells from all over the table; the long run has 150,000 of them."""
    chosen = [POSSIBLE[(seed * 6151) % len(POSSIBLE)] for seed in range(SAMPLE)]
    found = []
    for seed, target in enumerate(chosen):
        given = draw(seed, target)
        if outcome(given, options_of(seed)).found:
            found.append(report(seed, target))
    assert [] == found


@pytest.mark.long
def test_many_random_programs_are_like_eager() -> None:
    assert [] == fuzz(count=20_000, seed=10**7, jobs=2).failures


# ----------------------------------------------------------------------------- a difference is seen
WRITES = program(
    [["select", ["$0", 0, 0]], ["mul_", ["$1", 2]], ["neg", ["$0"]]],
    ["$1", "$3"],
    {
        "setup": [["make", [1, [2, 2], "float64", True]], ["mul", ["$0", 1]]],
        "args": ["$1"],
        "write": [0, "mul_"],
    },
)

MISTAKES: dict[str, Any] = {
    "values": lambda x: [x[0].mul_(3), x.neg()],
    "a result of its own": lambda x: [x[0].mul_(2).clone(), x.neg()],
    "the base": lambda x: [x[0].mul_(2).detach(), x.neg()],
    "the history": lambda x: [x[0].mul_(2), x.detach().neg()],
    "a write too many": lambda x: [x[0].mul_(1).mul_(2), x.neg()],
    "another object": lambda x: [x[0].mul_(2), x],
    "the strides": lambda x: [x[0].mul_(2), x.neg().t().clone().t()],
    "a number": lambda x: [x[0].mul_(2), 1],
    "an error": lambda x: x[0].mul_(2).view(3),
    "the gradient": lambda x: [x[0].mul_(2), x.neg() + x.sum() * 0 + x - x.detach()],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_difference(mistake: str) -> None:
    right = observe_call(LIBRARY, WRITES, 0, body_of(LIBRARY, WRITES))
    assert [] == differences(right, observe_call(LIBRARY, WRITES, 0, body_of(LIBRARY, WRITES)))
    assert [] != differences(observe_call(LIBRARY, WRITES, 0, MISTAKES[mistake]), right)


def test_a_compiled_call_that_raises_must_leave_its_arguments_alone() -> None:
    def half(x: Any) -> Any:
        x.mul_(2)
        raise al.UnsupportedError("too late")

    right = observe_call(LIBRARY, WRITES, 0, body_of(LIBRARY, WRITES))
    assert "touched" in differences(observe_call(LIBRARY, WRITES, 0, half), right)[0]


def test_numbers_are_the_same_up_to_the_order_of_sums_where_they_are_not_exact() -> None:
    def close(a: float, b: float) -> bool:
        one, other = (al.tensor([x], dtype=al.float64).numpy().tobytes() for x in (a, b))
        return same_numbers(one, other, "aotlite.float64")

    assert close(0.0, -0.0)
    assert close(1e20, 1e20 * (1 + 1e-12))
    assert not close(1.0 + 1e-12, 1.0)
    assert not close(1e20, 1.1e20)


# ------------------------------------------------------------------------------------ the shrinking
def test_shrinking_keeps_what_matters() -> None:
    """A program that writes an unflattened part, among steps that do not matter."""
    target = next(n for n in POSSIBLE if CELLS[n] == ("unbind", "fill", "input", "alone"))
    whole = draw(5, target)

    def fails(smaller: Program) -> bool:
        ops = [step.op for step in smaller.body]
        try:
            mine = observe_call(LIBRARY, smaller, 0, body_of(LIBRARY, smaller))
        except Exception:
            return False
        return mine.error is None and "unbind" in ops

    assert fails(whole)
    small = shrunk(whole, fails)
    assert ["unbind"] == [step.op for step in small.body]
    assert ((), 1) == (small.results, len(small.calls))
    assert "def f(x):\n    parts = x.unbind(" in small.to_script()


# ------------------------------------------------------------------------------------ the refusals
def test_a_refused_call_hits_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        def call(*_: Any) -> Any:
            raise al.UnsupportedError("f: argument 7 is met, expected none")

        return call

    monkeypatch.setattr(al, "compile", refuse)
    found = outcome(WRITES, {})
    assert (["UnsupportedError: f: argument _ is met, expected none"], []) == (
        found.refused,
        found.cells,
    )
    assert [] == found.found


def test_a_view_whose_base_was_put_onto_other_memory_is_refused() -> None:
    """Eager's view goes on to call it its base, which lies elsewhere by then (TEN-26)."""

    def moved(x: Any) -> Any:
        made = x.neg()
        view = made.alias()
        made.set_(x)
        return view, made

    x = al.ones(2)
    with pytest.raises(al.UnsupportedError, match="^analyze: output 0 is a view of output 1,"):
        al.compile(moved)(x)
    assert (0, [1.0, 1.0]) == (x.version, x.tolist())
    assert [-1.0, -1.0] == al.compile(lambda x: moved(x)[0])(x).tolist()
