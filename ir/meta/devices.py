"""`check_devices`: refuses operands on different devices (DEV-8).

Ground floor. Spec: `specs/cuda_device.md`.
"""

from __future__ import annotations

from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import (
    DeviceError,
    noted,
)
from aotlite.ir.meta import TensorMeta


def _other(first: Device, second: Device) -> str:
    """The name of `second` if `first` is the host, else of `first`: where to move the other."""
    return second.name if first is CPU else first.name


class MixedDevicesError(DeviceError):
    """The operands of an op are on different devices."""


def check_devices(name: str, key: tuple[object, ...]) -> None:
    """Raises MixedDevicesError unless all metas in the key of a call are on one device (DEV-8)."""
    found: Device | None = None
    for value in key:
        for meta in value if type(value) is tuple else (value,):
            if type(meta) is not TensorMeta:
                continue
            if found is None:
                found = meta.device
            elif meta.device is not found:
                raise noted(
                    MixedDevicesError(
                        f"{name}: operands are on {found} and {meta.device}, expected one device"
                    ),
                    f"Move one: x.to({_other(found, meta.device)!r}). A CPU tensor of no "
                    "dimensions mixes with others in elementwise ops. (DEV-8)",
                )


def check_device(what: str, found: Device, expected: Device) -> None:
    """Raises MixedDevicesError for a tensor that is not on the expected device (DEV-8)."""
    if found is not expected:
        raise noted(
            MixedDevicesError(f"{what} is on {found}, expected {expected}"),
            f"Move it: x.to({str(expected)!r}). (DEV-8)",
        )
