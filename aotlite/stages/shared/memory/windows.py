"""Windows (meta and start) on one memory: of views, of scatters, and how two of them overlap."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.ir.geometry.overlap import overlaps
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, PureOp, ViewOp

LOOK_BACK = 64
"""The most scatters that a search for one view passes: so the pass is linear in the nodes."""


SCATTERED: dict[PureOp, ViewOp] = {
    found: op  # type: ignore[misc]
    for op in list(OPS.values())
    if isinstance(op, ViewOp) and (found := OPS.get(f"{op.name}_scatter")) is not None
}
"""For each scatter the view op whose window it writes."""


class MemoryWindow(NamedTuple):
    """A view of a memory: its geometry, and its start in elements."""

    meta: TensorMeta
    start: int


@attrs.frozen(eq=False, repr=False)
class ScatterWrite:
    """A scatter: a copy of `operand` with `source` written in `window`."""

    operand: Node
    source: Node
    window: MemoryWindow


def write_of(node: Node) -> ScatterWrite | None:
    """The write of a scatter; None if it cannot be compared with windows on its operand."""
    viewed = SCATTERED.get(node.target)
    if viewed is None:
        return None
    operand: Node = node.args[0]
    if operand.meta is not node.meta or not _is_dense_and_concrete(node.meta):
        return None
    meta, start = viewed.result((operand, *node.args[2:]))
    if overlaps_itself(meta):
        return None  # two values are written to one place: unspecified which one stays
    return ScatterWrite(operand, node.args[1], MemoryWindow(meta, start))


def _is_dense_and_concrete(meta: Any) -> bool:
    """Whether memory has no gaps, which as_strided could read, and no symbolic sizes."""
    return not _is_symbolic(meta) and meta.dense


def _is_symbolic(meta: Any) -> bool:
    return is_symbolic((*meta.shape, *meta.stride))


def relation(seen: MemoryWindow, written: MemoryWindow) -> str:
    """The relation of two windows on one memory: "same", "apart" (no common element) or "other"."""
    if seen.start == written.start and seen.meta is written.meta:
        return "same"
    a, b = seen.meta, written.meta
    if seen.start + a.span <= written.start or written.start + b.span <= seen.start:
        return "apart"
    if a.dtype is not b.dtype:
        return "other"
    met = overlaps((a.shape, a.stride, seen.start), (b.shape, b.stride, written.start))
    return "other" if met else "apart"
