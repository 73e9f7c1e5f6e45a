"""Captured `resize_`: within the memory that the graph is given a window, beyond it new memory.

What grows is, in the graph, a larger memory that begins with the old one's elements and goes on
with zeros, as eager's does. Used by the recorder and stage 2. Rules: FUN-18, TEN-25.
Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.memory import cannot_grow
from aotlite.eager.state import no_grad
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.memory import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, InplaceOp
from aotlite.ir.ops.create import RESTRIDE
from aotlite.ir.ops.views import AS_STRIDED
from aotlite.stages.shared.user_frames import describe

AS_STRIDED_ = OPS["as_strided_"]


@attrs.frozen(eq=False)
class Growth:
    """A memory that grew: in the graph another one stands for it from then on."""

    old: Node
    new: Node
    value: Node
    """That of what was resized, then."""


def resized(recorder: Any, tensor: Tensor, meta: TensorMeta) -> tuple[Any, Growth | None]:
    """The value of a tensor that is given this window from its first element on."""
    root = storage_root(tensor.value)
    held: TensorMeta = root.meta  # type: ignore[assignment]
    real = recorder.real_at(root)
    start = tensor.offset - (0 if real is None else real.offset)
    if held.dtype is meta.dtype and start + meta.span > held.span:
        if real is not None:
            _check_input(recorder, tensor, meta, start)
        return _grown(tensor, root, meta, start)
    return recorder.record(AS_STRIDED_, (tensor, meta.shape, meta.stride, 0), meta), None


def _check_input(recorder: Any, tensor: Tensor, meta: TensorMeta, start: int) -> None:
    """An input grows by itself, where all of its memory is known to the graph."""
    root = storage_root(tensor.value)
    real = recorder.real_at(root)
    held: TensorMeta = root.meta  # type: ignore[assignment]
    have = held.span * held.dtype.itemsize
    storage = real.storage
    others = [i for i in recorder.inputs if recorder.real_of(i.fake).storage is storage]
    given = recorder.input_of(tensor)
    alone = given is not None and given.placeholder is root and len(others) == 1
    if not alone or real.offset or start or storage.nbytes() != have:
        raise recorder.refuse(
            f"resize_ to {meta.shape}, beyond the elements of an input of {held},",
            "pass the tensor that spans the whole storage, and no other on it, or make a new "
            "tensor of that size",
        )
    if storage.exported or not storage.writable:
        raise cannot_grow(have, meta.span * meta.dtype.itemsize)
    recorder.changes.sizes[given.role] = have


def _grown(tensor: Tensor, root: Node, meta: TensorMeta, start: int) -> tuple[Any, Growth]:
    held: TensorMeta = root.meta  # type: ignore[assignment]
    size = start + meta.span
    if tensor.storage.exported:
        raise cannot_grow(held.span * held.dtype.itemsize, size * held.dtype.itemsize)
    with no_grad():
        return _copied(tensor, root, meta, start)


def _copied(tensor: Tensor, root: Node, meta: TensorMeta, start: int) -> tuple[Any, Growth]:
    held: TensorMeta = root.meta  # type: ignore[assignment]
    whole = Tensor(tensor.storage, held, tensor.offset - start)
    whole.value = root
    flat = whole._apply(AS_STRIDED, (whole, (held.span,), (1,), 0))
    memory = tensor.new_zeros((start + meta.span,)).slice_scatter(flat, 0, 0, held.span, 1)
    out: Tensor = memory._apply(AS_STRIDED, (memory, meta.shape, meta.stride, start))
    if not start and tensor._base is None:  # the object that its views are views of
        memory = out = out._apply(RESTRIDE, (out, meta.stride))
    return out.value, Growth(root, memory.value, out.value)


def check_growths(
    growths: Sequence[Growth], nodes: Sequence[Node], results: Sequence[Any], puts: Sequence[Node]
) -> None:
    """Raises where values on the old memory and writes tell it from the new one.

    `puts`: the values of inputs that were put onto other memory.
    """
    ends = [*[r.value for r in results if isinstance(r, Tensor)], *puts]
    for each in growths:
        later = nodes[nodes.index(each.value) + 1 : -1]
        used = None
        if each.old.op == "call":  # views of an input are rebuilt from it before it grows
            used = next((value for value in ends if storage_root(value) is each.old), None)
        if used is None and any(_writes(node, each) for node in later):
            used = next(_users(later, each.old), None)
        if used is not None:
            raise noted(
                UnsupportedError(
                    "analyze: what was taken of a tensor before resize_ made its memory grow is "
                    "used afterwards, expected views of what was resized"
                ),
                describe(used.location),
                "Take the views after resize_, or make a new tensor of that size. (TEN-25)",
            )


def _writes(node: Node, growth: Growth) -> bool:
    return isinstance(node.target, InplaceOp) and storage_root(node) in (growth.old, growth.new)


def _users(nodes: Sequence[Node], root: Node) -> Iterator[Node]:
    return (n for n in nodes if any(storage_root(value) is root for value in n.inputs()))
