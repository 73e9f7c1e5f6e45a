"""Random numbers: Philox 4x32-10 as a pure op, and the draws that consume it. Rule: RNG-12.

The generator is a function of (seed, position): equal bits on every array library, whatever the
strides. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp, RandomOp, register, schema_of
from aotlite.ir.ops.creation.factories import check_size
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.ops.random.state import (
    Place,
    check_place,
    check_position,
    is_aligned,
    number,
    word_of,
)
from aotlite.ir.scalar.expression import Scalar

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF
_STEPS = 1 << 64

# The bits of a word that make a number in [0, 1): those of the dtype's significand.
_DIGITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24}


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
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


def words(xp: Namespace, seed: int, offset: int, count: int) -> Array:
    """`count` 32-bit words (in uint64) of the stream of `seed`, from position `offset` on."""
    blocks = -(-count // 4)
    first = offset // 4
    block = xp.arange(blocks, dtype=xp.uint64) + first % (1 << 64)
    zero = xp.zeros((blocks,), dtype=xp.uint64)
    lanes = philox((block & _WORD, block >> 32, zero, zero), (seed & _WORD, (seed >> 32) & _WORD))
    return xp.reshape(xp.stack(lanes, axis=1), (-1,))[:count]


@attrs.frozen
class PhiloxStream:
    """The words of a generator from a position on, converted to numbers."""

    xp: Namespace
    seed: int
    position: int

    def words(self, count: int) -> Array:
        """32-bit words, in uint64."""
        return words(self.xp, self.seed, self.position, count)

    def long_words(self, count: int) -> Array:
        """64-bit words, each made of two, the first one high."""
        stream = self.words(2 * count)
        return (stream[::2] << 32) | stream[1::2]

    def unit(self, count: int, dtype: DType) -> Array:
        """Numbers in [0, 1), every multiple of the last digit equally likely."""
        if dtype is dtypes.float64:
            stream = self.words(2 * count)
            whole = (stream[::2] >> 5) * (1 << 26) + (stream[1::2] >> 6)
            return self.xp.astype(whole, dtype.numpy) * 2.0**-53
        digits = _DIGITS[dtype]
        number = self.xp.astype(self.words(count) >> (32 - digits), self.xp.float32)
        return self.xp.astype(number * 2.0**-digits, dtype.numpy)

    def grid(self, rows: int, columns: int) -> Array:
        """A uniform float64 for each row and column: a row has a block, a column the third word.

        Other draws have 0 there, so that however many columns there are, a row uses up one block.
        """
        xp = self.xp
        block = xp.reshape(xp.arange(rows, dtype=xp.uint64), (-1, 1)) + self.position // 4 % _STEPS
        column = xp.arange(1, columns + 1, dtype=xp.uint64)
        zero = xp.zeros((rows, columns), dtype=xp.uint64)
        counter = ((block & _WORD) + zero, (block >> 32) + zero, column + zero, zero)
        first, second, _, _ = philox(counter, (self.seed & _WORD, (self.seed >> 32) & _WORD))
        whole = (first >> 5) * (1 << 26) + (second >> 6)
        return xp.astype(whole, xp.float64) * 2.0**-53

    def after(self, drawn: int) -> PhiloxStream:
        """The stream after `drawn` positions."""
        return attrs.evolve(self, position=self.position + drawn)


Words = tuple[Scalar, Scalar, Scalar, Scalar]
Philox = Callable[[Words, tuple[Scalar, Scalar]], Words]


def drawn(
    k: Loops,
    place: Place,
    count: int,
    parts: tuple[Philox, DType, Callable[[Words], tuple[Scalar, ...]]],
) -> LoopTensor:
    """At least `count` numbers of a dtype, flat: as many of each block as the function gives.

    `parts` are the generator, the dtype, and the numbers of a block's words.
    """
    philox, dtype, numbers = parts
    seed, offset, advance = place
    zero = k.number(0, dtypes.uint64)

    def block(i: Position) -> Sequence[Scalar]:
        key = word_of(k, seed)
        first = (word_of(k, offset) >> 2) + k.number(advance // 4, dtypes.uint64)
        number = first + k.cast(k.position(i), dtypes.uint64)
        words = philox((number & _WORD, number >> 32, zero, zero), (key & _WORD, key >> 32))
        return numbers(words)

    each = len(numbers((zero, zero, zero, zero)))
    blocks = -(-count // each)
    flat = k.new(tensor_meta((each * blocks,), None, dtype))
    k.stores([flat.view((blocks,), (each,), lane) for lane in range(each)], block)
    return flat


def laid_out(
    k: Loops, meta: TensorMeta, flat: LoopTensor, element: Callable[..., Any]
) -> LoopTensor:
    """The tensor of `element(number, positions)` for the numbers in row-major order."""
    numbers = flat.view(meta.shape, tensor_meta(meta.shape).stride)
    return k.map(meta, lambda *i: element(numbers[i], i))


def units(k: Loops, digits: int, dtype: DType) -> Callable[[Words], tuple[Scalar, ...]]:
    """A block's numbers in [0, 1): four of so many binary digits, or two of float64."""
    if dtype is dtypes.float64:
        return lambda w: tuple([_double(k, w[lane], w[lane + 1]) for lane in (0, 2)])

    def number(word: Scalar) -> Scalar:
        value = k.cast(word >> (32 - digits), dtypes.float32) * 2.0**-digits
        return k.cast(value, dtype)

    return lambda w: tuple([number(word) for word in w])


