"""Kernels for all sizes of a region: each graph is compiled once, and gets the sizes of a call.

A backend with `compile_sized` compiles the graphs with symbols. One without it, or that cannot make
such kernels for a graph, compiles the graph of each instance. Rules: SIZ-1 to SIZ-12. Spec:
`specs/sized_kernels.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value, Window, as_value
from aotlite.backends.protocol import Backend, SizedRun, WindowFunction, as_run
from aotlite.ir.forks import Later, Memo
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.meta import table_in
from aotlite.ir.symbols.assumption import planned_for
from aotlite.ir.symbols.proving import Unproved, proving
from aotlite.stages.records.symbolic_sizes import SymbolicSizes
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.backward.variants import CompiledVariants
from aotlite.stages.shared.size_values import Settled

USUAL = 64
"""What stands for a hint of 0 or 1 where kernels are planned."""

Change = Callable[[Graph], Graph]


@attrs.define(eq=False, repr=False)
class SizedKernels:
    """What a backend has made of one graph with symbols; nothing before it is asked for."""

    graph: Graph
    sizes: SymbolicSizes
    why_not: list[str] = attrs.field(factory=list)
    """Why there are no kernels for all sizes, by graph."""
    _changed: Memo[object, tuple[SizedKernels | None]] = attrs.field(factory=Memo)
    _made: Memo[str, tuple[SizedRun | None]] = attrs.field(factory=Memo)

    def of(self, backend: Backend) -> SizedRun | None:
        """The kernels for all sizes; None if the backend makes none of this graph. A backend that
        is given the batch size (`of_size`) says by `sized_key` which kernels it makes (CUG-3)."""
        key: str = getattr(backend, "sized_key", backend.name)
        return self._made.get(key, self._compiled, backend)[0]

    def _compiled(self, backend: Backend) -> tuple[SizedRun | None]:
        compile_sized: Any = getattr(backend, "compile_sized", None)
        if compile_sized is None:
            self.why_not.append(f"{self.graph.name}: backend {backend.name!r} takes numbers only")
            return (None,)
        with self.sizes.lock:
            graph = Settled(self.sizes.table).graph(self.graph)
            if not any(map(_is_sized, graph.nodes)):
                self.why_not.append(f"{self.graph.name}: the guards say what each size is")
                return (None,)
            with planned_for(self.sizes.table, self._usual()):
                made: SizedRun | None = compile_sized(graph, self.why_not.append)
        return (made,)

    def _usual(self) -> Mapping[str, int]:
        """The hints by which kernels are planned: a call with no rows, or one, says little of the
        calls to come, so that `USUAL` stands for them where the guards admit it."""
        table = self.sizes.table
        hints = table.hints
        usual = {name: USUAL if hint in (0, 1) else hint for name, hint in hints.items()}
        rooms = [(usual[name], self.sizes.rooms[name][1]) for name in self.sizes.rooms]
        fits = all(most is None or value <= most for value, most in rooms)
        return usual if fits and all(each.holds(usual) for each in table.log) else hints

    def after(self, key: object, change: Change) -> SizedKernels | None:
        """The kernels of the graph after a change with this key. None if the change needs sizes as
        numbers."""
        return self._changed.get(key, self._after, change)[0]

    def _after(self, change: Change) -> tuple[SizedKernels | None]:
        try:
            with self.sizes.lock, proving(self.sizes.table):
                return (SizedKernels(change(self.graph), self.sizes, self.why_not),)
        except Unproved as problem:
            why = f"a backward for some gradients needs numbers: {problem}"
            self.why_not.append(f"{self.graph.name}: {why}")
            return (None,)


@attrs.frozen
class Instance:
    """The kernels of a graph with symbols, for the graph with these numbers in their place."""

    kernels: SizedKernels | None
    given: Graph | Later[Graph]
    """The graph, made when somebody looks at it."""
    values: Mapping[str, int]
    handed: Graph | None = None
    """The graph that is compiled in its place: further inputs are values of it that the call has
    computed before (`segments`)."""

    @property
    def graph(self) -> Graph:
        """The graph with numbers."""
        return self.given if isinstance(self.given, Graph) else self.given.value


# ------------------------------------------------------------------------ values that are handed on
class _Handed(threading.local):
    """The values that this thread's call has computed in earlier segments, as windows."""

    windows: tuple[Window, ...] = ()


