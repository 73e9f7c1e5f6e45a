"""New values from numbers alone: full, arange_of, linspace, logspace, eye."""

from __future__ import annotations

import cmath
import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import COMPLEX, FLOATING, DType
from aotlite.ir.dtypes.limits import finfo, iinfo
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import in_parts, pure
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.scalar.expression import Scalar
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt


def fitted(op: str, value: Number, dtype: DType) -> complex:
    """The number converted to the dtype. Raises ArgumentError for one out of its range.

    As in PyTorch, fractions are truncated, infinities are in the range of floats, and a negative
    number wraps in an unsigned dtype.
    """
    if dtype is dtypes.bool_:
        return bool(value)
    if dtype.kind == COMPLEX:
        number = complex(value)
        return complex(_real(op, value, number.real, dtype), _real(op, value, number.imag, dtype))
    if isinstance(value, complex):
        if value.imag:
            raise _unfit(op, value, dtype)
        value = value.real
    if dtype.kind == FLOATING:
        return _real(op, value, value, dtype)
    return _whole(op, value, dtype)


def can_be_full(value: Any, dtype: DType) -> bool:
    """Whether a tensor of the dtype can be full of the value, as far as that is known."""
    try:
        return type(value) not in NUMBERS or fitted("full", value, dtype) is not None
    except ArgumentError:
        return False


def _real(op: str, value: Number, part: float, dtype: DType) -> float:
    try:
        number = float(part)
    except OverflowError as error:
        raise _unfit(op, value, dtype) from error
    if cmath.isfinite(number) and abs(number) > finfo(dtype).max:
        raise _unfit(op, value, dtype)
    return number


def _whole(op: str, value: float, dtype: DType) -> int:
    limits = iinfo(dtype)
    if not math.isfinite(value):
        raise _unfit(op, value, dtype)
    number = int(value)
    least = limits.min if dtype.is_signed else -limits.max
    if not least <= number <= limits.max:
        raise _unfit(op, value, dtype)
    return number if dtype.is_signed else number % (limits.max + 1)


def _unfit(op: str, value: Number, dtype: DType) -> ArgumentError:
    return ArgumentError(f"{op}: value is {value}, expected one that {dtype} can hold")


