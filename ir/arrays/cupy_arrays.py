"""`CupyArrays`: arrays of CuPy on one CUDA device, as an `ArrayBackend`.

CuPy is handed in (`cuda_devices` imports it), so that all of this runs on an emulation of it, too.
Work goes to CuPy's current stream of the device, which is made the current device meanwhile.
Spec: `specs/cuda_device.md` (DEV-3 to DEV-6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotlite.ir.arrays import Array, ArrayGeometry, Result, copied
from aotlite.ir.arrays.cupy_namespace import CupyNamespace, is_float8, is_negative_zero
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType, float8_e4m3fn
from aotlite.ir.errors import OutOfMemoryError, noted

_SATURATING = float8_e4m3fn.numpy
LARGEST = 448.0


class Memory:
    """A buffer: bytes on a device, and whoever owns them.

    >>> from aotlite.testing import emulated_cuda
    >>> device = emulated_cuda()
    >>> from aotlite.ir.dtypes import float32
    >>> memory = device.arrays.allocate(3, float32)
    >>> memory.nbytes, memory.address % 4
    (12, 0)
    """

    __slots__ = ("__weakref__", "address", "arrays", "nbytes", "pointer")

    def __init__(self, arrays: CupyArrays, pointer: Any, nbytes: int) -> None:
        """`pointer` is CuPy's, which keeps its owner alive."""
        self.arrays = arrays
        self.nbytes = nbytes
        self.address = int(pointer.ptr)
        # Windows point into memory that CuPy does not own: so `adopt` can tell them from results.
        unowned = arrays.cupy.cuda.UnownedMemory
        self.pointer = arrays.cupy.cuda.MemoryPointer(
            unowned(self.address, nbytes, pointer, arrays.index), 0
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }

    def bytes(self) -> Array:
        """All of it as an array of bytes."""
        return self.arrays.cupy.ndarray((self.nbytes,), np.uint8, self.pointer)

    def copy(self) -> Memory:
        """New memory with the same bytes."""
        made = self.arrays.room(self.nbytes)
        self.arrays.quiet(_write, made.bytes(), self.bytes())
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return _from_host, (self.arrays.device, self.arrays.host(self.bytes()))


def _from_host(device: Device, held: np.ndarray) -> Memory:
    arrays: Any = device.arrays
    made: Memory = arrays.room(held.nbytes)
    arrays.copy(made.bytes(), held)
    return made


def _write(destination: Array, source: object) -> None:
    destination[...] = source


