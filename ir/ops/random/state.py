"""Checks of seeds and offsets, and the op that advances an offset.

A draw begins at a place of the generator's stream: a seed, an offset and an advance. Rules: RNG-3,
RNG-4, RNG-12. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.arrays.device import CPU
from aotlite.ir.errors import RngError, noted
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.scalar.expression import Scalar

OFFSETS = 1 << 63
"""All offsets are below this: the length of a stream."""
MOST_DRAWN = 1 << 61
"""More positions than one graph draws: a byte of what is drawn takes at most two."""
_WORDS = (dtypes.uint64, dtypes.int64)
_RULE = (
    "A generator's seed is an integer of 64 bits, its offset one from 0 on that 4 divides. (RNG-12)"
)


def check_place(op: str, seed: Any, offset: Any, advance: int) -> None:
    """Raises RngError for an invalid place, given as in the key of a call: metas, and types of
    numbers."""
    for name, value in (("seed", seed), ("offset", offset)):
        if type(value) is TensorMeta:
            if value.dtype not in _WORDS or value.numel != 1:
                raise noted(
                    RngError(
                        f"{op}: the {name} is {value}, expected one element of uint64 or int64"
                    ),
                    _RULE,
                )
        elif value is not int:
            raise noted(
                RngError(f"{op}: the {name} is a {value.__name__}, expected an integer"), _RULE
            )
    check_position(op, advance)


def check_position(op: str, offset: Any) -> None:
    """Raises RngError for an invalid offset, a number that may be symbolic (RNG-4)."""
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise noted(RngError(f"{op}: the offset is {offset!r}, expected an integer"), _RULE)
    if offset % 4:
        raise noted(RngError(f"{op}: the offset is {offset}, expected a multiple of 4"), _RULE)
    if offset < 0 or ends_stream(offset):
        raise noted(RngError(f"{op}: the offset is {offset}, expected 0 <= offset < 2**63"), _RULE)


# Note [the end of a stream, with symbols]
#     x + rand(x.shape[0])          # the next offset is offset - 4*((-s0)//4): is it below 2**63?
# A position is a number that is known, and what was drawn since. Only the number can be near the
# end: no graph draws MOST_DRAWN positions. So sizes are asked only if the number leaves no more.
# Each call compares the position in numbers, in the kernel that advances the offset.
def ends_stream(position: int) -> bool:
    """Whether a position, which may be symbolic, is behind the end of a stream.

    Note [the end of a stream, with symbols]."""
    if is_symbolic((position,)) and getattr(position, "constant", 0) < OFFSETS - MOST_DRAWN:
        return False
    return bool(position >= OFFSETS)


def stream_ends(op: str, seed: int, offset: int, consumed: int) -> Exception:
    """The error for a draw that would go past the end of a seed's stream (RNG-4)."""
    return noted(
        RngError(
            f"{op}: the offset is {offset} and {consumed} are drawn, expected to stay below 2**63"
        ),
        f"The stream of the seed {seed} ends there: set another seed. (RNG-4, RNG-12)",
    )


def number(op: str, what: str, value: object) -> int:
    """A seed or an offset, given as a number or as an array of one element."""
    while hasattr(value, "tolist") or isinstance(value, list):
        value = value[0] if isinstance(value, list) else value.tolist()
    if type(value) is not int:
        raise noted(RngError(f"{op}: the {what} is {value!r}, expected an integer"), _RULE)
    return value


Place = tuple[Any, Any, int]
"""(seed, offset, positions that earlier draws consumed)."""


def word_of(k: Loops, value: Any) -> Scalar:
    """A seed or an offset, given as a number or as a tensor of one element."""
    if hasattr(value, "meta"):
        return k.cast(value[(0,) * value.ndim], dtypes.uint64)
    return wrapped(k, value)


def wrapped(k: Loops, value: int) -> Scalar:
    """An integer as a uint64, modulo 2**64. One made of sizes is an int64 first."""
    if is_symbolic((value,)):
        return k.cast(k.number(value, dtypes.int64), dtypes.uint64)
    return k.number(value % (1 << 64), dtypes.uint64)


def is_aligned(k: Loops, place: Place) -> bool:
    """Whether a draw may begin at this offset; the kernel checks one that it reads."""
    _, offset, advance = place
    if hasattr(offset, "meta"):
        _refuse_misplaced(k, offset)
        return advance % 4 == 0
    return bool((offset + advance) % 4 == 0 == advance % 4)


def _refuse_misplaced(k: Loops, offset: Any) -> None:
    """Makes the kernel check an offset that it reads: a multiple of 4, and below 2**63."""
    key = "multiple of 4", offset.placed
    wrong = k.number((1 << 63) | 3, dtypes.uint64)
    k.refuse((), lambda: k.make("ne", word_of(k, offset) & wrong, 0), once=key)


def offset_after(k: Loops, meta: TensorMeta, offset: Any, consumed: int) -> LoopTensor:
    """The offset behind what was drawn."""

    def after(*_: Position) -> Scalar:
        return word_of(k, offset) + k.number(consumed, dtypes.uint64)

    if hasattr(offset, "meta"):
        _refuse_misplaced(k, offset)
        key, end = ("ends", consumed, offset.placed), k.number(1 << 63, dtypes.uint64)
        k.refuse((), lambda: k.make("ne", after() & end, 0), once=key)
    return k.map(meta, after)


def _advance_rule(offset: TensorMeta | type, consumed: int) -> TensorMeta:
    check_place("advance_offset", int, offset, consumed)
    return tensor_meta((), None, dtypes.uint64, CPU)


def _advance(xp: Namespace, meta: TensorMeta, offset: Array | Number, consumed: int) -> Array:
    found = number("advance_offset", "offset", offset) + consumed
    check_position("advance_offset", found)
    return xp.asarray(found, dtype=xp.uint64)


ADVANCE_OFFSET = pure(
    "advance_offset(Tensor|Scalar offset, int consumed) -> Tensor",
    meta=_advance_rule,
    kernel=_advance,
    vjp=None,
    cost=Cost.FACTORY,
    loops=offset_after,
)
"""The generator's offset after draws that consume so many positions, 0-d uint64 (RNG-3)."""
