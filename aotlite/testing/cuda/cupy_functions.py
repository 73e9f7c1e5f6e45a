"""CuPy's functions on the emulated arrays, with CuPy's parameters.

Names, parameters and the dtypes of elementwise functions are those of
`cupy_table`, which was made from CuPy itself. Values are NumPy's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from aotlite.ir.arrays.cupy_table import cupy_table
from aotlite.testing.cuda import cupy_runtime
from aotlite.testing.cuda.cupy_array import fresh, ndarray, unsigned
from aotlite.testing.cuda.emulation_errors import EmulationError

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_MAKING = frozenset(
    """
    array asarray ascontiguousarray arange zeros ones full empty eye linspace tril_indices
    triu_indices iinfo finfo broadcast_shapes identity result_type can_cast promote_types
    from_dlpack isscalar
    """.split()
)
"""Functions that make an array from no array."""
_FROM_HOST = frozenset(("array", "asarray", "ascontiguousarray"))
_WITHOUT_BFLOAT16 = frozenset(
    """
    argmax argmin sort argsort lexsort partition argpartition unique count_nonzero bincount
    """.split()
)
"""Functions that raise for bfloat16: sorts, which Thrust does, and reductions to positions."""


# ----------------------------------------------------------------------------------- arguments
def _bare(value: object, name: str) -> Any:
    """An argument with NumPy's arrays for the emulated ones."""
    if isinstance(value, ndarray):
        value.check_here()
        if name not in ("from_dlpack", "broadcast_to", "moveaxis", "permute_dims"):
            value.refuse_float8(name)
        return value._held
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)} (in {name})")
    if isinstance(value, (list, tuple)):
        return type(value)([_bare(item, name) for item in value])
    return value


def _wrapped(value: object, given: list[ndarray]) -> object:
    if isinstance(value, (tuple, list)):
        return tuple([_wrapped(item, given) for item in value])
    if isinstance(value, np.generic):
        return fresh(value)
    if not isinstance(value, np.ndarray):
        return value
    for array in given:
        if value.size and np.may_share_memory(value, array._held):
            return array._view(value)
    return fresh(value)


def _arrays_in(value: object) -> list[ndarray]:
    if isinstance(value, ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays_in(item)]
    return []


def _function(name: str, own: Callable[..., object], parameters: str) -> Callable[..., object]:
    """A function with CuPy's parameters, and NumPy's values."""
    scope: dict[str, Any] = {}
    exec(f"def taken({parameters}): return locals()", {"inf": np.inf}, scope)
    signature = inspect.signature(scope["taken"])

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"cupy.{name}{signature}: {error}") from None
        kwargs.pop("blocking", None)
        given = _arrays_in((args, tuple(kwargs.values())))
        if name not in _MAKING and not _arrays_in(args[:1]):
            raise TypeError(f"cupy.{name}: the first argument is {args[0]!r}, expected an array")
        if name in _WITHOUT_BFLOAT16 and any(a.dtype == _BFLOAT16 for a in given):
            raise NotImplementedError(f"cupy.{name}: bfloat16 is not supported")
        if name == "lexsort" and not isinstance(args[0], ndarray):
            raise TypeError("cupy.lexsort: the keys are no array")
        if name in _FROM_HOST and hasattr(args[0], "__cuda_array_interface__") and not given:
            return _of_interface(args[0])
        if name in _FROM_HOST and not given:
            return fresh(_hosted(own, args, kwargs))
        if name == "linalg.solve" and args[0].shape[:-1] != args[1].shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
        if name == "linalg.solve" and args[0].ndim > 2 and args[0].size and not args[1].size:
            raise ZeroDivisionError("division by zero")  # it steps from one solution to the next
        if name in ("sort", "argsort"):
            kwargs["kind"] = "stable"  # as CuPy's always is
        with np.errstate(all="ignore"):
            found = own(*_bare(args, name), **{k: _bare(v, name) for k, v in kwargs.items()})
        return _wrapped(found, given)

    call.__name__ = name
    return call


