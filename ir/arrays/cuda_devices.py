"""`device_named`: the device of a name: the CPU's, or CUDA's through CuPy.

CuPy is imported for the first CUDA device. If it or the driver is missing, the error then says what
to install. Spec: `specs/cuda_device.md` (DEV-1, DEV-2).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.ir.arrays.cupy_arrays import CupyArrays
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import DeviceError, MissingExtraError, noted

_NO_DEVICE = 100  # cudaErrorNoDevice
_OLD_DRIVER = 35  # cudaErrorInsufficientDriver


def device_named(name: str, *, op: str = "device") -> Device:
    """The device of this name, the same object each time.

    Raises DeviceError for names that no device has, MissingExtraError where CuPy is not installed.

    >>> device_named("cpu") is CPU
    True
    """
    kind, colon, index = name.partition(":")
    if kind == "cuda" and (not colon or index.isdecimal()):
        return cuda_device(int(index) if colon else None, op=op)
    if name != CPU.name:
        raise noted(
            DeviceError(f"{op}: device is {name!r}, expected 'cpu', 'cuda', or 'cuda:0' and so on"),
            "A Device object is accepted, too.",
        )
    return CPU


@attrs.frozen(eq=False)
class Library:
    """CuPy, or an emulation of it, and its devices by index."""

    cupy: Any
    cupyx: object
    devices: dict[int, Device] = attrs.field(factory=dict, init=False)
    name: str = "cuda"
    """The part of its devices' names before the colon."""
    made_by: Any = device_named

    def device(self, index: int) -> Device:
        """The device with this index, the same object each time."""
        found = self.devices.get(index)
        if found is None:
            arrays = CupyArrays(self.cupy, self.cupyx, index)
            name = f"{self.name}:{index}"
            made = Device(name, arrays, made_by=self.made_by)
            arrays.device = made
            found = self.devices.setdefault(index, made)
        return found


_LOADED: list[Library] = []
"""A stack, whose last library is the one that 'cuda' means; empty until the first use."""


def library() -> Library:
    """CuPy. Raises MissingExtraError where it is not installed."""
    if not _LOADED:
        try:
            cupy = importlib.import_module("cupy")
            cupyx = importlib.import_module("cupyx")
        except ImportError as error:
            raise noted(
                MissingExtraError(
                    "cuda: CuPy cannot be imported, expected the extra 'cuda12' or 'cuda13'"
                ),
                "pip install 'aotlite[cuda13]'; 'aotlite[cuda12]' for a driver of CUDA 12.",
                f"The import said: {error}",
            ) from error
        _LOADED.append(Library(cupy, cupyx))
    return _LOADED[-1]


@contextmanager
def using(other: Library) -> Iterator[None]:
    """A block in which 'cuda' means the devices of another library: for emulations in tests."""
    _LOADED.append(other)
    try:
        yield
    finally:
        _LOADED.remove(other)


def cuda_device(index: int | None = None, *, op: str = "device") -> Device:
    """The CUDA device with this index; the current one if none is given.

    Raises MissingExtraError where CuPy is not installed, DeviceError where there is no driver or
    no such device.
    """
    found = library()
    count = device_count(found)
    if index is None:
        index = int(found.cupy.cuda.runtime.getDevice())
    if index >= count:
        raise noted(
            DeviceError(f"{op}: device is 'cuda:{index}', expected an index below {count}"),
            "CUDA_VISIBLE_DEVICES decides which devices a process sees.",
        )
    return found.device(index)


def device_count(found: Library) -> int:
    """The number of devices, at least one. Raises DeviceError with the reason if there are none."""
    try:
        count = int(found.cupy.cuda.runtime.getDeviceCount())
    except found.cupy.cuda.runtime.CUDARuntimeError as error:
        raise _without_driver(error) from error
    if not count:
        raise noted(
            DeviceError("cuda: there are 0 devices, expected at least one"),
            "CUDA_VISIBLE_DEVICES may hide them.",
        )
    return count


def _without_driver(error: object) -> DeviceError:
    status = getattr(error, "status", None)
    if status == _NO_DEVICE:
        return noted(
            DeviceError("cuda: the driver finds no device, expected at least one"),
            "CUDA_VISIBLE_DEVICES may hide them; nvidia-smi shows those that there are.",
        )
    if status == _OLD_DRIVER:
        return noted(
            DeviceError(
                "cuda: the driver is missing or too old, expected one for this CuPy's CUDA"
            ),
            "nvidia-smi shows the driver's version. For a driver of CUDA 12 install "
            "'aotlite[cuda12]', for one of CUDA 13 'aotlite[cuda13]'; on a machine without a GPU "
            "use device='cpu'.",
        )
    return noted(DeviceError(f"cuda: the driver says {error}, expected a device that works"))


def why_unavailable() -> Exception | None:
    """The error that `cuda_device()` would raise; None where there is a device."""
    try:
        device_count(library())
    except (DeviceError, MissingExtraError) as error:
        return error
    return None
