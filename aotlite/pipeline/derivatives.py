"""Double backward: compiles the backward of a backward, the first time it is differentiated.

    order 1   f(x) = y          forward_1 ─ saved_1 ─> backward_1(dy) = dx
    order 2   backward_1        forward_2 ─ saved_2 ─> backward_2(ddx) = ddy, second part of dx

The joint graph of an order is recorded from the kept tape of the order before. Its forward part
computes again what order 1 computed; `fed` replaces that part by the saved values of the order
before. The rest is stages 6 to 9 again: functionalize, simplify, partition, lower.
Rules: DBL-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import compress
from typing import Any

import attrs

from aotlite.ir.collector import collector_paused
from aotlite.ir.forks import cached_property, lock
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import Kept, Role, Saved
from aotlite.ir.logs import timed
from aotlite.ir.symbols.assumption import Texts, with_hints
from aotlite.pipeline.options import Options
from aotlite.pipeline.order_records import OrderRecords
from aotlite.pipeline.partitioning import decomposed_for_fusion, partitioned
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.user_code import decomposed, with_passes
from aotlite.stages.records.backward.gradient_reads import GradientReads
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import running
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s3_convention.synthetic_bases import with_bases
from aotlite.stages.s4_joint.replay.double_backward import (
    DerivativeJoint,
    KeptTape,
    derivative_joint,
)
from aotlite.stages.s5_desugar import without_wrappers
from aotlite.stages.s7_simplify.linearity import is_linear
from aotlite.stages.s7_simplify.normalizations import decompose_normalizations
from aotlite.stages.s8_partition.double_backward_saves import (
    MayRead,
    Reads,
    SavedOperand,
    closed,
    fed,
    places_of,
    unwritten_places,
    with_double_backward_saves,
)
from aotlite.stages.s8_partition.subclass_reads import InputReads
from aotlite.stages.s10_runtime.backward.double_backward import (
    Arriving,
    CompiledOrder,
    CompiledOrders,
)
from aotlite.stages.s10_runtime.backward.plan import Derivatives
from aotlite.stages.shared.size_values import AtSizes
from aotlite.stages.shared.value_numbering import ValueNumbering

NOT_LINEAR = (
    "A hook, a custom backward or a class of wrappers computes something that is not linear in the "
    "gradient."
)
"""Why all gradients of a call have to go through one tape node of it."""


# --------------------------------------------------------------------------------- the first order
@attrs.frozen
class Derivable:
    """What a double backward needs of the partition: decided when the joint graph is cut."""

    reads: Reads = Reads.FORMULAS
    """Which forward values the derivatives of the backward may read."""
    is_linear: bool = True
    """The backward is linear in the tangents: two of them may arrive one after the other."""
    has_passes: bool = False
    """The user has passes: derivatives are read of what they return."""

    @classmethod
    def of(
        cls,
        captured: Captured,
        both: Joint,
        options: Options,
        simplified: Graph,
        joint_graph: Graph,
    ) -> Derivable:
        """The `Derivable` of the `joint_graph` to partition; stage 7 returned `simplified`."""
        wrapped = captured.recorder.wrapped
        reads = Reads.OPERANDS if options.decompositions else Reads.FORMULAS
        if both.runs_user_code or joint_graph.nodes != simplified.nodes:
            reads = Reads.OPERANDS
        if wrapped or both.backward.memory:
            reads = Reads.ANYTHING
        users = both.runs_user_code or wrapped
        return cls(reads, not users or is_linear(simplified), bool(options.passes))

    def with_saves(
        self,
        partition: Partition,
        graphs: tuple[Graph, Graph, Graph],
        meta: FunctionMeta,
        is_read: MayRead,
    ) -> Partition:
        """The partition with more saved values: those that a double backward may read.

        `graphs` are the joint graph before stage 7, behind the user's passes, and as it was
        partitioned. They are read before stage 7, where there are no passes: it may drop a gradient
        that is zero, and whose derivative is not. `is_read` answers of an input whether derivatives
        may read it.
        """
        decomposed, with_passes, joint_graph = graphs
        unsimplified = with_passes if self.has_passes else decomposed
        if joint_graph.nodes != with_passes.nodes:
            unsimplified = decompose_normalizations(unsimplified)
        requires = {each.role for each in meta.inputs if each.requires_grad}
        return with_double_backward_saves(
            partition,
            unsimplified,
            ValueNumbering(),
            {},
            requires.__contains__,
            joint_graph.exported,
            reads=self.reads,
            may_read=is_read,
        )


def may_read(captured: Captured, both: Joint) -> MayRead:
    """A predicate on saved values and roles: may a derivative read this input besides them?

    True of every input, unless the function has wrappers whose joint graph shows what is read: no
    custom backward ran, and no memory is read late.
    """
    wrapped = captured.recorder.wrapped
    if not wrapped or both.backward.memory or both.runs_user_code or both.kept_tape is None:
        return lambda saved, role: True
    return InputReads(both.graph, captured, wrapped.nodes)


def take_floats(captured: Captured, both: Joint) -> None:
    """Compiles for the values of float arguments where users' Python runs in the backward, or is
    called by it: it may ask for a number when derivatives are recorded, after calls (DYN-27)."""
    recorder = captured.recorder
    is_users = both.runs_user_code or recorder.wrapped or captured.hooks or recorder.hooks.kept
    if recorder.sizes is not None and both.has_backward and (is_users or both.kept_tape is None):
        recorder.sizes.floats.take()


def exported(captured: Captured) -> frozenset[Role]:
    """The roles of inputs whose memory an ndarray of the user's shares: NumPy may write them."""
    real_of = captured.recorder.real_of
    roles = {given.role: real_of(given.fake) for given in captured.inputs}
    return frozenset([role for role, real in roles.items() if real.storage.exported])


