"""`ndarray`: an array that behaves as CuPy's, on memory of the host.

It refuses the calls that CuPy refuses: nothing converts to NumPy implicitly, and no array of NumPy
is an operand. Written from CuPy 14's documented behavior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aotlite.testing.cuda import cupy_runtime
from aotlite.testing.cuda.cupy_runtime import CURRENT, MemoryPointer
from aotlite.testing.cuda.emulation_errors import EmulationError


class ndarray:
    """An array of the emulated library."""

    __slots__ = ("_held", "base", "data")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: Sequence[int] | None = None,
        order: Any = "C",
    ) -> None:
        if strides is not None and memptr is None:
            raise ValueError("memptr must be specified if strides is specified")
        dtype = np.dtype(dtype)
        if memptr is None:
            if dtype.name.startswith("float8") or dtype.kind in "OSUMm":
                raise ValueError(f"Unsupported dtype {dtype}")
            memptr = cupy_runtime.alloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self.data = memptr
        self.base: ndarray | None = None
        self._held = _window(memptr, shape, dtype, strides, order)

    # --- attributes
    @property
    def shape(self) -> tuple[int, ...]:
        return self._held.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._held.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._held.dtype

    @property
    def ndim(self) -> int:
        return self._held.ndim

    @property
    def size(self) -> int:
        return self._held.size

    @property
    def itemsize(self) -> int:
        return self._held.itemsize

    @property
    def nbytes(self) -> int:
        return self._held.nbytes

    @property
    def flags(self) -> Any:
        return self._held.flags

    @property
    def device(self) -> cupy_runtime.Device:
        return cupy_runtime.Device(self.data.device_id)

    @property
    def T(self) -> ndarray:
        return self.transpose()

    @property
    def mT(self) -> ndarray:
        return self._view(self._held.mT)

    @property
    def real(self) -> ndarray:
        return self._view(self._held.real) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: object) -> None:
        self.real[...] = value

    @property
    def imag(self) -> ndarray:
        if self.dtype.kind == "c":
            return self._view(self._held.imag)
        return fresh(np.zeros(self.shape, self.dtype))

    @imag.setter
    def imag(self, value: object) -> None:
        self.imag[...] = value

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": cupy_runtime.get_current_stream(self.data.device_id).ptr or 1,
            "version": 3,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: object = None,
        dl_device: object = None,
        copy: object = None,
    ) -> object:
        if dl_device == (1, 0):
            if copy is False:
                raise ValueError("GPU memory cannot be exported to CPU without copy.")
            return self.get().__dlpack__(max_version=max_version)
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("unsupported device requested.")
        if copy:
            raise BufferError("copy=True only supported for copy to CPU.")
        if stream is not None and stream < -1:
            raise ValueError(f"stream is {stream}")
        return Capsule(self, stream)

    def __array__(self, dtype: object = None, copy: object = None) -> object:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    __array_ufunc__ = None  # a function of NumPy raises TypeError for this array

    # --- to the host
    def get(
        self, stream: object = None, order: Any = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        self.refuse_float8("get")
        if out is None:
            return np.array(self._held, order=order, copy=True)
        out[...] = self._held
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError("set: an array of NumPy of another kind")
        if not self.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        self._held[...] = arr

    def tolist(self) -> Any:
        return self.get().tolist()

    def item(self) -> Any:
        return self.get().item()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    # --- views and copies
    def _view(self, held: Any, data: MemoryPointer | None = None) -> ndarray:
        """An array on this one's memory."""
        found = ndarray.__new__(ndarray)
        found._held = held
        found.base = self if self.base is None else self.base
        start = held.__array_interface__["data"][0] - self._held.__array_interface__["data"][0]
        found.data = self.data if not self.size or not held.size else self.data + start
        return found

    def view(self, dtype: object = None, type: object = None) -> ndarray:
        return self._view(self._held.view() if dtype is None else self._held.view(dtype))

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._held.transpose(*axes))

    def reshape(self, *shape: Any, order: Any = "C", copy: object = None) -> ndarray:
        found = self._held.reshape(*shape, order=order)
        if self.size and np.may_share_memory(found, self._held):
            return self._view(found)
        self.refuse_float8("reshape")
        return fresh(found)

    def ravel(self, order: object = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def copy(self, order: Any = "C") -> ndarray:
        self.refuse_float8("copy")
        return fresh(np.array(self._held, order=order, copy=True))

    def astype(
        self,
        dtype: Any,
        order: Any = "K",
        casting: object = None,
        subok: object = None,
        copy: bool = True,
    ) -> ndarray:
        if casting is not None or subok is not None:
            raise TypeError("casting and subok are not supported yet")
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        self.refuse_float8("astype")
        if dtype.name.startswith("float8"):
            raise ValueError(f"Unsupported dtype {dtype}")
        self.check_here()
        if self.dtype.kind == "c" and dtype.kind not in "bc":
            raise EmulationError(f"astype: {self.dtype} to {dtype} warns; take the real part first")
        with np.errstate(all="ignore"):
            return fresh(self._held.astype(dtype, order=order))

    def fill(self, value: object) -> None:
        self.refuse_float8("fill")
        self._held.fill(unsigned(value) if self.flags.c_contiguous else value)

    # --- items
    def __getitem__(self, index: object) -> ndarray:
        key, moves = self._key(index)
        found = self._held[key]
        if moves:
            self.refuse_float8("getitem")
            self.check_here()
            return fresh(found)
        return self._view(found if isinstance(found, np.ndarray) else self._held[(*key, ...)])

    def __setitem__(self, index: object, value: object) -> None:
        self.check_here()
        self.refuse_float8("setitem")
        if isinstance(value, ndarray):
            value.check_here()
            value.refuse_float8("setitem")
            if value.dtype.kind == "c" and self.dtype.kind not in "bc":
                raise EmulationError("setitem: complex numbers are written as reals")
            self._check_apart(index, value)
            value = value._held
        elif not isinstance(value, (bool, int, float, complex, np.generic)):
            raise TypeError(f"setitem: a value of {type(value)}")
        elif not self._key(index)[1]:
            return self[index].fill(value)
        with np.errstate(all="ignore"):
            self._held[self._key(index)[0]] = value

    def _check_apart(self, index: object, value: ndarray) -> None:
        """CuPy copies equal layouts as bytes, without a check for overlap."""
        key, moves = self._key(index)
        there: Any = self._held[key]
        if moves or not np.ndim(there) or there.strides != value.strides:
            return
        same = there.ctypes.data == value._held.ctypes.data
        if not same and there.flags.c_contiguous and np.may_share_memory(there, value._held):
            raise EmulationError("setitem: the value overlaps where it is written in part")

    def _key(self, index: object) -> tuple[tuple[Any, ...], bool]:
        """Returns NumPy's key for the same elements, and whether the result is a copy."""
        given = index if isinstance(index, tuple) else (index,)
        key: list[Any] = []
        for part in given:
            if isinstance(part, ndarray):
                part.check_here()
                key.append(part._held)
            elif (
                part is None or part is Ellipsis or isinstance(part, (int, slice, np.integer, list))
            ):
                key.append(part)
            else:
                raise EmulationError(f"an index is a {type(part).__name__}")
        self._check_range(key)
        return tuple(key), any(isinstance(part, (np.ndarray, list)) for part in key)

    def _check_range(self, key: list[object]) -> None:
        """Raises EmulationError for indices out of bounds, which CuPy does not check but wraps."""
        sizes = iter(self.shape)
        spans = [0 if p is None else getattr(p, "ndim", 0) if _is_mask(p) else 1 for p in key]
        for part, span in zip(key, spans, strict=True):
            if part is Ellipsis:
                left = self.ndim - sum(spans) + 1
                for _ in range(left):
                    next(sizes)
                continue
            taken = [next(sizes) for _ in range(span)]
            places = np.asarray(part) if isinstance(part, (np.ndarray, list)) else None
            if places is None or places.dtype == bool or not places.size:
                continue
            if places.min() < -taken[0] or places.max() >= taken[0]:
                raise EmulationError(f"an index is out of range for a dimension of {taken[0]}")

    # --- checks
    def check_here(self) -> None:
        """Raises EmulationError unless it is on the current device."""
        if self.data.device_id != CURRENT.device:
            raise EmulationError(
                f"an array of device {self.data.device_id} while {CURRENT.device} is current"
            )

    def refuse_float8(self, what: str) -> None:
        """Raises for float8 dtypes: CuPy stores them, but has no kernels for them."""
        if self.dtype.name.startswith("float8"):
            raise ValueError(f"{what}: Unsupported dtype {self.dtype}")


class Capsule:
    """A DLPack capsule: an array, and the stream that the consumer named."""

    def __init__(self, array: ndarray, stream: Any) -> None:
        self.array, self.stream = array, stream


def unsigned(value: object) -> object:
    """A number as CuPy fills contiguous memory with it: -0.0 becomes 0.0."""
    return 0 if value == 0 else value


def _is_mask(part: object) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == bool


def _window(
    pointer: MemoryPointer, shape: Any, dtype: np.dtype[Any], strides: Any, order: Any
) -> np.ndarray:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if 0 in shape or not dtype.itemsize:
        return np.empty(shape, dtype)
    start = pointer.ptr - pointer.mem.ptr
    given: Any = None if strides is None else tuple(strides)
    return np.ndarray(shape, dtype, pointer.mem.bytes, start, given, order)


def fresh(found: object) -> ndarray:
    """A new array on the current device with the values and the layout of a NumPy array."""
    held = np.asarray(found)
    made = ndarray.__new__(ndarray)
    dense = np.empty_like(held, subok=False)
    made.data = cupy_runtime.alloc(held.nbytes)
    made.base = None
    made._held = _window(made.data, held.shape, held.dtype, dense.strides, "C")
    made._held[...] = held
    return made
