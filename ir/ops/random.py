"""Random numbers: Philox 4x32-10 as a pure op, and the draws that consume it. Rule: RNG-12.

The generator is a function of (seed, position): equal bits on every array library, whatever the
strides. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp, RandomOp, register, schema_of
from aotlite.ir.ops.declare import pure

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF

# Bits of the fraction: how much of a word a number in [0, 1) is made of.
_DIGITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24}


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """The four words of each counter block. Counters are uint64 arrays that hold 32-bit words.

    64-bit arithmetic gives both halves of the 32-bit products without overflow.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _WORD,
            (first >> 32) ^ c3 ^ k1,
            first & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def words(xp: Any, seed: int, offset: int, count: int) -> Any:
    """`count` 32-bit words (in uint64) of the stream of `seed`, from position `offset` on."""
    blocks = -(-count // 4)
    first = offset // 4
    block = xp.arange(blocks, dtype=xp.uint64) + first % (1 << 64)
    zero = xp.zeros((blocks,), dtype=xp.uint64)
    lanes = philox((block & _WORD, block >> 32, zero, zero), (seed & _WORD, (seed >> 32) & _WORD))
    return xp.reshape(xp.stack(lanes, axis=1), (-1,))[:count]


def _unit(xp: Any, seed: int, offset: int, count: int, dtype: DType) -> Any:
    """`count` numbers in [0, 1), every multiple of the last digit equally likely."""
    if dtype is dtypes.float64:
        stream = words(xp, seed, offset, 2 * count)
        whole = (stream[::2] >> 5) * (1 << 26) + (stream[1::2] >> 6)
        return xp.astype(whole, dtype.numpy) * 2.0**-53
    digits = _DIGITS[dtype]
    number = xp.astype(words(xp, seed, offset, count) >> (32 - digits), xp.float32)
    return xp.astype(number * 2.0**-digits, dtype.numpy)


def consumed(meta: TensorMeta) -> int:
    """Positions of the stream that a draw of this meta uses up, a multiple of 4."""
    blocks = -(-meta.numel // 4)
    return 4 * blocks * (2 if meta.dtype is dtypes.float64 else 1)


# ------------------------------------------------------------------------------------------- ops
def _rand_rule(size: tuple[int, ...], dtype: DType | None, device: Any) -> TensorMeta:
    return _uniform_meta("rand", size, dtype, device)


def _uniform_rule(
    seed: Any, offset: Any, advance: int, size: tuple[int, ...], dtype: DType | None, device: Any
) -> TensorMeta:
    return _uniform_meta("uniform", size, dtype, device)


def _uniform_meta(name: str, size: tuple[int, ...], dtype: DType | None, device: Any) -> TensorMeta:
    dtype = dtype or dtypes.default_dtype
    if dtype is not dtypes.float64 and dtype not in _DIGITS:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a floating one of 16 bits or more")
    if any(n < 0 for n in size):
        raise ShapeError(f"{name}: size is {size}, expected no negative number")
    return tensor_meta(size, None, dtype, device or CPU)


def _number(value: Any) -> int:
    """A seed or an offset, given as a number or as an array of one element."""
    while not isinstance(value, (int, list)):
        value = value.tolist()
    return value if isinstance(value, int) else _number(value[0])


def _uniform_kernel(
    xp: Any, meta: TensorMeta, seed: Any, offset: Any, advance: int, *rest: Any
) -> Any:
    position = _number(offset) + advance
    if position % 4:
        raise ArgumentError(f"uniform: the offset is {position}, expected a multiple of 4")
    return xp.reshape(_unit(xp, _number(seed), position, meta.numel, meta.dtype), meta.shape)


UNIFORM: PureOp = pure(
    "uniform(Tensor|Scalar seed, Tensor|Scalar offset, int advance, int[] size, *, "
    "dtype? dtype=None, device? device=None) -> Tensor",
    meta=_uniform_rule,
    kernel=_uniform_kernel,
    vjp=None,
    cost=Cost.RANDOM,
)
"""The draw of this size at position `offset + advance` of the stream of `seed`."""

RAND: RandomOp = register(
    RandomOp(
        schema_of("rand(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor"),
        _rand_rule,
        cost=Cost.RANDOM,
        functional=UNIFORM,
        consumes=consumed,
    )
)
