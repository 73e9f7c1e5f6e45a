"""`fewest`: runs a function of sizes so that an assumption is logged only if the result needs it.

Ground floor. Meta rules and the layout algebra are run by it where sizes may be 0 or 1, since they
ask then whether sizes are. Spec: `specs/symbols.md`.
"""

# Note [assumptions that a result needs]
#     x.amax(1) of f32[s0, s1][1, max(1, s0)]          # hints 3 and 4
# The rule asks whether s1 is 0 (then amax raises), and which strides are larger, for which sizes of
# 1 matter. Its result f32[s0] depends on the first question only.
#   1. It runs by the hints, and learns nothing from their answers: the result is as general as the
#      rule can give it. A size with a hint of 0 or 1 first stands for a larger number.
#   2. For each answer a: it runs where a is false, and the other answers true. If the result is the
#      same there, a is left out. That is proved by cases: if a question is open, the run is
#      repeated for sizes of 0, of 1, and from 2 on, and then for both answers.
#   3. The answers that are left are logged.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, cast

from aotlite.ir.errors import AotliteError
from aotlite.ir.symbols.assumption import NO_VALUE, Answer, Assumption, concrete
from aotlite.ir.symbols.calls import text_of
from aotlite.ir.symbols.cases.facts import assumed_in
from aotlite.ir.symbols.cases.merge import Few, merged
from aotlite.ir.symbols.cases.parts import (
    Fact,
    Open,
    Room,
    SizePart,
    has_calls,
    moved_fact,
    named,
    names_in,
    no_matter,
    parts_of,
    raise_open,
)
from aotlite.ir.symbols.cases.results import Tried, TriedSizes, keep_known, key_of, known_for
from aotlite.ir.symbols.polynomial import Symbol
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["fewest", "needless", "runs_by_cases"]

T = TypeVar("T")

_RUNS = 120
"""The most runs for one assumption. Most need one or two."""
_FEW = 4
"""The most facts that replace one."""
_LARGER = {0: 13, 1: 11}
"""What stands for a hint that may be a coincidence."""
_FAILS = (AotliteError, *NO_VALUE)


def fewest(table: SymbolTable, function: Callable[..., T], operands: tuple[object, ...]) -> T:
    """function(*operands), with the fewest assumptions that are found to do.

    The function's results are sizes, metas, and tuples of them, and depend on nothing else.
    """
    if not runs_by_cases(table):
        return function(*operands)
    try:
        return _unasked(table, function, operands)
    except Open:
        pass
    run = _Run(table, function, operands)
    key = key_of(run)
    known = known_for(key, run)
    if known is not None:
        names, kept, result, tried = known
        return run.logged(names, kept, cast("T", result), tried)
    for hints in run.hints():
        found = run.by(hints)
        if found:
            return run.logged(tuple(run.symbols), *found, keep_known(key, run, *found))
    return function(*operands)  # it raises


def needless(
    table: SymbolTable, function: Callable[..., T], operands: tuple[object, ...]
) -> T | None:
    """function(*operands) if its result needs no assumption; else None. Logs nothing."""
    try:
        return _unasked(table, function, operands)
    except Open:
        pass
    if not runs_by_cases(table):
        return None
    run = _Run(table, function, operands)
    tried = map(run.by, run.hints())
    found = next((each for each in tried if each is not None and not each[0]), None)
    return None if found is None else run.logged(tuple(run.symbols), *found)


def _unasked(table: SymbolTable, function: Callable[..., T], operands: tuple[object, ...]) -> T:
    """function(*operands). Raises Open if it asks."""
    before, table.asked = table.asked, raise_open
    try:
        return function(*operands)
    finally:
        table.asked = before


def runs_by_cases(table: SymbolTable) -> bool:
    """Whether `fewest` looks for fewer assumptions: not within another search, nor where the table
    answers by proofs alone, nor behind the guards."""
    answers = table.asked or table.spelled or table.closed
    return table.weakest and not answers


