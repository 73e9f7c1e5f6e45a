"""Which memory the values of a graph lie in, while `reinplace` decides what may be written.

A `GraphMemory` is a storage of the new graph, and a `Region` the bytes of one value in it. Overlap
is decided exactly (`ir/geometry/overlap.py`), and taken for granted where sizes are symbols.
`Memories` has the region of each value so far, and answers whether bytes are read later.
Spec: `specs/reinplace.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps_bytes
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, GeometryOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.ops.structure import GETITEM

__all__ = ["GraphMemory", "Memories", "Region"]


@attrs.define(eq=False)
class GraphMemory:
    """A storage of the new graph."""

    whole: TensorMeta
    """The meta of the value that it was made for."""
    may_be_written: bool
    """The graph makes it, or writes it at its end anyway."""
    is_own: bool
    """The graph makes it: an output may lie in it."""
    escapes: bool
    """An output lies in it."""
    ends: int
    """The place of the node that overwrites an input for good."""
    closed: Region | None = None
    """The part of an input that the graph copies into at its end; None for all."""
    reaches_out: bool = False
    """That part is not within the input: other inputs may lie there."""
    values: dict[Node, None] = attrs.field(factory=dict)
    """The values of the given graph that lie in it, but for those that are dead by now."""

    def covers(self, region: Region) -> bool:
        """Whether the graph makes this part, or copies into all of it at its end."""
        closed = self.closed
        if closed is None or region.is_same(closed):
            return True
        if closed._has_symbols or region._has_symbols or not closed.meta.dense:
            return False
        size, own = closed.meta.dtype.itemsize, region.meta.dtype.itemsize
        first, low = region.offset * own, closed.offset * size
        end, high = first + region.meta.span * own, low + closed.meta.span * size
        return bool(low <= first and end <= high)


@attrs.frozen(eq=False)
class Region:
    """The bytes of a value: its memory, its meta, and the offset of its first element."""

    memory: GraphMemory
    meta: TensorMeta
    offset: Any

    def is_same(self, other: Region) -> bool:
        """Whether both have the same elements at the same places."""
        mine, its = (self.memory, self.meta), (other.memory, other.meta)
        return mine == its and self.offset == other.offset

    def meets(self, other: Region) -> bool:
        """Whether both share a byte, as far as that is known, else True."""
        if self.memory is not other.memory:
            return False
        if self._has_symbols or other._has_symbols:
            return True
        return overlaps_bytes(*self._laid_out, *other._laid_out)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its memory."""
        whole, meta = self.memory.whole, self.meta
        if meta is whole:
            return self.offset == 0
        if self._has_symbols or whole.table is not None or self.repeats:
            return False
        size = meta.numel * meta.dtype.itemsize
        return whole.dense and size == whole.numel * whole.dtype.itemsize

    @property
    def repeats(self) -> bool:
        """Whether two elements may share an address."""
        if self._has_symbols:
            return not self.is_whole
        return has_internal_overlap(self.meta.shape, self.meta.stride)

    @property
    def _has_symbols(self) -> bool:
        return self.meta.table is not None or type(self.offset) is not int

    @property
    def _laid_out(self) -> Any:
        return (self.meta.shape, self.meta.stride, self.offset), self.meta.dtype.itemsize


