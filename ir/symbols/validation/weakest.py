"""Weakest guards: for each guard, sizes that it alone excludes, and at which the program differs.

Ground floor. A guard that the others imply is *needless*, and can be left out. Any other should
have a *witness*: sizes that violate it alone, and for which the recorded program is wrong.
A guard without either may be too strong: it makes a call compile anew for nothing.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.cases.parts import SizePart, names_in, no_matter
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation.claims import Claim, Evaluation, Premises, Values
from aotlite.ir.symbols.validation.expansion import Expansion
from aotlite.ir.symbols.validation.search import near, sides, small
from aotlite.ir.symbols.validation.solver import Solver, is_installed

__all__ = ["GuardNeed", "implied", "weakest"]

Differs = Callable[[Values], bool]

_MOST_TRIES = 24
"""How many sizes that violate one guard alone are tried."""
_SHOWN = 2
"""How many of them are shown."""
_SWEPT = 4_000
"""No cube that is swept has more points."""
_CUBES = 3
"""Of so many symbols cubes tell enough."""
_DRAWN = 4_000, 16
"""How many random sizes are tried of many symbols, whose cubes are small; and the largest one."""
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
) -> list[GuardNeed]:
    """For each guard, in order: a witness, the proof that it is needless, or neither.

    `differs(values)` says whether the recorded program is wrong at these sizes. `solver`: whether
    to ask z3; default where it is installed. No witness has a size above `most`. A needless guard
    is dropped before the others are looked at, the last one first, so that of two equal guards one
    stays.
    """
    search = _Search(table, guards, differs, time.thread_time() + time_limit)
    search.asks = is_installed() if solver is None else solver
    search.drop_needless()
    search.sweep()
    if search.asks:
        search.solve(most)
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
            elif claim is not None and need.witness is None:
                need.is_needless = self._is_implied(claim, need.guard, self._others(need))

    def _is_settled(self, need: GuardNeed, names: set[str]) -> bool:
        """Whether other guards say what each size in a guard is, and it holds there: no solver
        knows what Python computes of them."""
        others = [each for each in self.needs if each is not need and not each.is_needless]
        found = dict(filter(None, [_size_said(each.guard) for each in others]))
        return names <= found.keys() and need.guard.holds(found)

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
                self._try(needs[id(failed[0])], values)

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
