"""The one protocol through which storages are reached, and its NumPy implementation.

Ground floor. Everything above asks an `ArrayBackend` for four things (allocate, strided view, copy,
namespace) and never assumes NumPy; `tests/` carry a pure-Python implementation to prove it.
Offsets and strides count elements. Spec: `specs/arrays.md`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from aotlite.ir.dtypes import DType, float8_e4m3fn, float8_e5m2

Array = Any
Buffer = Any


class ArrayGeometry(Protocol):
    """How a result lies in memory: what array libraries read of a `TensorMeta`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def stride(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def dtype(self) -> DType: ...

    @property
    def span(self) -> int:
        """Elements from the first to the last one in memory, both counted; 0 if empty."""

    @property
    def contiguous(self) -> bool: ...

    @property
    def dense(self) -> bool:
        """Every element of the span is an element of the tensor, once."""


class ArrayBackend(Protocol):
    """What an array library gives: flat buffers, strided views of them, and functions on views.

    `namespace` holds functions under their Array API names (`multiply`, `sum`, `astype`, ...),
    which kernels call on the arrays that `strided` returns. An array has `tolist()`, the Array
    API's operators, and slices of a single dimension.
    """

    name: str
    namespace: Any

    def allocate(self, size: int, dtype: DType) -> Buffer:
        """A new buffer of `size` elements; its values are undefined."""

    def strided(
        self,
        buffer: Buffer,
        dtype: DType,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
    ) -> Array:
        """The array over `buffer` with this geometry; it shares the buffer's memory."""

    def copy(self, destination: Array, source: Any) -> None:
        """Writes `source` (array, nested lists or number) into `destination`: broadcasts and
        casts.
        """

    def adopt(self, result: Array, meta: ArrayGeometry) -> Buffer:
        """A buffer that holds a kernel's fresh `result` with the geometry of `meta` at offset 0.

        Never memory that anybody else can see: a result that is a view, or is of another geometry,
        is copied.
        """

    def quiet(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` with the library's warnings about numbers (overflow, nan) off."""

    def quieted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as one that `quiet` is told of once: calling it costs less."""

    def fresh_function(self, name: str) -> Callable[..., Any] | None:
        """The namespace's function of this name, if its result is always new memory.

        How the result lies in memory depends on the operands' dtypes, shapes and strides alone.

        Of an elementwise one, or one that joins arrays, the result is contiguous where the operands
        are. None if there is no such promise.
        """


def copied(arrays: ArrayBackend, source: Any, meta: ArrayGeometry) -> Buffer:
    """A new buffer with the geometry of `meta` that holds `source`."""
    buffer = arrays.allocate(meta.span, meta.dtype)
    arrays.copy(arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0), source)
    return buffer


def kernel_on(arrays: ArrayBackend, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel as whoever runs a graph calls it: NumPy's warnings are off for the whole run."""
    return kernel if arrays is NUMPY else arrays.quieted(kernel)


def host_array(array: Any) -> np.ndarray:
    """The values of any library's array as one of NumPy: itself if it is one, else a copy."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np.asarray(array)
    fetch = getattr(array, "get", None)  # CuPy's way to the host, and the only one
    if fetch is None:
        return np.array(array.tolist(), array.dtype).reshape(array.shape)
    if array.dtype in _FLOAT8:  # which CuPy can only move as bytes
        found: np.ndarray = array.view(np.uint8).get().view(array.dtype)
        return found
    found = fetch()
    return found


QUIET: list[Callable[..., Any]] = []
"""Ways into contexts without NumPy's warnings that no call is in at the moment."""


def quiet_context() -> Callable[..., Any]:
    """`quiet_call(function, *args)` that calls a function without NumPy's warnings.

    NumPy keeps its error state in a context variable. Entering a context in which it was set once
    costs a tenth of `np.errstate`. One that runs cannot be entered again, by another thread or by
    what it calls, hence the stock `QUIET`, from which one is taken for each call, and put back: an
    error that comes out of one is the function's own.
    """
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context.run


def _quieted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`NUMPY.quiet` of one function, for two thirds of its time."""
    take, put_back = QUIET.pop, QUIET.append

    def call(*args: Any) -> Any:
        try:
            quiet_call = take()
        except IndexError:
            quiet_call = quiet_context()
        try:
            return quiet_call(function, *args)
        finally:
            put_back(quiet_call)

    return call


_FRESH = frozenset("concat stack copy argmax argmin".split())


def _mean(a: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> Any:
    total: Any = np.add.reduce(a, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]
    return np.true_divide(total, a.dtype.type(a.size // total.size))


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
    "mean": _mean,
    "cumsum": np.add.accumulate,
    "cumprod": np.multiply.accumulate,
}
"""What the functions of these names call, after looking at their arguments for half of the time."""


_FLOAT8 = (float8_e4m3fn.numpy, float8_e5m2.numpy)
_SATURATING = float8_e4m3fn.numpy
"""It has no infinity, and as in PyTorch what is too large for it becomes its largest number."""


class NumpyArrays:
    """NumPy's arrays over any C-contiguous buffer (an ndarray, usually of bytes)."""

    name = "numpy"
    namespace: Any = np

    def allocate(self, size: int, dtype: DType) -> np.ndarray:
        return np.empty(size * dtype.itemsize, np.uint8)

    def strided(
        self,
        buffer: np.ndarray,
        dtype: DType,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
    ) -> np.ndarray:
        size = dtype.itemsize
        if 0 in shape:  # an empty view may start anywhere, past the end of the buffer too
            return np.empty(shape, dtype.numpy)
        return np.ndarray(
            shape, dtype.numpy, buffer, offset * size, [step * size for step in stride]
        )

    def copy(self, destination: np.ndarray, source: Any) -> None:
        if type(source) is np.ndarray and source.dtype == destination.dtype:
            destination[...] = source
        else:  # a cast may warn
            if hasattr(source, "get") and hasattr(source, "dtype"):
                source = host_array(source)
            if destination.dtype.kind not in "bc" and np.iscomplexobj(source):
                source = np.real(source)  # NumPy would say that it drops the rest
            if destination.dtype == _SATURATING:
                source = np.clip(np.asarray(source).astype(float), -448, 448)
            self.quiet(destination.__setitem__, ..., source)

    def quiet(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            quiet_call = QUIET.pop()
        except IndexError:
            quiet_call = quiet_context()
        try:
            return quiet_call(function, *args)
        finally:
            QUIET.append(quiet_call)

    def quieted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _quieted(function)

    def fresh_function(self, name: str) -> Callable[..., Any] | None:
        if name in _REDUCTIONS:
            return _REDUCTIONS[name]
        function = getattr(np, name, None)
        return function if isinstance(function, np.ufunc) or name in _FRESH else None

    def adopt(self, result: Any, meta: ArrayGeometry) -> np.ndarray:
        if not meta.shape and isinstance(result, np.generic):
            # Of an array without dimensions NumPy makes a scalar.
            if result.dtype is meta.dtype.numpy and result.dtype.kind != "V":
                return np.asarray(result)
        elif (
            type(result) is np.ndarray
            and result.base is None
            and result.dtype is meta.dtype.numpy
            and result.dtype.kind != "V"  # an extension dtype (bfloat16) exports no buffer
            and result.shape == meta.shape
        ):
            if meta.contiguous:
                if result.flags.c_contiguous:
                    return result
            elif result.flags.f_contiguous and meta.stride == tuple(
                step // result.itemsize for step in result.strides
            ):
                return result.T
        if _is_copied_whole(result, meta):
            return np.array(result, order="C")
        return copied(self, result, meta)


def _is_copied_whole(result: Any, meta: ArrayGeometry) -> bool:
    """Whether NumPy's own copy of the array is the buffer."""
    return (
        type(result) is np.ndarray
        and meta.contiguous
        and result.dtype is meta.dtype.numpy
        and result.dtype.kind != "V"
        and result.shape == meta.shape
    )


NUMPY = NumpyArrays()