# --------------------------------------------------------------------------------------- the search
class _Run(Generic[T]):
    """A function that asked something, and its operands."""

    def __init__(
        self, table: SymbolTable, function: Callable[..., T], operands: tuple[object, ...]
    ) -> None:
        self.table = table
        self.function = function
        self.given = operands
        assumed = assumed_in(table)
        known = named(assumed.known)
        self.operands: tuple[object, ...] = concrete(operands, known) if known else operands
        """With one symbol for all that are known to be equal, so that few facts are left."""
        names = names_in(self.operands)
        self.facts = [fact for fact, about in assumed.facts if about <= names]
        """What is assumed of the operands' symbols alone: a fact on others may say something, too,
        but seldom does, and there are many in a large graph."""
        self.symbols = {name: table.symbols[name] for name in table.symbols if name in names}

    def hints(self) -> Iterator[Mapping[str, int]]:
        """The hints to run by: larger ones for 0 and 1, then the actual ones."""
        larger = {
            name: _LARGER[symbol.hint]
            for name, symbol in self.symbols.items()
            if symbol.hint in _LARGER and (symbol.upper is None or symbol.upper > 13)
        }
        if larger:
            yield larger
        yield {}

    def by(self, hints: Mapping[str, int]) -> tuple[Sequence[Fact], T] | None:
        """What the result by these hints needs, and the result; None if it is none of the call's.

        Then the function raises by these hints, or needs what the call's own hints do not fulfil.
        """
        asked: dict[object, Fact] = {}

        def note(fact: Fact) -> None:
            asked[_said(fact)] = fact

        part = SizePart(self, self.facts, asked=note)
        for name, hint in hints.items():
            part.table.symbols[name].hint = hint
        if not part.possible:
            return None
        try:
            result = self.function(*part.put(self.operands))
        except _FAILS:
            return None
        questions = list(self._new(asked.values()))
        proof = _Proof(self, result)
        kept = proof.needed(questions, hints)
        if proof.excluded:
            kept, result = self._with_few(proof, questions, hints, part.names, (kept, result))
        for simple in self._simpler(result, kept or []):
            fewer = _Proof(self, simple).needed(kept or [], {}) or []
            if kept and len(fewer) < len(kept):
                kept, result = fewer, simple
        return None if kept is None else (kept, result)

    def _with_few(
        self,
        proof: _Proof[T],
        questions: list[Fact],
        hints: Mapping[str, int],
        names: Mapping[str, int],
        found: tuple[list[Fact] | None, T],
    ) -> tuple[list[Fact] | None, T]:
        """What is needed, and the result, where expressions have what it is for a few sizes, too;
        what was found where that needs no less. Note [strides of few elements]."""
        kept, result = found
        one = merged(self, result, names, proof.excluded)
        if one is result:
            return found
        fewer = _Proof(self, cast("T", one)).needed(questions, hints)
        if fewer is None or kept is not None and len(fewer) >= len(kept):
            return found
        return fewer, cast("T", one)

    def _simpler(self, result: T, kept: Sequence[Fact]) -> Iterator[T]:
        """The result as it is written where what is kept is known, which may do for more sizes:
        `max(s0, 1)` is s0; then the result in which that stays, since strides have it everywhere.
        """
        facts = [*self.facts, *kept]
        if not kept or not (has_calls(result) or any(map(_is_equation, facts))):
            return
        seen = {_written(result)}
        for strides_stay in (False, True):
            part = SizePart(self, self.facts, asked=no_matter)
            for size in part.names.values() if strides_stay else ():
                if isinstance(size, SymInt):
                    part.table.call("max", size, 1)
            for fact in kept:
                part.learn(fact)
            simple = part.put(result)
            if _written(simple) not in seen:
                seen.add(_written(simple))
                yield simple

    def _new(self, asked: Iterable[Fact]) -> Iterator[Fact]:
        """What was asked, without what follows from the rest before it."""
        first, rest = [*asked][:1], [*asked][1:]
        yield from first  # which was open, by the facts alone
        if not rest:
            return
        learned = SizePart(self, [*self.facts, *first], asked=no_matter)
        for fact in rest:
            if not learned.knows(fact):
                yield fact
                learned.learn(fact)

    def logged(
        self,
        symbols: Sequence[str],
        kept: Sequence[Fact],
        result: T,
        tried: Tried | None = None,
    ) -> T:
        """The result in the call's own symbols, for those of these names; logs what is kept.
        `tried`: for which sizes it was found to hold, if that is known."""
        table = self.table
        own = map(table.named, self.symbols)
        names = named(dict(zip(symbols, own, strict=True)))
        for fact in kept:
            moved = moved_fact(fact, names)
            if isinstance(moved, Answer):
                table.ask(moved.function, *moved.operands)
            elif isinstance(moved, SymBool):
                table.decide(moved)
        try:  # in the operands' own symbols, if it asks no more
            return _unasked(table, self.function, self.given)
        except Open:
            pass
        moved_result: T = concrete(result, names)  # a division in it may assume something
        asked: tuple[object, ...] = self.function, self.given
        if tried is not None and self.operands is self.given:  # else equal symbols are one there
            asked = *asked, TriedSizes(tuple(self.symbols), tried)
        return table.said("by cases", asked, None, moved_result)

    def fulfilled(self, fact: Fact) -> bool:
        """Whether the hints of the call fulfil it."""
        return Assumption(fact, None, None).holds(self.table.hints)


