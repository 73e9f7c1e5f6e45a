"""Devices: by name, of operands on several, and of values that are not on the host.

Rules: DEV-7, DEV-8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.ir.arrays import host_array
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import ArgumentError, DeviceError, noted
from aotlite.ir.op import Cost, InplaceOp, Op

_INDEXED = frozenset(("index", "index_put", "index_put_"))


def device_of(op: str, device: Device | str | None) -> Device:
    """The device of this name; a device itself; the CPU where none is given."""
    if isinstance(device, str):
        return device_named(device, op=op)
    if device is not None and not isinstance(device, Device):
        raise ArgumentError(f"{op}: argument 'device' is {device!r}, expected a device or its name")
    return device or CPU


def on_one_device(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with those CPU operands copied that mix with others; None if none does.

    Of an elementwise op these are the ones without dimensions, of an indexed tensor its indices.
    """
    device = next((a.meta.device for a in op.operands(args) if a.meta.device is not CPU), None)
    if device is None or (op.writes and args[0].meta.device is CPU):
        return None
    functional = op.functional if isinstance(op, InplaceOp) else op
    if op.name in _INDEXED:
        moved = (args[0], tuple([_moved(index, device) for index in args[1]]), *args[2:])
    elif functional.cost is Cost.POINTWISE:
        moved = tuple([_moved(a, device) if _is_number(a) else a for a in args])
    else:
        return None
    return moved if any(map(_differ, args, moved)) else None


def _is_number(value: Any) -> bool:
    return hasattr(value, "meta") and not value.meta.shape


def _moved(tensor: Any, device: Device) -> Any:
    return tensor._do("to_device", device) if tensor.meta.device is CPU else tensor


def _differ(before: Any, after: Any) -> bool:
    if type(before) is tuple:
        return any(map(_differ, before, after))
    return before is not after


class NotOnHostError(DeviceError, TypeError):
    """The values are on a device, and are asked for on the host without a copy."""


def not_on_host(device: Device) -> NotOnHostError:
    """The error for asking for an ndarray of memory that is not the host's."""
    return noted(
        NotOnHostError(f"numpy: the tensor is on {device}, expected the CPU"),
        "Copy it there first: x.cpu().numpy().",
    )


def shown(array: Any, device: Device) -> str:
    """The elements as they are printed, and the device if it is not the host."""
    if not isinstance(array, np.ndarray) and not hasattr(array, "get"):
        return f"{array.tolist()}, device={device}"
    with np.printoptions(precision=4, threshold=100):
        text = np.array2string(host_array(array), separator=", ", prefix="tensor(")
    return text if device is CPU else f"{text}, device={device.name!r}"
