"""`Operation`: a function of Python's numbers that expressions of sizes may hold.

    n / 2    math.sqrt(n)    round(n * 0.3)    n.bit_length()

Ground floor. Each is applied by Python itself, so that a result is the one that eager gets.
Spec: `specs/size_floats.md`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

__all__ = ["BITS", "OPERATIONS", "PYTHON", "Operation"]


@attrs.frozen(eq=False)
class Operation:
    """A function of numbers, which has a value or raises."""

    name: str
    """The operator's sign, or how Python code names the function."""
    function: Callable[..., Any]
    least: int | None = None
    """What every value is at least; None for no bound."""

    rounds: bool = False
    """Whether it gives an integer next to its operand."""

    @property
    def is_sign(self) -> bool:
        """Whether it stands between two operands, or before one."""
        return not (self.name[-1].isalnum() or self.name == "float64 bits")

    def text(self, operands: Sequence[str]) -> str:
        """The call as Python writes it, of the texts of its operands."""
        if not self.is_sign:
            if self.name.startswith("."):
                return f"{_inner(operands[0])}{self.name}()"
            return f"{self.name}({', '.join(operands)})"
        if len(operands) == 1:
            return f"{self.name}{_inner(operands[0])}"
        return f" {self.name} ".join(map(_inner, operands))


def _inner(text: str) -> str:
    """The text as an operand of a sign."""
    is_call = text.endswith(")") and text[: text.find("(")].replace(".", "").isalnum()
    is_plain = text.replace(".", "").replace("_", "").isalnum()
    return text if is_plain or is_call and _closes_last(text) else f"({text})"


def _closes_last(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    depth = 0
    for place, each in enumerate(text):
        depth += (each == "(") - (each == ")")
        if not depth and each == ")":
            return place == len(text) - 1
    return False


def _pattern(value: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return found


BITS: Final = Operation("float64 bits", _pattern)
"""The bits of a double as an int64: so a kernel takes it in a table of sizes (SIZ-21)."""

_SIGNS: Final = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
PYTHON: Final[dict[str, Callable[..., Any]]] = {
    f"math.{name}": value
    for name, value in vars(math).items()
    if callable(value) and not name.startswith("_")
}
"""The functions of `math`, by the name that Python code has for them."""


ROUNDINGS: Final = ("math.floor", "math.ceil", "math.trunc", "int", "round")
_LEAST: Final = dict.fromkeys(
    "math.isqrt math.gcd math.lcm math.comb .bit_length .bit_count .is_integer".split(), 0
)


def _is_integer(value: float) -> int:
    return int(value.is_integer())


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **_SIGNS,
    **PYTHON,
    **{each.__name__: each for each in (abs, float, int, round)},
    ".bit_length": int.bit_length,
    ".bit_count": int.bit_count,
    ".is_integer": _is_integer,
}

OPERATIONS: Final[dict[str, Operation]] = {
    name: Operation(name, function, _LEAST.get(name), name in ROUNDINGS)
    for name, function in _FUNCTIONS.items()
} | {"neg": Operation("-", operator.neg)}
"""Every operation, by name."""
