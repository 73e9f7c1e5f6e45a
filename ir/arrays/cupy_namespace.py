"""The functions that kernels call, on CuPy's arrays: CuPy's own, and what it lacks of NumPy's.

Nothing here goes by way of the host. What differs from CuPy: sums at positions of any dtype, 8-bit
floats, errors of linear algebra. Spec: `specs/cuda_device.md` (DEV-5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from aotlite.ir.arrays import Array
from aotlite.ir.dtypes import bfloat16, float8_e4m3fn, float8_e5m2

_FLOAT8 = (float8_e4m3fn.numpy, float8_e5m2.numpy)
_AS_BITS = {bfloat16.numpy: np.uint16, **dict.fromkeys(_FLOAT8, np.uint8)}


def is_float8(dtype: object) -> bool:
    """Whether these are 8-bit floats, which CuPy stores and does not compute with."""
    return dtype in _FLOAT8


def is_negative_zero(held: np.ndarray) -> bool:
    """Whether it is a number, -0.0, which CuPy makes a 0.0 of unless it has a dimension."""
    return not held.ndim and bool(held == 0) and any(held.tobytes())


class CupyNamespace:
    """Functions of CuPy by their names, and those that are written here."""

    def __init__(self, cupy: Any, cupyx: Any) -> None:
        self._cupy = cupy
        self.linalg = _Linalg(cupy, cupyx)
        for name in SCATTERED:
            setattr(self, name, Scattering(cupy, name))
        self._tables: dict[tuple[np.dtype, str, int], Array] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        if name in _MOVING:
            found = _by_bits(found)
        elif name in _WIDENING:
            found = _widening(found)
        elif name in _FILLING:
            found = self._filling(found)
        if not name.startswith("_"):
            setattr(self, name, found)
        return found

    def asarray(self, a: Array, *, dtype: Any = None) -> Array:
        """The array itself, or one of what is on the host; CuPy's makes a number -0.0 a 0.0."""
        if isinstance(a, self._cupy.ndarray):
            return self._cupy.asarray(a, dtype=dtype)
        held = np.asarray(a, dtype=dtype)
        if is_negative_zero(held):
            return self._cupy.asarray(held.reshape(1)).reshape(())
        return self._cupy.asarray(held)

    def where(self, condition: Array, x: Array, y: Array) -> Array:
        """CuPy's has no loop for 16-bit brain floats, which it would give in 32 bits."""
        dtypes = {a.dtype for a in (x, y) if hasattr(a, "dtype")}
        if len(dtypes) == 1 and (dtype := dtypes.pop()) in _AS_BITS:
            x, y = [a if hasattr(a, "dtype") else self.full((), a, dtype=dtype) for a in (x, y)]
            x, y = x.view(_AS_BITS[dtype]), y.view(_AS_BITS[dtype])
            return self._cupy.where(condition, x, y).view(dtype)
        return self._cupy.where(condition, x, y)

    def logaddexp(self, a: Array, b: Array) -> Array:
        """CuPy's, as a function: its `accumulate` is there, and raises."""
        return self._cupy.logaddexp(a, b)

    def argsort(self, a: Array, axis: int = -1, *, stable: bool = True) -> Array:
        """The order of the elements; CuPy's sort is stable always."""
        return self._cupy.argsort(self._signless(a), axis=axis)

    def sort(self, a: Array, axis: int = -1, *, stable: bool = True) -> Array:
        """The elements in order."""
        return self._cupy.sort(self._signless(a), axis=axis).astype(a.dtype, copy=False)

    def _signless(self, a: Array) -> Array:
        """What is sorted: with nans of one sign, for of a line CuPy puts negative ones first."""
        a = _wide(a)
        return self._cupy.where(a == a, a, np.nan) if a.ndim == 1 and a.dtype.kind == "f" else a

    def argmax(self, a: Array, axis: int | None = None, *, keepdims: bool = False) -> Array:
        """Where the first of the largest elements, or the first nan, lies."""
        return self._first(self._cupy.argmax, self._cupy.max, a, axis, keepdims)

    def argmin(self, a: Array, axis: int | None = None, *, keepdims: bool = False) -> Array:
        """Where the first of the least elements, or the first nan, lies."""
        return self._first(self._cupy.argmin, self._cupy.min, a, axis, keepdims)

    def _first(
        self,
        position: Callable[..., Array],
        extreme: Callable[..., Array],
        a: Array,
        axis: int | None,
        keepdims: bool,
    ) -> Array:
        """CuPy's own gives the first of equal ones, but any one of several nans."""
        a = _wide(a)
        if a.dtype.kind != "f":
            return position(a, axis=axis, keepdims=keepdims)
        hits = (a == extreme(a, axis=axis, keepdims=True)) | (a != a)
        return self._cupy.argmax(hits, axis=axis, keepdims=keepdims)

    def floor_divide(self, a: Array, b: Array) -> Array:
        """How often the divisor fits in whole; CuPy rounds a quotient of floats first."""
        cupy = self._cupy
        dtype = (a if hasattr(a, "dtype") else b).dtype
        if dtype.kind in "iu":
            return cupy.floor_divide(a, b)
        a, b = [v if hasattr(v, "dtype") else cupy.full((), v, dtype=dtype) for v in (a, b)]
        rest, plain = cupy.fmod(a, b), a / b
        times = (a - rest) / b - ((rest != 0) & ((rest < 0) != (b < 0)))
        whole = cupy.floor(times)
        whole = cupy.where(times - whole > 0.5, whole + 1, whole)
        whole = cupy.where(times == 0, cupy.copysign(cupy.zeros_like(plain), plain), whole)
        return cupy.where(b == 0, plain, whole)

    def fmod(self, a: Array, b: Array) -> Array:
        """The remainder with the dividend's sign; CuPy's of integers goes by way of float64."""
        cupy = self._cupy
        dtype = (a if hasattr(a, "dtype") else b).dtype
        if dtype.kind not in "iu" or dtype.itemsize < 8:
            return cupy.fmod(a, b)
        rest = cupy.remainder(a, b)
        return cupy.where((rest != 0) & ((a < 0) != (b < 0)), rest - b, rest)

    def _filling(self, function: Callable[..., Array]) -> Callable[..., Array]:
        def call(*args: object, dtype: Any = None, **kwargs: object) -> Array:
            if dtype is not None and is_float8(np.dtype(dtype)):
                return self.cast(function(*args, dtype=np.float32, **kwargs), np.dtype(dtype))
            return (
                function(*args, **kwargs)
                if dtype is None
                else function(*args, dtype=dtype, **kwargs)
            )

        return call

    # --- dtypes
    def astype(self, x: Array, dtype: Any, /, *, copy: bool = True) -> Array:
        """The array in another dtype."""
        if x.dtype == dtype:
            return self._copied(x) if copy else x
        return self.cast(x, np.dtype(dtype))

    def _copied(self, x: Array) -> Array:
        return x.view(np.uint8).copy().view(x.dtype) if is_float8(x.dtype) else x.copy("K")

    def cast(self, x: Array, dtype: np.dtype) -> Array:
        """The array in a dtype that it is not in; of complex numbers reals keep the real part."""
        if is_float8(x.dtype):
            x = self._take(self._values(x.dtype), x.view(np.uint8))
        if x.dtype.kind == "c" and dtype.kind not in "bc":
            x = x.real
        if is_float8(dtype):
            return self._rounded(x, dtype)
        return x.astype(dtype, copy=False)

    def _take(self, table: Array, places: Array) -> Array:
        return self._cupy.take(table, places)

    def _values(self, dtype: np.dtype) -> Array:
        """The numbers of an 8-bit float type by their bits."""
        return self._table(dtype, "values", lambda: _numbers_of(dtype))

    def _table(self, dtype: np.dtype, what: str, made: Callable[[], np.ndarray]) -> Array:
        key = dtype, what, self._cupy.cuda.runtime.getDevice()
        if key not in self._tables:
            self._tables[key] = self._cupy.asarray(made())
        return self._tables[key]

    def _rounded(self, x: Array, dtype: np.dtype) -> Array:
        """The nearest 8-bit float of each element, the even one of two, found among the numbers."""
        cupy = self._cupy
        wide = x.astype(np.float32)  # of float64, too, as on the CPU
        steps = self._table(dtype, "steps", lambda: _steps_of(dtype))
        bits = cupy.searchsorted(steps, cupy.abs(wide), side="left").astype(np.uint8)
        bits = cupy.where(cupy.isnan(wide), np.uint8(_nan_of(dtype)), bits)
        return (bits | (cupy.signbit(wide).astype(np.uint8) << np.uint8(7))).view(dtype)