def orders_of(
    both: Joint,
    partition: Partition,
    bases: Sequence[BaseInput],
    derivable: Derivable,
    compilation: Compilation,
    sizes: Mapping[str, int] | None = None,
) -> Derivatives:
    """The higher orders of a backward, or the reason why it has none.
    With `sizes` the tape has symbols, and the partition these numbers in their place."""
    if compilation.options.saved_hooks is not None:
        return Derivatives(why="Its saved values are packed by hooks in the graph (SAV-7).")
    if both.kept_tape is None:
        what = "has effects, draws, writes memory, or passes hooks of results"
        return Derivatives(why=f"Its backward {what}.")
    if partition.backward is None:
        return Derivatives()
    alone = compilation.of_derivatives()
    higher = HigherOrders(alone, bases, derivable.reads, sizes)
    splits = derivable.is_linear
    orders = higher.of(both.kept_tape, partition, {}, both.backward.reads, splits=splits)
    return Derivatives(orders, "" if splits else NOT_LINEAR, splits)


# -------------------------------------------------------------------------------- the orders beyond
@attrs.frozen(eq=False, repr=False)
class HigherOrders:
    """Makes the second and further orders of one compiled function, on demand.

    All orders share the kept tape's recorder and one value numbering, so they share a lock.
    """

    compilation: Compilation
    bases: Sequence[BaseInput]
    """The synthetic bases of its convention."""
    reads: Reads
    """Which forward values derivatives may read."""
    sizes: Mapping[str, int] | None = None
    """Numbers for the symbols of the tape, by name; None if it has none."""
    numbering: ValueNumbering = attrs.field(init=False, factory=ValueNumbering)
    _lock: Any = attrs.field(init=False, factory=lock)

    def of(
        self,
        kept_tape: KeptTape,
        partition: Partition,
        given: Mapping[Role, int],
        reads: GradientReads,
        *,
        splits: bool,
    ) -> CompiledOrders:
        """The orders that differentiate the backward of `partition`; each is compiled when used.

        `given`: value numbers of the forward's inputs that are not inputs of the function.
        `reads`: the memory of inputs and results that the gradient of each result reads.
        `splits`: the backwards of all earlier orders are linear in their tangents.
        """
        values = _Values(self, partition, given, reads, splits)
        return CompiledOrders(partial(self._order, kept_tape, values), kept_tape.incoming)

    def _order(self, kept_tape: KeptTape, values: _Values, arriving: Arriving) -> CompiledOrder:
        with self._recording(kept_tape):
            cut = self._cut(kept_tape, values, arriving)
            return cut.records.compiled(self.compilation, self._next(cut))

    def cut(self, kept_tape: KeptTape, values: _Values, arriving: Arriving) -> OrderCut:
        """An order up to stage 8."""
        with self._recording(kept_tape):
            return self._cut(kept_tape, values, arriving)

    @contextmanager
    def _recording(self, kept_tape: KeptTape) -> Iterator[None]:
        """A block for one order: all orders share the recorder, and the numbers."""
        order = timed("order", order=kept_tape.order + 1)
        with self._lock, collector_paused(), self.compilation.observers.within(), order:
            yield

    def _cut(self, kept_tape: KeptTape, values: _Values, arriving: Arriving) -> OrderCut:
        kept_tape = kept_tape.recorded()
        made = self._recorded(kept_tape, arriving)
        pure, roles = self._joint(made, kept_tape)
        numbers = self.numbering.of(pure, {})
        places = values.places(arriving, pure, numbers, roles)
        whole = fed(pure, numbers, values.saved, places)
        graph = closed(self.compilation.stages["simplify"](whole), roles)
        self.compilation.observers.check(
            f"7 simplify, order {kept_tape.order + 1}", graph, functional=True
        )
        given: dict[Role, int] = {Kept(k): number for number, k in places.items()}
        for index in range(len(values.saved)):
            given.setdefault(Kept(index), self.numbering.unknown())
        splits = values.splits and (not made.runs_user_code or is_linear(graph))
        partition = self._partition(graph, pure, given, kept_tape.higher_order_inputs)
        records = self._records(made, graph, partition, splits=splits)
        return OrderCut(records, made.kept_tape, given)

    def _recorded(self, kept_tape: KeptTape, arriving: Arriving) -> DerivativeJoint:
        """The joint graph of an order. Of a tape with symbols it is recorded for these numbers, and
        gets them: it may assume more than the guards of the call say (DYN-10)."""
        symbols = kept_tape.recorder.sizes
        if self.sizes is None:
            with nullcontext() if symbols is None else symbols.floats.closed():
                return derivative_joint(kept_tape, arriving)
        assert symbols is not None
        running_so, closed = running(symbols, Texts.HINTS), symbols.floats.closed()
        with symbols.lock, with_hints(symbols.table, self.sizes), running_so, closed:
            made, at = derivative_joint(kept_tape, arriving), AtSizes(self.sizes)
            return attrs.evolve(
                made,
                graph=at.graph(made.graph),
                facts=at.put(made.facts),
                gradients=at.put(made.gradients),
                wrapped=at.put(made.wrapped),
                layouts=at.put(made.layouts),
            )

    def _joint(self, made: DerivativeJoint, kept_tape: KeptTape) -> tuple[Graph, set[Role]]:
        """The pure joint graph of an order, computed from the function's inputs, and the roles of
        its tangents: the placeholders that `fed` leaves in place.

        It has gone through stage 6, decompositions and passes, as the first order's has. Stage 7
        is left out where no pass needs it: it may drop the value that was saved.
        """
        compilation, stages = self.compilation, self.compilation.stages
        imperative = with_bases(without_wrappers(made.graph, made.wrapped), self.bases)
        compilation.observers.check(f"4 joint, order {kept_tape.order + 1}", imperative)
        pure = decomposed(stages["functionalize"](imperative), compilation)
        if compilation.options.passes:
            pure = stages["simplify"](pure)
        pure = decomposed_for_fusion(with_passes(pure, compilation), compilation)
        roles = set(made.incoming)
        roles.update([node.role for node in pure.placeholders if node.phase.name == "BACKWARD"])
        return pure, roles

    def _partition(
        self,
        graph: Graph,
        pure: Graph,
        given: Mapping[Role, int],
        higher_order_inputs: Container[object],
    ) -> Partition:
        """Stage 8 of a fed graph, with the saved values that the next order may read.

        `pure` is the same graph before it was fed. What derivatives read is looked up there: in
        `graph`, a value computed from inputs can have become a saved value without a history.
        `higher_order_inputs` are the inputs that derivatives of some order reach.
        """
        partition = partitioned(graph, self.compilation)
        requires = higher_order_inputs.__contains__
        return with_double_backward_saves(
            partition, pure, self.numbering, given, requires, reads=self.reads
        )

    def _records(
        self, made: DerivativeJoint, graph: Graph, partition: Partition, *, splits: bool
    ) -> OrderRecords:
        count = iter(range(len(made.gradients)))
        results = tuple(
            [(role, None if meta is None else next(count)) for role, meta in made.gradients]
        )
        return OrderRecords(
            Joint(graph, made.facts, layouts=made.layouts),
            partition,
            results,
            made.facts.subclass_metas,
            bool(not splits or made.kept_tape.memory),
            splits,
            made.kept_tape.order,
            made.why,
        )

    def _next(self, cut: OrderCut) -> Derivatives:
        """The orders behind one."""
        splits = cut.records.splits
        orders = CompiledOrders(partial(self._order, cut.kept_tape, self.values(cut)), cut.incoming)
        return Derivatives(orders, "" if splits else NOT_LINEAR, splits, cut.kept_tape.order)

    def values(self, cut: OrderCut) -> _Values:
        """The values that the order behind one is fed from."""
        reads, splits = cut.records.joint.backward.reads, cut.records.splits
        return _Values(self, cut.records.partition, cut.given, reads, splits)