def _double(k: Loops, high: Scalar, low: Scalar) -> Scalar:
    whole = (high >> 5) * (1 << 26) + (low >> 6)
    return k.cast(whole, dtypes.float64) * 2.0**-53


def long_words(words: Words) -> tuple[Scalar, Scalar]:
    """A block's two 64-bit words."""
    first, second, third, fourth = words
    return (first << 32) | second, (third << 32) | fourth


def consumed(meta: TensorMeta) -> int:
    """The stream positions that a draw of this meta consumes, a multiple of 4.

    One word an element; two for each 64 bits of a float64 and of the parts of complex numbers.
    """
    blocks = -(-meta.numel // 4)
    return 4 * blocks * _WORDS.get(meta.dtype, 1)


_WORDS = {dtypes.float64: 2, dtypes.complex64: 2, dtypes.complex128: 4}


# ------------------------------------------------------------------------------------ declaring
DRAWS: dict[PureOp, Callable[..., Any]] = {}
"""The kernel `(stream, meta, *args)` of each draw by its pure form, for writers of programs."""


def draw(
    schema: str,
    pure_name: str,
    *,
    rule: Callable[..., TensorMeta],
    kernel: Callable[..., Any],
    consumes: Callable[[TensorMeta], int] = consumed,
    loops: Callable[..., Any] | None = None,
) -> RandomOp:
    """Declares a random op by `kernel(stream, meta, *args)`, and its pure form `pure_name`.

    The pure form takes a seed, an offset, and the positions that earlier draws of the graph
    consumed; `loops(k, meta, place, *args)` takes these three as one tuple.
    """
    parsed = schema_of(schema)
    inner = schema[schema.index("(") + 1 :]
    given = "Tensor|Scalar seed, Tensor|Scalar offset, int advance"

    def run(
        xp: Namespace, meta: TensorMeta, seed: Array, offset: Array, advance: int, *args: object
    ) -> Array:
        position = number(pure_name, "offset", offset) + advance
        check_position(pure_name, position)
        return kernel(PhiloxStream(xp, number(pure_name, "seed", seed), position), meta, *args)

    def infer(seed: object, offset: object, advance: int, *args: object) -> TensorMeta:
        check_place(pure_name, seed, offset, advance)
        return rule(*args)

    def as_loops(
        k: Loops,
        meta: TensorMeta,
        seed: LoopTensor,
        offset: LoopTensor,
        advance: int,
        *args: object,
    ) -> LoopTensor | None:
        place = (seed, offset, advance)
        if loops is None or meta.dtype.is_complex or not is_aligned(k, place):
            return None
        return k.new(meta) if 0 in meta.shape else loops(k, meta, place, *args)

    functional = pure(
        f"{pure_name}({given}, {inner}",
        meta=infer,
        kernel=run,
        vjp=None,
        cost=Cost.RANDOM,
        loops=as_loops if loops else None,
    )
    op: RandomOp = register(
        RandomOp(parsed, rule, cost=Cost.RANDOM, functional=functional, consumes=consumes)
    )
    DRAWS[functional] = kernel
    return op


# ------------------------------------------------------------------------------------- uniform
def _rand_rule(size: tuple[int, ...], dtype: DType | None, device: Device) -> TensorMeta:
    return random_meta("rand", size, dtype, device)


def random_meta(
    name: str, size: tuple[int, ...], dtype: DType | None, device: Device
) -> TensorMeta:
    """The meta of a draw of real numbers. Raises DTypeError, ShapeError."""
    dtype = dtype or dtypes.default_dtype
    if dtype.to_real() is not dtypes.float64 and dtype.to_real() not in _DIGITS:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a floating one of 16 bits or more")
    check_size(name, size)
    return tensor_meta(size, None, dtype, device or CPU)


def _rand_kernel(stream: PhiloxStream, meta: TensorMeta, *rest: object) -> Array:
    count, real = meta.numel, meta.dtype.to_real()
    if not meta.dtype.is_complex:
        return stream.xp.reshape(stream.unit(count, real), meta.shape)
    parts = stream.unit(2 * count, real)
    whole = parts[::2] + stream.xp.asarray(1j, dtype=meta.dtype.numpy) * parts[1::2]
    return stream.xp.reshape(whole, meta.shape)


def unit_loops(k: Loops, place: Place, count: int, dtype: DType) -> LoopTensor:
    """At least `count` numbers in [0, 1), flat."""
    parts = (philox, dtype, units(k, _DIGITS.get(dtype, 53), dtype))
    return drawn(k, place, count, parts)


def _rand_loops(k: Loops, meta: TensorMeta, place: Place, *rest: object) -> LoopTensor:
    flat = unit_loops(k, place, meta.numel, meta.dtype)
    return laid_out(k, meta, flat, lambda number, i: number)


RAND = draw(
    "rand(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor",
    "uniform",
    rule=_rand_rule,
    kernel=_rand_kernel,
    loops=_rand_loops,
)
"""Numbers in [0, 1); of complex ones both parts are. The pure form `uniform` is the draw of this
size at position `offset + advance` of the stream of `seed`."""
