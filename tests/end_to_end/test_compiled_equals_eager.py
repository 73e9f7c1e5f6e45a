"""A compiled program and the same program run eagerly leave the same world (GEN-1, GEN-11)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from tests.end_to_end.helpers.cases import Call, Case, cases
from tests.end_to_end.helpers.worlds import (
    body_of,
    check,
    differences,
    inputs_share_memory,
    run_call,
)
from tests.helpers.programs import Program, Ref, Step

A, B, C, D, E = map(Ref, range(5))


def step(parts: tuple[Any, ...]) -> Step:
    """A step of `(op, *args)`, with "-" before an op under no_grad; `split2` has two results."""
    op, *args = parts
    name = op.lstrip("-")
    results = {"look": 0}.get(name, 2 if name.endswith("2") else 1)
    return Step(name.rstrip("2"), tuple(args), not op.startswith("-"), results)


def case(
    setup: list[Any],
    body: list[Any],
    *,
    inputs: tuple[int, ...] = (0,),
    outputs: tuple[int, ...] = (0,),
    after: tuple[Any, ...] = (),
    **call: Any,
) -> Case:
    """A case of one call."""
    program = Program(tuple(map(step, setup)), inputs, tuple(map(step, body)), outputs)
    return Case(program, (Call(inputs, after=tuple(map(step, after)), **call),))


LEAF = ("fresh", (4,), True)
SQUARE = ("fresh", (2, 2), True)
PLAIN = ("fresh", (4,), False)
INNER = ("mul", A, 1)
"""Makes of the leaf a value with a history, which may be written."""

# Each was once wrong here, most of them silently, or is a neighbor of one that was.
FOUND = {
    "a row of an expanded input is written": case(
        [LEAF, INNER, ("expand", B, (2, 4))],
        [("select", A, 0, 1), ("mul_", B, 2)],
        inputs=(2,),
    ),
    "a write is not lost where the input shows less of it afterwards": case(
        [PLAIN], [("mul_", A, 2), ("as_strided_", A, (), (), 1)]
    ),
    "a write with a history is not lost where the input shows less of it afterwards": case(
        [LEAF, INNER], [("mul_", A, 2), ("as_strided_", A, (2,), (1,), 1)], inputs=(1,)
    ),
    "a view under no_grad that was written stays stale": case(
        [SQUARE, INNER], [("view", A, (-1,)), ("mul_", B, A)], inputs=(1,), outputs=(1,), grad=False
    ),
    "a result counts the writes that it went through": case(
        [LEAF], [("neg", A), ("sub_", B, 3), ("mul_", B, 2)], outputs=(1,)
    ),
    "the views of a result count them too": case(
        [LEAF], [("neg", A), ("sub_", B, 3), ("view", B, (2, 2))], outputs=(1, 3)
    ),
    "a result whose gradient goes nowhere requires grad": case(
        [LEAF, ("-view", A, (2, 2))], [("sub", A, 3)], inputs=(1,), outputs=(1,)
    ),
    "a view of a view under no_grad has a node and no gradient": case(
        [LEAF, ("-view", A, (2, 2))], [("t", A)], inputs=(1,), outputs=(1,)
    ),
    "as_strided past the storage is refused where it stands": case(
        [("fresh", (2, 0), True)], [("as_strided", A, (3,), (2,), 1), ("transpose_", B, 0, 0)]
    ),
    "a view of a view of a view under no_grad has a node": case(
        [SQUARE, ("-unsqueeze", A, 0), ("view", B, (1, 2, 2))],
        [("transpose", A, 2, 1)],
        inputs=(2,),
        outputs=(1,),
    ),
    "parts of a view under no_grad have a node and no gradient": case(
        [SQUARE], [("-select", A, 1, 0), ("split2", B, 1, 0)], outputs=(0, 3), backward="alone"
    ),
    "a backward that leads to no input still checks versions": case(
        [SQUARE, ("-t", A)],
        [("view", A, (2, 2)), ("mul", A, B), ("-neg_", A)],
        inputs=(1,),
        outputs=(2,),
    ),
    "a written input with gaps may be seen by as_strided": case(
        [("fresh", (3, 2), False), ("diagonal", A, 0, 0, 1)],
        [("div_", A, A), ("as_strided", A, (), (), 3), ("mul_", C, 5)],
        inputs=(1,),
        outputs=(0, 2),
    ),
    "parts of a leaf whose geometry changed have gradients": case(
        [LEAF], [("-squeeze_", A, 0), ("split2", A, 2)], outputs=(0, 2)
    ),
    "a clone is memory of its own": case(
        [SQUARE], [("mul", A, 3), ("clone", B)], outputs=(1, 2), after=(("-add_", Ref(1), 1),)
    ),
    "a clone of what is saved may be written": case(
        [LEAF, INNER],
        [("relu_", A), ("clone", A)],
        inputs=(1,),
        outputs=(2,),
        after=(("neg_", Ref(2)),),
    ),
    "what was copied from an input may be needed when the input is written": case(
        [LEAF, PLAIN],
        [("mul", B, 0), ("copy_", Ref(2), B), ("mul", A, Ref(2))],
        inputs=(0, 1),
        outputs=(4,),
        after=(("mul_", Ref(1), 7),),
    ),
    "a geometry op on a detached alias makes it no view": case(
        [LEAF, INNER], [("detach", A), ("transpose_", B, 0, 0)], inputs=(1,), outputs=(1,)
    ),
    "a geometry op on a result leaves it the base of its views": case(
        [SQUARE], [("mul", A, 2), ("view", B, (-1,)), ("t_", B)], outputs=(1, 2)
    ),
    "two views of one detached alias are one family": case(
        [LEAF],
        [("detach", A), ("view", B, (2, 2)), ("view", B, (4, 1))],
        outputs=(2, 3),
        after=(("mul_", Ref(1), 2), ("mul_", Ref(2), 2)),
    ),
    "as_strided of a detached alias is not a view of the input": case(
        [LEAF],
        [("detach", A), ("as_strided", B, (2,), (1,), 1)],
        outputs=(0, 2),
        after=(("fill_", Ref(1), 3),),
    ),
    "a part is stale once its base is changed, by whatever argument": case(
        [LEAF, INNER, ("split2", B, 2)],
        [("-transpose_", A, 0, 0), ("sub", B, 1)],
        inputs=(1, 2),
        outputs=(2,),
    ),
    "a part that was written inside may be viewed, not used": case(
        [("fresh", (2, 1), True), INNER, ("unbind2", B, 0)],
        [("unsqueeze", A, 0), ("-mul_", A, A)],
        inputs=(2,),
        outputs=(1,),
    ),
    "a stale view under no_grad may be detached": case(
        [SQUARE, INNER, ("-t", B)],
        [("-transpose_", A, 1, 0), ("detach", A)],
        inputs=(2,),
        outputs=(1,),
    ),
    "a write to no element is nothing to undo": case(
        [("fresh", (), True)], [("expand", A, (2, 0)), ("setitem", B, 1, A)], outputs=()
    ),
    "a write through the second copy of an expanded input is not lost": case(
        [("fresh", (1,), False)], [("expand", A, (2, 4)), ("chunk2", B, 2, 0), ("relu_", D)]
    ),
    "a write through the second copy of an expanded intermediate is not lost": case(
        [LEAF, INNER],
        [("mul", A, 1), ("expand", B, (2, 4)), ("select", C, 0, 1), ("mul_", D, 2)],
        inputs=(1,),
        outputs=(1, 3),
    ),
    "an input that overlaps itself may be filled": case(
        [("fresh", (2, 1), False), ("expand", A, (2, 3))], [("t", A), ("zero_", B)], inputs=(1,)
    ),
    "an input that overlaps itself may be written in part": case(
        [("fresh", (3,), False), ("expand", A, (2, 3))],
        [("select", A, 0, 1), ("mul_", B, 2)],
        inputs=(1,),
    ),
    "each backward checks the versions that it meets": case(
        [LEAF, INNER],
        [("clone", A), ("mul", A, A)],
        inputs=(1,),
        outputs=(2, 1),
        after=(("-add_", Ref(1), 1),),
        backward="each",
    ),
    "a saved result of an in-place op is the input's memory": case(
        [LEAF, INNER],
        [("select", A, 0, 0), ("relu_", B)],
        inputs=(1,),
        outputs=(0, 1),
        after=(("-mul_", Ref(2), 2),),
    ),
    "a leaf squeezed under no_grad collects the gradients of its later uses": case(
        [("fresh", (2, 1), True)],
        [("neg", A), ("-squeeze_", A, 1), ("mul", A, 3)],
        outputs=(1, 3),
        backward="each",
    ),
    "a leaf transposed under no_grad collects gradients in both geometries": case(
        [("fresh", (2, 3), True)], [("mul", A, 2), ("-t_", A), ("mul", A, A)], outputs=(1, 3)
    ),
    "a value saved and then written raises in the backwards that reach it": case(
        [LEAF, INNER],
        [("relu", A), ("mul", A, 2), ("-zero_", B)],
        inputs=(1,),
        outputs=(1, 2),
        backward="each",
    ),
    "two inputs may be swapped": case(
        [PLAIN, ("fresh", (4,), False)],
        [("clone", A), ("copy_", A, B), ("copy_", B, C)],
        inputs=(0, 1),
        outputs=(0, 1),
    ),
    "two inputs with histories may be swapped": case(
        [LEAF, INNER, ("mul", A, 2)],
        [("clone", A), ("copy_", A, B), ("copy_", B, C)],
        inputs=(1, 2),
        outputs=(0, 1),
    ),
}


@pytest.mark.rules("GEN-1", "GEN-11")
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_once_differed_agree(name: str) -> None:
    found, refused = check(FOUND[name])
    assert not found, "\n".join(["", str(FOUND[name]), *found])
    assert not refused


REFUSED = {
    "reaches outside the": case(
        [("fresh", (2, 2, 2), True), INNER, ("unbind2", B, 1)],
        [("as_strided", A, (3,), (1,), 1), ("mul", B, 2)],
        inputs=(2,),
        outputs=(2,),
    ),
    "and both get gradients, expected one": case(
        [LEAF, ("mul", A, 2)],
        [("mul", A, 3), ("detach_", A), ("requires_grad_", A), ("mul", A, 5)],
        inputs=(1,),
        outputs=(1, 4),
    ),
    "has a history of its own": case(
        [PLAIN, LEAF],
        [("detach", A), ("mul_", C, B), ("select", C, 0, 1)],
        inputs=(0, 1),
        outputs=(4,),
    ),
    "a view made a leaf, shares memory with another tensor and has a history of its own": case(
        [PLAIN], [("view", A, (2, 2)), ("requires_grad_", B), ("t", C)], outputs=(3,)
    ),
    "depends on a leaf that the function makes": case(
        [PLAIN], [("mul", A, 2), ("requires_grad_", B), ("mul", B, 3)], outputs=(1, 3)
    ),
    "after as_strided_, expected uses before": case(
        [LEAF], [("-as_strided_", A, (2,), (1,), 1), ("mul", A, 2)], outputs=(2,)
    ),
}


@pytest.mark.rules("GEN-2")
@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_supported_is_refused_before_any_effect(text: str) -> None:
    """GEN-2: eager runs these; the compiled call raises, and its inputs are as they were."""
    found, refused = check(REFUSED[text])
    assert [] == found
    assert len(refused) == 1
    assert refused[0] in text


@pytest.mark.rules("GEN-11")
def test_a_difference_is_seen() -> None:
    """The comparison is not blind: a body that adds once more differs in each thing it touches."""
    program = FOUND["two inputs may be swapped"]
    body = body_of(program)

    def other(*inputs: Any) -> Any:
        inputs[0].add_(1)
        return [result.alias() for result in body(*inputs)]

    found = differences(run_call(program, 0, other), run_call(program, 0, body))
    assert any(line.startswith("objects") for line in found)

    def heavier(*inputs: Any) -> Any:
        results = body(*inputs)
        inputs[0].add_(1)
        return results

    found = differences(run_call(program, 0, heavier), run_call(program, 0, body))
    assert {"values", "version"} <= {line.split()[0] for line in found}


def _missed_version(line: str) -> bool:
    """A known difference (`docs/differences.md`): one input is a view of another that is written
    beside it. Eager's backward of the view passes through that write, and checks what it saved.
    """
    return "backward: compiled [None]" in line and "eager ['AutogradError']" in line


def _run_random(examples: int) -> Counter[str]:
    """Checks that many random cases; counts what became of their calls."""
    tally: Counter[str] = Counter()

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(cases())
    def agree(drawn: Case) -> None:
        found, refused = check(drawn)
        if found and inputs_share_memory(drawn) and all(_missed_version(line) for line in found):
            tally["missed version errors"] += 1
            found = []
        assert not found, "\n".join(["", str(drawn), *found])
        tally["calls"] += len(drawn.calls)
        tally["refused"] += len(refused)

    agree()
    return tally


@pytest.mark.slow("70 programs, each in eager and compiled")
@pytest.mark.rules("GEN-1", "GEN-11", "GEN-12", "GEN-13", "GRD-5")
def test_random_programs_compiled_equal_eager() -> None:
    """Each is called twice: other aliases, requires_grad, values and grad mode (GEN-13)."""
    tally = _run_random(70)
    assert tally["refused"] < tally["calls"] / 6
    # The known difference is excused in the long run alone.
    assert 0 == tally["missed version errors"]


@pytest.mark.rules("GEN-1", "GEN-12", "GEN-13")
@pytest.mark.long
def test_many_random_programs_compiled_equal_eager() -> None:
    """Minutes: `pytest -m long`."""
    tally = _run_random(20_000)
    assert tally["refused"] < tally["calls"] / 6
    assert tally["missed version errors"] <= 3
