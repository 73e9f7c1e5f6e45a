"""`SizedEntries`: the instances of a region that share one text, their graphs and their kernels.

    records with symbols ── stages 9 and 10, once ──> text, and code for what it needs as numbers
                                                          │ sizes of a call
                                                          v
                                    an instance: constants, a launch, the plan of the backward

Graphs and records with numbers are made when somebody looks at them. Where the text would depend on
sizes otherwise, an instance is made of records with numbers. Rule: DYN-41. Spec:
`specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.protocol import Backend
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.forks import Later
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Primal
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.graph.symbolic.size_code import holding
from aotlite.ir.logs import timed
from aotlite.ir.symbols.proving import Demands, Unproved
from aotlite.pipeline import derivatives, lowering, partitioning
from aotlite.pipeline.request import Compilation, CompiledEntry
from aotlite.pipeline.size_regions.kernels import Instance, SizedBackend
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s9_lower import lower
from aotlite.stages.s10_runtime import runtime
from aotlite.stages.s10_runtime.backward.double_backward import CompiledOrder, CompiledOrders
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.backward.writer import Step
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts
from aotlite.stages.s10_runtime.guards.overlap import refuse_foreign_overlap
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.sized_functions import (
    InstanceVariants,
    SizedBackward,
    SizedEntry,
    sized_backward,
    sized_entry,
)
from aotlite.stages.s10_runtime.sized_source import size_code

MOST_TEXTS = 8
"""Sizes with other answers than those of so many texts have records of their own."""


class Refused(Exception):
    """Raised where an instance of these sizes takes records with numbers."""


Shared = tuple[CompiledEntry | None, Run | None]
"""An instance; or None, and the forward, if it was lowered before the instance was refused."""


@attrs.define(eq=False, repr=False)
class SizedEntries:
    """The instances of a region, made of its records with symbols."""

    compilation: Compilation
    name: str
    records: StageRecords
    facts: GuardedFacts
    sizes: SymbolicSizes
    number: str
    why_not: list[str] = attrs.field(factory=list)
    """Why instances have records of their own."""
    _texts: list[SharedText] = attrs.field(factory=list)
    _tries: int = 0

    def at(
        self,
        values: dict[str, int],
        leaves: Sequence[object],
        tensors: Mapping[Any, Tensor],
    ) -> Shared:
        """The instance for these sizes and a call; None where it takes records with numbers."""
        known = next((each for each in self._texts if each.holds(values)), None)
        if known is None and not self._may_share():
            return None, None
        run = None
        try:
            refuse_foreign_overlap(dict(tensors), self.records.meta)
            run = half(self, 0, values)
            with timed("stage", stage="runtime"):
                text = known or self._text(values, run, leaves, tensors)
            return text.at(values, run, tensors), None
        except (Unproved, Refused) as problem:
            self.note(str(problem))
            return None, run

    def note(self, reason: str) -> None:
        """Keeps a reason, once."""
        if reason not in self.why_not:
            self.why_not.append(reason)

    def _may_share(self) -> bool:
        """Whether stages 9 and 10 are aotlite's, the forward is one graph, and texts are few."""
        stages = self.compilation.stages  # `get` gives a stage itself, also where it is timed
        is_ours = stages.get("lower") is lower and stages.get("runtime") is runtime
        return is_ours and self.records.handed is None and self._tries < MOST_TEXTS

    def _text(
        self,
        values: dict[str, int],
        run: Run,
        leaves: Sequence[object],
        tensors: Mapping[Any, Tensor],
    ) -> SharedText:
        self._tries += 1
        made = SharedText.of(self, f"{self.number}.{self._tries}", values, run, leaves, tensors)
        self._texts.append(made)
        return made


