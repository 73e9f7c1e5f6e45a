"""Questions about sizes that must be answered for all values: without hints and assumptions.

Ground floor. Code for every size, such as a kernel whose bounds are parameters, is made inside of
`proving(table)`. There the table answers a comparison only by proof. Two numbers are equal if they
are one expression, and count as different otherwise: such code takes the general way, which is
right for equal ones, too. An order that is not proved raises `Unproved`. So nothing is logged.
Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol

from aotlite.ir.symbols.symint import SymBool, SymInt

__all__ = ["Unproved", "is_proved", "proving", "same_or_raise", "untold"]


class Unproved(Exception):
    """Raised where code for every size asks what depends on the sizes. Never leaves a backend."""


class Asked(Protocol):
    """What a `SymbolTable` has for this module."""

    spelled: Callable[[SymInt], str] | None

    @property
    def log(self) -> Sized:
        """The assumptions."""

    def expression(self, value: SymInt) -> str:
        """The expression as Python writes it."""


@contextmanager
def proving(
    table: Asked | None, spelled: Callable[[SymInt], str] | None = None
) -> Iterator[None]:
    """A block in which the table answers by proofs alone, and `str` of a size is `spelled(size)`.

    None: there are no symbols, and nothing changes.
    """
    if table is None:
        yield
        return
    before, count = table.spelled, len(table.log)
    table.spelled = spelled or table.expression
    try:
        yield
    finally:
        table.spelled = before
        assert len(table.log) == count, "code for every size has assumed something"


def same_or_raise(fact: SymBool, *, in_rule: bool) -> bool:
    """The truth of an open comparison: that of two different expressions, which count as different
    numbers. Raises Unproved for an order, and in a meta rule, whose result is kept."""
    if fact.relation in ("==", "!=") and not in_rule:
        return fact.relation == "!="
    raise Unproved(f"whether {fact}")


def untold(reason: str) -> None:
    """Ignores the reason why code for every size is not made."""


def is_proved(truth: object) -> bool:
    """Whether a comparison holds for all sizes.

    >>> is_proved(2 < 3)
    True
    """
    return truth is True
