"""`ArrayBackend`: the protocol of array libraries, and its NumPy implementation.

Ground floor. All other code reaches memory through this protocol (allocate, strided view, copy,
namespace of functions) and does not assume NumPy; a pure-Python implementation in `tests/` proves
that. Offsets and strides count elements. Spec: `specs/arrays.md`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from aotlite.ir.arrays.protocol import Array as Array
from aotlite.ir.arrays.protocol import ArrayBuffer as ArrayBuffer
from aotlite.ir.arrays.protocol import ArrayFunction as ArrayFunction
from aotlite.ir.arrays.protocol import Namespace as Namespace
from aotlite.ir.dtypes import DType, float8_e4m3fn, float8_e5m2
from aotlite.ir.errors import UnsupportedError

BufferT = TypeVar("BufferT", bound=ArrayBuffer)
"""The class of a library's buffers."""
Result = TypeVar("Result")


class ArrayGeometry(Protocol):
    """The part of a `TensorMeta` that array libraries read."""

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
        """Whether each element of the span is exactly one element of the tensor."""


class ArrayBackend(Protocol[BufferT]):
    """An array library: flat buffers, strided views of them, and functions on views.

    `namespace` holds functions under their Array API names (`multiply`, `sum`, `astype`, ...),
    which kernels call on the arrays that `strided` returns. An array has `tolist()`, the Array
    API's operators, and slices of a single dimension.
    """

    name: str

    @property
    def namespace(self) -> Namespace: ...

    def allocate(self, size: int, dtype: DType) -> BufferT:
        """A new buffer of `size` elements; its values are undefined."""

    def strided(
        self,
        buffer: BufferT,
        dtype: DType,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
    ) -> Array:
        """The array over `buffer` with this geometry; it shares the buffer's memory."""

    def copy(self, destination: Array, source: object) -> None:
        """Writes `source` (array, nested lists or number), broadcast and cast, to `destination`."""

    def adopt(self, result: Array, meta: ArrayGeometry) -> BufferT:
        """A buffer that holds a kernel's `result` with the geometry of `meta`, at offset 0.

        It shares no memory with other objects: a result that is a view, or has another geometry, is
        copied.
        """

    def quiet(self, function: Callable[..., Result], *args: object) -> Result:
        """`function(*args)` without the library's floating-point warnings (overflow, nan)."""

    def quieted(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """A function that calls `function` by `quiet`, with less overhead."""

    def fresh_function(self, name: str) -> Callable[..., Array] | None:
        """The namespace's function of this name, if its result is always new memory.

        The layout of the result must depend only on the operands' dtypes, shapes and strides; that
        of an elementwise function, or of one that joins arrays, must be contiguous where the
        operands are. None if the library does not promise this.
        """


def copied(arrays: ArrayBackend[BufferT], source: object, meta: ArrayGeometry) -> BufferT:
    """A copy of `source` in a new buffer, with the geometry of `meta`."""
    buffer = arrays.allocate(meta.span, meta.dtype)
    arrays.copy(array_over(arrays, buffer, meta), source)
    return buffer


def array_over(
    arrays: ArrayBackend[BufferT], buffer: BufferT, meta: ArrayGeometry, start: int = 0
) -> Array:
    """The array with the geometry of `meta` over a buffer, from its element `start` on."""
    return arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, start)


def kernel_on(arrays: ArrayBackend, kernel: Callable[..., Result]) -> Callable[..., Result]:
    """The kernel without warnings. For NumPy it is itself: an interpreter turns NumPy's warnings
    off for the whole run."""
    return kernel if arrays is NUMPY else arrays.quieted(kernel)


def host_array(array: Any) -> np.ndarray:
    """The NumPy array with the values of any library's array: itself, or else a copy."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np.asarray(array)
    fetch = getattr(array, "get", None)  # CuPy's only way to the host
    if fetch is None:
        return np.array(array.tolist(), array.dtype).reshape(array.shape)
    if array.dtype in _FLOAT8:  # which CuPy can only move as bytes
        found: np.ndarray = array.view(np.uint8).get().view(array.dtype)
        return found
    found = fetch()
    return found


QUIET: list[Callable[..., Any]] = []
"""The pool of contexts without NumPy's warnings that are not in use (`Context.run` of each)."""


