"""Programs of the whole op table, compiled and eager: a few here, thousands by the command."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end.helpers.scripts import Script, eager_form, play
from tests.end_to_end.helpers.table_bodies import FACES, table_script
from tests.end_to_end.helpers.table_calls import faces, usable_samples
from tests.end_to_end.random_programs import outcome
from tests.end_to_end.table_programs import (
    ALL_MODES,
    main,
    outcomes,
    run,
    smallest,
    unmet,
)
from tests.end_to_end.test_random_programs import _off_by_one, report, script

A = "a = T(1, 2, 3, grad=True)"
SQUARE = "a = L([[2.0, 1.0], [0.0, 3.0]], dtype=al.float64, grad=True)"

# Each was once wrong, in one mode at least.
FOUND: dict[str, Script] = {
    "the gradient of a sign that does not depend on it": script(
        ["v = al.slogdet(a)"],
        "(v[0], v[1])",
        [SQUARE, "r = f(a)", "r[0].backward()"],
        head="def f(a):",
    ),
    "no gradient of a result, where the slope is nan": script(
        ["v = a.mean()", "a.logit_()"],
        "(v,)",
        [
            "b = L([0.5, -0.5], dtype=al.float64, grad=True)",
            "a = b.clone()",
            "r = f(a)",
            "r[0].backward()",
        ],
        head="def f(a):",
    ),
}


@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_once_differed_agree(name: str, mode: str) -> None:
    eager = play(FOUND[name], eager_form)
    assert [None] * len(eager.moments) == [moment.error for moment in eager.moments]
    found = outcome(FOUND[name], eager, ALL_MODES[mode])
    assert [] == found.found
    assert found.refused is None


def test_programs_of_the_table_compiled_equal_eager() -> None:
    tallies, _ = run(range(7_000, 7_010), tuple(ALL_MODES))
    assert "" == report(tallies)
    tally = tallies["default"]
    assert tally.refused.total() < tally.programs / 20
    assert tally.raised < tally.programs / 2
    assert tally.calls > 2 * tally.programs


@pytest.mark.long
@pytest.mark.parametrize("mode", ALL_MODES)
def test_4_000_programs_of_the_table_meet_every_op(mode: str) -> None:
    tallies, met = run(range(4_000), (mode,), jobs=2)
    assert "" == report(tallies)
    assert [] == unmet(met) or mode in ("verified", "reread")  # which are sampled


def test_every_face_of_the_table_has_samples_that_can_be_written() -> None:
    assert [] == [face.name for face in faces() if not usable_samples(face.key)]


def test_a_seed_gives_the_same_program_and_begins_with_its_own_face() -> None:
    assert str(table_script(17)) == str(table_script(17))
    names = [face.name for face in FACES]
    seed = names.index("exp")
    assert ".exp(" in str(table_script(seed)) or "al.exp(" in str(table_script(seed))


def test_the_command_counts_and_lists_what_it_did_not_meet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == main(["--programs", "3", "--seed", "7000", "--mode", "default"])
    printed = capsys.readouterr().out
    assert "differences" in printed
    assert "not met: " in printed


def test_a_difference_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that adds one to what it computes."""
    monkeypatch.setitem(ALL_MODES, "broken", {"backend": _off_by_one})
    seed = next(s for s in range(50) if outcomes(s, ("broken",))[1]["broken"].found)
    whole, least = table_script(seed), smallest(seed, "broken")
    assert len(least.session) < len(whole.session)
    assert len(least.head) <= len(whole.head)
    eager: Any = play(least, eager_form)
    assert outcome(least, eager, ALL_MODES["broken"]).found
