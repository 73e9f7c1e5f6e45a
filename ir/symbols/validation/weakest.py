"""Weakest guards: for each guard, sizes that it alone excludes, and at which the program differs.

Ground floor. A guard that the others imply is *needless*, and can be left out. Any other should
have a *witness*: sizes that violate it alone, and for which the recorded program is wrong.
A guard without either may be too strong: it makes a call compile anew for nothing.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from aotlite.ir.errors import AotliteError
from aotlite.ir.symbols.assumption import Answer, Assumption
from aotlite.ir.symbols.cases.parts import Open, Room, SizePart, names_in, no_matter, raise_open
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation.claims import Claim, Evaluation, Premises, Values
from aotlite.ir.symbols.validation.expansion import Expansion
from aotlite.ir.symbols.validation.search import near, sides, small
from aotlite.ir.symbols.validation.solver import Solver, is_installed

__all__ = ["Beyond", "GuardNeed", "implied", "weakest"]

Differs = Callable[[Values], bool]

_MOST_TRIES = 48
"""How many sizes that violate one guard alone are tried."""
_SMALLEST = 24
"""How many of these are the first that are found: the others are as unlike as there are."""
_KEPT = 400
"""Of so many more that are found some are chosen."""
_SHOWN = 2
"""How many of them are shown."""
_SWEPT = 4_000
"""No cube that is swept has more points."""
_CUBES = 3
"""Of so many symbols cubes tell enough."""
_DRAWN = 4_000, 16
"""How many random sizes are tried of many symbols, whose cubes are small; and the largest one."""
_LARGE = [(1 << bits) + more for bits in (53, 54, 58) for more in (3, 1, 5, 7, 9, 11, 2, 4)]
"""Sizes at which floats are no longer exact: odd ones first, which are rounded by most."""
_FEW = 100
"""No cube has that is looked through when a region is made."""


@attrs.define(eq=False, repr=False)
class GuardNeed:
    """What is known of the need for one guard."""

    guard: Assumption
    witness: Values | None = None
    """Sizes that violate this guard alone, and at which the recorded program differs."""
    is_needless: bool = False
    """Whether the other guards that are kept imply it, which is proved."""
    is_dead: bool = False
    """Whether the program is the same whichever way it is answered: it is no guard any more."""
    far: int | None = None
    """No sizes up to this one violate it alone, which is proved; no larger ones are tried."""
    tried: list[Values] = attrs.field(factory=list)
    """Sizes that violate it alone and at which the recorded program is right all the same."""
    others: list[Values] = attrs.field(factory=list)
    """Sizes that violate it alone, of which some are tried."""

    @property
    def is_open(self) -> bool:
        """Whether neither a witness nor a proof was found."""
        is_known = self.is_needless or self.is_dead or self.far is not None
        return self.witness is None and not is_known

    @property
    def why(self) -> str:
        """`needed at s0=4`."""
        if self.is_needless:
            return "the other guards imply it"
        if self.is_dead:
            return "dropped: the program is the same where it is false"
        if self.witness is not None:
            return f"needed at {_sizes(self.witness)}"
        if self.far is not None:
            return f"no sizes up to {self.far} violate it alone"
        if not self.tried:
            return "no sizes were found that it alone excludes"
        shown = "; ".join(map(_sizes, self.tried[:_SHOWN]))
        count = len(self.tried)
        more = ", ..." if count > _SHOWN else ""
        return f"no witness; right at {count} sizes it excludes: {shown}{more}"

    def __str__(self) -> str:
        return f"{self.guard.text}: {self.why}"

    def __repr__(self) -> str:
        return f"{self.guard!r}: {self.why}"


@attrs.frozen
class Beyond:
    """What is asked of guards that no small sizes violate."""

    differs: Differs
    """Whether the recorded program is wrong at large sizes, without a loop over one."""
    room: Sequence[Assumption]
    """What is so in each call: tensors fit into memory."""


def _sizes(values: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def weakest(
    table: SymbolTable,
    guards: Sequence[Assumption],
    differs: Differs,
    *,
    time_limit: float = 5.0,
    solver: bool | None = None,
    most: int | None = None,
    beyond: Beyond | None = None,
) -> list[GuardNeed]:
    """For each guard, in order: a witness, the proof that it is needless, or neither.

    `differs(values)` says whether the recorded program is wrong at these sizes. `solver`: whether
    to ask z3; default where it is installed. `differs` gets no size above `most`; of guards that
    larger ones alone violate, `beyond` is asked, if it is given. A needless guard is dropped
    before the others are looked at, the last one first, so that of two equal guards one stays.
    """
    search = _Search(table, guards, differs, time.thread_time() + time_limit)
    search.asks = is_installed() if solver is None else solver
    search.drop_needless()
    search.sweep()
    if search.asks:
        search.solve(most)
        if beyond is not None and search.look_beyond(beyond):
            search.sweep()  # others may be violated alone now
    return search.needs


def implied(
    table: SymbolTable,
    guards: Sequence[Assumption],
    *,
    time_limit: float = 0.5,
    solver: bool | None = None,
) -> list[Assumption]:
    """The guards that can be left out, as others imply them: a quick search.

    Of most others a size near the hints, or a small one, shows that they alone exclude it.
    """
    search = _Search(table, guards, lambda _: True, time.thread_time() + time_limit)
    search.asks = is_installed() if solver is None else solver
    search.sweep(_FEW)
    search.drop_needless(quick=True)
    return [need.guard for need in search.needs if need.is_needless]


class _Search:
    """A search for witnesses that is under way."""

    asks = False
    """Whether z3 is asked."""
    solver: Solver | None = None
    """z3 with all guards, of which a question chooses some."""

    def __init__(
        self, table: SymbolTable, guards: Sequence[Assumption], differs: Differs, deadline: float
    ) -> None:
        self.table = table
        self.needs = [GuardNeed(guard) for guard in guards]
        self.differs = differs
        self.deadline = deadline

    def drop_needless(self, *, quick: bool = False) -> None:
        """Marks the guards that those implied which are kept; a quick search looks at no equation
        with a symbol that no other guard has, as it seldom is."""
        names = [names_in(need.guard.fact) for need in self.needs]
        counts = Counter(name for each in names for name in each)
        for need, own in reversed([*zip(self.needs, names, strict=True)]):
            claim = _claim(need.guard)
            if time.thread_time() > self.deadline:
                return
            if quick and claim is not None and claim.function == "==":
                if any(counts[name] == 1 for name in own):
                    continue
            if need.witness is None and self._is_settled(need, own):
                need.is_needless = True
            elif not quick and need.witness is None and self._is_by_others(need, own):
                need.is_needless = True
            elif isinstance(need.guard.fact, Answer) and need.witness is None:
                need.is_needless = _gives(need.guard.fact, self._others(need))
            elif claim is not None and need.witness is None:
                need.is_needless = self._is_implied(claim, need.guard, self._others(need))

    def _is_settled(self, need: GuardNeed, names: set[str]) -> bool:
        """Whether other guards say what each size in a guard is, and it holds there: no solver
        knows what Python computes of them."""
        others = [each for each in self.needs if each is not need and not each.is_needless]
        found = dict(filter(None, [_size_said(each.guard) for each in others]))
        return names <= found.keys() and need.guard.holds(found)

    def _is_by_others(self, need: GuardNeed, names: set[str]) -> bool:
        """Whether others on its one symbol leave few sizes that may violate a guard, and these do
        not: guards on floats, which no solver knows, are computed."""
        others = [g for g in self._others(need).guards if names_in(g.fact) == names]
        if len(names) != 1 or not others:
            return False
        (name,), fact = names, need.guard.fact
        facts = [each.fact for each in others]
        if isinstance(fact, SymBool):
            facts.append(fact.negated())
        rooms = {name: self.table.symbols[name].room}
        part = SizePart(Premises(self.table, others), facts, rooms, asked=no_matter)
        low, high = part.table.range(part.names[name])
        if low is None or high is None or high - low > _FEW:
            return False
        sizes = [{name: size} for size in range(low, high + 1)]
        admitted = [at for at in sizes if all(other.holds(at) for other in others)]
        return all(map(need.guard.holds, admitted))

    def _is_implied(self, claim: Claim, guard: Assumption, others: Premises) -> bool:
        if Expansion(others).proves(claim):
            return True
        if not self.asks:
            rooms = {name: symbol.room for name, symbol in others.symbols.items()}
            facts = [other.fact for other in others.guards]
            return SizePart(others, facts, rooms, asked=no_matter).knows(guard.fact)
        if self.solver is None:
            guards = [need.guard for need in self.needs]
            self.solver = Solver(Premises(self.table, guards), chooses=True)
        return self.solver.implies(claim, others.guards, self.deadline)

    def _others(self, need: GuardNeed) -> Premises:
        kept = [each.guard for each in self.needs if each is not need and not each.is_needless]
        return Premises(self.table, kept)

    def sweep(self, most: int = _SWEPT) -> None:
        """Looks near the hints, then among all small sizes, in cubes of so many points."""
        kept = Premises(self.table, [n.guard for n in self.needs if not n.is_needless])
        needs = {id(need.guard): need for need in self.needs if not need.is_needless}
        for values in self._points(kept, most):
            if not self._is_wanted(needs.values()):
                return
            try:
                failed = kept.failed(Evaluation(values), 2) if kept.in_range(values) else []
            except OverflowError:
                continue
            if len(failed) == 1:
                need = needs[id(failed[0])]
                if len(need.tried) < _SMALLEST:
                    self._try(need, values)
                elif need.is_open and len(need.others) < _KEPT:
                    need.others.append(values)
        for need in needs.values():
            for values in _unlike(need.others, need.guard) if self._is_wanted([need]) else ():
                if self._is_wanted([need]):
                    self._try(need, values)

    def _points(self, premises: Premises, most: int) -> Iterator[Values]:
        yield from near(premises)
        for side in sides(premises, most):
            yield from small(premises, side)
        if most == _SWEPT and len(premises.symbols) > _CUBES:
            dice, (count, largest) = random.Random(0), _DRAWN
            for _ in range(count):
                yield {name: dice.randint(0, largest) for name in premises.symbols}

    def _is_wanted(self, needs: Iterable[GuardNeed]) -> bool:
        in_time = time.thread_time() < self.deadline
        return in_time and any(n.is_open and len(n.tried) < _MOST_TRIES for n in needs)

    def _try(self, need: GuardNeed, values: Values) -> None:
        if need.is_open and len(need.tried) < _MOST_TRIES and values not in need.tried:
            if self.differs(values):
                need.witness = values
            else:
                need.tried.append(values)

    def solve(self, most: int | None) -> None:
        """Asks z3 for sizes, up to `most`, that violate an open guard alone."""
        for need in self.needs:
            claim = _claim(need.guard)
            if not need.is_open or claim is None:
                continue
            others = self._others(need)
            asked = Solver(others, most)
            while self._is_wanted([need]):
                found = asked.refutes(claim, self.deadline, beyond=need.tried)
                if not found:
                    need.far = most if found is False and not need.tried else None
                    break
                self._try(need, found)

    def look_beyond(self, beyond: Beyond) -> bool:
        """Asks for sizes that violate a guard alone, of which no small ones do. Returns whether a
        guard was found to be needless."""
        before = sum(need.is_needless for need in self.needs)
        kept = Premises(self.table, [n.guard for n in self.needs if not n.is_needless])
        for need in self.needs:
            if need.far is None:
                continue
            if self._exceeds(need, beyond.room):
                need.is_needless, need.far = True, None
                continue
            for values in self._large(need, kept):
                if time.thread_time() > self.deadline or len(need.tried) >= _MOST_TRIES:
                    break
                if beyond.differs(values):
                    need.witness, need.far = values, None
                    break
                need.tried.append(values)
        return sum(need.is_needless for need in self.needs) > before

    def _exceeds(self, need: GuardNeed, room: Sequence[Assumption]) -> bool:
        """Whether no tensor has sizes that violate a guard alone."""
        claim, others = _claim(need.guard), self._others(need)
        known = Premises(self.table, [*others.guards, *room])
        return claim is not None and Solver(known).refutes(claim, self.deadline) is False

    def _large(self, need: GuardNeed, kept: Premises) -> Iterator[Values]:
        """Large sizes that violate a guard alone."""
        claim, names, hints = _claim(need.guard), names_in(need.guard.fact), self.table.hints
        found = claim and Solver(self._others(need)).refutes(claim, self.deadline)
        if found:
            yield found
        for size, name, rest in itertools.product(_LARGE, sorted(names), (hints, found or hints)):
            values = {**rest, name: size}
            if kept.in_range(values):
                failed = kept.failed(Evaluation(values), 2)
                if len(failed) == 1 and failed[0] is need.guard:
                    yield values


def _unlike(found: Sequence[Values], guard: Assumption) -> list[Values]:
    """Sizes in another order: those at which the sides of the guard are no others come later."""
    mixed = random.Random(0).sample(found, len(found))
    seen: Counter[object] = Counter()
    places = []
    for values in mixed:
        sides = _sides(guard, values)
        places.append(seen[sides])
        seen[sides] += 1
    return [mixed[at] for at in sorted(range(len(mixed)), key=places.__getitem__)]


def _sides(guard: Assumption, values: Values) -> object:
    """The values that a guard compares; None of one that is no comparison, or has none."""
    if not isinstance(guard.fact, SymBool):
        return None
    at = Evaluation(values)
    try:
        return at.of(guard.fact.left), at.of(guard.fact.right)
    except (ArithmeticError, ValueError):
        return None


def _gives(fact: Answer, others: Premises) -> bool:
    """Whether a function gives what was answered, for all sizes that other guards admit."""
    facts = [each.fact for each in others.guards]
    rooms: dict[str, Room] = {name: symbol.room for name, symbol in others.symbols.items()}
    part = SizePart(others, facts, rooms, asked=no_matter)
    while settled := part.settled():
        rooms |= settled
        part = SizePart(others, facts, rooms, asked=no_matter)
    part.table.asked = raise_open
    try:
        return bool(fact.function(*part.put(fact.operands)) == fact.value)
    except (Open, AotliteError, ArithmeticError, ValueError):
        return False


def _size_said(guard: Assumption) -> tuple[str, int] | None:
    """The symbol, and the number that a guard says it is; None where it says another thing."""
    fact = guard.fact
    if not isinstance(fact, SymBool) or fact.relation != "==" or not isinstance(fact.right, int):
        return None
    names = names_in(fact.left)
    is_symbol = len(names) == 1 and str(fact.left) in names
    return (str(fact.left), fact.right) if is_symbol else None


def _claim(guard: Assumption) -> Claim | None:
    """The guard as a claim; None of an answer of a function, of which there are no proofs."""
    fact = guard.fact
    if not isinstance(fact, SymBool):
        return None
    return Claim(fact.relation, fact.left, fact.right, True)
