"""Derivatives of compiled backwards, as the pipeline makes them on first use (DBL-2).

An order goes through the stages that the first one went through, from stage 6 on: its joint graph
is recorded from the tape that was kept, fed from the saved values, cut in two and lowered.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any

import attrs

from aotlite.backends.reference import REFERENCE
from aotlite.ir.collector import collector_paused
from aotlite.ir.forks import cached_property, lock
from aotlite.ir.graph import Graph
from aotlite.ir.role import Kept, Output, Saved
from aotlite.stages.records.gradient_reads import Reading
from aotlite.stages.records.joint import Joint
from aotlite.stages.records.partition import Partition
from aotlite.stages.s3_convention.synthetic_bases import with_bases
from aotlite.stages.s4_joint.anomaly_trace import watched
from aotlite.stages.s4_joint.double_backward import Differentiated, Taped, differentiated
from aotlite.stages.s5_desugar import without_wrappers
from aotlite.stages.s7_simplify.linearity import is_linear
from aotlite.stages.s8_partition.double_backward_saves import (
    Held,
    Reads,
    closed,
    fed,
    following,
    places_of,
    with_kept,
)
from aotlite.stages.s10_runtime.backward.anomaly import Inside, Look
from aotlite.stages.s10_runtime.backward.double_backward import Arriving, Order, Orders
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.backward.planning import plan_backward
from aotlite.stages.s10_runtime.backward.single_visit import WholeBackward
from aotlite.stages.shared.value_numbering import Numbering

NOT_LINEAR = (
    "What users' Python or a class of wrappers computes in its backward is not linear in the "
    "gradient."
)
"""Why gradients of a call have to arrive at one of its tape nodes."""


@attrs.frozen(eq=False)
class HigherOrders:
    """The orders of one compiled function. `journey` is the compilation that it was made by."""

    journey: Any
    bases: Sequence[Any]
    """The synthetic bases of its convention."""
    reads: Reads
    """What is known of what derivatives read."""
    is_compact: bool
    """Saved values travel as arrays (`backends.values`)."""
    numbering: Numbering = attrs.field(init=False, factory=Numbering)
    _lock: Any = attrs.field(init=False, factory=lock)

    def of(
        self,
        taped: Taped,
        partition: Partition,
        given: Mapping[Any, int],
        reads: Reading,
        *,
        splits: bool,
    ) -> Orders:
        """The backward of a partition as something to differentiate.

        `given` has the numbers of the forward's inputs that are no inputs of the function, `reads`
        what the gradient of each result reads of others' memory; `splits` says whether gradients
        may arrive at all earlier orders in parts.
        """
        values = _Values(self, partition, given, reads, splits)
        return Orders(partial(self._order, taped, values), taped.incoming)

    def _order(self, taped: Taped, values: _Values, arriving: Arriving) -> Order:
        with self._lock, collector_paused():  # all orders share the recorder, and the numbers
            made = differentiated(taped, arriving)
            places = values.places(arriving)
            pure, roles = self._joint(made, taped)
            whole = fed(pure, self.numbering.of(pure, {}), values.saved, places)
            graph = self._simple(whole, roles)
            self.journey._check(f"7 simplify, order {taped.order + 1}", graph, functional=True)
            given: dict[Any, int] = {Kept(k): number for number, k in places.items()}
            for index in range(len(values.saved)):
                given.setdefault(Kept(index), self.numbering.unknown())
            splits = values.splits and (not made.runs_user_code or is_linear(graph))
            partition = self._cut(graph, pure, given, taped.further)
            return self._lowered(made, graph, partition, given, splits=splits)

    def _joint(self, made: Differentiated, taped: Taped) -> tuple[Graph, set[Any]]:
        """The pure joint graph, from the inputs on, and the roles of those that stay inputs where
        it is fed from saved values: gradients that arrive."""
        plain = without_wrappers(made.graph, made.taped.wrapped)
        pure = self._pure(plain, f"order {taped.order + 1}")
        roles = set(made.incoming)
        roles.update([node.role for node in pure.placeholders if node.phase.name == "BACKWARD"])
        return pure, roles

    def _pure(self, graph: Graph, what: str) -> Graph:
        """The graph as saved values are to be found in it: behind decompositions and passes.

        Not simplified where it can be helped, since each value may be the one that is saved.
        """
        journey, stage = self.journey, self.journey.stage
        whole = with_bases(graph, self.bases)
        journey._check(f"4 joint, {what}", whole)
        pure = journey._decomposed(stage["functionalize"](whole))
        if journey.options.passes:
            pure = stage["simplify"](pure)
        for each in journey.options.passes:
            pure = journey._apply(each, pure)
        opened: Graph = journey._opened(pure)
        return opened

    def _simple(self, graph: Graph, arriving: Container[Any]) -> Graph:
        """A graph that was fed, behind stage 7."""
        return closed(self.journey.stage["simplify"](graph), arriving)

    # --- anomaly mode
    def inside(
        self, taped: Taped, partition: Partition, given: Mapping[Any, int], reads: Reading
    ) -> Inside | None:
        """What anomaly mode looks at in the backward of a partition (JNT-8).

        None where that is the gradients it gives: of wrappers, and with memory of others.
        """
        if taped.wrapped or taped.memory:
            return None
        return Inside(partial(self._look, taped, _Values(self, partition, given, reads, True)))

    def _look(
        self, taped: Taped, values: _Values, arriving: frozenset[Any], wanted: frozenset[Any] | None
    ) -> Look:
        with self._lock, collector_paused():
            made = watched(taped, arriving, wanted)
            pure = self._pure(made.graph, "anomaly mode")
            roles = {taped.incoming(role): role for role in arriving}
            places = values.places(dict.fromkeys(arriving, False))
            numbers = self.numbering.of(pure, {})
            known = following(pure, numbers, places, roles)
            graph = self._simple(fed(known, numbers, values.saved, places), roles)
            self.journey._check("7 simplify, anomaly mode", graph, functional=True)
            arrived: list[Any] = [
                (roles[node.role], node.meta) for node in graph.placeholders if node.role in roles
            ]
            found = [made.readings[role.index] for role, _ in graph.outputs_with(Output)]
            return Look(
                REFERENCE.compile(graph),
                tuple(arrived),
                tuple([(each.node, each.index, each.value.meta) for each in found]),
                made.failure,
                made.reads,
                len(found) == len(made.readings),
                made.within,
                made.order,
            )

    def _cut(
        self, graph: Graph, pure: Graph, given: Mapping[Any, int], further: Container[Any]
    ) -> Partition:
        """The halves of a graph that was `pure` before it was fed.

        What derivatives read shows in that one: a saved value that is zeros has a history there.
        `further` are the inputs that derivatives of some order reach.
        """
        partition: Partition = self.journey._partition(graph)
        requires = further.__contains__
        return with_kept(partition, pure, self.numbering, given, requires, reads=self.reads)

    def _lowered(
        self,
        made: Differentiated,
        graph: Graph,
        partition: Partition,
        given: Mapping[Any, int],
        *,
        splits: bool,
    ) -> Order:
        journey, options = self.journey, self.journey.options
        compiler = journey._told(options.backward_backend(), partition)
        lowering = journey.stage["lower"]
        run = lowering(partition.forward, compiler)
        lower = partial(lowering, backend=compiler)
        plan = self._plan(made, graph, partition, lower, given, splits=splits)
        count = iter(range(len(made.gradients)))
        results = tuple(
            [(role, None if meta is None else next(count)) for role, meta in made.gradients]
        )
        kind = CompiledBackward if splits and not made.taped.memory else WholeBackward
        return Order(partition.forward, run, plan, results, made.wrappings, kind, made.why)

    def _plan(
        self,
        made: Differentiated,
        graph: Graph,
        partition: Partition,
        lower: Any,
        given: Mapping[Any, int],
        *,
        splits: bool,
    ) -> BackwardPlan | None:
        if partition.backward is None:
            return None
        both = Joint(
            graph,
            made.errors,
            made.reach,
            {**made.reach, **made.second.flows},
            made.reads,
            arrivals=made.second.arrivals,
            layouts={start.role: start.meta for start in made.taped.starts},
            wrappings=made.wrappings,
            apart=made.second.apart,
            choices=made.second.choices,
        )
        plan = plan_backward(
            partition.backward,
            lower,
            both,
            (),
            (),
            is_compact=self.is_compact,
            lent=partition.lent,
            guarded=partition.guarded,
            orders=self.of(made.taped, partition, given, made.reads, splits=splits),
            why="" if splits else NOT_LINEAR,
            splits=splits,
            inside=self.inside(made.taped, partition, given, made.reads),
        )
        number = self.journey.number
        return plan and attrs.evolve(plan, order=made.taped.order, number=number)


@attrs.frozen(eq=False, slots=False)
class _Values:
    """What a partition saves."""

    orders: HigherOrders
    partition: Partition
    given: Mapping[Any, int]
    reads: Reading
    splits: bool

    @cached_property
    def saved(self) -> list[Held]:
        """Each value, in order."""
        forward, backward = self.partition.forward, self.partition.backward
        if backward is None:
            return []
        numbers = self.orders.numbering.of(forward, self.given)
        inputs: dict[Any, Any] = {node.role: node.meta for node in backward.placeholders}
        values = zip(forward.outputs_with(Saved), self.partition.saved, strict=True)
        return [Held.of(numbers[v], inputs[role], saved) for (role, v), saved in values]

    def places(self, arriving: Arriving) -> dict[int, int]:
        """Where each value is that gradients of these results read."""
        reads = self.reads
        read = reads.read_by(reads.bits_among(arriving))
        asked = {each.owner for each in compress(reads.links, read)}
        return places_of(self.saved, asked)
