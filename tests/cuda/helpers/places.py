"""Tensors of samples on a device, with the geometry that they have on the CPU."""

import numpy as np

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import host_array
from aotlite.ir.meta import tensor_meta
from aotlite.testing.laws.ops.runs import tensor_of


def tensor_on(device, array):
    """A tensor on the device, in memory that lies as the array's does, margins included."""
    host = tensor_of(array)
    memory = device.arrays.room(host.storage.buffer.nbytes)
    device.arrays.copy(memory.bytes(), host.storage.buffer)
    meta = tensor_meta(host.meta.shape, host.meta.stride, host.meta.dtype, device)
    return Tensor(Storage(memory), meta, host.offset)


def values_of(tensor):
    """The elements on the host."""
    return np.ascontiguousarray(host_array(tensor._data))


def facts_of(tensor):
    """The meta but for the device."""
    return tensor.meta.shape, tensor.meta.stride, tensor.meta.dtype
