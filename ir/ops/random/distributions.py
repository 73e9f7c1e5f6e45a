"""Draws of other distributions: randn, randint, randperm, bernoulli, normal. Rule: RNG-12.

Each is a function of the words of the generator's stream, element by element in row-major order. So
values do not depend on strides, and compiled code draws the same numbers as eager code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.dtypes.limits import finfo, iinfo
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.creation.factories import check_size
from aotlite.ir.ops.declare import common_device, common_dtype
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.ops.random.philox import (
    PhiloxStream,
    consumed,
    draw,
    drawn,
    laid_out,
    long_words,
    philox,
    random_meta,
    unit_loops,
)
from aotlite.ir.ops.random.state import Place, wrapped
from aotlite.ir.scalar.expression import Scalar

_WIDE = {dtypes.float64: dtypes.float64, dtypes.complex128: dtypes.float64}


# -------------------------------------------------------------------------------------- normal
def _gauss(stream: PhiloxStream, meta: TensorMeta) -> Array:
    """Normal numbers of the computing dtype, by Box and Muller's method on two uniform draws.

    16-bit floats are rounded from float32. A complex number takes sine and cosine of one pair.
    """
    xp, count = stream.xp, meta.numel
    real = _WIDE.get(meta.dtype, dtypes.float32)
    used = consumed(tensor_meta(meta.shape, None, real))
    # The logarithm of 1 - u, which is never 0.
    length = xp.sqrt(-2 * xp.log1p(-stream.unit(count, real)))
    angle = stream.after(used).unit(count, real) * (2 * math.pi)
    if meta.dtype.is_complex:  # of variance 1: both parts have half of it
        turned = xp.cos(angle) + xp.asarray(1j, dtype=meta.dtype.numpy) * xp.sin(angle)
        return xp.reshape(length * turned * math.sqrt(0.5), meta.shape)
    return xp.reshape(length * xp.cos(angle), meta.shape)


def _two_draws(meta: TensorMeta) -> int:
    """The stream positions that `_gauss` consumes."""
    real = _WIDE.get(meta.dtype, dtypes.float32)
    return 2 * consumed(tensor_meta(meta.shape, None, real))


def _gauss_loops(k: Loops, meta: TensorMeta, place: Place) -> tuple[Any, Callable[..., Any]]:
    """What `laid_out` takes for the normal numbers of `_gauss`."""
    seed, offset, advance = place
    count, real = meta.numel, _WIDE.get(meta.dtype, dtypes.float32)
    used = consumed(tensor_meta(meta.shape, None, real))
    lengths = unit_loops(k, place, count, real)
    angles = unit_loops(k, (seed, offset, advance + used), count, real)
    angles = angles.view(meta.shape, layout.contiguous_strides(meta.shape))

    def number(drawn: Scalar, i: Position) -> Scalar:
        length = k.make("sqrt", k.call("log1p", -drawn) * -2.0)
        return length * k.call("cos", angles[i] * (2 * math.pi))

    return lengths, number


def _randn_loops(k: Loops, meta: TensorMeta, place: Place, *rest: object) -> LoopTensor:
    flat, number = _gauss_loops(k, meta, place)
    return laid_out(k, meta, flat, lambda drawn, i: k.cast(number(drawn, i), meta.dtype))


RANDN = draw(
    "randn(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor",
    "standard_normal",
    rule=lambda size, dtype, device: random_meta("randn", size, dtype, device),
    kernel=lambda stream, meta, *rest: stream.xp.astype(_gauss(stream, meta), meta.dtype.numpy),
    loops=_randn_loops,
    consumes=_two_draws,
)
"""Normal numbers of mean 0 and variance 1.