def _numbers_of(dtype: np.dtype) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


@cache
def _nan_of(dtype: np.dtype) -> int:
    """The bits, without the sign, that a conversion gives of nan."""
    return int(np.array(np.nan).astype(dtype).view(np.uint8)) & 0x7F


def _steps_of(dtype: np.dtype) -> np.ndarray:
    """Where the nearest number is the next one: of the bits 0, 1, ... the largest float32 that is
    rounded to them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = _numbers_of(dtype)[:128].astype(np.float64)
        known = numbers[np.isfinite(numbers)]
        last = 2 * known[-1] - known[-2]  # what would be next, were there no end
        middles = (known + np.append(known[1:], last)) / 2
    odd = np.arange(len(middles)) % 2 == 1
    narrow = middles.astype(np.float32)
    return np.where(odd, np.nextafter(narrow, np.float32(0)), narrow)


# ----------------------------------------------------------------- dtypes that CuPy only stores
_MOVING = frozenset(
    """
    array ascontiguousarray broadcast_arrays broadcast_to concat copy expand_dims flip moveaxis
    permute_dims reshape roll squeeze stack take take_along_axis tile
    """.split()
)
"""Functions that move elements as they are."""
_WIDENING = frozenset("count_nonzero lexsort".split())
"""Functions of which CuPy has none for 16-bit brain floats, and which any wider dtype answers."""
_FILLING = frozenset("empty full ones zeros".split())


def _bits_of(value: Any) -> object:
    if isinstance(value, (list, tuple)):
        return type(value)([_bits_of(item) for item in value])
    return value.view(np.uint8) if is_float8(getattr(value, "dtype", None)) else value


def _by_bits(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function, on 8-bit floats as bytes."""

    def call(a: Array, *args: object, **kwargs: object) -> Any:
        first = a[0] if isinstance(a, (list, tuple)) and a else a
        dtype = getattr(first, "dtype", None)
        if not is_float8(dtype):
            return function(a, *args, **kwargs)
        found = function(_bits_of(a), *map(_bits_of, args), **kwargs)
        if isinstance(found, (list, tuple)):
            return [each.view(dtype) for each in found]
        return found.view(dtype)

    return call


