"""`GivenAnswers`: a table in which some questions of user code get a given answer, and no guard.

Ground floor. A trace by it is right for all sizes for which the true answers are the given ones,
whatever else its guards admit. Where each way to answer gives one program, with the same guards,
that program is right for all sizes that those admit (DYN-24). Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotlite.ir.symbols.assumption import Answer, Texts, printing
from aotlite.ir.symbols.proofs import said_simply
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.user_code import is_user_asking

__all__ = ["GivenAnswers", "said"]


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
