"""Variables and lines of the notes that traced arrays make, and how tightly expressions bind.

Used by this package alone. Spec: `specs/to_python.md`. Rule: PYX-4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs


@attrs.define(eq=False)
class Variable:
    """A value of the notes: an operand, which has a name, or the result of a line."""

    name: str | None = None
    parts: tuple[object, ...] = ()
    """The expression: texts, and the variables between them; empty for an operand."""
    weight: int = 0
    """How tightly the expression's outermost operator binds; see `ATOM`."""
    uses: int = 0
    known: bool = False
    """Whether its value depends on no operand, so that a kernel may read it."""
    unsized: bool = False
    """Whether its shape depends on values, so that a kernel may not read it."""


@attrs.define(eq=False)
class Line:
    """One line: the variable that it makes, or None for a write or a check."""

    makes: Variable | None
    parts: tuple[object, ...]
    is_write: bool = False


@attrs.frozen(eq=False)
class Bracketed:
    """A variable in an operator: brackets go around an expression that binds less tightly."""

    variable: Variable
    weight: int


ATOM = 9
"""The weight of names, calls and subscripts, which bind most tightly."""
UNARY, POWER, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARISON = 7, 8, 6, 5, 4, 3, 2, 1, 0


class TracedValue:
    """A value of NumPy with the variable that holds it in the notes."""

    __slots__ = ("value", "variable")
    value: Any
    variable: Variable


def variables(parts: Sequence[object]) -> list[Variable]:
    """The variables of an expression, in order, with repeats."""
    found = [part.variable if isinstance(part, Bracketed) else part for part in parts]
    return [part for part in found if isinstance(part, Variable)]


def count(parts: Sequence[object]) -> None:
    """Counts the uses of variables by an expression."""
    for each in variables(parts):
        each.uses += 1
