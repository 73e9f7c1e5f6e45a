"""Random numbers as loops: each block of four words of the stream is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta, tensor_meta

Words = tuple[Any, Any, Any, Any]
Philox = Callable[[Words, tuple[Any, Any]], Words]
Place = tuple[Any, Any, int]
"""(seed, offset, positions that earlier draws consumed)."""

_WORD = 0xFFFFFFFF


def drawn(
    k: Any, place: Place, count: int, parts: tuple[Philox, DType, Callable[[Words], Any]]
) -> Any:
    """At least `count` numbers of a dtype, flat: as many of each block as the function gives.

    `parts` are the generator, the dtype, and the numbers of a block's words.
    """
    philox, dtype, numbers = parts
    seed, offset, advance = place
    zero = k.number(0, dtypes.uint64)

    def block(i: Any) -> Any:
        key = _scalar(k, seed)
        first = (_scalar(k, offset) >> 2) + k.number(advance // 4, dtypes.uint64)
        number = first + k.cast(k.position(i), dtypes.uint64)
        words = philox((number & _WORD, number >> 32, zero, zero), (key & _WORD, key >> 32))
        return numbers(words)

    each = len(numbers((zero, zero, zero, zero)))
    blocks = -(-count // each)
    flat = k.new(tensor_meta((each * blocks,), None, dtype))
    k.stores([flat.view((blocks,), (each,), lane) for lane in range(each)], block)
    return flat


def _scalar(k: Any, value: Any) -> Any:
    """A seed or an offset, given as a number or as a tensor of one element."""
    if hasattr(value, "meta"):
        return k.cast(value[(0,) * value.ndim], dtypes.uint64)
    return k.number(value % (1 << 64), dtypes.uint64)


def is_aligned(k: Any, place: Place) -> bool:
    """Whether a draw may begin at this offset; the kernel checks one that it reads."""
    _, offset, advance = place
    if hasattr(offset, "meta"):
        _refuse_misplaced(k, offset)
        return advance % 4 == 0
    return bool((offset + advance) % 4 == 0 == advance % 4)


def _refuse_misplaced(k: Any, offset: Any) -> None:
    """Makes the kernel check an offset that it reads: a multiple of 4, and below 2**63."""
    key = "multiple of 4", offset.placed
    wrong = k.number((1 << 63) | 3, dtypes.uint64)
    k.refuse((), lambda: k.make("ne", _scalar(k, offset) & wrong, 0), once=key)


def offset_after(k: Any, meta: TensorMeta, offset: Any, consumed: int) -> Any:
    """The offset behind what was drawn."""

    def after(*_: Any) -> Any:
        return _scalar(k, offset) + k.number(consumed, dtypes.uint64)

    if hasattr(offset, "meta"):
        _refuse_misplaced(k, offset)
        key, end = ("ends", consumed, offset.placed), k.number(1 << 63, dtypes.uint64)
        k.refuse((), lambda: k.make("ne", after() & end, 0), once=key)
    return k.map(meta, after)


def laid_out(k: Any, meta: TensorMeta, flat: Any, element: Callable[..., Any]) -> Any:
    """The tensor of `element(number, positions)` for the numbers in row-major order."""
    numbers = flat.view(meta.shape, tensor_meta(meta.shape).stride)
    return k.map(meta, lambda *i: element(numbers[i], i))


def units(k: Any, digits: int, dtype: DType) -> Callable[[Words], Any]:
    """A block's numbers in [0, 1): four of so many binary digits, or two of float64."""
    if dtype is dtypes.float64:
        return lambda w: tuple([_double(k, w[lane], w[lane + 1]) for lane in (0, 2)])

    def number(word: Any) -> Any:
        value = k.cast(word >> (32 - digits), dtypes.float32) * 2.0**-digits
        return k.cast(value, dtype)

    return lambda w: tuple([number(word) for word in w])


def _double(k: Any, high: Any, low: Any) -> Any:
    whole = (high >> 5) * (1 << 26) + (low >> 6)
    return k.cast(whole, dtypes.float64) * 2.0**-53


def long_words(words: Words) -> tuple[Any, Any]:
    """A block's two 64-bit words."""
    first, second, third, fourth = words
    return (first << 32) | second, (third << 32) | fourth
