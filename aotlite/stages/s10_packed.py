"""What a compiled call saves in another form: packed by saved-tensor hooks, or copied.

Used by stage 10 alone. Rules: TEN-42, SAV-7, PART-37. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from aotlite.backends.values import Value
from aotlite.eager.autograd.node import Packed
from aotlite.eager.state import STATE, backward_task
from aotlite.eager.tensor import tensor_over
from aotlite.ir.arrays import copied
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta
from aotlite.ir.role import Saved


def saved_metas(graph: Graph) -> list[TensorMeta]:
    """The metas of the saved values that a backward takes, in order."""
    return [node.meta for node in graph.placeholders if isinstance(node.role, Saved)]  # type: ignore[misc]


def with_copies(
    values: Sequence[Value], metas: Sequence[TensorMeta], indices: Sequence[int]
) -> list[Value]:
    """The values, copies of those with these numbers among them."""
    found = list(values)
    for i in indices:
        found[i] = _copied(found[i], metas[i])
    return found


def _copied(value: Value, meta: TensorMeta) -> Value:
    arrays, layout = meta.device.arrays, (meta.dtype, meta.shape, meta.stride)
    if type(value) is tuple:
        return copied(arrays, arrays.strided(value[0], *layout, value[1]), meta), 0
    return arrays.strided(copied(arrays, value, meta), *layout, 0)


def pack(values: Sequence[Value], metas: Sequence[TensorMeta], hooks: Any) -> list[Packed]:
    """What the hooks keep of the values: arrays, and windows (buffer, start)."""
    found = []
    for value, meta in zip(values, metas, strict=True):
        buffer, start = value if type(value) is tuple else (value, 0)
        found.append(Packed.of(tensor_over(buffer, meta, start), *hooks))
    return found


def unpack(kept: Sequence[Packed], metas: Sequence[TensorMeta], before: Sequence[bool]) -> Any:
    """The values again, each as an array or a window as it was `before`."""
    values: list[Value] = []
    with backward_task() if STATE.task is None else nullcontext():
        tensors = [each.unpack() for each in kept]
    for tensor, meta, window in zip(tensors, metas, before, strict=True):
        if tensor.meta is not meta:
            tensor = tensor.detach().to(meta.dtype).restride(meta.stride)
        values.append((tensor.storage.buffer, tensor.offset) if window else tensor._data)
    return values