# Note [quiet contexts]
#     x.exp() / y                      # eager: two kernels; NumPy would warn of overflow and 0/0
# NumPy keeps its error state in a context variable. Entering a `contextvars.Context` in which it
# was set once costs a tenth of `np.errstate`. But a context that is entered cannot be entered
# again, be it by another thread or by a kernel that calls back into aotlite. So each call takes one
# from the pool `QUIET`, or makes one, and puts it back.
def quiet_context() -> Callable[..., Any]:
    """`run(function, *args)` of a new context, which calls a function without NumPy's warnings."""
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context.run


def _quieted(function: Callable[..., Result]) -> Callable[..., Result]:
    """`NUMPY.quiet` for one function, in two thirds of the time."""
    take, put_back = QUIET.pop, QUIET.append

    def call(*args: object) -> Result:
        try:
            quiet_call: Callable[..., Result] = take()
        except IndexError:
            quiet_call = quiet_context()
        try:
            return quiet_call(function, *args)
        finally:
            put_back(quiet_call)

    return call


_FRESH = frozenset("concat stack copy argmax argmin".split())


def _mean(a: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    total: np.ndarray = np.add.reduce(a, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]
    return np.true_divide(total, a.dtype.type(a.size // total.size))


_REDUCTIONS: dict[str, Callable[..., Array]] = {
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
"""The ufunc methods behind these functions, which spend half of their time on their arguments."""


def reducer(xp: Namespace, name: str) -> Callable[..., Array]:
    """The namespace's reduction of this name; for NumPy the ufunc method behind it."""
    return _REDUCTIONS[name] if xp is np else getattr(xp, name)


_FLOAT8 = (float8_e4m3fn.numpy, float8_e5m2.numpy)
_SATURATING = float8_e4m3fn.numpy
"""float8_e4m3fn has no infinity: as in PyTorch, larger numbers become its largest one."""


def _without_elements(shape: Sequence[int], dtype: DType, buffer: object) -> np.ndarray:
    """An array without elements: it may start anywhere, past the end of the buffer, too."""
    if buffer is None and 0 not in shape:  # NumPy would make new memory
        raise UnsupportedError(
            "array: the memory of a tensor was freed, expected one that has its elements"
        )
    return np.empty(shape, dtype.numpy)


class NumpyArrays:
    """NumPy as an `ArrayBackend`; a buffer is a C-contiguous ndarray, usually of bytes."""

    name = "numpy"
    namespace: Namespace = np

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
        if 0 in shape or buffer is None:
            return _without_elements(shape, dtype, buffer)
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

    def quiet(self, function: Callable[..., Result], *args: object) -> Result:
        try:
            quiet_call = QUIET.pop()
        except IndexError:
            quiet_call = quiet_context()
        try:
            return quiet_call(function, *args)
        finally:
            QUIET.append(quiet_call)

    def quieted(self, function: Callable[..., Result]) -> Callable[..., Result]:
        return _quieted(function)

    def fresh_function(self, name: str) -> Callable[..., Array] | None:
        if name in _REDUCTIONS:
            return _REDUCTIONS[name]
        function = getattr(np, name, None)
        return function if isinstance(function, np.ufunc) or name in _FRESH else None

    def adopt(self, result: Array, meta: ArrayGeometry) -> np.ndarray:
        if not meta.shape and isinstance(result, np.generic):
            # NumPy returns a scalar for a 0-d array.
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


def _is_copied_whole(result: Array, meta: ArrayGeometry) -> bool:
    """Whether a C-ordered copy of the array has the geometry of `meta`, and can be the buffer."""
    return (
        type(result) is np.ndarray
        and meta.contiguous
        and result.dtype is meta.dtype.numpy
        and result.dtype.kind != "V"
        and result.shape == meta.shape
    )


NUMPY = NumpyArrays()
