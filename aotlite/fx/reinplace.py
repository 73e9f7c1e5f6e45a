"""`reinplace`: the pass that turns pure ops back into writes where nothing can see it.

It is the inverse of functionalization, for compilers and runners that execute a graph op by op: a
pure op allocates its result, an op that writes does not. Input: a pure graph, which may end in
closing copies into its inputs. Output: an equal graph, in which ops write memory that nobody reads
any more. Rules: RIP-1 to RIP-12. Spec: `specs/reinplace.md`.
"""

from __future__ import annotations

import attrs

from aotlite.fx.copies import closing_nodes, lies_unseen, without_copies
from aotlite.fx.memory import Memories, Region, scattered_view
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Copy, Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.node_text import node_line
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import (
    OPS,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    PureOp,
    RandomOp,
    ViewOp,
)
from aotlite.ir.ops.shape.copies import CLONE, COPY_, RESTRIDE
from aotlite.stages.s7_simplify.common_subexpressions import eliminate_dead_code

__all__ = ["Refusal", "Reinplaced", "reinplace", "reinplaced"]


@attrs.frozen
class Refusal:
    """An op that has a form in place and allocates all the same, and why."""

    node: Node
    """Its node in the given graph."""
    reason: str


@attrs.frozen
class Reinplaced:
    """What `reinplaced` returns."""

    graph: Graph
    refused: tuple[Refusal, ...]

    def explain(self, given: Graph) -> str:
        """The refusals in sentences, a line for each; `given` is the graph that was reinplaced."""
        names = given.names
        lines = [f"{node_line(each.node, names)}: {each.reason}" for each in self.refused]
        return "\n".join(lines) or "No op allocates that has a form in place."


def reinplace(graph: Graph) -> Graph:
    """An equal graph in which ops write memory that nobody reads any more, instead of allocating.

    Inputs are written only where the graph ends in a `copy_` into them. Raises ArgumentError for a
    graph that has other writes, or draws.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("twice")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(reinplace(build.finish([(x * 2.0).exp()])).code)
    def twice(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)
        exp_ = ops.exp_(mul)
        return (exp_,)
    """
    return reinplaced(graph).graph


def reinplaced(graph: Graph) -> Reinplaced:
    """`reinplace`, with the ops that still allocate, and why."""
    closing = closing_nodes(graph)
    for node in graph.calls:
        if isinstance(node.target, _IMPURE) and node not in closing:
            raise noted(
                ArgumentError(
                    f"reinplace: the graph has {node.target.name}, expected a pure graph"
                ),
                f"node: {node_line(node, graph.names)}",
                "Functionalize it first. A copy_ into an input may stand at the end. (RIP-1)",
            )
    known = set(graph.nodes)
    bare, copied = without_copies(graph)
    run = _Reinplacing(bare)
    made = run.run()
    origins = [(copied.get(each.node, each.node), each.reason) for each in run.refused]
    return Reinplaced(made, tuple([Refusal(*each) for each in origins if each[0] in known]))


_IMPURE = (InplaceOp, GeometryOp, RandomOp)


_INPLACE: dict[PureOp, InplaceOp] = {}
"""Pure ops -> their forms in place; filled when it is asked for, when all ops are declared."""


def _in_place(op: object) -> InplaceOp | None:
    if not _INPLACE:
        found = [each for each in OPS.values() if isinstance(each, InplaceOp)]
        _INPLACE.update({each.functional: each for each in found})
    return _INPLACE.get(op)  # type: ignore[call-overload]