Source: Box and Muller, "A note on the generation of random normal deviates" (1958).
"""


def _normal_rule(mean: TensorMeta | type, std: TensorMeta | type) -> TensorMeta:
    metas = [each for each in (mean, std) if type(each) is TensorMeta]
    dtype = common_dtype(tuple(metas))
    if not dtype.is_differentiable or (type(std) is TensorMeta and std.dtype.is_complex):
        raise DTypeError(f"normal: dtype is {dtype}, expected a floating one")
    shape = sizes.broadcast_shapes(*[meta.shape for meta in metas], op="normal")
    return random_meta("normal", shape, dtype, common_device("normal", metas))


def _normal_kernel(stream: PhiloxStream, meta: TensorMeta, mean: object, std: object) -> Array:
    xp = stream.xp
    if not bool(xp.all(xp.asarray(std) >= 0)):
        raise ArgumentError("normal: an element of 'std' is negative or nan, expected 0 or more")
    drawn = _gauss(stream, meta)
    mean, std = [xp.astype(xp.asarray(v), drawn.dtype) for v in (mean, std)]
    return xp.astype(drawn * std + mean, meta.dtype.numpy)


def _normal_loops(
    k: Loops, meta: TensorMeta, place: Place, mean: object, std: Any
) -> LoopTensor | None:
    real = _WIDE.get(meta.dtype, dtypes.float32)
    if hasattr(std, "meta"):
        k.refuse(std.shape, lambda *i: k.make("not", k.wide(std[i]) >= 0))
    elif not std >= 0:
        return None
    flat, number = _gauss_loops(k, meta, place)

    def at(value: Any, i: Sequence[Place]) -> Scalar:
        return k.cast(value.at(i) if hasattr(value, "meta") else value, real)

    def element(drawn: Scalar, i: Sequence[Place]) -> Scalar:
        return k.cast(number(drawn, i) * at(std, i) + at(mean, i), meta.dtype)

    return laid_out(k, meta, flat, element)


NORMAL = draw(
    "normal_of(Tensor|Scalar mean, Tensor|Scalar std) -> Tensor",
    "normal_at",
    rule=_normal_rule,
    kernel=_normal_kernel,
    loops=_normal_loops,
    consumes=_two_draws,
)
"""Normal numbers with a mean and a standard deviation for each; one of the two is a tensor."""


# ------------------------------------------------------------------------------------- integers
def whole_range(dtype: DType) -> tuple[int, int]:
    """The integers that `dtype` can hold, from the first one up to what comes behind the last."""
    if dtype is dtypes.bool_:
        return 0, 2
    if dtype.is_floating_point:  # those without gaps between them
        last = int(2 / finfo(dtype).eps)
        return -last, last + 1
    limits = iinfo(dtype)
    return limits.min, limits.max + 1


def _randint_rule(
    low: int, high: int, size: tuple[int, ...], dtype: DType | None, device: Device
) -> TensorMeta:
    dtype = dtype or dtypes.int64
    check_size("randint", size)
    if dtype.is_complex:
        raise DTypeError(f"randint: dtype is {dtype}, expected a real one")
    if low >= high:
        raise ArgumentError(f"randint: low is {low} and high {high}, expected low below high")
    first, end = whole_range(dtype)
    if not (first <= low and high <= end):
        raise ArgumentError(
            f"randint: the range is {low} to {high}, expected one within {first} to {end}, what "
            f"{dtype} can hold"
        )
    return tensor_meta(size, None, dtype, device or CPU)


def _two_words(meta: TensorMeta) -> int:
    return 8 * -(-meta.numel // 4)


def _randint_kernel(
    stream: PhiloxStream, meta: TensorMeta, low: int, high: int, *rest: object
) -> Array:
    """The remainder of a 64-bit word, which favors no number by more than range / 2**64."""
    xp, count = stream.xp, high - low
    drawn = stream.long_words(meta.numel)
    drawn = drawn if count == 1 << 64 else drawn % count
    shifted = drawn + low % (1 << 64)  # modulo 2**64: right for negative numbers too
    signed = xp.astype(shifted, xp.int64) if high <= 1 << 63 else shifted
    return xp.reshape(xp.astype(signed, meta.dtype.numpy), meta.shape)


def _randint_loops(
    k: Loops, meta: TensorMeta, place: Place, low: int, high: int, *rest: object
) -> LoopTensor | None:
    if meta.dtype.is_floating_point:
        return None
    flat = drawn(k, place, meta.numel, (philox, dtypes.uint64, long_words))
    count = high - low

    def number(word: Scalar, i: Position) -> Scalar:
        rest = word if count == 1 << 64 else k.make("irem", word, count)
        return k.cast(rest + wrapped(k, low), meta.dtype)

    return laid_out(k, meta, flat, number)


RANDINT = draw(
    "randint(int low, int high, int[] size, *, dtype? dtype=None, device? device=None) -> Tensor",
    "random_integers",
    rule=_randint_rule,
    kernel=_randint_kernel,
    loops=_randint_loops,
    consumes=_two_words,
)
"""Integers from `low` up to `high`, without it."""


def _randperm_rule(n: int, dtype: DType | None, device: Device) -> TensorMeta:
    dtype = dtype or dtypes.int64
    check_size("randperm", (n,))
    if dtype is dtypes.bool_ or dtype.is_complex:
        raise DTypeError(f"randperm: dtype is {dtype}, expected a real one of numbers")
    holds_sizes = dtype is dtypes.int64 and sizes.is_symbolic((n,))
    if not holds_sizes and n > whole_range(dtype)[1]:
        raise ArgumentError(
            f"randperm: n is {n}, expected at most {whole_range(dtype)[1]}: {dtype} holds no more"
        )
    return tensor_meta((n,), None, dtype, device or CPU)


def _randperm_kernel(stream: PhiloxStream, meta: TensorMeta, n: int, *rest: object) -> Array:
    """The order of 64-bit keys: each permutation is as likely as any other, but for equal keys."""
    return stream.xp.astype(stream.xp.argsort(stream.long_words(meta.numel)), meta.dtype.numpy)


RANDPERM = draw(
    "randperm(int n, *, dtype? dtype=None, device? device=None) -> Tensor",
    "random_permutation",
    rule=_randperm_rule,
    kernel=_randperm_kernel,
    consumes=_two_words,
)
"""The numbers from 0 up to `n`, without it, in random order."""


# ---------------------------------------------------------------------------------------- truths
def _bernoulli_rule(self: TensorMeta) -> TensorMeta:
    require_floating("bernoulli", self.dtype)
    return random_meta("bernoulli", self.shape, self.dtype, self.device)


def _bernoulli_kernel(stream: PhiloxStream, meta: TensorMeta, p: Any) -> Array:
    xp = stream.xp
    if not bool(xp.all((p >= 0) & (p <= 1))):
        raise ArgumentError("bernoulli: a probability is outside its range, expected 0 to 1")
    wide = _WIDE.get(meta.dtype, dtypes.float32)
    below = xp.reshape(stream.unit(meta.numel, wide), meta.shape) < p
    return xp.astype(below, meta.dtype.numpy)


def _bernoulli_loops(k: Loops, meta: TensorMeta, place: Place, p: LoopTensor) -> LoopTensor:
    k.refuse(p.shape, lambda *i: k.make("not", k.all(p[i] >= 0, p[i] <= 1)))
    wide = _WIDE.get(meta.dtype, dtypes.float32)
    flat = unit_loops(k, place, meta.numel, wide)
    return laid_out(
        k, meta, flat, lambda number, i: k.cast(number < k.cast(p[i], wide), meta.dtype)
    )


BERNOULLI = draw(
    "bernoulli(Tensor self) -> Tensor",
    "bernoulli_at",
    rule=_bernoulli_rule,
    kernel=_bernoulli_kernel,
    loops=_bernoulli_loops,
)
"""1 with the probability that each element is, else 0: whether a uniform number is below it."""
