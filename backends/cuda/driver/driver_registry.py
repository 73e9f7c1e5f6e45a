"""The registry of drivers: the driver of a device, and the device of a graph.

CuPy's devices get a `CupyDriver`. Another array library with devices, such as the emulated CuPy of
tests, registers a maker of its drivers. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.backends.cuda.driver.cupy_driver import CupyDriver
from aotlite.backends.cuda.driver.driver_protocol import Driver
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.meta import TensorMeta

_registered: list[tuple[object, Callable[[object], Driver]]] = []
"""(array library, maker of drivers for its devices); libraries as in `CupyArrays.cupy`."""


def register(library: object, driver: Callable[[object], Driver]) -> None:
    """Registers `driver(arrays)` as the maker of drivers for devices with arrays of `library`."""
    _registered.append((library, driver))


def is_cuda(device: Device) -> bool:
    """Whether a device has kernels: its array library has an attribute for a driver."""
    return hasattr(device.arrays, "driver")


def driver_of(device: Device) -> Driver:
    """Returns the driver of a device, made at its first use. Raises BackendError for a device that
    is no CUDA device."""
    if not is_cuda(device):
        raise BackendError(f"cuda: the device is {device}, expected a CUDA device")
    arrays: Any = device.arrays
    if arrays.driver is None:
        arrays.driver = _made(arrays)
    driver: Driver = arrays.driver
    return driver


def _made(arrays: Any) -> Driver:
    """Returns a new driver for an array library: a registered one, else CuPy's."""
    for library, driver in _registered:
        if library is arrays.cupy:
            return driver(arrays)
    return CupyDriver(arrays)


def device_of(graph: Graph) -> Device | None:
    """Returns the CUDA device of a graph's values; None if there is none.

    Raises BackendError if there are two.
    """
    devices = devices_of(graph)
    if len(devices) > 1:
        raise BackendError(
            f"cuda: graph {graph.name} has values on {' and '.join(map(str, devices))}, expected "
            "one device"
        )
    return devices[0] if devices else None


def devices_of(graph: Graph) -> list[Device]:
    """Returns the CUDA devices of a graph's values."""
    found = {meta.device for node in graph.nodes for meta in _metas(node.meta)}
    return sorted(filter(is_cuda, found), key=str)


def _metas(meta: object) -> list[TensorMeta]:
    several = meta if type(meta) is tuple else (meta,)
    return [each for each in several if type(each) is TensorMeta]