@attrs.frozen(eq=False)
class OrderCut:
    """An order up to stage 8, with what the next one is recorded from."""

    records: OrderRecords
    kept_tape: KeptTape
    given: Mapping[Role, int]
    """Value numbers of the inputs of its forward."""

    @property
    def incoming(self) -> Callable[[Any], object]:
        """Gives the role of the next order's input that is the gradient of a result."""
        return self.kept_tape.incoming


@attrs.frozen(eq=False, slots=False)
class _Values:
    """The saved values of a partition, with the value numbers by which a later order finds them."""

    orders: HigherOrders
    partition: Partition
    given: Mapping[Any, int]
    reads: GradientReads
    splits: bool

    @cached_property
    def saved(self) -> list[SavedOperand]:
        """The saved values, in the order of the forward's outputs."""
        forward, backward = self.partition.forward, self.partition.backward
        if backward is None:
            return []
        numbers = self.orders.numbering.of(forward, self.given)
        inputs: dict[Any, Any] = {node.role: node.meta for node in backward.placeholders}
        values = zip(forward.outputs_with(Saved), self.partition.saved, strict=True)
        return [
            SavedOperand.of(numbers[v], inputs[role], saved, role) for (role, v), saved in values
        ]

    def places(
        self, arriving: Arriving, graph: Graph, numbers: dict[Node, int], roles: Container[object]
    ) -> dict[int, int]:
        """Value number to place among `saved`, for all that the tangents `arriving` may read.

        `graph` is the joint graph to feed, `roles` are those of its tangents.
        """
        reads = self.reads
        read = reads.read_by(reads.bits_among(arriving))
        asked = {each.owner for each in compress(reads.saved_tensors, read)}
        places = places_of(self.saved, asked)
        unchecked = {
            place
            for place in places.values()
            if (owner := self.saved[place].owner) is not None and owner not in asked
        }
        if not unchecked:
            return places
        return unwritten_places(graph, numbers, places, unchecked, roles)