_HANDED = _Handed()


def given(call: Callable[[Any], object], leaves: object, windows: tuple[Window, ...]) -> object:
    """Calls an entry, whose forward takes these values of earlier segments."""
    before, _HANDED.windows = _HANDED.windows, windows
    try:
        return call(leaves)
    finally:
        _HANDED.windows = before


class HandedRun(Run):
    """The run of a graph, by one that takes further values."""

    def __init__(self, graph: Graph, inner: Run) -> None:
        super().__init__(graph)
        self._inner = inner
        own = len(graph.placeholders)
        self.reads = inner.reads[:own]
        self._taken = list(zip(inner.graph.placeholders[own:], inner.reads[own:], strict=True))
        self.runs_user_code = inner.runs_user_code
        self.output_strides = inner.output_strides
        if hasattr(inner, "kernels"):
            self.kernels = inner.kernels

    def call(self, values: list[Value]) -> list[Value]:
        """The values of the outputs."""
        windows = _HANDED.windows
        pairs = zip(self._taken, windows, strict=True)
        values += [as_value(window, node.meta) for (node, reads), window in pairs if reads]
        return self._inner.call(values)


class SizedBackend:
    """A backend that takes the kernels for all sizes, if it is given the graph of an instance."""

    def __init__(self, backend: Backend, instance: Instance) -> None:
        self.backend = backend
        self.name = backend.name
        self.trusted = getattr(backend, "trusted", False)
        self.instance = instance
        self._of: dict[Graph, SizedKernels] = {}
        """The kernels for all sizes, by the changed graphs with numbers."""

    def _kernels(self, graph: Graph) -> SizedKernels | None:
        return self.instance.kernels if graph is self.instance.graph else self._of.get(graph)

    def compile(self, graph: Graph) -> Run | WindowFunction:
        """The run of the graph: of kernels for all sizes, or of its own."""
        each = self.instance
        if graph is not each.graph or each.handed is None:
            return self._made(graph, graph)
        run = self._made(each.handed, graph)
        return HandedRun(graph, as_run(self.name, each.handed, run, trusted=self.trusted))

    def _made(self, graph: Graph, whole: Graph) -> Run | WindowFunction:
        kernels, values = self._kernels(whole), self.instance.values
        sized = None if kernels is None else kernels.of(self.backend)
        if kernels is None or sized is None:
            return self.backend.compile(graph)
        with kernels.sizes.lock:  # it may ask the table
            return sized.at(values)

    def changed(self, graph: Graph, key: object, change: Change) -> Graph:
        """The graph after a change with this key. The change of the instance's graph is made once,
        with symbols, and gets the numbers."""
        kernels = self._kernels(graph)
        after = None if kernels is None else kernels.after(key, change)
        if after is None:
            return change(graph)
        made = at_sizes(after.graph, self.instance.values)
        self._of[made] = after
        return made

    def varied(self, plan: BackwardPlan | None) -> BackwardPlan | None:
        """The plan, whose backwards for some gradients have kernels for all sizes, too."""
        if plan is not None and isinstance(plan.variants, CompiledVariants):
            plan.variants.changed = self.changed
        return plan


def instance_of(plan: BackwardPlan) -> Instance | None:
    """The instance of a region whose backward a plan has; None for one of numbers alone."""
    owner = getattr(getattr(plan.variants, "changed", None), "__self__", None)
    found = owner.instance if isinstance(owner, SizedBackend) else None
    variants = plan.variants
    if found is None or variants is None:
        return None
    same = found.given is getattr(variants, "given", None) or found.graph is variants.graph
    return found if same else None


def _is_sized(node: Node) -> bool:
    return table_in((node.meta, *node.args)) is not None


def with_sizes(backend: Backend, instance: Instance | None) -> Backend:
    """The backend, which takes the kernels of an instance for its graph; itself without one."""
    return backend if instance is None else SizedBackend(backend, instance)
