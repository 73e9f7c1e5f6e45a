"""Window rules: replaces a view of a scatter's result by the scattered value, or by an older view.

A part of stage 7. Input and output: a pure graph. A value is a window (meta and start) on the
memory of the node that made it. A scatter keeps its operand's layout, so windows on its result and
on its operand are compared by the exact overlap test. A view with the written window is the written
value (SIM-2). A view that shares no element with it is a view of the operand (SIM-3). Two views
with one window on one memory are one value (SIM-5). Dead scatters are left to `dead_scatters.py`.
Spec: `specs/s7_simplify.md`.

Note [Scatter windows]
    x[0] = a; x[1] = b; return x[0]
Functionalized: `s = select_scatter(x, a, 0, 0); t = select_scatter(s, b, 0, 1); select(t, 0, 0)`. A
scatter has its operand's layout, so the view and both writes are windows of one memory, and
addresses tell how two of them lie. That of the view is apart from that of `b`: look behind `t`. It
is the window of `a`: the view shows `a` itself, and neither scatter is needed for it. Where two
windows meet in part, the search stops, and the view stays on what it has come to.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import attrs

from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp, ViewOp
from aotlite.stages.shared.memory.windows import (
    LOOK_BACK,
    SCATTERED,
    MemoryWindow,
    ScatterWrite,
    _is_symbolic,
    relation,
    write_of,
)

_MOST_STEPS = 8
"""The longest chain of views that is emitted in place of one view."""


Step: TypeAlias = tuple[ViewOp, tuple[Any, ...]]
"""A view and its arguments after the operand."""


class ScatterRun(NamedTuple):
    """A run of scatters: the value before the first, and the address range that they write."""

    below: Node
    first: int
    end: int


def has_windows(graph: Graph) -> bool:
    """Whether the rules may apply: there is a scatter, a view of a view, an identity view, or two
    equal views.
    """
    seen: set[tuple[Node, MemoryWindow]] = set()
    for node in graph.nodes:
        op = node.target
        if type(op) is ViewOp:
            value = node.args[0]
            if type(value.target) is ViewOp or value.meta is node.meta:
                return True
            if not (op.recasts or _is_symbolic(value.meta) or _is_symbolic(node.meta)):
                place = value, MemoryWindow(*op.result(node.args))
                if place in seen:
                    return True
                seen.add(place)
        elif op in SCATTERED:
            return True
    return False


def see_through_scatters(graph: Graph, held: set[Node]) -> Graph:
    """The graph with views of scatters replaced by written values, or by views of older values.

    `held` are the values on memory that the caller gets: they are not replaced, and no other value
    becomes a view of them (PART-15).
    """
    return _Windows(graph, set(held)).run()


@attrs.define(eq=False, repr=False)
class _Windows:
    """One run. `new` has the replacements of nodes."""

    graph: Graph
    held: set[Node]
    build: Builder = attrs.field(init=False)
    new: dict[Node, Node] = attrs.field(factory=dict)
    same: dict[Node, Node] = attrs.field(factory=dict)
    """Equal values with other strides."""
    places: dict[Node, tuple[Node, int]] = attrs.field(factory=dict)
    """For views: the node that made the memory, and their start in it."""
    known: dict[tuple[Node, int, TensorMeta], Node] = attrs.field(factory=dict)
    writes: dict[Node, ScatterWrite] = attrs.field(factory=dict)
    runs: dict[Node, ScatterRun] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.build = Builder(self.graph.name)

    def run(self) -> Graph:
        for node in self.graph.nodes[:-1]:
            if node.op == "call":
                self._call(node)
            else:
                self.build.nodes.append(node)
        if not self.new:
            return self.graph
        self.build.source = None
        values = [self.new.get(v, v) if type(v) is Node else v for v in self.graph.outputs]
        return self.build.finish(values, self.graph.output_roles)

    def _call(self, old: Node) -> None:
        self.build.source = old
        node = self._renewed(old)
        found = None
        if type(node.target) is ViewOp:
            found = self._view(node, is_held=old in self.held)
        elif node.target in SCATTERED:
            found = self._scatter(node, is_held=old in self.held)
        if found is None:
            self.build.nodes.append(node)
            found = node
        if found is not old:
            self.new[old] = found
            if old in self.held:
                self.held.add(found)

    def _renewed(self, node: Node) -> Node:
        """The node with replaced arguments."""
        args = node.args
        if self.new:
            args = map_nodes(args, lambda value: self.new.get(value, value))
        if self.same:
            args = self._equal_operands(node, args)
        return node if args is node.args else node.with_args(args, node.meta)

    def _equal_operands(self, node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with equal values of other strides, where the op does not depend on strides.

        A pointwise op and the source of a scatter do not, as long as the result's meta stays.
        """
        op = node.target
        if op in SCATTERED:
            return (args[0], self.same.get(args[1], args[1]), *args[2:])
        if type(op) is PureOp and op.cost is Cost.POINTWISE:
            other = map_nodes(args, lambda value: self.same.get(value, value))
            if other is not args and op.infer(other) is node.meta:
                return other
        return args

    # --- places in memory
    def _place(self, node: Node) -> tuple[Node, int]:
        found = self.places.get(node)
        if found is None:
            found = self.places[node] = node, 0
            if node.op == "call" and type(node.target) is not PureOp:
                if storage_root(node) in self.held:
                    self.held.add(node)
        return found

    def _is_barred(self, memory: Node) -> bool:
        """Whether the caller gets this memory, and it is no input's."""
        return memory in self.held and memory.op == "call"

    # --- views
    def _view(self, node: Node, *, is_held: bool) -> Node | None:
        """The replacement of a view; None to keep it."""
        op: ViewOp = node.target
        if op.recasts or _is_symbolic(node.args[0].meta) or _is_symbolic(node.meta):
            return None
        memory, before = self._place(node.args[0])
        meta, start = op.result(node.args)
        start += before
        if not is_held:
            found = self._found(
                memory, MemoryWindow(meta, start), [(op, node.args[1:])], node.args[0]
            )
            if found is not None and found.meta is meta:
                return found
            if found is not None:
                self.same[node] = found
            self.known[memory, start, meta] = node
        self.places[node] = memory, start
        return None

    def _found(
        self, memory: Node, window: MemoryWindow, steps: list[Step], operand: Node
    ) -> Node | None:
        """A value equal to the view `steps` of `operand`, which is `window` on `memory`.

        Searched behind scatters that do not meet the window. None if only the view itself is known.
        """
        found = self._at(memory, window)
        if found is not None:
            return found
        if memory not in self.writes or self._is_barred(memory):
            return None
        behind, shown = operand, steps
        steps = [*self._steps_to(operand), *steps]
        start, end = window.start, window.start + window.meta.span
        for _ in range(LOOK_BACK):
            run = self.runs.get(memory)
            if run is not None and (end <= run.first or run.end <= start):
                if self._is_barred(run.below):
                    break
                memory = behind = run.below
                shown = steps
                continue
            write = self.writes.get(memory)
            if write is None or self._is_barred(memory) or len(steps) > _MOST_STEPS:
                break
            how = relation(MemoryWindow(window.meta, start), write.window)
            if how == "same" and not self._is_barred(self._place(write.source)[0]):
                return write.source
            below, before = self._place(write.operand)
            if how != "apart" or self._is_barred(below):
                break
            memory, behind, shown = below, write.operand, steps
            steps = [*self._steps_to(behind), *steps]
            start, end = start + before, end + before
        if behind is operand:
            return None
        return self._at(memory, MemoryWindow(window.meta, start)) or self._replayed(behind, shown)

    def _at(self, memory: Node, window: MemoryWindow) -> Node | None:
        """A node known to be this window on this memory."""
        if window.start == 0 and window.meta is memory.meta:
            return memory
        return self.known.get((memory, window.start, window.meta))

    def _steps_to(self, node: Node) -> list[Step]:
        """The views from the node that made the memory."""
        steps: list[Step] = []
        memory = self._place(node)[0]
        while node is not memory:
            steps.append((node.target, node.args[1:]))
            node = node.args[0]
        return steps[::-1]

    def _replayed(self, value: Node, steps: list[Step]) -> Node:
        for op, rest in steps:
            memory, before = self._place(value)
            meta, start = op.result((value, *rest))
            start += before
            found = self._at(memory, MemoryWindow(meta, start))
            if found is None:
                found = self.build.emit(op, (value, *rest))
                self.known[memory, start, meta] = found
                self.places[found] = memory, start
            value = found
        return value

    # --- scatters
    def _scatter(self, node: Node, *, is_held: bool) -> Node | None:
        """The replacement of a scatter; None to keep it."""
        write = write_of(node)
        if write is None:
            return None
        if not is_held:
            found = self._unneeded(write)
            if found is not None:
                return found
        self.writes[node] = write
        self._join_run(node, write)
        return None

    def _join_run(self, memory: Node, write: ScatterWrite) -> None:
        """Extends the run of scatters that ends below this one: a search skips runs whole."""
        first = write.window.start
        end = first + write.window.meta.span
        below = write.operand
        before = self.runs.get(below)
        if before is not None:
            below, first, end = before.below, min(first, before.first), max(end, before.end)
        if self._place(below) == (below, 0):
            self.runs[memory] = ScatterRun(below, first, end)

    def _unneeded(self, write: ScatterWrite) -> Node | None:
        """The value of a scatter that changes no element, or all of them (SIM-6); else None."""
        operand, source, window = write.operand, write.source, write.window
        memory, before = self._place(operand)
        if not self._is_barred(memory):
            if not window.meta.numel:
                return operand
            if self._place(source) == (memory, before + window.start):
                if source.meta is window.meta:
                    return operand
        if window.start == 0 and window.meta is operand.meta is source.meta:
            return None if self._is_barred(self._place(source)[0]) else source
        return None
