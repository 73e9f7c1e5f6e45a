"""The primitive operations of scalar expressions, a row each: what backends implement themselves.

    primitive("add", ARITHMETIC, np.add, infix="+", c="+", wraps=True, rounds=True, bools="or")

From the row follow what an operation requires of its operands, NumPy's evaluation, the text, and
the C text. All other operations are functions (`functions`), whose bodies are made of these. The
lowest module of scalar expressions. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from aotlite.ir.arrays import Array

LEAVES = ("const", "load", "axis", "name", "parameter")
"""const(value), load(buffer, address), axis(k), name(k) that a statement defines, parameter(k) of
an op's expression or of the body of a function."""


@attrs.frozen
class Primitive:
    """An operation that each printer and the interpreter implement."""

    name: str
    group: str
    numpy: Callable[..., Array]
    infix: str = ""
    """The operator between two operands in the text of an expression."""
    c: str = ""
    """The same in C."""
    builtin: str = ""
    """The compiler's function of floats, `__builtin_<name>`."""
    wraps: bool = False
    """Whether the C text of integers has to wrap."""
    rounds: bool = False
    """Whether a 16-bit result of C is to be rounded."""
    bools: str = ""
    """The operation that computes the same of bools."""
    affine: bool = False
    """Whether a sum of multiples of positions may come of such sums."""
    opposite: str = ""
    """The comparison that holds where this one does not, of numbers that are ordered."""


PRIMITIVE: dict[str, Primitive] = {}
"""Name -> the primitive."""


def _group(group: str, *rows: Primitive) -> tuple[str, ...]:
    names = tuple([row.name for row in rows])
    PRIMITIVE.update({row.name: attrs.evolve(row, group=group) for row in rows})
    return names


def _row(name: str, numpy: Callable[..., Array], **facts: object) -> Primitive:
    return Primitive(name, "", numpy, **facts)  # type: ignore[arg-type]


def _truncated(a: Array, b: Array) -> Array:
    """Returns the quotient of integers, rounded towards 0."""
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.where(inexact, quotient + 1, quotient).astype(a.dtype)


ARITHMETIC = _group(
    "arithmetic",
    _row("add", np.add, infix="+", c="+", wraps=True, rounds=True, bools="or", affine=True),
    _row("sub", np.subtract, infix="-", c="-", wraps=True, rounds=True, affine=True),
    _row("mul", np.multiply, infix="*", c="*", wraps=True, rounds=True, bools="and", affine=True),
    _row("div", np.true_divide, infix="/", c="/", rounds=True),
    _row("neg", np.negative, affine=True),
    _row("abs", np.absolute, builtin="fabs"),
    _row("sqrt", np.sqrt, builtin="sqrt", rounds=True),
    _row("floor", np.floor, builtin="floor"),
    _row("ceil", np.ceil, builtin="ceil"),
    _row("trunc", np.trunc, builtin="trunc"),
    _row("rint", np.rint, builtin="rint"),
)
"""Operands and result have one dtype. Floats round once, as IEEE 754 says; integers wrap. `div` is
for floats, `rint` rounds halves to even."""

INTEGER = _group(
    "integer",
    _row("idiv", _truncated),
    _row("irem", np.fmod),
    _row("shl", np.left_shift, infix="<<"),
    _row("shr", np.right_shift, infix=">>"),
    _row("bit_and", np.bitwise_and, infix="&", c="&", bools="and"),
    _row("bit_or", np.bitwise_or, infix="|", c="|", bools="or"),
    _row("bit_xor", np.bitwise_xor, infix="^", c="^", bools="xor"),
    _row("bit_not", np.invert, bools="not"),
)
"""Operands and result are integers. `idiv` and `irem` round towards 0; the divisor must not be 0.
`shr` keeps the sign of signed integers."""

COMPARISONS = _group(
    "comparison",
    _row("lt", np.less, infix="<", c="<", opposite="ge"),
    _row("le", np.less_equal, infix="<=", c="<=", opposite="gt"),
    _row("gt", np.greater, infix=">", c=">", opposite="le"),
    _row("ge", np.greater_equal, infix=">=", c=">=", opposite="lt"),
    _row("eq", np.equal, infix="==", c="==", opposite="ne"),
    _row("ne", np.not_equal, infix="!=", c="!=", opposite="eq"),
)
"""Two operands of one dtype; the result is bool."""

LOGICAL = _group(
    "logical",
    _row("and", np.logical_and, infix="&&", c="&"),
    _row("or", np.logical_or, infix="||", c="|"),
    _row("xor", np.logical_xor, c="^"),
    _row("not", np.logical_not),
)
"""Operands and result are bools."""

_group("choice", _row("where", np.where))

PRIMITIVES = frozenset((*LEAVES, *PRIMITIVE, "cast", "bits"))
"""The operations that each printer and the interpreter implement. `cast(x)` converts as NumPy's
`astype` does where that is defined, `bits(x)` reinterprets the bits as another dtype of the same
size. Any other operation is a function of the library (`functions`)."""