class CupyArrays:
    """CuPy's arrays on the device with this index."""

    name = "cupy"
    device: Device
    """The one device that is reached through this."""
    driver: Any = None
    """How compiled kernels are launched there; whoever compiles them puts it here."""

    def __init__(self, cupy: Any, cupyx: Any, index: int) -> None:
        self.cupy = cupy
        self.cupyx = cupyx
        self.index = index
        self.namespace = CupyNamespace(cupy, cupyx)
        self._current = cupy.cuda.runtime.getDevice
        self._ndarray = cupy.ndarray
        self._full = cupy.cuda.memory.OutOfMemoryError

    # --- memory
    def room(self, nbytes: int) -> Memory:
        """New memory of this size. Raises OutOfMemoryError where there is none."""
        return Memory(self, self.quiet(self.cupy.cuda.alloc, nbytes), nbytes)

    def allocate(self, size: int, dtype: DType) -> Memory:
        return self.room(size * dtype.itemsize)

    def strided(
        self,
        buffer: Memory,
        dtype: DType,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
    ) -> Array:
        size = dtype.itemsize
        start = offset * size
        # An empty view may start anywhere, past the end of the buffer too.
        pointer = buffer.pointer if 0 in shape or not start else buffer.pointer + start
        return self._ndarray(shape, dtype.numpy, pointer, [step * size for step in stride])

    def adopt(self, result: Any, meta: ArrayGeometry) -> Memory:
        if self._is_fresh(result, meta):
            if meta.contiguous and result.flags.c_contiguous:
                return Memory(self, result.data, result.nbytes)
            steps = tuple([step * meta.dtype.itemsize for step in meta.stride])
            if result.strides == steps and meta.dense:
                return Memory(self, result.data, result.nbytes)
        made: Memory = copied(self, result, meta)
        return made

    def _is_fresh(self, result: Any, meta: ArrayGeometry) -> bool:
        """Whether it is an array of this dtype and shape on memory that nobody else can see."""
        return (
            type(result) is self._ndarray
            and result.base is None
            and not isinstance(result.data.mem, self.cupy.cuda.UnownedMemory)
            and result.dtype == meta.dtype.numpy
            and result.shape == meta.shape
            and result.data.device_id == self.index
        )

    # --- copies
    def copy(self, destination: Array, source: object) -> None:
        if not isinstance(source, self._ndarray):
            source = self.moved(_hosted(source, destination.dtype))
        elif source.data.device_id != self.index:
            source = self._from_peer(source)
        self.quiet(self._copy_here, destination, source)

    def _copy_here(self, destination: Array, source: Array) -> None:
        if source.dtype != destination.dtype:
            if destination.dtype == _SATURATING:
                source = self._clipped(source)
            source = self.namespace.cast(source, destination.dtype)
        if is_float8(source.dtype):
            source, destination = source.view(np.uint8), destination.view(np.uint8)
        destination[...] = source

    def _clipped(self, source: Array) -> Array:
        """What a float8_e4m3fn holds of each element: as in PyTorch the largest number, not nan."""
        real = self.namespace.astype(source.real, np.float64)
        return self.cupy.clip(real, -LARGEST, LARGEST)

    def moved(self, held: np.ndarray, *, blocking: bool = True) -> Array:
        """A new array on the device with the values of one on the host."""
        kept = np.ascontiguousarray(held)
        if kept.shape != held.shape and not is_negative_zero(held):  # of no dimensions it makes one
            kept = kept.reshape(held.shape)
        sent = kept.view(np.uint8) if is_float8(held.dtype) else kept
        made = self.quiet(lambda: self.cupy.asarray(sent, blocking=blocking))
        made = made if sent is kept else made.view(held.dtype)
        return made.reshape(held.shape) if made.shape != held.shape else made

    def host(self, array: Any) -> np.ndarray:
        """A new array of NumPy with these values; waits for them."""
        found: np.ndarray
        if is_float8(array.dtype):
            found = self.quiet(array.view(np.uint8).get)
            return found.view(array.dtype)
        found = self.quiet(array.get)
        return found

    def _from_peer(self, source: Any) -> Array:
        """A contiguous copy of an array of another device, ordered behind what computes it."""
        cuda = self.cupy.cuda
        there = cuda.Device(source.data.device_id)
        with there:
            stream = cuda.get_current_stream()
            whole = self.cupy.ascontiguousarray(_as_bits(source))
            ready = stream.record()
        with cuda.Device(self.index):
            here = cuda.get_current_stream()
            here.wait_event(ready)
            made = whole.copy()
            done = here.record()
        with there:  # its memory may be given to others from now on, behind the copy
            stream.wait_event(done)
        return made.view(source.dtype) if is_float8(source.dtype) else made

    # --- calling
    def quiet(self, function: Callable[..., Result], *args: object) -> Result:
        try:
            if self._current() == self.index:
                return function(*args)
            with self.cupy.cuda.Device(self.index):
                return function(*args)
        except self._full:
            pass
        return self._again(function, args)

    def quieted(self, function: Callable[..., Result]) -> Callable[..., Result]:
        def call(*args: object) -> Result:
            return self.quiet(function, *args)

        return call

    def _again(self, function: Callable[..., Result], args: tuple[object, ...]) -> Result:
        """The call once more with all memory that can be given back given back (DEV-6)."""
        with self.cupy.cuda.Device(self.index):
            self.cupy.get_default_memory_pool().free_all_blocks()
            self.cupy.get_default_pinned_memory_pool().free_all_blocks()
            try:
                return function(*args)
            except self._full as error:
                raise self.out_of_memory(error) from None

    def out_of_memory(self, error: object) -> OutOfMemoryError:
        """Our error for CuPy's."""
        free, total = self.cupy.cuda.runtime.memGetInfo()
        asked = error.__reduce__()[1][0] if isinstance(error, self._full) else "more"
        return noted(
            OutOfMemoryError(
                f"{self.device}: {asked} bytes are asked for, expected at most the {free} bytes "
                f"that are free of {total}"
            ),
            "What was kept for later was given back first. Use smaller batches, drop tensors that "
            "are not needed, or compute saved values again (aotlite.checkpoint).",
        )

    def fresh_function(self, name: str) -> Callable[..., Array] | None:
        if hasattr(CupyNamespace, name):  # not CuPy's own
            return None
        function = getattr(self.cupy, name, None)
        return function if isinstance(function, self.cupy.ufunc) else None


def _hosted(source: object, dtype: np.dtype) -> np.ndarray:
    """What is no array of CuPy as one of NumPy: nested lists, a number, another library's array."""
    if isinstance(source, np.ndarray):
        return source
    if hasattr(source, "tolist") and not isinstance(source, np.generic):
        source = source.tolist()
    held = np.asarray(source)
    return held if held.dtype.kind in "biufc" else held.astype(dtype)


def _as_bits(array: Array) -> Array:
    return array.view(np.uint8) if is_float8(array.dtype) else array