# The dtypes for which PyTorch has no arange.
_UNCOUNTED = frozenset(
    (dtypes.bool_, dtypes.uint16, dtypes.uint32, dtypes.uint64)
    + (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
)


def check_size(op: str, size: tuple[int, ...]) -> None:
    """Raises ShapeError for a negative size."""
    if any(n < 0 for n in size):
        raise ShapeError(f"{op}: size is {size}, expected no negative number")


def _factory(head: str, **parts: Any) -> PureOp:
    """Declares an op of these parameters, and of the dtype and device of what it makes."""
    schema = f"{head}, *, dtype? dtype=None, device? device=None) -> Tensor"
    return pure(schema, vjp=None, cost=Cost.FACTORY, **parts)


def _full_rule(
    size: tuple[int, ...], fill_value: type, dtype: DType | None, device: Device
) -> TensorMeta:
    check_size("full", size)
    if dtype is None:
        dtype = dtypes.dtype_of_scalar(fill_value())
    return tensor_meta(size, None, dtype, device or CPU)


def _full_kernel(
    xp: Namespace, meta: TensorMeta, size: Array, value: Number, dtype: object, device: Device
) -> Array:
    return xp.full(meta.shape, fitted("full", value, meta.dtype), dtype=meta.dtype.numpy)


def _element(value: Number, dtype: DType) -> Number:
    """The number in the dtype; a symbolic size itself where the dtype holds every size."""
    if isinstance(value, SizeFloat) and dtype in (dtypes.float32, dtypes.float64):
        return value
    wide = dtype is dtypes.int64 or (dtype.kind == FLOATING and dtype is not dtypes.float16)
    return value if wide and isinstance(value, SymInt) else fitted("full", value, dtype)


FULL = _factory(
    "full(int[] size, Scalar fill_value",
    meta=_full_rule,
    kernel=_full_kernel,
    loops=lambda k, meta, size, value, *_: k.map(meta, lambda *i: _element(value, meta.dtype)),
)


def filled_parts(do: Any, x: Any, value: Any) -> Any:
    """A copy of a number, unless the dtype cannot hold it, which the kernel refuses."""
    if x.meta.dtype is dtypes.float32 and finfo(dtypes.float32).max < abs(value) < math.inf:
        return None
    return do("copy", x, value)


in_parts(FULL, lambda do, size, value, *kind: filled_parts(do, do("full", size, 0.0, *kind), value))


# ------------------------------------------------------------------------------------- counting
def _arange_rule(
    count: int, start: type, step: type, dtype: DType | None, device: Device
) -> TensorMeta:
    if count < 0:
        raise ShapeError(f"arange_of: argument 'count' is {count}, expected at least 0")
    if dtype is None:
        dtype = dtypes.dtype_of_scalar(start() + step())
    if dtype in _UNCOUNTED or dtype.is_complex:
        raise DTypeError(f"arange: dtype is {dtype}, expected a numeric one")
    return tensor_meta((count,), None, dtype, device or CPU)


def _arange_kernel(
    xp: Namespace,
    meta: TensorMeta,
    count: int,
    start: float,
    step: float,
    dtype: object,
    device: Device,
) -> Array:
    whole = meta.dtype.kind < dtypes.FLOATING
    if whole:
        start, step = int(start), int(step)
    index = xp.arange(count, dtype=xp.int64 if whole else xp.float64)
    return xp.astype(index * step + start, meta.dtype.numpy)


def _arange_loops(
    k: Loops, meta: TensorMeta, count: int, start: float, step: float, *_: object
) -> LoopTensor | None:
    if meta.dtype.kind < dtypes.FLOATING:
        if not math.isfinite(start) or not math.isfinite(step):
            return None
        first, by = int(start), int(step)
        return k.map(meta, lambda i: k.cast(k.position(i * by + first), meta.dtype))
    wide = dtypes.float64
    return k.map(meta, lambda i: k.cast(k.cast(k.position(i), wide) * step + start, meta.dtype))


ARANGE = _factory(
    "arange_of(int count, Scalar start, Scalar step",
    meta=_arange_rule,
    kernel=_arange_kernel,
    loops=_arange_loops,
)
"""start, start + step, ...: `count` numbers. The public `arange` computes the count."""


def _spaced_meta(
    op: str, kinds: tuple[type, ...], steps: int, dtype: DType | None, device: Device
) -> TensorMeta:
    if steps < 0:
        raise ShapeError(f"{op}: steps is {steps}, expected at least 0")
    has_complex = complex in kinds
    if dtype is None:
        dtype = dtypes.complex64 if has_complex else dtypes.default_dtype
    if dtype in _UNCOUNTED or (has_complex and not dtype.is_complex):
        expected = "a complex one" if has_complex else "a numeric one"
        raise DTypeError(f"{op}: dtype is {dtype}, expected {expected}")
    return tensor_meta((steps,), None, dtype, device or CPU)


def _ends(op: str, meta: TensorMeta, start: Any, end: Any) -> tuple[Any, Any]:
    """Both ends, as ints for an integer dtype."""
    if meta.dtype.kind >= dtypes.FLOATING:
        return start, end
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, float) and not math.isfinite(value):
            expected = f"a finite number for {meta.dtype}"
            raise ArgumentError(f"{op}: {name} is {value}, expected {expected}")
    return int(start), int(end)


