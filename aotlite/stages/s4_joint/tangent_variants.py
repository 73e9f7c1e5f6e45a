"""Backwards recorded for each subset of results whose tangents may arrive (TAN-8).

The sum of gradients of two classes may have either class, or a third, and other ops follow it. So
which tangents arrive decides the graph, not only values in it. Then the joint graph holds the
backwards of all subsets side by side, and each run-time backward uses that of its own subset:

    results y, z   ->   gradients {y, z}: dx.0 .. · {y}: dx.1 .. · {z}: dx.2 ..

Used by stages 4 and 10. Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import attrs

from aotlite.ir.errors import GraphError, UnsupportedError
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Gradient, Piece, Result, Role
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.op import GeometryOp, InplaceOp
from aotlite.stages.records.backward.joint import ArrivalChoice
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.backward_effects import has_backward_effects
from aotlite.stages.s4_joint.instrumented_runs import NodeVisit
from aotlite.stages.s4_joint.recording_blocks import nothing_kept
from aotlite.stages.s4_joint.tape_recording import Root

T = TypeVar("T")

MOST = 4
"""The largest number of results: of n results 2**n - 1 subsets are recorded."""


def choices_of(results: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """All non-empty subsets, the whole first.

    >>> list(choices_of("ab"))
    [('a', 'b'), ('a',), ('b',)]
    """
    for count in range(len(results), 0, -1):
        yield from combinations(results, count)


Flat = tuple[list[tuple[Role, Node | None]], dict[Role, SubclassMeta | None]]
"""Gradients as graph outputs, and the metas by which wrappers are made of them."""


def recorded_choices(
    recorder: Trace,
    roots: Sequence[Root],
    record: Callable[[Sequence[Root]], Flat],
    choices: list[ArrivalChoice],
) -> Flat:
    """Records the backward of each subset of roots; returns all outputs, appends to `choices`.

    The first item of a root is its result.
    """
    found: list[tuple[Role, Node | None]] = []
    known: dict[Role, SubclassMeta | None] = {}
    for number, each in enumerate(choices_of(roots)):
        start, error = len(recorder.nodes), None
        outputs: list[tuple[Role, Node | None]] = []
        made: dict[Role, SubclassMeta | None] = {}
        try:
            outputs, made = record(each)
        except Exception as raised:  # a wrapper's class may raise any
            check_is_eagers(raised)
            recorder.drop_from(start)
            error = raised
        metas = {role: how for role, how in made.items() if how is not None}
        found += [(_of_choice(role, number), value) for role, value in outputs]
        choices.append(ArrivalChoice(frozenset([root[0] for root in each]), metas, error))
        known |= metas
    return found, known


def note_failing(
    recorder: Trace,
    roots: Sequence[Root],
    record: Callable[[Sequence[Root]], object],
    errors: dict[Result, Exception],
    expected: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> None:
    """Notes in `errors` the results whose backward alone raises; records nothing (JNT-15)."""
    for root in roots:
        try:
            with nothing_kept(recorder):
                record([root])
        except expected as error:
            check_is_eagers(error)
            errors[root[0]] = error


def can_repeat(nodes: Sequence[Node]) -> bool:
    """Whether the backward recorded as these nodes can be recorded several times.

    It has no effects, draws nothing, and writes no memory of the forward.
    """
    return not has_backward_effects(nodes) and not any(map(_writes_forward, nodes))


def _writes_forward(node: Node) -> bool:
    changes = isinstance(node.target, (InplaceOp, GeometryOp))
    return changes and storage_root(node).phase is Phase.FORWARD


def turns_among(
    turns: Sequence[NodeVisit], ran: Sequence[object], every: Sequence[Role]
) -> Iterator[NodeVisit]:
    """The visits of a subset's backward, with bits renumbered to those of all results."""
    places = [every.index(result) for result in ran]
    for turn in turns:
        bits = [1 << place for k, place in enumerate(places) if turn.arrived >> k & 1]
        yield attrs.evolve(turn, arrived=sum(bits))


def check_is_eagers(error: Exception) -> None:
    """Raises an error that eager would not raise: a refusal, or a bug. Others lose their frames."""
    if isinstance(error, (UnsupportedError, GraphError)):
        raise error
    error.__traceback__ = error.__context__ = None


def _of_choice(role: Role, number: int) -> Role:
    """The role of a gradient of subset `number`, in the graph that has all of them."""
    return Gradient(Piece(role.of, str(number)))  # type: ignore[union-attr]
