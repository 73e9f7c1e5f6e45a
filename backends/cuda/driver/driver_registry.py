"""Which driver a device has, and which device a graph is of.

CuPy's devices are launched on by `CupyDriver`; who has another array library with devices, such as
tests that emulate one, registers what makes their drivers. Spec: `specs/cuda_backend.md`.
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

_registered: list[tuple[Any, Callable[[Any], Driver]]] = []
"""Array libraries, as `CupyArrays.cupy` has them, and what makes drivers of their devices."""


def register(library: Any, driver: Callable[[Any], Driver]) -> None:
    """Has `driver(arrays)` make the driver of each device whose arrays are those of `library`."""
    _registered.append((library, driver))


def is_cuda(device: Device) -> bool:
    """Whether kernels are launched on a device: its array library has a place for a driver."""
    return hasattr(device.arrays, "driver")


def driver_of(device: Device) -> Driver:
    """The driver of a device. Raises BackendError for one that has none."""
    if not is_cuda(device):
        raise BackendError(f"cuda: the device is {device}, expected a CUDA device")
    arrays: Any = device.arrays
    if arrays.driver is None:
        arrays.driver = _made(arrays)
    driver: Driver = arrays.driver
    return driver


def _made(arrays: Any) -> Driver:
    """A driver for an array library: what is registered for it, else CuPy's."""
    for library, driver in _registered:
        if library is arrays.cupy:
            return driver(arrays)
    return CupyDriver(arrays)


def device_of(graph: Graph) -> Device | None:
    """The CUDA device on which a graph has values; None where there is none.

    Raises BackendError where there are two.
    """
    devices = devices_of(graph)
    if len(devices) > 1:
        raise BackendError(
            f"cuda: graph {graph.name} has values on {' and '.join(map(str, devices))}, expected "
            "one device"
        )
    return devices[0] if devices else None


def devices_of(graph: Graph) -> list[Device]:
    """The CUDA devices on which a graph has values."""
    found = {meta.device for node in graph.nodes for meta in _metas(node.meta)}
    return sorted(filter(is_cuda, found), key=str)


def _metas(meta: Any) -> list[TensorMeta]:
    several = meta if type(meta) is tuple else (meta,)
    return [each for each in several if type(each) is TensorMeta]
