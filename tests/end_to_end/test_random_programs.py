"""Random scripts in every mode: what the command of `random_programs` prints, as tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import aotlite as al
from tests.end_to_end.helpers.observing import differences, observe
from tests.end_to_end.helpers.random_sessions import random_script
from tests.end_to_end.helpers.scripts import Line, Script, eager_form, new_scope, play, run_text
from tests.end_to_end.random_programs import (
    ALL_GRADIENTS,
    DEAD,
    EARLIER,
    FREED,
    MODES,
    Tally,
    main,
    outcome,
    outcomes,
    run,
    smallest,
    table_of,
)

Wrap = Callable[[Any], Any]


def script(
    body: list[str],
    result: str,
    session: list[str],
    *,
    head: str = "def f(a, b):",
    outside: tuple[str, ...] = (),
) -> Script:
    """A script whose lines are calls and backwards where they say so."""

    def kind(text: str) -> str:
        return "call" if "= f(" in text else "backward" if ".backward(" in text else "other"

    lines = tuple(Line(kind(text), text) for text in session)
    return Script(outside, head, tuple(body), result, lines)


MAKE = ["x = T(1, 2, 3, grad=True)", "y = T(2, 2, 3)", "r = f(x, y)"]

# Each was once wrong, in one mode at least.
FOUND = {
    "a part of a leaf that requires grad no more": script(
        ["with al.no_grad():\n    v = a[None]"],
        "v * 2",
        ["z = T(1, 2, 3, grad=True)", "x = z[0]", "z.requires_grad_(False)", "r = f(x, 1)"],
    ),
    "a view that was made a leaf": script(
        ["with al.no_grad():\n    v = a[None]"],
        "v * 2",
        ["z = T(1, 2, 3)", "with al.no_grad():\n    x = z[0]", "x.requires_grad_()", "r = f(x, 1)"],
    ),
    "random numbers of no elements": script(["v = al.rand(2, 0)"], "(v, a * 2)", MAKE),
    "random numbers of no elements beside others": script(
        ["v = al.rand(0)"], "(v, al.rand(2) + b.sum(), a * 2)", [*MAKE, "r = f(x, y)"]
    ),
    "a gradient that lies otherwise when another is absent": script(
        ["v = al.stack([a, b], 1)"], "(v, v.max(2))", [*MAKE, "r[0].backward(G(r[0]))"]
    ),
    "an expanded gradient when another is absent": script(
        ["v = a.sum(1, True)"],
        "(v, v.to(al.float32))",
        [*MAKE, "r[0].backward(G(r[0]))", "r = f(x, y)", "r[1].backward(G(r[1]))"],
    ),
    "a stale part of a leaf that requires grad no more": script(
        ["p = a.chunk(2, 0)", "with al.no_grad():\n    p[0].add_(1)"],
        "p[1]",
        [*MAKE, "x.requires_grad_(False)"],
    ),
}

# A tensor and its base that disagree about requiring grad: compiled calls do not know of that yet.
OPEN = {
    "a changed view of a leaf that requires grad no more": script(
        ["v = a.narrow(0, 1, 1)", "with al.no_grad():\n    v.transpose_(0, 1)"],
        "(v * 2, v.detach().add_(1), v)",
        [*MAKE, "x.requires_grad_(False)"],
    ),
}

# What once went through, and raises in eager.
RAISING = {
    "an error of a result is met whatever its gradient leads to": script(
        ["v = b.exp()", "v.mul_(a)"],
        "v",
        [
            "x = T(1, 2, 3, grad=True)",
            "y = T(2, 2, 3, grad=True)",
            "r = f(x, y)",
            "g = al.autograd.grad(r, [x, y], G(r), allow_unused=True)",
        ],
    ),
}


@pytest.mark.xfail(strict=True, reason="a base that requires grad less than its view")
@pytest.mark.parametrize("name", OPEN)
def test_scripts_that_differ_still(name: str) -> None:
    assert [] == outcome(OPEN[name], play(OPEN[name], eager_form), {}).found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RAISING)
def test_scripts_that_once_went_through_raise(name: str, mode: str) -> None:
    eager = play(RAISING[name], eager_form)
    assert isinstance(eager.moments[-1].error, al.AutogradError)
    assert [] == outcome(RAISING[name], eager, MODES[mode]).found


@pytest.mark.rules("GEN-1")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FOUND)
def test_scripts_that_once_differed_agree(name: str, mode: str) -> None:
    eager = play(FOUND[name], eager_form)
    assert [None] * len(eager.moments) == [moment.error for moment in eager.moments]
    found = outcome(FOUND[name], eager, MODES[mode])
    assert [] == found.found
    assert found.refused is None


def report(tallies: dict[str, Tally]) -> str:
    return "\n".join(
        f"{mode}: seed {seed}: {found[0]}"
        for mode, tally in tallies.items()
        for seed, found in tally.different
    )


@pytest.mark.rules("GEN-1", "GEN-12", "GEN-13", "RT-12", "GRD-5")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("mode", MODES)
def test_random_scripts_compiled_equal_eager(mode: str) -> None:
    """Most calls are of entries that are there already, which is where the fast paths are."""
    tally = run(range(5_000, 5_015), (mode,))[mode]
    assert "" == report({mode: tally})
    assert tally.refused.total() < 1 + tally.programs / 4  # the verified ones are but ten
    assert tally.raised < tally.programs / 20
    assert tally.entries < tally.calls * 0.6
    assert tally.calls > 4 * tally.programs


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_5_000_random_scripts_compiled_equal_eager(mode: str) -> None:
    tally = run(range(5_000), (mode,), jobs=2)[mode]
    assert "" == report({mode: tally})


# --------------------------------------------------------------------- the comparison is not blind
def spoiled(change: Callable[[Any], Any]) -> Wrap:
    """Wraps functions so that their results are changed."""
    return lambda function: lambda *args: change(function(*args))


def write(result: Any) -> Any:
    result.detach().add_(1)
    return result


CHANGES: dict[str, Callable[[Any], Any]] = {
    "shapes": lambda result: [result],
    "generator": lambda result: (al.rand(1), result)[1],
    "r.requires_grad": lambda result: result.detach().clone(),
    "r.values": lambda result: result * 2,
    "r.version": lambda result: write(result),
    "r.storage": lambda result: result.clone().view(2, 3),
    "r.stride": lambda result: result.t().contiguous().t(),
    "r.dtype": lambda result: result.to(al.float32),
    "r.base": lambda result: result.detach().view(2, 3),
}
PLAIN = script([], "a.view(2, 3)", ["x = T(1, 2, 3)", "r = f(x)"], head="def f(a):")


@pytest.mark.rules("GEN-11")
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_a_result_is_seen(what: str) -> None:
    mine, its = play(PLAIN, spoiled(CHANGES[what])), play(PLAIN, eager_form)
    found = differences(mine.moments[-1].view, its.moments[-1].view)
    if what == "r.requires_grad":
        assert any(line.startswith("r.storage") for line in found)
    else:
        assert any(line.startswith(what) for line in found), found


@pytest.mark.rules("GEN-11")
def test_a_gradient_in_other_memory_is_seen() -> None:
    scope = new_scope(eager_form)
    run_text("x = T(1, 2, grad=True)\nz = T(2, 2)\nx.grad = z.clone()", scope)
    apart = observe(scope)
    run_text("x.grad = z.detach()", scope)
    (line,) = differences(observe(scope), apart)
    assert "z.storage: compiled 1, eager 2" == line


@pytest.mark.rules("GRD-5")
def test_looking_leaves_what_guards_remember() -> None:
    """Else the entries would never meet arguments that they have marked."""
    function = al.compile(lambda a, b, c, d: a + b + c + d)
    tensors = [al.ones(2) for _ in range(4)]
    function(*tensors)
    function(*tensors)
    before = [tensor.facts for tensor in tensors]
    observe(dict(zip("abcd", tensors, strict=True)))
    assert all(a is tensor.facts for a, tensor in zip(before, tensors, strict=True))


# ------------------------------------------------------------------------------------ the command
def test_a_seed_gives_the_same_script_each_time() -> None:
    assert str(random_script(17)) == str(random_script(17))
    assert str(random_script(17)) != str(random_script(18))


def test_the_command_counts_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--count", "3", "--seed", "5000", "--mode", "default"])
    printed = capsys.readouterr().out
    assert "programs" in printed
    assert "differences" in printed


def test_a_difference_fails_the_command_and_prints_a_small_script(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that adds one to what it computes is found out, in a script of few lines."""
    monkeypatch.setitem(MODES, "broken", {"passes": [], "backend": _off_by_one})
    seed = next(s for s in range(50) if outcomes(s, ("broken",))[1]["broken"].found)
    assert 1 == main(["--count", "1", "--seed", str(seed), "--mode", "broken"])
    printed = capsys.readouterr().out
    assert f"broken, seed {seed}" in printed
    assert "f = wrap(f)" in printed
    assert len(smallest(seed, "broken").session) < len(random_script(seed).session)