def _position(name: str) -> Callable[..., object]:
    """Of several nans CuPy finds any; this finds the last, as NumPy finds the first."""
    plain: Any = getattr(np, name)

    def found(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        first = plain(a, axis=axis, keepdims=keepdims)
        if a.dtype.kind != "f":
            return first
        missing = np.isnan(a)
        size = a.size if axis is None else a.shape[axis]
        last = size - 1 - np.argmax(np.flip(missing, axis=axis), axis=axis, keepdims=keepdims)
        return np.where(np.any(missing, axis=axis, keepdims=keepdims), last, first)

    return found


def _argsort(a: np.ndarray, axis: int = -1, kind: Any = None) -> object:
    """CuPy sorts a line of floats by their bits: nans with a sign come first."""
    if a.ndim == 1 and a.dtype.char in "fd":
        return np.lexsort((a, ~(np.isnan(a) & np.signbit(a))))
    return np.argsort(a, axis, kind=kind)


def _sort(a: Any, axis: int = -1, kind: Any = None) -> object:
    return a[_argsort(a)] if a.ndim == 1 else np.sort(a, axis, kind=kind)


def _of_interface(peer: Any) -> ndarray:
    """An array on the memory of another library's array, by its CUDA array interface."""
    found = peer.__cuda_array_interface__
    dtype, shape = np.dtype(found["typestr"]), found["shape"]
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    strides = found.get("strides")
    if strides is not None:
        size = max([n * step for n, step in zip(shape, strides, strict=True)], default=size)
    if found.get("stream") is not None:
        cupy_runtime.WAITED.append(found["stream"])
    memory = cupy_runtime.UnownedMemory(found["data"][0], size, peer)
    return ndarray(shape, dtype, cupy_runtime.MemoryPointer(memory, 0), strides)


def _hosted(own: Callable[..., Any], args: Any, kwargs: Any) -> object:
    found = own(*args, **kwargs)
    if found.dtype.name.startswith("float8") or found.dtype.kind in "OSUMm":
        raise ValueError(f"Unsupported dtype {found.dtype}")
    return found if found.ndim else np.asarray(unsigned(found), found.dtype)  # CuPy fills it


# -------------------------------------------------------------------------------------- ufuncs
class ufunc:
    """An elementwise function with CuPy's loops."""

    def __init__(
        self, name: str, own: Callable[..., Any], types: list[str], at: str | None
    ) -> None:
        self.name = f"cupy_{name}"
        self.types = types
        self._own = own
        self._at = at
        self._loops = [[[_dtype(char) for char in part] for part in t.split("->")] for t in types]
        self.nin = len(self._loops[0][0])

    def __call__(
        self, *args: Any, out: Any = None, dtype: Any = None, casting: Any = "same_kind"
    ) -> object:
        operands = args[: self.nin]
        if out is None and len(args) > self.nin:
            (out,) = args[self.nin :]
        for a in operands:
            self._check(a)
        takes, gives = self._loop(operands, dtype)
        bare = [
            a._held.astype(t, copy=False) if isinstance(a, ndarray) else _number(a, t)
            for a, t in zip(operands, takes, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = self._own(*bare)
        results = found if isinstance(found, tuple) else (found,)
        made = [fresh(np.array(r, g, order="C")) for r, g in zip(results, gives, strict=True)]
        if out is None:
            return made[0] if len(made) == 1 else tuple(made)
        if not np.can_cast(made[0].dtype, out.dtype, casting):
            raise TypeError(f"{self.name}: {made[0].dtype} into {out.dtype} by rule {casting}")
        out[...] = made[0]
        return out

    def _check(self, operand: object) -> None:
        if isinstance(operand, ndarray):
            operand.check_here()
            operand.refuse_float8(self.name)
        elif not isinstance(operand, (bool, int, float, complex, np.generic)):
            raise TypeError(f"Unsupported type {type(operand)}")

    def _loop(self, operands: Any, dtype: Any) -> Any:
        yields = _yields(operands)
        for takes, gives in self._loops:
            if dtype is not None:
                if gives == [np.dtype(dtype)]:
                    return takes, gives
            elif all(_fits(a, t, yields) for a, t in zip(operands, takes, strict=True)):
                return takes, gives
        kinds = tuple(getattr(a, "dtype", type(a).__name__) for a in operands)
        raise TypeError(f"Wrong type ({kinds}) of arguments for {self.name}")

    def accumulate(
        self, array: ndarray, axis: int = 0, dtype: object = None, out: object = None
    ) -> object:
        """For sums and products alone."""
        if self.name not in ("cupy_add", "cupy_multiply"):
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        own: Any = self._own
        return fresh(own.accumulate(array._held, axis, dtype))

    def at(self, a: ndarray, indices: object, b: object = None) -> None:
        """For the dtypes alone for which CuPy has atomic operations."""
        if self._at is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if a.dtype.str[1:] not in _ATOMIC[self._at].split():
            raise TypeError(f"{self.name}.at: {a.dtype} is not supported as data type")
        a.check_here()
        key, _ = a._key(indices)
        value = b._held.astype(a.dtype) if isinstance(b, ndarray) else b
        with np.errstate(all="ignore"):
            _AT.get(self._at, self._own).at(a._held, key, value)


def _floor_divide(x: Any, y: Any) -> object:
    """For floats, the floor of the rounded quotient."""
    return np.floor(np.true_divide(x, y)) if _is_float(x, y) else np.floor_divide(x, y)


def _remainder(x: Any, y: Any) -> object:
    return x - _floor_divide(x, y) * y if _is_float(x, y) else np.remainder(x, y)


def _fmod(x: Any, y: Any) -> object:
    """For integers, computed in float64."""
    if _is_float(x, y):
        return np.fmod(x, y)
    return np.where(np.equal(y, 0), 0, np.fmod(np.float64(x), np.float64(y)))


def _is_float(*operands: object) -> bool:
    return any(np.asarray(a).dtype.kind not in "biu" for a in operands)


def _clipped(x: Any, low: Any, high: Any) -> object:
    return np.where(low > high, high, np.where(x < low, low, np.where(x > high, high, x)))


_OWN: dict[str, Callable[..., object]] = {
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "mod": _remainder,
    "fmod": _fmod,
    "argmax": _position("argmax"),
    "argmin": _position("argmin"),
    "argsort": _argsort,
    "sort": _sort,
}
"""The functions whose values differ between CuPy and NumPy."""

_ATOMIC = {
    "add": "i4 i8 f2 f4 f8 u4 u8",
    "sub": "i4 u4",
    "max": "i4 i8 f4 f8 u4 u8",
    "min": "i4 i8 f4 f8 u4 u8",
    "and": "i4 i8 u4 u8",
    "or": "i4 i8 u4 u8",
    "xor": "i4 i8 u4 u8",
}
_AT: dict[str, Any] = {"max": np.fmax, "min": np.fmin}
"""The atomic operations; CuPy's atomic extremes ignore nan."""


def _dtype(char: str) -> np.dtype[Any]:
    return _BFLOAT16 if char == "E" else np.dtype(char)


def _number(value: Any, dtype: np.dtype[Any]) -> object:
    """A number as CuPy passes it to a loop; integers that do not fit raise."""
    if isinstance(value, (bool, np.generic)) or dtype.kind in "iuV":
        return np.array(value, dtype)[()]
    return value  # as NumPy takes it, bit for bit


def _yields(operands: Any) -> bool:
    """Whether Python numbers take the arrays' dtype; numbers of a higher kind do not."""
    ranks = [_rank(a) for a in operands if isinstance(a, (ndarray, np.generic))]
    numbers = [_rank(np.result_type(a)) for a in operands if type(a) in (int, float, complex)]
    return bool(ranks) and max(ranks) >= max(numbers, default=0)


def _rank(value: Any) -> int:
    kind = getattr(value, "dtype", value).kind
    return {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}.get(kind, 3)


def _fits(operand: Any, wanted: np.dtype[Any], yields: bool) -> bool:
    """Whether a loop takes an operand: without loss, or as a Python number that is cast."""
    kind: Any = None
    if isinstance(operand, (ndarray, np.generic)):
        have = operand.dtype
    elif isinstance(operand, bool):
        have = np.dtype(bool)
    else:
        kind, have = type(operand), np.result_type(operand)
    if np.can_cast(have, wanted):
        return True
    if kind is None or not yields:
        return False
    try:
        return bool(np.result_type(kind(0), wanted) == wanted)
    except TypeError:
        return False


# ---------------------------------------------------------------------------------- the modules
def _made(name: str, entry: Any, source: object) -> object:
    own = _OWN.get(name) or getattr(source, name.rpartition(".")[2])
    if "types" in entry:
        return ufunc(name, own, entry["types"], entry.get("at"))
    return _function(name, own, entry["parameters"])


def _where(condition: object, x: object = None, y: object = None) -> object:
    if not isinstance(condition, ndarray):
        raise EmulationError("cupy.where: the condition is no array")
    if x is None and y is None:
        return tuple(fresh(found) for found in condition._held.nonzero())
    return _chosen(condition.astype(bool, copy=False), x, y)


def _chosen(*operands: object) -> Any:
    chosen = ufunc("where", np.where, cupy_table()["_where"]["types"], None)
    return chosen(*operands)


def _clip(a: object, a_min: object, a_max: object, out: object = None) -> object:
    if a_min is None or a_max is None:
        raise EmulationError("cupy.clip: a bound is None")
    return ufunc("clip", _clipped, cupy_table()["_clip"]["types"], None)(a, a_min, a_max, out=out)


_KINDS = """
    bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
    complex128
"""


class _Module(SimpleNamespace):
    """A module of the emulated library."""


def module() -> _Module:
    """A module like `cupy`."""
    made = _Module(ndarray=ndarray, ufunc=ufunc, cuda=cupy_runtime.CUDA, linalg=_Module())
    for name, entry in cupy_table().items():
        if name.startswith("linalg."):
            setattr(made.linalg, name[7:], _made(name, entry, np.linalg))
        elif hasattr(np, name):
            setattr(made, name, _made(name, entry, np))
    for name in "inf nan pi e newaxis iinfo finfo".split():
        setattr(made, name, getattr(np, name))
    for kind in _KINDS.split():
        setattr(made, kind, getattr(np, kind))
    made.dtype = np.dtype
    made.lib = _Module(stride_tricks=_Module(as_strided=_as_strided))
    made.where = _where
    made.clip = _clip
    made.from_dlpack = _from_dlpack
    made.__version__ = "14.2.0"
    made.get_default_memory_pool = lambda: cupy_runtime.POOLS[cupy_runtime.CURRENT.device]
    made.get_default_pinned_memory_pool = lambda: _Module(free_all_blocks=lambda: None)
    made.ascontiguousarray = _contiguous
    _add_operators(made)
    return made


def _as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    """A view of the memory from the first element of x on."""
    shape = x.shape if shape is None else shape
    return ndarray(shape, x.dtype, x.data, x.strides if strides is None else strides)


def _from_dlpack(array: Any, *, device: object = None, copy: object = None) -> object:
    """An array on the memory of another library's array; the producer gets the current stream."""
    kind, _ = array.__dlpack_device__()
    if kind != _CUDA:
        raise EmulationError(f"from_dlpack: memory of a device of kind {kind}")
    stream = cupy_runtime.get_current_stream().ptr or 1
    capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
    return capsule.array.view()


_CUDA = 2


def _contiguous(a: Any, dtype: Any = None) -> ndarray:
    if not isinstance(a, ndarray):
        return fresh(np.ascontiguousarray(a, dtype))
    a.check_here()
    kept = a if dtype is None else a.astype(dtype, copy=False)
    return kept if kept.flags.c_contiguous and kept.ndim else kept.copy()


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
    "matmul": "matmul",
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_UNARY = {"neg": "negative", "invert": "invert", "abs": "abs", "pos": "positive"}
_METHODS = """
    sum prod max min any all mean argmax argmin cumsum cumprod clip squeeze take conj nonzero round
    sort argsort repeat
""".split()


def _add_operators(cupy: object) -> None:
    """The operators and methods of arrays, which call the functions."""

    def binary(function: Any, reflected: bool) -> object:
        if reflected:
            return lambda self, other: function(other, self)
        return lambda self, other: function(self, other)

    def inplace(function: Callable[..., object]) -> Any:
        return lambda self, other: function(self, other, out=self)

    for name, target in _OPERATORS.items():
        function = getattr(cupy, target)
        setattr(ndarray, f"__{name}__", binary(function, False))
        setattr(ndarray, f"__r{name}__", binary(function, True))
        if name != "matmul":
            setattr(ndarray, f"__i{name}__", inplace(function))
    for name, target in _COMPARISONS.items():
        setattr(ndarray, f"__{name}__", binary(getattr(cupy, target), False))
    for name, target in _UNARY.items():
        setattr(ndarray, f"__{name}__", getattr(cupy, target).__call__ and _method(cupy, target))
    for name in _METHODS:
        setattr(ndarray, name, _method(cupy, name))


def _method(cupy: object, name: str) -> object:
    function = getattr(cupy, name)
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)