def _said(fact: Fact) -> object:
    """What makes facts equal."""
    if isinstance(fact, Answer):
        return fact.function, fact.operands
    return fact.left, fact.relation, fact.right


class _Proof(Generic[T]):
    """Finds where a result is not that of the function."""

    def __init__(self, run: _Run[T], result: T) -> None:
        self.run = run
        self.result = result
        self.left = 0
        self.facts: list[Fact] = []
        self.wrong: list[dict[str, int]] = []
        """Values of some symbols for which the result is wrong, or not shown to be right."""
        self.excluded: list[Few] = []
        """Those of all facts, each with the other facts."""

    def needed(self, facts: list[Fact], hints: Mapping[str, int]) -> list[Fact] | None:
        """Facts wherever which hold the result is right, where these are enough.

        None if none are found that the call's hints fulfil.
        """
        false = [fact for fact in facts if hints and not self.run.fulfilled(fact)]
        for fact in (*false, *[fact for fact in facts if fact not in false]):
            others = [other for other in facts if other is not fact]
            instead = self._instead(fact, others)
            if fact in false and not all(map(self.run.fulfilled, instead)):
                return None
            at = facts.index(fact)
            facts = [*facts[:at], *instead, *facts[at + 1 :]]
        return facts

    def _instead(self, fact: Fact, others: Sequence[Fact]) -> list[Fact]:
        """What to assume beside the others: nothing, the fact, or less than the fact."""
        if isinstance(fact, Answer):
            return [fact]
        self.left, self.wrong, self.facts = _RUNS, [], [*self.run.facts, *others]
        try:
            if others and SizePart(self.run, self.facts).knows(fact):
                return []
            first = names_in(fact)
            rooms = _excluded(fact)
            self._search([] if rooms else [fact.negated()], rooms, sorted(first))
            wrong = [self._fewer(values) for values in self.wrong]
            self.excluded += [(values, self.facts) for values in wrong]
            less: list[Fact] = [_is_not(self.run.table, values) for values in wrong]
            if not all(map(self.run.fulfilled, less)):
                return [fact]
            return [fact] if SizePart(self.run, [*self.facts, *less]).knows(fact) else less
        except (Open, _TooMany):
            return [fact]

    def _fewer(self, values: dict[str, int]) -> dict[str, int]:
        """The values without those that follow from the others."""
        for name, value in list(values.items()):
            rest = {other: n for other, n in values.items() if other != name}
            if rest and SizePart(self.run, self.facts, rest).settled().get(name) == value:
                values = rest
        return values

    def _search(
        self, cases: Sequence[Fact], rooms: Mapping[str, Room], first: Sequence[str]
    ) -> None:
        """Notes where the result is wrong, among the values in these rooms that fulfil the cases.

        The symbols of `first` are told apart before others.
        """
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        part = SizePart(self.run, self.facts, rooms, cases=cases)
        if not part.possible or any(_within(wrong, rooms) for wrong in self.wrong):
            return
        values = part.settled()
        if values:
            self._search(cases, {**rooms, **values}, first)
            return
        try:
            found = self.run.function(*part.put(self.run.operands))
            question: object = _unequal(found, part.put(self.result))
            both = False
        except Open as asked:
            if isinstance(asked.fact, SymBool) and part.table.known(asked.fact) is False:
                raise _TooMany from None  # it takes a number that is not the hint: one of many
            question, both = asked.fact, True
        except _FAILS:
            question, both = True, False
        if isinstance(question, SymBool):
            self._search_cases(question, both, cases, rooms, first)
        elif question is not False:
            self._note(rooms)

    def _search_cases(
        self,
        asked: SymBool,
        both: bool,
        cases: Sequence[Fact],
        rooms: Mapping[str, Room],
        first: Sequence[str],
    ) -> None:
        """`_search` for sizes from 2 on, of 0, and of 1; or else for both answers."""
        for name in (*first, *sorted(names_in(asked))):
            symbol = self.run.symbols[name]
            if name not in rooms and symbol.lower in (0, 1):
                for room in _rooms(symbol.lower, symbol.upper):
                    self._search(cases, {**rooms, name: room}, first)
                return
        if not both:
            self._note(rooms)
            return
        for fact in (asked, asked.negated()):
            self._search([*cases, fact], rooms, first)

    def _note(self, rooms: Mapping[str, Room]) -> None:
        values = {name: room for name, room in rooms.items() if isinstance(room, int)}
        self.wrong = [other for other in self.wrong if not _within(values, other)]
        self.wrong.append(values)
        if not values or len(self.wrong) > _FEW:
            raise _TooMany


