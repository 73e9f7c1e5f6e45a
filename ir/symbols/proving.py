"""Questions about sizes that must be answered for all values: without hints and assumptions.

Ground floor. Code for every size, such as a kernel whose bounds are parameters, is made inside of
`proving(table)`. There the table answers a comparison only by proof. Two numbers are equal if they
are one expression, and count as different otherwise: such code takes the general way, which is
right for equal ones, too. An order that is not proved is a *demand* of such code, or raises
`Unproved` where there can be none. So nothing is logged. Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Protocol

import attrs

from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt

__all__ = ["Demands", "Proving", "Unproved", "is_proved", "known_divisor", "proving", "untold"]


class Unproved(Exception):
    """Raised where code for every size asks what depends on the sizes. Never leaves a backend."""


class Asked(Protocol):
    """What a `SymbolTable` has for this module."""

    spelled: Proving | None

    @property
    def log(self) -> Sized:
        """The assumptions."""

    def expression(self, value: SymInt) -> str:
        """The expression as Python writes it."""


Question = tuple[Callable[..., object], tuple[object, ...]]
"""(function of plain ints, operands that may hold symbols)."""


@attrs.define(eq=False)
class Demands:
    """Answers that were not proved: code is for all sizes that give the same ones as `sizes`."""

    sizes: Mapping[str, int]
    answers: dict[Question, object] = attrs.field(factory=dict)

    def answer(self, question: Question) -> object:
        """The answer for `sizes`, which is demanded from now on."""
        if question not in self.answers:
            self.answers[question] = _answer(question, self.sizes)
        return self.answers[question]

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes have the same answers."""
        return all(_answer(question, sizes) == each for question, each in self.answers.items())


def _answer(question: Question, sizes: Mapping[str, int]) -> object:
    function, operands = question
    return function(*concrete(operands, sizes))


@attrs.frozen
class Proving:
    """How a table answers inside of a block of `proving`."""

    spell: Callable[[SymInt], str]
    demands: Demands | None
    divisors: Mapping[Atom, int] = attrs.field(factory=dict)
    """Numbers that divide symbols at all sizes for which the code is made, by the symbol's atom."""
    exact: bool = False
    """Whether an equality is demanded, too: code takes the way of these sizes, not one for all."""

    def answer(self, fact: SymBool, *, in_rule: bool) -> bool:
        """The truth of an open comparison: that of two different expressions, which count as
        different numbers. An order is demanded, and in a meta rule whatever is asked. Raises
        Unproved where nothing may be demanded."""
        if fact.relation in ("==", "!=") and not (in_rule or self.exact):
            return fact.relation == "!="
        question = RELATIONS[fact.relation], (fact.left, fact.right)
        return bool(self._demanded(question, lambda: f"whether {fact}"))

    def ask(self, function: Callable[..., object], operands: tuple[object, ...]) -> object:
        """The result of a function of plain ints, which is demanded. Raises like `answer`."""
        return self._demanded((function, operands), lambda: f"{function.__name__} of sizes")

    def _demanded(self, question: Question, text: Callable[[], str]) -> object:
        if self.demands is None:
            raise Unproved(text())
        return self.demands.answer(question)


@contextmanager
def proving(
    table: Asked | None,
    spelled: Callable[[SymInt], str] | None = None,
    demands: Demands | None = None,
    divisors: Mapping[Atom, int] | None = None,
    *,
    exact: bool = False,
) -> Iterator[None]:
    """A block in which the table answers by proofs alone, and `str` of a size is `spelled(size)`.
    An order that is not proved is demanded, with `exact` an equality, too. `divisors` are known to
    divide atoms of sizes.

    None: there are no symbols, and nothing changes.
    """
    if table is None:
        yield
        return
    before, count = table.spelled, len(table.log)
    table.spelled = Proving(spelled or table.expression, demands, divisors or {}, exact)
    try:
        yield
    finally:
        table.spelled = before
        assert len(table.log) == count, "code for every size has assumed something"


def known_divisor(size: int, most: int) -> int:
    """A common divisor of a size and `most` at all sizes: that of its terms, for which a block of
    `proving` may know divisors of their atoms.

    >>> known_divisor(12, 8)
    4
    """
    if not isinstance(size, SymInt):
        return math.gcd(size, most)
    inside: Proving | None = getattr(size.table, "spelled", None)
    divisors = {} if inside is None else inside.divisors
    found = most
    for monomial, number in size.terms.items():
        factor = math.prod([divisors.get(atom, 1) for atom in monomial])
        found = math.gcd(found, number * factor)
    return found


def untold(reason: str) -> None:
    """Ignores the reason why code for every size is not made."""


def is_proved(truth: object) -> bool:
    """Whether a comparison holds for all sizes.

    >>> is_proved(2 < 3)
    True
    """
    return truth is True