def _spaced(xp: Namespace, meta: TensorMeta, start: Number, end: Number) -> Array:
    """Evenly spaced numbers, counted from the nearer end, so that both ends are exact."""
    (steps,) = meta.shape
    wide = dtypes.complex128 if meta.dtype.is_complex else dtypes.float64
    index = xp.arange(steps, dtype=xp.float64)
    step = xp.astype(xp.full((), end - start, dtype=wide.numpy), wide.numpy) / max(steps - 1, 1)
    return xp.where(index < steps // 2, start + step * index, end - step * (steps - 1 - index))


def _linspace_kernel(
    xp: Namespace,
    meta: TensorMeta,
    start: float,
    end: float,
    steps: int,
    dtype: object,
    device: Device,
) -> Array:
    start, end = _ends("linspace", meta, start, start if steps == 1 else end)
    return xp.astype(_spaced(xp, meta, start, end), meta.dtype.numpy)


def _spaced_element(k: Loops, meta: TensorMeta, start: float, end: float, i: Position) -> Scalar:
    """The float64 at position i that `_spaced` gives."""
    (steps,) = meta.shape
    step = float(end - start) / max(steps - 1, 1)
    below, above = (k.cast(k.position(x), dtypes.float64) for x in (i, steps - 1 - i))
    found = k.where(i < steps // 2, below * step + start, -(above * step) + end)
    if not is_symbolic((steps,)):
        return found
    return k.where(i < 2 - steps, k.number(start, dtypes.float64), found)  # of one step the start


def _linspace_loops(
    k: Loops,
    meta: TensorMeta,
    start: float,
    end: float,
    steps: int,
    dtype: DType,
    device: Device,
) -> LoopTensor:
    start, end = _ends("linspace", meta, start, start if steps == 1 else end)
    return k.map(meta, lambda i: k.cast(_spaced_element(k, meta, start, end, i), meta.dtype))


LINSPACE = _factory(
    "linspace(Scalar start, Scalar end, int steps",
    meta=lambda start, end, steps, dtype, device: _spaced_meta(
        "linspace", (start, end), steps, dtype, device
    ),
    kernel=_linspace_kernel,
    loops=_linspace_loops,
)
"""`steps` numbers evenly spaced from `start` to `end`, both included."""


def _logspace_kernel(
    xp: Namespace,
    meta: TensorMeta,
    start: float,
    end: float,
    steps: int,
    base: float,
    *rest: object,
) -> Array:
    start, end = _ends("logspace", meta, start, start if steps == 1 else end)
    powers = xp.power(xp.asarray(base), _spaced(xp, meta, start, end))
    return xp.astype(powers, meta.dtype.numpy)


def _logspace_loops(
    k: Loops,
    meta: TensorMeta,
    start: float,
    end: float,
    steps: int,
    base: float,
    *_: object,
) -> LoopTensor:
    start, end = _ends("logspace", meta, start, start if steps == 1 else end)
    power_of = k.number(base, dtypes.float64)

    def element(i: Position) -> Scalar:
        return k.cast(k.call("pow", power_of, _spaced_element(k, meta, start, end, i)), meta.dtype)

    return k.map(meta, element)


LOGSPACE = _factory(
    "logspace(Scalar start, Scalar end, int steps, float base=10.0",
    meta=lambda start, end, steps, base, dtype, device: _spaced_meta(
        "logspace", (start, end), steps, dtype, device
    ),
    kernel=_logspace_kernel,
    loops=_logspace_loops,
)
"""`base` to the powers that `linspace` gives."""


def _eye_rule(n: int, m: int | None, dtype: DType | None, device: Device) -> TensorMeta:
    size = (n, n if m is None else m)
    check_size("eye", size)
    return tensor_meta(size, None, dtype or dtypes.default_dtype, device or CPU)


EYE = _factory(
    "eye(int n, int? m=None",
    meta=_eye_rule,
    kernel=lambda xp, meta, n, m, dtype, device: xp.eye(*meta.shape, dtype=meta.dtype.numpy),
    loops=lambda k, meta, *_: k.map(
        meta, lambda i, j: k.where((j - i).equals(0), k.number(1, meta.dtype), 0)
    ),
)
"""The (n, m) matrix with ones on the diagonal and zeros elsewhere; m is n by default."""