def _wide(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype.kind == "V" else a


def _widening(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, *args, **kwargs: function(_wide(a), *args, **kwargs)


# ---------------------------------------------------------------------------- sums at positions
SCATTERED = ("add", "multiply", "maximum", "minimum", "logical_or", "logical_and")
_ATOMIC = {
    "add": "i4 i8 u4 u8 f4 f8 f2",
    "maximum": "i4 i8 u4 u8",
    "minimum": "i4 i8 u4 u8",
}
"""The dtypes whose atomic operations are NumPy's: CuPy's extremes of floats drop nan."""
_WIDER = {"b": np.int32, "i": np.int32, "u": np.uint32, "V": np.float32}
_OF_TRUTH = {"add": "maximum", "logical_or": "maximum", "logical_and": "minimum"}
_OF_TRUTH |= {"multiply": "minimum", "maximum": "maximum", "minimum": "minimum"}


class Scattering:
    """A ufunc of CuPy with an `at` for every dtype."""

    def __init__(self, cupy: Any, name: str) -> None:
        self._cupy = cupy
        self._ufunc = getattr(cupy, name)
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> Array:
        return self._ufunc(*args, **kwargs)

    def at(self, a: Array, indices: Array, b: Array) -> None:
        """Reduces each element of `a` at the indices with what `b` has for it, in place."""
        name = self._name if a.dtype.kind != "b" else _OF_TRUTH[self._name]
        if a.dtype.str[1:] in _ATOMIC.get(name, "").split():
            getattr(self._cupy, name).at(a, indices, b)
        elif a.dtype.kind == "c" and name == "add":
            self._ufunc.at(a.real, indices, b.real)
            self._ufunc.at(a.imag, indices, b.imag)
        elif a.dtype.itemsize < 4 and name in _ATOMIC and (a.dtype.kind in "biu" or name == "add"):
            wide = _WIDER[a.dtype.kind]
            total = a.astype(wide)
            getattr(self._cupy, name).at(total, indices, _in(b, wide))
            a[...] = total.astype(a.dtype)
        else:
            self._by_halves(a, indices, b)

    def _by_halves(self, a: Array, indices: Array, b: Array) -> None:
        """Sorts the values by place, and reduces neighbors of one place: in halves, in order."""
        cupy = self._cupy
        places = cupy.arange(a.size, dtype=np.int64).reshape(a.shape)[indices]
        values = cupy.broadcast_to(_in(b, a.dtype, cupy), places.shape).reshape(-1)
        places = places.reshape(-1)
        order = cupy.argsort(places)
        places, values = places[order], values[order]
        step = 1
        while step < places.size:
            same = places[step:] == places[:-step]
            if not bool(cupy.any(same)):
                break
            joined = self._ufunc(values[:-step], values[step:]).astype(values.dtype, copy=False)
            values[:-step] = cupy.where(same, joined, values[:-step])
            step *= 2
        first = cupy.ones(places.shape, dtype=bool)
        first[1:] = places[1:] != places[:-1]
        places, values = places[first], values[first]
        flat = a.reshape(-1)
        flat[places] = self._ufunc(flat[places], values).astype(a.dtype, copy=False)
        if not a.flags.c_contiguous:
            a[...] = flat.reshape(a.shape)


def _in(value: Array, dtype: Any, cupy: Any = None) -> Array:
    """A value in this dtype; a number as it is, or as an array where a library is given."""
    if hasattr(value, "astype") and hasattr(value, "strides"):
        return value.astype(dtype, copy=False)
    return value if cupy is None else cupy.asarray(value, dtype=dtype)


# ----------------------------------------------------------------------------- linear algebra
class _Linalg:
    """`cupy.linalg` that raises LinAlgError, as NumPy's does, where there is no such result."""

    def __init__(self, cupy: Any, cupyx: Any) -> None:
        self._cupy = cupy
        self._linalg = cupy.linalg
        self._errstate = cupyx.errstate

    def solve(self, a: Array, b: Array) -> Array:
        """Solutions of a @ x = b for matrices b; CuPy's wants both in one batch."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = self._cupy.broadcast_to(a, batch + a.shape[-2:])
        b = self._cupy.broadcast_to(b, batch + b.shape[-2:])
        with self._errstate(linalg="raise"):
            if b.shape[-1]:
                return self._linalg.solve(a, b)
            # CuPy's divides by the size of a solution; whether there are any is found with one.
            return self._linalg.solve(a, self._cupy.ones_like(a[..., :1]))[..., :0]

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._linalg, name)

        def call(*args: object, **kwargs: object) -> Array:
            with self._errstate(linalg="raise"):
                return function(*args, **kwargs)

        setattr(self, name, call)
        return call
