"""The right metadata of a function, from an eager run, step by step.

Reads nothing of the compiler: storages, objects, tape nodes and version counters of the eager run
say which result is of which kind, and what happened to each input.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import attrs

import aotlite as al
from tests.end_to_end.helpers.cases import Case, results_of, setup_of
from tests.helpers.programs import GEOMETRY, Aotlite, Ref, Step, execute
from tests.stages.helpers.journeys import Journey, journey_of, journeys


@attrs.define
class Writes:
    """The writes of a storage or an object."""

    with_grad: bool = False
    with_history: bool = False
    """Other than copying a tensor to itself, which has no gradient."""


@attrs.define(eq=False)
class Run:
    """One eager run of the first call of a case."""

    case: Case
    inputs: list[Any]
    before: list[Any]
    """(shape, stride, offset, requires_grad, is_leaf, version) of each input."""
    values: list[Any]
    """All values of the body, in the order in which they were made."""
    results: list[Any]
    writes: dict[int, Writes]
    """By the id of a storage."""

    def number(self, value: Any) -> int | None:
        """The first input that is this object."""
        return next((i for i, x in enumerate(self.inputs) if x is value), None)

    def owners(self, value: Any) -> set[int]:
        """The inputs on the value's storage, repeats aside."""
        return {
            self.number(x)  # type: ignore[misc]
            for x in self.inputs
            if x.storage is value.storage
        }

    def maker(self, value: Any) -> Any:
        """The tensor that made a storage: the first value on it, or what that is a view of."""
        first = next(v for v in self.values if v.storage is value.storage)
        return first if first.base is None else first.base

    def sharing(self, value: Any) -> list[Any]:
        """The distinct results on the value's storage, in order."""
        found = {id(r): r for r in self.results if isinstance(r, al.Tensor)}
        return [r for r in found.values() if r.storage is value.storage]


def run_eagerly(case: Case) -> Run:
    """Runs the body step by step; raises what eager raises."""
    setup: list[Any] = []
    execute(Aotlite(), setup_of(case, case.calls[0]), setup)
    inputs = [setup[i] for i in case.calls[0].inputs]
    before = [state_of(x) for x in inputs]
    values = list(inputs)
    writes: dict[int, Writes] = {}
    grad = case.calls[0].grad
    with nullcontext() if grad else al.no_grad():
        for step in case.program.body:
            _run(step, values, writes, grad=grad)
    return Run(case, inputs, before, values, results_of(case, values), writes)


def _run(step: Step, values: list[Any], writes: dict[int, Writes], *, grad: bool) -> None:
    first = step.args[0]
    target = values[first.index] if isinstance(first, Ref) else None
    before = None if target is None else target.version
    execute(Aotlite(), (step,), values)
    if target is not None and target.version != before and step.op not in GEOMETRY:
        found = writes.setdefault(id(target.storage), Writes())
        found.with_grad |= grad and step.grad
        itself = step.op == "copy_" and values[step.args[1].index] is target
        found.with_history |= grad and step.grad and not itself


def state_of(x: Any) -> tuple[Any, ...]:
    """Eager's facts of a tensor."""
    return (
        tuple(x.shape),
        tuple(x.stride()),
        x.storage_offset(),
        x.requires_grad,
        x._leaf and x._node is None,
        x.version,
    )


def on_intermediates(case: Case) -> Case:
    """The same program on copies of its inputs: what was an input is an intermediate then."""
    count = len(case.program.inputs)

    def later(value: Any) -> Any:
        return Ref(value.index + count) if isinstance(value, Ref) else value

    copies = [Step("mul", (Ref(i), 1)) for i in range(count)]
    body = [attrs.evolve(s, args=tuple(map(later, s.args))) for s in case.program.body]
    outputs = tuple([number + count for number in case.program.outputs])
    program = attrs.evolve(case.program, body=(*copies, *body), outputs=outputs)
    return attrs.evolve(case, program=program)


@cache
def on_both() -> tuple[Journey, ...]:
    """Random programs on their inputs, and on copies of them."""
    first = journeys()[::2]
    again = (journey_of(on_intermediates(journey.case)) for journey in first)
    return (*first, *(journey for journey in again if journey is not None))


# ------------------------------------------------------------------------------------ the kinds
def kinds(run: Run) -> list[tuple[Any, ...]]:
    """For each result its kind, and what it is rebuilt from (META-6, META-7)."""
    bases: dict[int, int] = {}
    return [_kind(run, index, result, bases) for index, result in enumerate(run.results)]


def _kind(run: Run, index: int, result: Any, bases: dict[int, int]) -> tuple[Any, ...]:
    if not isinstance(result, al.Tensor):
        return ("Fixed",)
    earlier = next(i for i, other in enumerate(run.results) if other is result)
    if earlier != index:
        return "Repeated", earlier
    if run.number(result) is not None:
        return "IsInput", run.number(result)
    owners = run.owners(result)
    if owners:
        return "AliasOfInput", (owners.pop() if len(owners) == 1 else None)
    maker = run.maker(result)
    if result is maker or (len(run.sharing(result)) == 1 and result._kind is None):
        return ("Plain",)
    for place, other in enumerate(run.results):
        if other is maker:
            return "AliasOfOutput", place
    return "AliasOfBase", bases.setdefault(id(result.storage), len(bases))


def tangents(run: Run) -> list[Any]:
    """The differentiable results, in order (META-16); None where inputs share memory."""
    found: list[Any] = []
    for number, x in enumerate(run.inputs):
        if run.number(x) == number and _gets_a_history(run, number):
            found.append(("updated", number))
    table = kinds(run)
    for index, result in enumerate(run.results):
        if table[index] == ("Plain",) and result.requires_grad and result.grad_fn is not None:
            found.append(("output", index))
    for number in range(len({each[1] for each in table if each[0] == "AliasOfBase"})):
        views = [
            result
            for each, result in zip(table, run.results, strict=True)
            if each == ("AliasOfBase", number)
        ]
        if any(view.base is not None and view.base.requires_grad for view in views):
            found.append(("base", number))
    return found


def _gets_a_history(run: Run, number: int) -> bool:
    """Whether a data write gave the input's whole family another tape node."""
    x = run.inputs[number]
    written = run.writes.get(id(x.storage))
    if written is None or not written.with_history:
        return False
    root = x if x.base is None else x.base
    return root.requires_grad and root.grad_fn is not None