class _Reinplacing:
    """One run over the nodes of a graph, in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.memories = Memories(graph)
        self.build = Builder(graph.name)
        self.new: dict[Node, Node] = {}
        self.refused: list[Refusal] = []
        self.copies: list[Copy] = []

    def run(self) -> Graph:
        for place, node in enumerate(self.graph.nodes[:-1]):
            self.build.source = node
            self.new[node] = self._taken(node, place) or self._kept(node)
            if type(node.meta) is TensorMeta and node not in self.memories.regions:
                self.memories.add(node)
        self.build.source = None
        outputs = map_nodes(self.graph.outputs, self.new.__getitem__)
        made = eliminate_dead_code(self.build.finish(outputs, self.graph.output_roles))
        return attrs.evolve(
            made,
            copies=tuple(self.copies),
            exported=self.graph.exported,
            saved_sizes=self.graph.saved_sizes,
        )

    def _kept(self, node: Node) -> Node:
        """The node as it was, on new operands."""
        if node.op != "call":
            return self.build.add(node)
        self._hand_out(node)
        args = map_nodes(node.args, self.new.__getitem__)
        return self.build.add(node if args is node.args else node.with_args(args, node.meta))

    def _hand_out(self, node: Node) -> None:
        """An effect may keep what it gets: nobody writes that memory afterwards (RIP-6)."""
        if isinstance(node.target, (PureOp, ViewOp, MultiViewOp, InplaceOp)):
            return
        for value in node.inputs():
            if value in self.memories.regions:
                self.memories.regions[value].memory.may_be_written = False

    # --- nodes that need no memory
    def _taken(self, node: Node, place: int) -> Node | None:
        """The new node of a value that takes over memory; None if it has its own, or is a view."""
        op = node.target
        if node.op != "call" or type(node.meta) is not TensorMeta:
            return None
        if op is COPY_:
            return self._closing(node)
        if isinstance(op, GeometryOp):
            return None
        if type(op) is not PureOp or not node.args:
            return None
        target = node.args[0]
        if type(target) is not Node or target not in self.memories.regions:
            return None
        if scattered_view(node) is not None:
            return self._scatter(node, place)
        if op is CLONE or op is RESTRIDE or _in_place(op) is not None:
            return self._write(node, place)
        return None

    def _write(self, node: Node, place: int) -> Node | None:
        """`mul_` for `mul`; the operand itself for a copy of it (RIP-2, RIP-3)."""
        target = node.args[0]
        region = self.memories.regions[target]
        reason = (
            self._reason(node, region, region)
            or self._unsafe(region, place)
            or self._wasteful(node, region, place)
            or self._clash(node, region)
        )
        if reason:
            self.refused.append(Refusal(node, reason))
            return None
        self.memories.put(node, region)
        if node.target is CLONE or node.target is RESTRIDE:
            return self.new[target]
        args = map_nodes(node.args, self.new.__getitem__)
        op = _in_place(node.target)
        assert op is not None
        return self.build.emit(op, args)

    def _scatter(self, node: Node, place: int) -> Node | None:
        """A view and a `copy_` for a scatter; no copy if the part lies there already (RIP-4)."""
        memories = self.memories
        base, source, *rest = node.args
        region, part = memories.regions[base], memories.written_part(node)
        assert part is not None
        moved = memories.regions.get(source)
        is_there = moved is not None and moved.is_same(part)
        reason = self._reason(node, region, part)
        if not reason and not is_there:
            reason = self._unsafe(part, place)
            if not reason and moved is not None and moved.meets(part):
                reason = "the part lies across the place where it goes to"
        if reason:
            self.refused.append(Refusal(node, reason))
            return None
        memories.put(node, region)
        if not is_there:
            view = scattered_view(node)
            assert view is not None
            seen = self.build.emit(view, (self.new[base], *rest))
            self.build.emit(COPY_, (seen, self.new[source]))
        return self.new[base]

    def _closing(self, node: Node) -> Node | None:
        """Nothing for a closing copy whose value lies in the input by now (RIP-5)."""
        memories = self.memories
        target, source = node.args
        into, lies = memories.regions[target], memories.regions[source]
        if lies.is_same(into):
            memories.put(node, into)
            return self.new[source]
        if lies.meets(into) and memories.regions[source].memory.values:
            return self._across(node)
        return None

    def _across(self, node: Node) -> Node | None:
        """A copy of a value that lies in the input, but elsewhere in it."""
        target, source = node.args
        if _is_view_of(source, target):
            return None  # as in the given graph
        copied = self.build.emit(CLONE, (self.new[source],))
        self.copies.append(Copy(copied, "the value lies across the input that it is copied into"))
        return self.build.emit(COPY_, (self.new[target], copied))

    # --- reasons against
    def _reason(self, node: Node, region: Region, written: Region) -> str:
        """Why `node` cannot have this memory, of which it writes a part; empty if it can."""
        memory, escapes = region.memory, self.memories.escapes(node)
        if not memory.may_be_written:
            return "its operand is an input, a constant, or known to an effect"
        if not memory.covers(written):
            return "its operand lies in an input, and outside of what is copied into that"
        if memory.reaches_out and self.memories.reads_others(node, memory):
            return "another input may lie in the memory that it would write"
        if region.repeats or written.repeats:
            return "elements of its operand share addresses"
        if node.meta is not region.meta and (
            escapes or not lies_unseen(self.graph, node, region.meta)
        ):
            return "its result has another dtype, shape or strides"
        if escapes and not (memory.is_own and region.is_whole):
            return "its result has to be memory of its own"
        if escapes and memory.escapes:
            return "its operand lies in the memory of another result"
        if self.memories.lasts(node) > memory.ends:
            return "the input that it would write is overwritten before its last use"
        return ""

    def _unsafe(self, written: Region, place: int) -> str:
        is_read = self.memories.is_read(written, place)
        return "what its operand holds is read later" if is_read else ""

    def _wasteful(self, node: Node, region: Region, place: int) -> str:
        """Why a small result should not live in a large memory; empty if nothing is lost by it."""
        if not region.memory.is_own or region.is_whole or self._is_held(node, region, place):
            return ""
        return "it would hold on to more memory than it needs"

    def _is_held(self, node: Node, region: Region, place: int) -> bool:
        """Whether something else needs the whole memory for as long as `node` is read."""
        lasts = self.memories.lasts
        others = [lasts(each) for each in region.memory.values if each is not node]
        return max(others, default=place) >= lasts(node)

    def _clash(self, node: Node, region: Region) -> str:
        """Why the op cannot read its other operands while it writes; empty if it can."""
        elementwise = node.target.scalar is not None
        for value in node.inputs()[1:]:
            lies = self.memories.regions.get(value)
            if lies is None or not lies.meets(region):
                continue
            if not elementwise or not lies.is_same(region):
                return "another operand lies in the memory that it would write"
        return ""


def _is_view_of(value: Node, base: Node) -> bool:
    """Whether a value is a view of another one in the given graph."""
    while value is not base and value.op == "call" and value.target.views:
        value = value.args[0]
    return value is base
