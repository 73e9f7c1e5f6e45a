"""Equations of `einsum` as text: which names the dimensions of operands and result have."""

from __future__ import annotations

import attrs

from aotlite.ir.errors import ArgumentError, ShapeError

DOTS = "..."


@attrs.frozen
class Equation:
    """An equation with its dots written out: each dimension that they stand for has a name."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    order: tuple[str, ...]
    """Every name once: the result's, then those that are summed over, in alphabetical order."""

    @property
    def kept(self) -> int:
        """Number of dimensions of the result."""
        return len(self.result)


def parsed(equation: str, ranks: list[int]) -> Equation:
    """The equation for operands of these ranks. Raises ArgumentError, ShapeError.

    >>> parsed("...i,ij", [2, 2]).result
    ('0', 'j')
    """
    text = equation.replace(" ", "")
    given, arrow, wanted = text.partition("->")
    terms = [_names(equation, term) for term in given.split(",")]
    if len(terms) != len(ranks):
        raise ArgumentError(
            f"einsum: the equation {equation!r} names {len(terms)} operands, expected "
            f"{len(ranks)}, as many as there are tensors"
        )
    dotted = [_dots(equation, k, t, r) for k, (t, r) in enumerate(zip(terms, ranks, strict=True))]
    dots = tuple(map(str, range(max(dotted))))
    operands = [
        _written_out(term, dots[len(dots) - count :])
        for term, count in zip(terms, dotted, strict=True)
    ]
    result = _names(equation, wanted) if arrow else _implied(terms)
    _check_result(equation, terms, result)
    result = _written_out(result, dots)
    seen = {name for term in operands for name in term}
    summed = sorted(seen - set(result), key=lambda name: (not name.isdigit(), name))
    return Equation(tuple(operands), result, (*result, *summed))


def _names(equation: str, term: str) -> tuple[str, ...]:
    before, dots, after = term.partition(DOTS)
    for name in before + after:
        if not (name.isascii() and name.isalpha()):
            raise ArgumentError(
                f"einsum: the equation {equation!r} has {name!r}, expected letters, ',', '->' and "
                "'...'"
            )
    return (*before, DOTS, *after) if dots else tuple(before)


def _dots(equation: str, k: int, term: tuple[str, ...], rank: int) -> int:
    """How many dimensions the dots of a term stand for."""
    named = len(term) - (DOTS in term)
    if rank < named or (rank > named and DOTS not in term):
        least = "at least " if DOTS in term else ""
        raise ShapeError(
            f"einsum: operand {k} has {rank} dimensions, expected {least}{named} by the equation "
            f"{equation!r}"
        )
    return rank - named


def _written_out(term: tuple[str, ...], dots: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([n for name in term for n in (dots if name == DOTS else (name,))])


def _implied(terms: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The result's names where no arrow gives them: the dots, and each name that comes once."""
    every = [name for term in terms for name in term]
    once = sorted(name for name in set(every) if name != DOTS and every.count(name) == 1)
    return (DOTS, *once) if DOTS in every else tuple(once)


def _check_result(equation: str, terms: list[tuple[str, ...]], result: tuple[str, ...]) -> None:
    known = {name for term in terms for name in term} | {DOTS}
    for name in result:
        if name not in known or result.count(name) > 1:
            raise ArgumentError(
                f"einsum: the result of {equation!r} has {name!r}, expected names of operands, "
                "each once"
            )
