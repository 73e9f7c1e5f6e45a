"""Pointwise ops on bits and on whole numbers: and, or, xor, not, shifts, gcd, lcm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.op import PureOp
from aotlite.ir.ops.declare import pointwise
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOATING, WIDE, Refused

_BITS = FLOATING | COMPLEX
_SHIFTS = BOOL | WIDE | FLOATING | COMPLEX


def _bits(name: str, expression: Callable[..., Any], refuses: Refused = _BITS) -> PureOp:
    return pointwise(
        f"{name}(Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
        kernel=name,
        scalar=expression,
        vjp=None,
        refuses=refuses,
        inplace=True,
    )


BITWISE_AND = _bits("bitwise_and", s.bit_and)
BITWISE_OR = _bits("bitwise_or", s.bit_or)
BITWISE_XOR = _bits("bitwise_xor", s.bit_xor)
BITWISE_NOT = pointwise(
    "bitwise_not(Tensor self) -> Tensor",
    kernel="bitwise_invert",
    scalar=s.invert,
    vjp=None,
    refuses=WIDE | _BITS,
    inplace=True,
)
# As in PyTorch, a shift by a negative number of bits, or by all of them, leaves only the sign.
BITWISE_LEFT_SHIFT = _bits("bitwise_left_shift", s.left_shift, _SHIFTS)
BITWISE_RIGHT_SHIFT = _bits("bitwise_right_shift", s.right_shift, _SHIFTS)


def _whole(name: str, expression: Callable[..., Any]) -> PureOp:
    return pointwise(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kernel=name,
        scalar=expression,
        vjp=None,
        refuses=_SHIFTS,
        inplace=True,
    )


GCD = _whole("gcd", s.gcd)
LCM = _whole("lcm", s.lcm)
