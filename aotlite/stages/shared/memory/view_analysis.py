"""`ViewAnalysis`: for each value of an imperative graph its storage's root, and its view chain."""

from __future__ import annotations

from operator import is_
from typing import Any

import attrs

from aotlite.eager.autograd.as_strided_chain import window_on
from aotlite.eager.base.tape.view_chain import (
    EMPTY_CHAIN,
    MultiViewCall,
    PartStep,
    ViewChain,
    ViewStep,
    chain_of,
)
from aotlite.ir.geometry.overlap import Geometry
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import AS_STRIDED, HIDDEN_ALIAS
from aotlite.stages.records.capture_inputs import CapturedInput


@attrs.frozen(eq=False, repr=False)
class ViewOf:
    """A value as a view: the node that made its storage, and the view chain from it."""

    root: Node
    chain: ViewChain
    start: int
    """The offset of this value's first element from the root's, in elements."""
    object: Node
    """The node that made the Python object (in-place and geometry ops return the same object)."""
    family: AsStridedOrigin
    moves: ViewChain = EMPTY_CHAIN
    """The geometry ops (`t_`, ..) that the object went through since it was made."""


@attrs.frozen(eq=False, repr=False)
class AsStridedOrigin:
    """The base of as_strided's offsets: the root, or the `detach()` that the value is a view of."""

    chain: ViewChain
    start: int
    meta: TensorMeta


class ViewAnalysis:
    """The `ViewOf` of every node of an imperative graph; made lazily for pure results."""

    __slots__ = ("_parts", "_seen")

    def __init__(self, graph: Graph) -> None:
        self._seen: dict[Node, ViewOf] = {}
        self._parts: dict[Node, MultiViewCall] = {}
        """The record of each multi-output view."""
        for node in graph.nodes:
            if type(node.target) is not PureOp and node.op == "call":
                self._seen[node] = self._view_of(node)

    def __getitem__(self, node: Node) -> ViewOf:
        found = self._seen.get(node)
        if found is None:
            found = self._seen[node] = _fresh(node)
        return found

    def _view_of(self, node: Node) -> ViewOf:
        op = node.target
        if isinstance(op, ViewOp):
            return _extended(self[node.args[0]], op, node.args, node, node)
        if isinstance(op, InplaceOp):
            return self[node.args[0]]
        if isinstance(op, GeometryOp):
            return _moved(self, op, node)
        if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
            return self._part_of(node, *node.args)
        return _fresh(node)

    def _part_of(self, node: Node, whole: Node, index: int) -> ViewOf:
        """The view that is result `index` of the multi-output view `whole`."""
        source, *others = whole.args
        view, rest = whole.target.parts(whole.args)[index]
        before = self[source]
        found = _extended(before, view, (source, *rest), node, node)
        parts = self._parts.setdefault(whole, MultiViewCall(whole.target, tuple(others)))
        last = found.chain[-1]
        step = PartStep(last.op, last.args, last.operand, last.result, parts, index)
        return attrs.evolve(found, chain=before.chain.then(step))


def is_through_hidden_alias(chain: ViewChain) -> bool:
    """Whether writes through these views do not bump the root's version: a hidden alias."""
    return any(step.op is HIDDEN_ALIAS for step in chain)


def _fresh(node: Node) -> ViewOf:
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    return ViewOf(node, EMPTY_CHAIN, 0, node, AsStridedOrigin(EMPTY_CHAIN, 0, meta))


def _moved(seen: ViewAnalysis, op: GeometryOp, node: Node) -> ViewOf:
    before = seen[node.args[0]]
    after = _extended(before, op.view, node.args, node, before.object)
    step, moves = after.chain[-1], before.moves
    if op.view is AS_STRIDED:  # whatever the object went through, it is this window now
        start = int(after.start - seen[before.object].start)
        step, moves = attrs.evolve(step, args=(*step.args[:2], start)), EMPTY_CHAIN
    return attrs.evolve(after, moves=moves.then(step))


def _extended(sight: ViewOf, op: ViewOp, args: tuple[Any, ...], node: Node, made: Node) -> ViewOf:
    operand: TensorMeta = args[0].meta
    result: TensorMeta = node.meta  # type: ignore[assignment]
    family = sight.family
    start = op.at(args, sight.start)
    if op is AS_STRIDED:  # relative to the storage: what came before does not matter (FUN-11)
        chain = family.chain.joined(window_on(family.meta, family.start, result, start))
        return ViewOf(sight.root, chain, start, made, family)
    chain = sight.chain.then(ViewStep(op, args[1:], operand, result))
    if op.cuts_history:
        family = AsStridedOrigin(chain, start, result)
    return ViewOf(sight.root, chain, start, made, family)


def layout_of(given: CapturedInput) -> tuple[Geometry, int]:
    """An input's geometry in its storage at entry, and its itemsize."""
    meta = given.entry_meta
    return (meta.shape, meta.stride, given.entry_offset), meta.dtype.itemsize


def rest_of_chain(chain: ViewChain, first: ViewOf) -> ViewChain:
    """The rest of a chain after the view `first`, through which it leads.
    An as_strided step is rebased: its offset counts from `first`'s first element then."""
    steps, before = chain.steps, first.chain.steps
    if len(steps) >= len(before) and all(map(is_, steps, before)):
        return chain_of(*steps[len(before) :])
    place = next(i for i, step in enumerate(steps) if step.op is AS_STRIDED)
    size, stride, start = steps[place].args
    meta: TensorMeta = first.object.meta  # type: ignore[assignment]
    again = ViewStep(AS_STRIDED, (size, stride, start - first.start), meta, steps[place].result)
    return chain_of(again, *steps[place + 1 :])
