"""Tables for traces that are repeated: with given answers, or with given hints.

`GivenAnswers`: some questions of user code get a given answer, and make no guard.

Ground floor. A trace by it is right for all sizes for which the true answers are the given ones,
whatever else its guards admit. Where each way to answer gives one program, with the same guards,
that program is right for all sizes that those admit (DYN-24). Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotlite.ir.symbols.assumption import Answer, Texts, printing
from aotlite.ir.symbols.polynomial import Range
from aotlite.ir.symbols.proofs import said_simply
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.user_code import is_user_asking

__all__ = ["GivenAnswers", "GivenHints", "TooLarge", "said"]


def said(fact: SymBool | Answer) -> str:
    """The text of a fact, by which tables of several traces know it."""
    if isinstance(fact, Answer) or not isinstance(fact.left.table, SymbolTable):
        return str(fact)
    with printing(fact.left.table, Texts.SYMBOLS):
        return str(fact)


class GivenAnswers(SymbolTable):
    """A table in which some facts, as `said`, count as true or as false, and are not learned.

    Each is true for the hints. Only code of the user's gets such an answer, and acts on it.
    """

    def __init__(self, given: Mapping[str, bool]) -> None:
        super().__init__()
        self.given = given

    def decide(self, fact: SymBool) -> bool:
        """The given answer to a question of user code, if there is one; else the table's."""
        is_open = self.spelled is None and not self.closed and self.known(fact) is None
        if is_open and self.op is None and is_user_asking():
            hint = fact.hint
            is_so = self.given.get(said(said_simply(fact if hint else fact.negated())))
            if is_so is not None:
                return hint == is_so
        return super().decide(fact)


class TooLarge(BaseException):
    """A trace needs the number of a size that is too large to loop over: no `Exception`, which the
    function might catch."""


class GivenHints(GivenAnswers):
    """A table in which symbols have these hints, by name: a trace for sizes that no call has.

    A size of more than `most` never becomes a number, as a function may loop over it: `TooLarge` is
    raised instead.
    """

    def __init__(self, given: Mapping[str, bool], values: Mapping[str, int], most: int) -> None:
        super().__init__(given)
        self.values = values
        self.most = most

    def named_symbol(self, name: str, hint: int | None, room: Range) -> SymInt:
        """A symbol of this name, with the given hint."""
        return super().named_symbol(name, self.values.get(name, hint), room)

    def specialize(self, value: SymInt) -> int:
        """The hint. Raises TooLarge."""
        if abs(value.hint) > self.most:
            raise TooLarge
        return super().specialize(value)