class Memories:
    """The region of each value of a graph, and what is read of it behind a node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.places = {node: place for place, node in enumerate(graph.nodes)}
        self.regions: dict[Node, Region] = {}
        users = graph.users
        self._users = users
        self.last = {node: self.places[users[node][-1]] if users[node] else 0 for node in users}
        """The place of the last node that reads each value; views of it count by themselves."""
        outputs = [value for value in graph.outputs if type(value) is Node]
        self._escaping = {storage_root(value) for value in outputs}
        calls = [node for node in graph.calls if node.target is COPY_]
        self._closed = {storage_root(node.args[0]): self.places[node] for node in calls}
        """The place of the copy into each input that the graph writes at its end."""
        self._windows = {
            storage_root(node.args[0]): node.args[0]
            for node in calls
            if node.args[0].op != "placeholder"
        }
        """Input -> the window on it that the graph copies into."""
        self._several = len(self._closed) < len(calls)

    def add(self, node: Node) -> None:
        """Gives a value of the given graph its region: that of a view, or a memory of its own."""
        if type(node.meta) is not TensorMeta:
            return
        region = self.region_of_view(node)
        if region is None:
            is_own = _is_made(node)
            may = is_own or node in self._closed
            ends = self._closed.get(node, len(self.places))
            memory = GraphMemory(node.meta, may, is_own, node in self._escaping, ends)
            region = Region(memory, node.meta, 0)
            if node in self._windows:
                self._close(node, region)
        self.put(node, region)

    def _close(self, node: Node, whole: Region) -> None:
        """The graph copies into a window on an input: no other part of it may be written."""
        memory, window = whole.memory, self._windows[node]
        try:
            closed = self._region_in(window, node, whole)
        except KeyError:  # a window on a window
            closed = None
        memory.may_be_written = closed is not None and not self._several
        if closed is None:
            return
        memory.closed = closed
        symbolic = closed._has_symbols or whole._has_symbols
        own = whole.meta
        within = not symbolic and 0 <= closed.offset and closed.meta.dtype is own.dtype
        memory.reaches_out = not within or closed.offset + closed.meta.span > own.span

    def reads_others(self, node: Node, memory: GraphMemory) -> bool:
        """Whether this node, or one behind it, reads an input that is not in this memory."""
        return any(
            self.lasts(each) >= self.places[node]
            for each in self.graph.placeholders
            if each in self.regions and self.regions[each].memory is not memory
        )

    def put(self, node: Node, region: Region) -> None:
        """The value lies in this region."""
        self.regions[node] = region
        region.memory.values[node] = None
        region.memory.escapes |= self.escapes(node)

    def escapes(self, node: Node) -> bool:
        """Whether the memory that a value has in the given graph is that of an output."""
        return node in self._escaping

    def region_of_view(self, node: Node) -> Region | None:
        """The region of a view, or of an op that writes; None for a value with its own memory."""
        if node.op != "call":
            return None
        op, args = node.target, node.args
        if op is GETITEM and isinstance(args[0].target, MultiViewOp):
            whole = args[0]
            view, rest = whole.target.parts(whole.args)[args[1]]
            return self.viewed(view, (whole.args[0], *rest))
        if isinstance(op, ViewOp):
            return self.viewed(op, args)
        if isinstance(op, GeometryOp):
            return self.viewed(op.view, args)
        return self.regions[args[0]] if isinstance(op, InplaceOp) else None

    def viewed(self, view: ViewOp, args: tuple[Any, ...]) -> Region:
        """The region of a view of a value."""
        base = self.regions[args[0]]
        return Region(base.memory, view.infer(args), view.at(args, base.offset))

    def written_part(self, node: Node) -> Region | None:
        """The part that a scatter of a view (`select_scatter`) replaces; None for other ops."""
        view = scattered_view(node)
        if view is None or node.args[0] not in self.regions:
            return None
        return self.viewed(view, (node.args[0], *node.args[2:]))

    # --- liveness
    def is_read(self, region: Region, place: int) -> bool:
        """Whether a node behind `place` reads a byte of the region, as it is there now."""
        values = region.memory.values
        for value in list(values):
            if self.lasts(value) <= place:
                del values[value]
            elif self._reads(value, self.regions[value], region, place):
                return True
        return False

    def lasts(self, value: Node) -> int:
        """The place of the last node that reads a value, or a view of it."""
        last, stack = self.last[value], [value]
        while stack:
            for user in self._users[stack.pop()]:
                if _is_alias(user):
                    last = max(last, self.last[user])
                    stack.append(user)
        return last

    def _reads(self, value: Node, lies: Region, region: Region, place: int) -> bool:
        """Whether a node behind `place` reads bytes of `region` through this value or its views."""
        if not lies.meets(region):
            return False
        for user in self._users[value]:
            if _is_alias(user):
                if self._view_reads(user, value, lies, region, place):
                    return True
            elif self.places[user] > place and not self._replaces(user, value, lies, region):
                return True
        return False

    def _view_reads(self, view: Node, of: Node, lies: Region, region: Region, place: int) -> bool:
        if self.last[view] <= place and not self._users[view]:
            return False
        if type(view.meta) is not TensorMeta:  # several views: each is a `getitem`
            return any(
                self._view_reads(each, of, lies, region, place) for each in self._users[view]
            )
        known = self.regions.get(view)
        if known is None:
            known = self._region_in(view, of, lies)
        return self._reads(view, known, region, place)

    def _region_in(self, node: Node, of: Node, lies: Region) -> Region:
        """The region of a view that is not reached yet, of a value that lies there."""
        before = self.regions.get(of)
        self.regions[of] = lies
        try:
            found = self.region_of_view(node)
        finally:
            if before is None:
                del self.regions[of]
            else:
                self.regions[of] = before
        assert found is not None
        return found

    def _replaces(self, user: Node, value: Node, lies: Region, region: Region) -> bool:
        """Whether a node does not read these bytes of its first operand, but replaces them."""
        if user.op != "call" or user.args[0] is not value or user.inputs().count(value) > 1:
            return False
        if user.target is COPY_:
            return True
        view = scattered_view(user)
        if view is None or lies.repeats:
            return False
        args = value, *user.args[2:]
        part = Region(lies.memory, view.infer(args), view.at(args, lies.offset))
        return part.is_same(region)


def scattered_view(node: Node) -> ViewOp | None:
    """The view of which a node is the scatter: `select` for `select_scatter`."""
    name = getattr(node.target, "name", "")
    if node.op != "call" or not name.endswith("_scatter"):
        return None
    view = OPS.get(name.removesuffix("_scatter"))
    return view if isinstance(view, ViewOp) else None


def _is_alias(node: Node) -> bool:
    """Whether a node's results lie in the memory of its first operand."""
    op = node.target
    if node.op != "call":
        return False
    return op.views or (op is GETITEM and isinstance(node.args[0].target, MultiViewOp))


def _is_made(node: Node) -> bool:
    """Whether a value is memory that a pure op makes."""
    if node.op != "call":
        return False
    op = node.args[0].target if node.target is GETITEM else node.target
    return type(op) is PureOp
