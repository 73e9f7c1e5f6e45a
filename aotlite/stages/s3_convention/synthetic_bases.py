"""Synthetic bases: one graph input for inputs that overlap while one of them is written.

    bytes      0        4        8        12       16
    a = x[:3]  ├──────────────────────────┤            is written
    b = x[2:]                    ├─────────────────┤
    base       ├───────────────────────────────────┤   the input: a = base[0:3], b = base[2:4]

Stage 3 plans the bases: the connected components of overlap with a written member, the memory that
each spans, and the view chain of each member. `with_bases` rewrites any graph of the capture.
Rules: ALI-1, ALI-6, SYN-1..SYN-6. Spec: `specs/s3_convention.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotlite.eager.autograd.as_strided_chain import bytes_window, step_of, strided_step
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, chain_of
from aotlite.ir.dtypes import uint8
from aotlite.ir.geometry.layout import contiguous_strides
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.role import SyntheticBase
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.ir.symbols.assumption import unassuming
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput, Member
from aotlite.stages.shared.memory.view_families import overlapping_pairs

_SLICE: Any = OPS["slice"]
_VIEW: Any = OPS["view"]


# Note [synthetic bases]
#     def f(a, b): a.mul_(2); return b.sum()
#     x = al.ones(4); f(x[:3], x[2:])
# Functionalization keeps one value for each storage: with two placeholders it would not see that
# b[0] is a[2], and return the sum before the write. So both become views of one base, written in
# the graph as `a = slice(base)`, `b = slice(base)`, and stage 6 sees one storage. Which inputs
# overlap, and how, is guarded. If one member has the dtype and the bytes of the whole component, it
# is the base itself, and no flat copy of its geometry is needed (SYN-4). Members of two dtypes get
# a base of bytes; its first byte is aligned for the largest of them.
def plan_bases(captured: Captured, meta: FunctionMeta) -> tuple[BaseInput, ...]:
    """The synthetic bases, in the order of their first members (SYN-3). Note [synthetic bases].

    Also a base for each input beyond whose elements as_strided reaches: Note [as_strided beyond an
    input] in `s1_capture/as_strided_extents.py`.
    """
    wanted = {each.role for each in meta.inputs if each.writes_data} | captured.reach.keys()
    found: list[BaseInput] = []
    sizes = None if captured.reach else captured.recorder.sizes
    with unassuming(None if sizes is None else sizes.table):  # compared at each call (SYN-12)
        components = _components(captured) if wanted else []
    for component in components:
        needed = len(component) > 1 or component[0].given.role in captured.reach
        if needed and any(entry.given.role in wanted for entry in component):
            found.append(_base(SyntheticBase(len(found)), component))
    return tuple(found)


class _Entry:
    """An input's window at entry, widened to the extent that as_strided reaches (FUN-11)."""

    __slots__ = ("given", "meta", "offset")

    def __init__(self, given: CapturedInput, extent: tuple[int, int] | None) -> None:
        self.given = given
        self.meta = given.entry_meta
        self.offset = given.entry_offset
        if extent is not None:
            self.meta = self.meta.as_contiguous((extent[1] - extent[0],))
            self.offset += extent[0]

    @property
    def start(self) -> int:
        """The first byte."""
        return self.offset * self.meta.dtype.itemsize

    @property
    def end(self) -> int:
        """The end of the last byte."""
        return self.start + self.meta.span * self.meta.dtype.itemsize


def _components(captured: Captured) -> list[list[_Entry]]:
    """The connected components of inputs under overlap (ALI-6), single inputs among them."""
    storages: dict[int, list[_Entry]] = {}
    for given in captured.inputs:
        if given.role in captured.recorder.wrapped.parts:
            continue  # a wrapper has no memory; its parts are inputs
        entry = _Entry(given, captured.reach.get(given.role))
        storages.setdefault(given.memory, []).append(entry)
    found = [group for family in storages.values() for group in _connected(family)]
    order = {given.role: place for place, given in enumerate(captured.inputs)}
    return sorted(found, key=lambda component: order[component[0].given.role])


def _connected(family: list[_Entry]) -> Iterator[list[_Entry]]:
    if len(family) == 1:
        yield family
        return
    group = list(range(len(family)))
    for i, j in overlapping_pairs(family):
        old, new = group[j], group[i]
        group = [new if each == old else each for each in group]
    for name in dict.fromkeys(group):
        yield [entry for entry, each in zip(family, group, strict=True) if each == name]


