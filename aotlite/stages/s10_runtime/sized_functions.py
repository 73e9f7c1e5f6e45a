"""Functions of stage 10 that serve many sizes: one text, of which each instance has its constants.

A plan with symbols is written once, for all sizes that give the same answers to what is asked
(`Demands`). What holds a symbol, such as the meta of a result, is a constant of each instance; all
others are shared. Rules: DYN-41. Spec: `specs/size_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.python_source import Making
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.forks import Later
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.size_code import holding
from aotlite.ir.symbols.proving import Demands, proving
from aotlite.ir.symbols.table import SymbolTable
from aotlite.stages.s10_runtime.backward.plan import NOTHING_ABSENT, Absent, BackwardPlan
from aotlite.stages.s10_runtime.backward.variants import CompiledVariants
from aotlite.stages.s10_runtime.backward.writer import PARAMETERS, BackwardWriter, Step
from aotlite.stages.s10_runtime.forward.writer import EntryWriter
from aotlite.stages.s10_runtime.guarded_function import GuardedFunction
from aotlite.stages.s10_runtime.guards.failures import GuardCheck, GuardFailure, what_fails
from aotlite.stages.s10_runtime.guards.writer import write_guards
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.sized_source import SizedSource
from aotlite.stages.s10_runtime.source import ORDER

Values = Callable[[Mapping[str, int]], tuple[Any, ...]]


class InstanceFunction(GuardedFunction):
    """The function of an instance: its own constants are in the closure of `call`."""

    def why_not(self, leaves: Sequence[object]) -> GuardFailure | None:
        """The reason why the entry is not valid for these flat arguments; None if it is valid."""
        call: Any = self.call
        own = zip(call.__code__.co_freevars, call.__closure__ or (), strict=True)
        scope = {**self._scope, **{name: cell.cell_contents for name, cell in own}}
        return what_fails(self.checks, scope, leaves)


@attrs.frozen(eq=False, repr=False)
class SizedEntry:
    """The function of an entry for all sizes with the same answers."""

    source: SizedSource
    text: str
    checks: tuple[GuardCheck, ...]
    _make: Making
    _values: Values

    def at(
        self,
        sizes: Mapping[str, int],
        run: Run,
        backward: BackwardPlan | None,
        tensors: Mapping[Any, Tensor],
    ) -> GuardedFunction:
        """The function for these sizes; `tensors` are those of a call, by role."""
        given: dict[str, Any] = {}
        for name, make in self.source.given.items():
            given[name] = make(tensors, given)
        call = self._make(run, backward, *given.values(), *self._values(sizes))
        return InstanceFunction(call, self.text, self.source.scope, self.checks)


@attrs.frozen(eq=False, repr=False)
class SizedBackward:
    """The backward of an entry, for all gradients and all sizes with the same answers."""

    text: str
    runs_user_code: bool
    holds: Callable[[Mapping[str, int]], bool]
    _make: Making
    _values: Values

    def at(self, sizes: Mapping[str, int], run: Run) -> tuple[Step, str]:
        """The backward for these sizes, and its source."""
        return self._make(run, *self._values(sizes)), self.text


class InstanceVariants(CompiledVariants):
    """The backwards of an instance: the graph gets numbers when somebody looks at it, and the
    backward for all gradients has a text for many sizes."""

    of_sizes: Callable[[], tuple[Step, str]]
    """Makes the backward for all gradients."""

    @property
    def graph(self) -> Graph:
        """The graph for all gradients."""
        return self.given.value

    @graph.setter  # type: ignore[override]
    def graph(self, given: Later[Graph]) -> None:
        self.given = given

    def written(self, plan: BackwardPlan, run: Run) -> tuple[Step, str]:
        """The backward of a run for all gradients, of these numbers alone, and its source."""
        return BackwardWriter(plan, NOTHING_ABSENT, self.graph, run).function()

    def _function(self, absent: Absent, plan: BackwardPlan) -> tuple[Step, str]:
        facts = plan.facts
        by_arrival = facts.arrivals or facts.arrival_choices or facts.required_arrivals
        return super()._function(absent, plan) if absent or by_arrival else self.of_sizes()


def sized_entry(plan: RuntimePlan, table: SymbolTable, demands: Demands) -> SizedEntry:
    """The entry of a plan with symbols, for all sizes that meet what it demands.
    Raises Unproved where it would depend on sizes otherwise than by its constants."""
    source = SizedSource(table, plan.guarded_values.sized)
    source.scope[ORDER] = 0
    with proving(table, source.spelled, demands, exact=True):
        checks = write_guards(source, plan.guarded_values, marks=plan.fast_paths)
        EntryWriter(plan, source).write()
        made, text = source.sized_function(plan.name, plan.number, ("run", "backward"))
    values = source.code.function([*source.sized.values()])
    return SizedEntry(source, text, checks, made, values)


def sized_backward(
    plan: BackwardPlan, graph: Graph, run: Run, table: SymbolTable, demands: Demands
) -> SizedBackward:
    """The backward of a plan and a graph with symbols; `run` is one of its runs. Raises like
    `sized_entry`."""
    source = SizedSource(table)
    with proving(table, source.spelled, demands, exact=True):
        writer = BackwardWriter(plan, NOTHING_ABSENT, graph, run, source)
        writer.write()
        made, text = source.sized_function(graph.name, writer.number, ("run",), PARAMETERS)
    values = source.code.function([*source.sized.values()])
    return SizedBackward(text, run.runs_user_code, holding(demands), made, values)
