"""GEN-12, GEN-13: what the random programs and their second calls reach, counted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, given, settings

import aotlite as al
from tests.end_to_end.helpers.cases import Case, cases, results_of, setup_of
from tests.helpers.programs import GEOMETRY, Aotlite, execute

EXAMPLES = 450


@cache
def reached() -> Counter[str]:
    """In how many programs each thing happens; those that eager refuses count too."""
    found: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases())
    def collect(case: Case) -> None:
        found.update(set(_things(case)))

    collect()
    return found


def _things(case: Case) -> Any:
    program, (first, second) = case.program, case.calls
    yield "a program"
    setup: list[Any] = []
    try:
        execute(Aotlite(), setup_of(case, first), setup)
        values = [setup[i] for i in first.inputs]
        inputs = list(values)
        yield from _of_inputs(inputs)
        execute(Aotlite(), program.body, values)
        yield from _of_results(inputs, results_of(case, values))
    except (al.AotliteError, IndexError):
        yield "a refusal of eager"
    for step in program.body:
        yield "a block under no_grad" if not step.grad else "a step with grad on"
        yield "a geometry op" if step.op in GEOMETRY else "another op"
        yield "a detach" if step.op == "detach" else "another op"
        yield "a write" if step.op.endswith("_") or step.op == "setitem" else "another op"
    if first.inputs != second.inputs:
        yield "another alias pattern at the second call"
    if second.flipped:
        yield "another gradient pattern at the second call"
    if first.grad != second.grad:
        yield "another grad mode at the second call"


def _of_inputs(inputs: list[Any]) -> Any:
    if len({id(x) for x in inputs}) < len(inputs):
        yield "an input passed twice"
    if len({id(x.storage) for x in inputs}) < len({id(x) for x in inputs}):
        yield "inputs on one storage"
    for x in inputs:
        yield "a view" if x.base is not None else "no view"
        if not x.requires_grad:
            yield "an input without gradient"
        else:
            yield "a leaf" if x._leaf else "an input with a history"
        for size, stride in zip(x.shape, x.stride(), strict=True):
            yield f"a size of {min(size, 2)}"
            if stride == 0 and size > 1:
                yield "a stride of 0"


def _of_results(inputs: list[Any], results: list[Any]) -> Any:
    tensors = [r for r in results if isinstance(r, al.Tensor)]
    if len(tensors) < len(results):
        yield "a result that is no tensor"
    if any(r is None for r in results):
        yield "a result that is None"
    if len({id(r) for r in tensors}) < len(tensors):
        yield "a result that is returned twice"
    if any(r is x for r in tensors for x in inputs):
        yield "a result that is an input"
    if len({id(r.storage) for r in tensors}) < len({id(r) for r in tensors}):
        yield "results on one storage"


@pytest.mark.slow("draws the programs that the tests of this file count")
@pytest.mark.rules("GEN-12")
@pytest.mark.parametrize(
    "thing",
    [
        *("an input passed twice", "inputs on one storage", "a view", "a leaf"),
        *("an input with a history", "an input without gradient", "a size of 0", "a size of 1"),
        *("a block under no_grad", "a geometry op", "a detach", "a write"),
        *("a result that is no tensor", "a result that is None", "a result that is an input"),
        *("a result that is returned twice", "results on one storage", "a refusal of eager"),
        "a stride of 0",
    ],
)
def test_programs_reach(thing: str) -> None:
    """Often enough that a mistake there is met: in one of 150 programs at least."""
    assert reached()[thing] >= EXAMPLES // 150


@pytest.mark.rules("GEN-13")
@pytest.mark.parametrize(
    "what", ["another alias pattern", "another gradient pattern", "another grad mode"]
)
def test_second_calls_have(what: str) -> None:
    assert reached()[f"{what} at the second call"] >= EXAMPLES // 10


@pytest.mark.rules("GEN-12")
def test_most_programs_run_in_eager() -> None:
    """Programs that are refused at the first step would show nothing."""
    assert reached()["a refusal of eager"] < EXAMPLES / 2