def _excluded(fact: SymBool) -> dict[str, Room]:
    """The value that the fact `s0 != 0` excludes, by name; empty where it is no such fact."""
    if fact.relation != "!=" or type(fact.right) is not int or len(fact.left.terms) != 1:
        return {}
    ((monomial, c),) = fact.left.terms.items()
    is_one = c == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol)
    return {str(monomial[0]): fact.right} if is_one else {}


class _TooMany(Exception):
    """There are too many values, or runs, to tell apart."""


def _within(wrong: Mapping[str, int], rooms: Mapping[str, Room]) -> bool:
    """Whether all values in these rooms are among the wrong ones."""
    return all(rooms.get(name) == value for name, value in wrong.items())


def _is_not(table: SymbolTable, values: Mapping[str, int]) -> SymBool:
    """The fact that not all of these symbols have these values.

    Of several it is one comparison, of a sum of which no term is negative.
    """
    if len(values) == 1:
        ((name, value),) = values.items()
        return SymBool(table.named(name), "!=", value)
    first, *rest = [(table.named(name), value) for name, value in values.items()]
    total = _off(*first)
    for size, value in rest:
        total += _off(size, value)
    return SymBool(total, "!=", 0)


def _off(size: SymInt, value: int) -> SymInt:
    """0 where the size, which is not negative, has this value; else more."""
    squared: SymInt = (size - value) ** 2
    return squared if value else size


def _rooms(lower: int, upper: int | None) -> Iterator[Room]:
    """From 2 on, then 1 and 0: a result that is wrong for most sizes is seen at once."""
    if upper is None or upper >= 2:
        yield 2, upper
    yield from range(1 if upper is None else min(1, upper), lower - 1, -1)


def _is_equation(fact: Fact) -> bool:
    return isinstance(fact, SymBool) and fact.relation == "=="


def _written(value: object) -> object:
    """Sizes, metas, and tuples of them as text, which tells apart what facts make equal."""
    if type(value) is tuple:
        return tuple(map(_written, value))
    parts = parts_of(value)
    if parts is not None:
        return _written(parts)
    return text_of(value.terms) if isinstance(value, SymInt) else value


def _unequal(a: object, b: object) -> bool | SymBool:
    """Whether two results differ; the open question where that depends on sizes."""
    if isinstance(a, SymInt) or isinstance(b, SymInt):
        differs: bool | SymBool = a != b
        return differs
    if type(a) is tuple and type(b) is tuple:
        if len(a) != len(b):
            return True
        parts = [_unequal(x, y) for x, y in zip(a, b, strict=True)]
        if any(part is True for part in parts):
            return True
        return next((part for part in parts if part is not False), False)
    of_a, of_b = parts_of(a), parts_of(b)
    return bool(a != b) if of_a is None or of_b is None else _unequal(of_a, of_b)
