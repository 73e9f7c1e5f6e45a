"""sympy for symbolic ints: exact division of polynomials, and conversion to sympy's expressions.

Ground floor. Each function imports sympy itself, since the import takes longer than most traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir.symbols.calls import Call
from aotlite.ir.symbols.polynomial import Atom, Monomial, Terms
from aotlite.ir.symbols.symint import SymInt

__all__ = ["expression", "quotient"]


def quotient(dividend: Terms, divisor: Terms) -> dict[Monomial, int] | None:
    """The integer polynomial q with dividend = q * divisor; None if there is none."""
    import sympy

    atoms = sorted({a for t in (dividend, divisor) for m in t for a in m}, key=lambda a: a.number)
    names = [sympy.Symbol(f"x{i}") for i in range(len(atoms))]
    polynomials = [_polynomial(terms, atoms, names) for terms in (dividend, divisor)]
    found, rest = sympy.div(*polynomials, domain=sympy.QQ)
    if not rest.is_zero or any(c.q != 1 for c in found.coeffs()):
        return None
    return {
        tuple(a for a, power in zip(atoms, powers, strict=True) for _ in range(power)): int(c)
        for powers, c in found.terms()
        if c
    }


def _polynomial(terms: Terms, atoms: list[Atom], names: Sequence[object]) -> object:
    import sympy

    powers = {tuple(map(monomial.count, atoms)): c for monomial, c in terms.items()}
    return sympy.Poly(powers, *names, domain=sympy.QQ)


def _function(name: str) -> Callable[..., Any]:
    """sympy's function for one of `FUNCTIONS`."""
    import sympy

    functions: dict[str, Callable[..., Any]] = {
        "//": lambda a, b: sympy.floor(a / b),
        "%": sympy.Mod,
        "**": sympy.Pow,
        "max": sympy.Max,
        "min": sympy.Min,
    }
    return functions[name]


def expression(value: int | SymInt) -> object:
    """The value as a sympy expression, over integer symbols of the same names.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> s0 = SymbolTable().size(6)
    >>> expression(s0 * s0 // 2)
    floor(s0**2/2)
    """
    import sympy

    if not isinstance(value, SymInt):
        return sympy.Integer(value)
    products = [c * sympy.prod([_atom(a) for a in monomial]) for monomial, c in value.terms.items()]
    return sympy.Add(*products)


def _atom(atom: Any) -> object:
    import sympy

    if isinstance(atom, Call):
        return _function(atom.function)(expression(atom.left), expression(atom.right))
    positive = True if atom.lower is not None and atom.lower >= 1 else None
    return sympy.Symbol(atom.name, integer=True, positive=positive)
