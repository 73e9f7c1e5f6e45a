"""Scalar expressions: the computation of one element by a pointwise op, as a tree.

Ground floor. An op's `scalar` is a Python function. Called on symbols, it returns the tree from
which backends print C and CUDA code. `evaluate` computes a tree with the functions of a table; the
law "scalar = kernel" compares that with the op's kernel. Spec: `specs/op_declaration.md`.

    lambda x: exp(x * 2.0) + 1.0        add
                                       /   \
                                     exp   1.0
                                      |
                                     mul
                                    /   \
                                   x    2.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.ir.scalar.expression import INFIX


@attrs.frozen
class Expr:
    """A node of a scalar expression: an operation on expressions and numbers.

    >>> x = symbol("x")
    >>> str(exp(x * 2.0) + 1.0)
    '(exp((x * 2.0)) + 1.0)'
    """

    op: str
    args: tuple[Any, ...]

    def __add__(self, other: Any) -> Expr:
        return Expr("add", (self, other))

    def __radd__(self, other: Any) -> Expr:
        return Expr("add", (other, self))

    def __sub__(self, other: Any) -> Expr:
        return Expr("sub", (self, other))

    def __rsub__(self, other: Any) -> Expr:
        return Expr("sub", (other, self))

    def __mul__(self, other: Any) -> Expr:
        return Expr("mul", (self, other))

    def __rmul__(self, other: Any) -> Expr:
        return Expr("mul", (other, self))

    def __truediv__(self, other: Any) -> Expr:
        return Expr("div", (self, other))

    def __rtruediv__(self, other: Any) -> Expr:
        return Expr("div", (other, self))

    def __neg__(self) -> Expr:
        return Expr("neg", (self,))

    def __str__(self) -> str:
        if self.op == "symbol":
            return str(self.args[0])
        parts = [str(a) for a in self.args]
        if self.op in INFIX:
            return f"({parts[0]} {INFIX[self.op]} {parts[1]})"
        return f"{self.op}({', '.join(parts)})"


_OF_ONE = (
    "neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh "
    "tanh asinh acosh atanh erf erfc erfinv lgamma digamma floor ceil trunc round isnan isinf "
    "signbit conj real imag logical_not invert"
)
_OF_TWO = (
    "pow maximum minimum atan2 hypot copysign nextafter fmod remainder floor_divide logical_and "
    "logical_or logical_xor bit_and bit_or bit_xor left_shift right_shift gcd lcm lt le gt ge eq "
    "ne polygamma complex cast"
)
FUNCTIONS = [*_OF_ONE.split(), *_OF_TWO.split(), "where"]
"""Every operation of an expression besides add, sub, mul, div and symbol."""


def symbol(name: str) -> Expr:
    """The expression that stands for an operand."""
    return Expr("symbol", (name,))


def _function(name: str) -> Callable[..., Expr]:
    def make(*args: Any) -> Expr:
        return Expr(name, args)

    make.__name__ = name
    return make


_MADE = {name: _function(name) for name in FUNCTIONS}
(neg, abs_, sign, exp, exp2, expm1, log, log2, log10, log1p, sqrt) = map(
    _MADE.__getitem__, _OF_ONE.split()[:11]
)
(sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh) = map(
    _MADE.__getitem__, _OF_ONE.split()[11:23]
)
(erf, erfc, erfinv, lgamma, digamma, floor, ceil, trunc, round_, isnan, isinf) = map(
    _MADE.__getitem__, _OF_ONE.split()[23:34]
)
signbit, conj, real, imag, logical_not, invert = map(_MADE.__getitem__, _OF_ONE.split()[34:])
(pow_, maximum, minimum, atan2, hypot, copysign, nextafter, fmod, remainder, floor_divide) = map(
    _MADE.__getitem__, _OF_TWO.split()[:10]
)
(logical_and, logical_or, logical_xor, bit_and, bit_or, bit_xor, left_shift, right_shift) = map(
    _MADE.__getitem__, _OF_TWO.split()[10:18]
)
gcd, lcm, lt, le, gt, ge, eq, ne, polygamma, complex_, cast = map(
    _MADE.__getitem__, _OF_TWO.split()[18:]
)
where = _MADE["where"]


def tree(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """The expression that `function` gives on these operands.

    A name stands for a symbol; numbers and None are passed as they are.
    """
    return function(*[symbol(a) if isinstance(a, str) else a for a in operands])


def symbols(expr: Any) -> list[str]:
    """Names of the operands that an expression reads, in order of first use."""
    found: dict[str, None] = {}
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Expr):
            if item.op == "symbol":
                found[item.args[0]] = None
            else:
                stack.extend(reversed(item.args))
    return list(found)


def evaluate(
    expr: Any, values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """The value of `expr`, where symbols have `values` and operations are `functions`, by name.

    Raises ArgumentError for an operation that `functions` lacks.
    """
    if not isinstance(expr, Expr):
        return expr
    if expr.op == "symbol":
        return values[expr.args[0]]
    function = functions.get(expr.op)
    if function is None:
        raise ArgumentError(
            f"scalar: no function is given for {expr.op!r}, expected one for each operation"
        )
    return function(*[evaluate(a, values, functions) for a in expr.args])


_ZERO_AT_ZERO = frozenset(
    "neg abs sign sqrt sin tan asin atan sinh tanh asinh atanh erf erfinv expm1 log1p floor ceil "
    "trunc round conj cast real imag".split()
)
"""Operations of one operand that give 0 for 0."""


def with_zeros(expr: Any, zeros: frozenset[str]) -> Any:
    """`expr` simplified for operands named in `zeros`, which are zero everywhere.

    A zero factor makes a product zero, even where the other factor is inf or nan: these zeros stand
    for gradients that do not exist, not for numbers (TAN-8).

    >>> x, y = symbol("x"), symbol("y")
    >>> with_zeros(x * y, frozenset("x")), str(with_zeros(x + y, frozenset("x")))
    (0, 'y')
    """
    if not isinstance(expr, Expr):
        return expr
    if expr.op == "symbol":
        return 0 if expr.args[0] in zeros else expr
    args = tuple([with_zeros(a, zeros) for a in expr.args])
    zero = [type(a) in (int, float) and a == 0 for a in args]
    match expr.op:
        case "add" if zero[0] or zero[1]:
            return args[1] if zero[0] else args[0]
        case "sub" if zero[1]:
            return args[0]
        case "mul" if zero[0] or zero[1]:
            return 0
        case "div" if zero[0]:
            return 0
        case "where" if zero[1] and zero[2]:
            return 0
        case name if name in _ZERO_AT_ZERO and zero[0]:
            return 0
    return Expr(expr.op, args)
