"""Pointwise ops on bits and on whole numbers: and, or, xor, not, shifts, gcd, lcm."""

from __future__ import annotations

from functools import partial

from aotlite.ir import scalar as s
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOATING, WIDE
from aotlite.ir.ops.pointwise_rows import binary, unary

_BITS = FLOATING | COMPLEX
_SHIFTS = BOOL | WIDE | FLOATING | COMPLEX


_bits = partial(binary, operands="Tensor|Scalar self, Tensor|Scalar other", vjp=None)
_whole = partial(binary, operands="Tensor self, Tensor other", vjp=None, refuses=_SHIFTS)

BITWISE_AND = _bits("bitwise_and", scalar=s.bit_and, refuses=_BITS)
BITWISE_OR = _bits("bitwise_or", scalar=s.bit_or, refuses=_BITS)
BITWISE_XOR = _bits("bitwise_xor", scalar=s.bit_xor, refuses=_BITS)
BITWISE_NOT = unary(
    "bitwise_not", kernel="bitwise_invert", scalar=s.invert, vjp=None, refuses=WIDE | _BITS
)
# As in PyTorch, a shift by a negative number of bits, or by all of them, leaves only the sign.
BITWISE_LEFT_SHIFT = _bits("bitwise_left_shift", scalar=s.left_shift, refuses=_SHIFTS)
BITWISE_RIGHT_SHIFT = _bits("bitwise_right_shift", scalar=s.right_shift, refuses=_SHIFTS)

GCD = _whole("gcd")
LCM = _whole("lcm")
