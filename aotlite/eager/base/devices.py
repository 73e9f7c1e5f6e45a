"""Devices by name, and errors for data that is not on the host. Rules: DEV-7, DEV-8."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.ir.arrays import host_array
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import ArgumentError, DeviceError, noted


def device_of(op: str, device: Device | str | None) -> Device:
    """The device of this name, or the given device itself; the CPU for None."""
    if isinstance(device, str):
        return device_named(device, op=op)
    if device is not None and not isinstance(device, Device):
        raise ArgumentError(f"{op}: argument 'device' is {device!r}, expected a device or its name")
    return device or CPU


class NotOnHostError(DeviceError, TypeError):
    """Access to device memory as host memory, without a copy."""


def not_on_host(device: Device) -> NotOnHostError:
    """The error for a NumPy array over memory of a device."""
    return noted(
        NotOnHostError(f"numpy: the tensor is on {device}, expected the CPU"),
        "Copy it there first: x.cpu().numpy().",
    )


def shown(array: Any, device: Device) -> str:
    """The text of the elements, with the device if it is not the host."""
    if not isinstance(array, np.ndarray) and not hasattr(array, "get"):
        return f"{array.tolist()}, device={device}"
    with np.printoptions(precision=4, threshold=100):
        text = np.array2string(host_array(array), separator=", ", prefix="tensor(")
    return text if device is CPU else f"{text}, device={device.name!r}"
