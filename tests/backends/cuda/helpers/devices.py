"""A CUDA device without a GPU, and CPU graphs run on it: its memory is that of this process."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import attrs
import numpy as np

from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.protocol import Run, WindowFunction
from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import NumpyArrays, copied
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.graph import Constant, Graph, Node, map_nodes
from aotlite.ir.graph.role import Offset, Seed
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS
from aotlite.testing.cuda.host_driver import HostDriver

POISON = 0xA5
ADVANCE = OPS["advance_offset"]


class PlainArrays(NumpyArrays):
    """NumPy's arrays as those of another device; new memory is not zero."""

    name = "plain"
    driver: Any = None

    def allocate(self, size: int, dtype: Any) -> np.ndarray:
        return np.full(size * dtype.itemsize, POISON, np.uint8)


def device(*, interprets: bool = True, name: str = "plain:0", **options: Any) -> Any:
    """A new device with a driver."""
    arrays = PlainArrays()
    of = operator.attrgetter("ctypes.data")
    arrays.driver = HostDriver(of, interprets=interprets, **options)
    return Device(name, arrays)


@cache
def plain() -> Any:
    """The device whose kernels are interpreted."""
    return device()


def moved(tensor: Any, to: Device) -> Tensor:
    """A leaf on the device with the values of one on the CPU."""
    meta = tensor_meta(tensor.shape, tensor.meta.stride, tensor.dtype, to)
    made: Tensor = tensor_over(copied(to.arrays, tensor.detach().numpy(), meta), meta, 0)
    return made.requires_grad_(tensor.requires_grad)


def graph_on(graph: Graph, to: Device) -> Graph:
    """The graph with its values on a device, but for those of the generator."""
    new: dict[Node, Node] = {}
    staying: set[Node] = set()
    for node in graph.nodes:
        if type(node.role) in (Seed, Offset) or node.target is ADVANCE and node.args[0] in staying:
            staying.add(node)
        stays = node in staying
        args = map_nodes(node.args, lambda value: new[value])
        args = tuple([to if arg is CPU else arg for arg in args])
        meta: Any = node.meta if stays else _meta_on(node.meta, to)
        made = node.with_args(args, meta)
        if node.op == "get_attr":
            array = copied(to.arrays, node.target.value, meta)
            held = to.arrays.strided(array, meta.dtype, meta.shape, meta.stride, 0)
            made = attrs.evolve(made, target=Constant(node.target.name, held))
        new[node] = made
    return Graph(tuple(new.values()), graph.name)


def _meta_on(meta: Any, to: Any) -> Any:
    if type(meta) is tuple:
        return tuple([_meta_on(each, to) for each in meta])
    if type(meta) is not TensorMeta:
        return meta
    return tensor_meta(meta.shape, meta.stride, meta.dtype, to)


class Relabeled:
    """A backend for graphs of the CPU that runs them as if they were of a CUDA device."""

    name = "relabeled"
    fuses = True

    def __init__(self, to: Device, backend: Any = None) -> None:
        self.to = to
        self.backend = backend or CudaBackend(contract=False)

    def compile(self, graph: Graph) -> WindowFunction:
        run: Run = self.backend.compile(graph_on(graph, self.to))
        return lambda windows: run(windows)  # values of a device are windows


def results(found: Any) -> list[np.ndarray]:
    """The arrays of the tensors among results."""
    several = found if isinstance(found, (tuple, list)) else (found,)
    return [np.array(each._data) for each in several if isinstance(each, Tensor)]