def _off_by_one(graph: Any, example_inputs: Any = None) -> Any:
    run_graph = al.backends.reference.REFERENCE.compile(graph)

    def run_wrongly(windows: Any) -> Any:
        found = run_graph(windows)
        return [w and (w[0] + 1, w[1]) for w in found]

    return run_wrongly


def test_gradients_of_one_input_behind_those_of_another_are_told_apart() -> None:
    """Eager lets go of the nodes that lead to the first; a compiled call is one node."""
    lines = [f"r.backward(G(r), inputs=[{name}])" for name in ("x", "y")]
    make = [MAKE[0], "y = T(2, 2, 3, grad=True)", MAKE[2]]
    twice = script([], "a.sin() + b.sin()", [*make, *lines])
    assert FREED == outcome(twice, play(twice, eager_form), {}).refused


def test_an_op_whose_result_nothing_uses_does_not_raise_for_its_values() -> None:
    index = "i = al.tensor([5])"
    dead = script(["al.index_select(b, 0, i)"], "a * 2", [index, *MAKE], head="def f(a, b):")
    assert DEAD == outcome(dead, play(dead, eager_form), {}).refused
    used = attrs.evolve(dead, body=("v = al.index_select(b, 0, i)",), result="a * v")
    found = outcome(used, play(used, eager_form), {})
    assert found.refused is None
    assert found.raised


def test_a_capture_meets_the_error_of_a_shape_before_that_of_a_value() -> None:
    lines = ["al.index_select(b, 0, i)", "b.view(7)"]
    both = script(lines, "a * 2", ["i = al.tensor([5])", *MAKE])
    assert EARLIER == outcome(both, play(both, eager_form), {}).refused


def test_grad_of_some_inputs_may_check_what_others_need() -> None:
    written = ["y = T(2, 2, 3, grad=True)", "z = T(3, 2, 3)", "x = T(1, 2, 3, grad=True)"]
    session = [*written, "r = f(x, y, z)", "z.add_(1)"]
    some = script([], "x * c + b", session, head="def f(x, b, c):")
    asks = Line("backward", "g = al.autograd.grad(r, [y], G(r))")
    some = attrs.evolve(some, session=(*some.session, asks))
    assert ALL_GRADIENTS == outcome(some, play(some, eager_form), {}).refused


def test_a_table_has_a_row_for_each_mode() -> None:
    assert 2 == table_of({"default": Tally(), "general": Tally()}).row_count