@attrs.define(eq=False, repr=False)
class SharedText:
    """The text of all sizes with the same answers, and what makes their instances."""

    owner: SizedEntries
    entry: SizedEntry
    holds: Callable[[Mapping[str, int]], bool]
    runs_user_code: bool
    plan: BackwardPlan | None
    """The plan of the backward, with symbols."""
    _parts: Callable[[Mapping[str, int]], tuple[Any, ...]]
    """The parts of the plan with numbers: tangents, gradients, facts."""
    _backwards: list[SizedBackward] = attrs.field(factory=list)

    @classmethod
    def of(
        cls,
        owner: SizedEntries,
        number: str,
        values: dict[str, int],
        run: Run,
        leaves: Sequence[object],
        tensors: Mapping[Any, Tensor],
    ) -> SharedText:
        """The text for these sizes, of which `run` is the forward, and others. Raises Unproved."""
        cut, compilation, table = owner.records, owner.compilation, owner.sizes.table
        if run.output_strides is not None:
            raise Refused("the backend chooses strides of saved values")
        roles: dict[Any, Any] = {
            **owner.sizes.metas,
            **dict.fromkeys(map(Primal, owner.sizes.numbers)),
        }
        demands = Demands(dict(values))
        with owner.sizes.lock:
            bases = cut.convention.bases
            given = owner.facts.values(leaves, dict(tensors), cut.meta, bases, cut.partition)
            given = attrs.evolve(given, sized=roles)
            plan = _symbolic_plan(cut, compilation)
            made = RuntimePlan(
                name=owner.name,
                number=number,
                meta=cut.meta,
                convention=cut.convention,
                forward=cut.partition.forward,
                run=run,
                fast_paths=compilation.options.fast_paths,
                backward=plan,
                result_spec=cut.containers.spec,
                guarded_values=given,
            )
            entry = sized_entry(made, table, demands)
        code = size_code(table)
        parts = () if plan is None else (plan.tangents, plan.gradients, plan.facts)
        numbers = code.function([code.text(each) for each in parts])
        return cls(owner, entry, holding(demands), run.runs_user_code, plan, numbers)

    def at(self, values: dict[str, int], run: Run, tensors: Mapping[Any, Tensor]) -> CompiledEntry:
        """The instance for these sizes, with its forward. Raises Refused if that is of another kind
        than that of the text, or numbers make saved tensors alike."""
        owner = self.owner
        if run.output_strides is not None or run.runs_user_code != self.runs_user_code:
            raise Refused("the backend has made another kind of run for these sizes")
        cut, compilation = owner.records, owner.compilation
        compilation.observers.show_kernels("forward", run)
        guarded = self.entry.at(values, run, self._plan(values), tensors)
        return CompiledEntry(compilation.number, guarded, cut.meta, cut.partition, cut.containers)

    # --- the backward
    def _plan(self, values: dict[str, int]) -> BackwardPlan | None:
        plan = self.plan
        if plan is None:
            return None
        tangents, gradients, facts = self._parts(values)
        if len(facts.reads) != len(plan.facts.reads):
            raise Refused("saved tensors of different sizes are alike at these sizes")
        numbers = Later(lambda: self.owner.records.at(values))
        variants: Any = None if plan.variants is None else self._variants(values, numbers)
        orders = self._derivatives(plan.derivatives, values, numbers)
        made = attrs.evolve(
            plan,
            variants=variants,
            tangents=tangents,
            gradients=gradients,
            facts=facts,
            derivatives=orders,
        )
        if variants is not None:
            variants.of_sizes = lambda: self._backward(made, values)
        return made

    def _variants(self, values: dict[str, int], numbers: Later[StageRecords]) -> InstanceVariants:
        owner = self.owner
        cut, compilation = owner.records, owner.compilation
        graph: Later[Graph] = Later(lambda: numbers.value.partition.backward)  # type: ignore[arg-type,return-value]
        instance = Instance(cut.kernels[1], graph, values)
        compiler = lowering.backward_compiler(cut.partition, compilation, instance, values)
        assert isinstance(compiler, SizedBackend)
        lowered = compilation.observers.shown(partial(lower, backend=compiler))
        made = InstanceVariants(graph, lowered)  # type: ignore[arg-type]
        made.changed = compiler.changed
        return made

    def _backward(self, plan: BackwardPlan, values: dict[str, int]) -> tuple[Step, str]:
        """The backward for all gradients, at these sizes."""
        owner = self.owner
        observers = owner.compilation.observers
        graph: Any = owner.records.partition.backward
        run: Run = observers.shown(lambda _: half(owner, 1, values))(graph)
        assert isinstance(plan.variants, InstanceVariants)
        plan.variants.runs_user_code |= run.runs_user_code
        for each in self._backwards:
            if each.runs_user_code == run.runs_user_code and each.holds(values):
                return each.at(values, run)
        assert self.plan is not None
        try:
            with owner.sizes.lock:
                of = self.plan, graph, run, owner.sizes.table, Demands(dict(values))
                made = sized_backward(*of)
        except Unproved as problem:
            owner.note(str(problem))
            return plan.variants.written(plan, run)
        self._backwards = [*self._backwards[-MOST_TEXTS:], made]
        return made.at(values, run)

    def _derivatives(
        self, given: Derivatives, values: dict[str, int], numbers: Later[StageRecords]
    ) -> Derivatives:
        """The higher orders at these sizes, which are made when one is asked for (DYN-10)."""
        if given.orders is None:
            return given
        compilation = self.owner.compilation

        def orders() -> CompiledOrders:
            cut = numbers.value
            how = cut.derivable, compilation, values
            bases = cut.convention.bases
            found = derivatives.orders_of(cut.joint, cut.partition, bases, *how).orders
            assert isinstance(found, CompiledOrders)
            return found

        known = Later(orders)

        def order(arriving: Any) -> CompiledOrder:
            return known.value.order(arriving)

        return attrs.evolve(given, orders=CompiledOrders(order, given.orders.incoming))


def _symbolic_plan(cut: StageRecords, compilation: Compilation) -> BackwardPlan | None:
    """The plan of the backward with symbols, which no call runs."""
    none: dict[str, int] = {}
    how = cut.derivable, compilation, none
    orders = derivatives.orders_of(cut.joint, cut.partition, cut.convention.bases, *how)
    backend = lowering.backward_compiler(cut.partition, compilation)
    parts = cut.partition, cut.meta, cut.joint, backend, compilation, orders
    return lowering.planned_backward(*parts)


def half(owner: SizedEntries, which: int, values: dict[str, int]) -> Run:
    """The forward, 0, or the backward, 1, at these sizes: by kernels for all of them, if there are
    such, else of the graph with numbers."""
    with timed("stage", stage="lower"):
        return _half(owner, which, values)


def _half(owner: SizedEntries, which: int, values: dict[str, int]) -> Run:
    cut, compilation = owner.records, owner.compilation
    graph: Any = (cut.partition.forward, cut.partition.backward)[which]
    options = compilation.options
    backend = options.backward_backend()
    if which == 0:
        backend = options.forward_backend(training=cut.meta.training)
    compiler = partitioning.compiler_of(backend, cut.partition, compilation, values)
    kernels = cut.kernels[which]
    sized = None if kernels is None else kernels.of(compiler)
    if kernels is None or sized is None:
        return lower(at_sizes(graph, values), compiler)
    with kernels.sizes.lock:  # it may ask the table
        made = sized.at(values)
    return lower(graph, _Made(compiler, made))


class _Made:
    """A backend that has made the run already."""

    def __init__(self, backend: Backend, run: Any) -> None:
        self.name, self._run = backend.name, run
        self.trusted = getattr(backend, "trusted", False)

    def compile(self, graph: Graph) -> Any:
        """The run."""
        return self._run
