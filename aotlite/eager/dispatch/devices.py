"""`on_one_device`: copies CPU operands of an op to the device of the others, where allowed (DEV-8).

Spec: `specs/cuda_device.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.op import Cost, InplaceOp, Op


def on_one_device(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with CPU operands copied to the others' device; None if none is copied.

    Copied are 0-d operands of an elementwise op, and the indices of an index op.
    """
    device = next((a.meta.device for a in op.operands(args) if a.meta.device is not CPU), None)
    if device is None or (op.writes and args[0].meta.device is CPU):
        return None
    functional = op.functional if isinstance(op, InplaceOp) else op
    if _takes_indices(op):
        moved = (args[0], tuple([_moved(index, device) for index in args[1]]), *args[2:])
    elif functional.cost is Cost.POINTWISE:
        moved = tuple([_moved(a, device) if _is_number(a) else a for a in args])
    else:
        return None
    return moved if any(map(_differ, args, moved)) else None


def _takes_indices(op: Op) -> bool:
    """Whether the op takes a tensor, and then a list of index tensors."""
    first, *rest = op.schema.parameters
    return first.type.is_tensor and bool(rest) and rest[0].type.is_tensor_list


def _is_number(value: object) -> bool:
    return hasattr(value, "meta") and not value.meta.shape


def _moved(tensor: Any, device: Device) -> object:
    return tensor._do("to_device", device) if tensor.meta.device is CPU else tensor


def _differ(before: object, after: Any) -> bool:
    if type(before) is tuple:
        return any(map(_differ, before, after))
    return before is not after
