"""Checks of the destination of a write: no overlap with itself, no partial overlap with operands.

The dispatcher calls them before anything is written. Rules: TEN-7, TEN-8. Spec:
`specs/autograd.md`.
"""

from __future__ import annotations

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError, ArgumentError, noted
from aotlite.ir.geometry.overlap import Geometry, overlaps_bytes
from aotlite.ir.op import OPS


def check_destination(
    name: str,
    target: Tensor,
    others: list[Tensor],
    *,
    may_overlap: bool = False,
    call: tuple[object, ...] = (),
) -> None:
    """Raises for a read-only destination, one that overlaps itself, or an operand that overlaps it
    in part (TEN-7, TEN-8).

    `call` are the arguments of the op `name`, if it is one, for the message.
    """
    if not may_overlap:
        check_places(name, target)
    storage = target.storage
    if not storage.writable:
        raise noted(
            ArgumentError(f"{name}: the destination is read-only memory, expected writable memory"),
            "The tensor shares a read-only NumPy array. Pass a copy of the array to write to it.",
        )
    if storage.buffer is None and STATE.recorder is None and not target.__tensor_dispatch__:
        raise storage.no_data(name)
    may_be_shared = storage.exported or storage.capture is not None
    for other in others:
        if other.storage is storage or (may_be_shared and _is_hidden_alias(other, target)):
            check_operand(name, target, other, call)


def check_places(name: str, target: Tensor) -> None:
    """Raises AliasError for a destination in which two indices have the same address (TEN-7)."""
    meta = target.meta
    is_quick = type(meta.numel) is int and meta.contiguous  # else it asks what may not matter
    if not is_quick and overlaps_itself(meta):
        raise noted(
            AliasError(
                f"{name}: the destination {meta} overlaps itself, expected one memory place for "
                "each element"
            ),
            "Write to a clone(). (TEN-7)",
        )


def _is_hidden_alias(other: Tensor, target: Tensor) -> bool:
    """Whether they share memory by separate storages over the same buffer (TEN-5)."""
    buffer = target.storage.buffer
    if buffer is None:  # both are captured
        recorder = STATE.recorder
        return recorder is not None and recorder.is_one_memory(other, target)
    return other.storage.buffer is buffer


def check_operand(name: str, target: Tensor, other: Tensor, call: tuple[object, ...]) -> None:
    """Raises AliasError for an operand that overlaps the destination, but not exactly (TEN-7)."""
    if other.meta is target.meta and other.offset == target.offset:
        return
    places, others = layout_of(target), layout_of(other)
    if not _are_alike(places, others) and overlaps_bytes(*places, *others):
        raise noted(
            AliasError(
                f"{name}: {_argument(name, other, call)} {other.meta} overlaps the destination "
                f"{target.meta} in part, expected the same memory or none in common"
            ),
            "clone() the operand. (TEN-7)",
        )


def _are_alike(a: tuple[Geometry, int], b: tuple[Geometry, int]) -> bool:
    """Whether both have the same address for each index; dimensions of size 1 do not matter."""
    if a == b:
        return True
    (_, _, offset), size = a
    (_, _, other_offset), other_size = b
    return (offset, size) == (other_offset, other_size) and _strides(a[0]) == _strides(b[0])


def _strides(geometry: Geometry) -> list[tuple[object, object]]:
    shape, stride, _ = geometry
    return [(n, step) for n, step in zip(shape, stride, strict=True) if n != 1]


def _argument(name: str, operand: Tensor, call: tuple[object, ...]) -> str:
    """The name of an operand in the op's schema, for messages."""
    parameters = OPS[name].schema.parameters if call else ()
    for parameter, value in zip(parameters, call, strict=True):
        if value is operand or (type(value) is tuple and any(v is operand for v in value)):
            return f"argument {parameter.name!r}"
    return "an operand"


def layout_of(tensor: Tensor) -> tuple[Geometry, int]:
    """(geometry, itemsize) of a tensor."""
    meta = tensor.meta
    return (meta.shape, meta.stride, tensor.offset), meta.dtype.itemsize