# ------------------------------------------------------------------------------------- one base
def _base(role: SyntheticBase, component: list[_Entry]) -> BaseInput:
    members = [entry.given for entry in component]
    start = min(entry.start for entry in component)
    end = max(entry.end for entry in component)
    dtypes = {given.entry_meta.dtype for given in members}
    if len(dtypes) == 1:
        for given in members:
            if given.entry_meta.dense and (_start(given), _end(given)) == (start, end):
                seen = [Member(each.role, _seen_in(given, each)) for each in members]
                return BaseInput(role, given.entry_meta, given.role, 0, True, tuple(seen))
    else:  # elements of every member start at a multiple of their size
        start -= start % max(dtype.itemsize for dtype in dtypes)
    anchor = members[0]
    dtype = uint8 if len(dtypes) > 1 else anchor.entry_meta.dtype
    shape = ((end - start) // dtype.itemsize,)
    flat = tensor_meta(shape, None, dtype, anchor.entry_meta.device)
    seen = [Member(m.role, _window(flat, m.entry_meta, _start(m) - start)) for m in members]
    return BaseInput(role, flat, anchor.role, start - _start(anchor), False, tuple(seen))


def _start(given: CapturedInput) -> int:
    return given.entry_offset * given.entry_meta.dtype.itemsize


def _end(given: CapturedInput) -> int:
    return _start(given) + given.entry_meta.span * given.entry_meta.dtype.itemsize


def _seen_in(base: CapturedInput, member: CapturedInput) -> ViewChain:
    """The view chain from a member that spans the component to another member.

    The caller's own views where these are known, else `as_strided`.
    """
    meta, start = member.entry_meta, member.entry_offset - base.entry_offset
    if meta is base.entry_meta and start == 0:
        return EMPTY_CHAIN
    recipe = _recipe(base, member)
    return recipe or chain_of(strided_step(base.entry_meta, meta, start))


def _recipe(base: CapturedInput, member: CapturedInput) -> ViewChain | None:
    """The rest of a member's view chain, where it continues the base's (SYN-4); else None."""
    if base.family is None or base.family != member.family:
        return None
    before, steps = base.entry_chain.steps, member.entry_chain.steps
    if any(a is not b for a, b in zip(before, steps, strict=False)) or len(steps) < len(before):
        return None
    rest = steps[len(before) :]
    if before and any(step.op is AS_STRIDED for step in rest):
        return None  # it counts from the root
    return chain_of(*rest)


def _window(flat: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
    """The view chain from a flat base to a member that starts `start` bytes into it (SYN-4)."""
    size = flat.dtype.itemsize
    if flat.dtype is not meta.dtype:
        return bytes_window(flat, meta, start)
    if not meta.contiguous or meta.stride != contiguous_strides(meta.shape):
        return chain_of(strided_step(flat, meta, start // size))
    first = start // size
    chain = EMPTY_CHAIN
    if meta.numel != flat.numel:
        chain = chain.then(step_of(_SLICE, flat, 0, first, first + meta.numel, 1))
        flat = chain[-1].result
    if meta is not flat:
        chain = chain.then(step_of(_VIEW, flat, meta.shape))
    return chain


# ----------------------------------------------------------------------------------- in the graph
def with_bases(graph: Graph, bases: Sequence[BaseInput]) -> Graph:
    """The graph with synthetic bases as its first inputs, and views of them as the members."""
    if not bases:
        return graph
    new: dict[Node, Node] = {}
    given = {node.role: node for node in graph.placeholders}
    inputs = [Node("placeholder", b.role, meta=b.meta, role=b.role) for b in bases]
    views: list[Node] = []
    for base, node in zip(bases, inputs, strict=True):
        for member in base.members:
            seen = node
            for step in member.chain:
                seen = Node("call", step.op, (seen, *step.args), step.result)
                views.append(seen)
            new[given[member.role]] = seen
    rest = [node for node in graph.placeholders if node not in new]
    nodes = [*inputs, *rest, *views]
    for node in graph.nodes[len(graph.placeholders) :]:
        nodes.append(_renewed(node, new))
    return Graph(tuple(nodes), graph.name)


def _renewed(node: Node, new: dict[Node, Node]) -> Node:
    args = map_nodes(node.args, lambda value: new.get(value, value))
    if args == node.args:
        return node
    found = new[node] = node.with_args(args, node.meta)
    return found
