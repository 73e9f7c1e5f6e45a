"""Backwards recorded for each choice of results whose gradients arrive (TAN-8).

A sum of gradients of several classes is of one of them, or of a third, and what one alone is told
by which of them arrive. What follows the sum may be other ops. So where such a sum was met, the
joint graph has the gradients of each choice of results, side by side, and a backward takes those of
its own. Used by stages 4 and 10. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, TypeVar

import attrs

from aotlite.ir.errors import GraphError, UnsupportedError
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Gradient, Piece, Role
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.stages.records.backward.joint import ArrivalChoice
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.backward_effects import has_backward_effects
from aotlite.stages.s4_joint.instrumented_runs import NodeVisit
from aotlite.stages.s4_joint.recording_blocks import nothing_kept

T = TypeVar("T")

MOST = 4
"""So many results at most: of n, 2**n - 1 choices are recorded."""


def choices_of(results: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """All choices of at least one, the whole first.

    >>> list(choices_of("ab"))
    [('a', 'b'), ('a',), ('b',)]
    """
    for count in range(len(results), 0, -1):
        yield from combinations(results, count)


Flat = tuple[list[tuple[Role, Any]], dict[Any, Any]]
"""The outputs that gradients are, and how those are made that are wrappers."""


def recorded_choices(
    recorder: Trace,
    roots: Sequence[Any],
    record: Callable[[Sequence[Any]], Flat],
    choices: list[ArrivalChoice],
) -> Flat:
    """The outputs for each choice of results, as recorded; `choices` gets what they are.

    A root begins with the result that it is of.
    """
    found: list[tuple[Role, Any]] = []
    known: dict[Any, Any] = {}
    for number, each in enumerate(choices_of(roots)):
        start, error = len(recorder.nodes), None
        outputs: list[tuple[Role, Any]] = []
        made: dict[Any, Any] = {}
        try:
            outputs, made = record(each)
        except Exception as raised:  # what classes of wrappers raise
            check_is_eagers(raised)
            recorder.drop_from(start)
            error = raised
        made = {role: how for role, how in made.items() if how is not None}
        found += [(_of_choice(role, number), value) for role, value in outputs]
        choices.append(ArrivalChoice(frozenset([root[0] for root in each]), made, error))
        known |= made
    return found, known


def note_failing(
    recorder: Trace,
    roots: Sequence[Any],
    record: Callable[[Sequence[Any]], Any],
    errors: dict[Any, Exception],
    expected: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> None:
    """Notes the results whose backwards fail alone. Nothing that is recorded stays (JNT-15)."""
    for root in roots:
        try:
            with nothing_kept(recorder):
                record([root])
        except expected as error:
            check_is_eagers(error)
            errors[root[0]] = error


def can_repeat(nodes: Sequence[Node]) -> bool:
    """Whether a backward that was recorded so can be recorded once for each choice: users' Python
    has had no effect in it, drawn nothing, and written no memory of the forward."""
    return not has_backward_effects(nodes) and not any(map(_writes_forward, nodes))


def _writes_forward(node: Node) -> bool:
    changes = isinstance(node.target, (InplaceOp, GeometryOp))
    return changes and storage_root(node).phase is Phase.FORWARD


def turns_among(
    turns: Sequence[NodeVisit], ran: Sequence[Any], every: Sequence[Any]
) -> Iterator[NodeVisit]:
    """Turns of the backward of a choice of results, which they have as bits among all of them."""
    places = [every.index(result) for result in ran]
    for turn in turns:
        bits = [1 << place for k, place in enumerate(places) if turn.arrived >> k & 1]
        yield attrs.evolve(turn, arrived=sum(bits))


def check_is_eagers(error: Exception) -> None:
    """Raises what is an error of the capture alone; frames of others are not kept."""
    if isinstance(error, (UnsupportedError, GraphError)):
        raise error
    error.__traceback__ = error.__context__ = None


def _of_choice(role: Role, number: int) -> Role:
    """The role of a gradient of a choice, while those of all choices are in one graph."""
    return Gradient(Piece(role.of, str(number)))  # type: ignore[union-attr]
