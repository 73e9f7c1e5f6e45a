"""Values at which claims are tried: near the hints, then all small ones.

Ground floor. Small values come in cubes: first all sizes up to 0, then up to 1, and so on, so that
a search that is cut short has still looked through a whole cube.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import attrs

from aotlite.ir.symbols.validation.claims import Claim, Evaluation, Premises, Values

__all__ = ["Found", "Searched", "near", "search", "small"]

MOST_POINTS = 20_000
"""No cube has more points than this."""
_LARGEST = {1: 64, 2: 32}
"""By the number of symbols: the side of the largest cube; 8 for three and more."""


@attrs.frozen
class Found:
    """The earliest claim that is false somewhere, by its index, and where."""

    index: int
    values: Values


@attrs.frozen
class Searched:
    """How far a search came."""

    found: Found | None
    reach: int
    """All sizes up to this were tried; -1 for none."""
    points: int
    """The points that the premises admit, among those that were tried."""
    is_complete: bool
    """Whether the search came to its end, and no value was too large to compute."""


def near(premises: Premises) -> Iterator[dict[str, int]]:
    """The hints, then the hints changed one by one, and together."""
    hints = premises.table.hints
    if len(hints) < len(premises.symbols):
        return
    yield dict(hints)
    for change in (1, -1, 2, -2, 5):
        for name, hint in hints.items():
            yield {**hints, name: hint + change}
        yield {name: hint + change for name, hint in hints.items()}
    yield {name: 2 * hint for name, hint in hints.items()}
    yield {name: 3 + 2 * i for i, name in enumerate(hints)}


def small(premises: Premises, side: int) -> Iterator[dict[str, int]]:
    """All values of which the largest is `side` away from its symbol's base."""
    names = list(premises.symbols)
    choices = [_choices(*symbol.room, side) for symbol in premises.symbols.values()]
    for chosen in itertools.product(*choices):
        if not chosen or any(far for _, far in chosen):
            yield {name: value for name, (value, _) in zip(names, chosen, strict=True)}


def _choices(low: int | None, high: int | None, side: int) -> list[tuple[int, bool]]:
    """Values no further than `side` from 0, or from the end of a range beyond 8; and whether each
    is that far."""
    base = 0
    if low is not None and low > 8:
        base = low
    elif high is not None and high < -8:
        base = high
    least, most = base - side, base + side
    least = least if low is None else max(least, low)
    most = most if high is None else min(most, high)
    return [(value, abs(value - base) == side) for value in range(least, most + 1)]


def sides(premises: Premises, most: int = MOST_POINTS) -> range:
    """The sides of the cubes to search, none of which has more points than `most`."""
    count = len(premises.symbols)
    largest = _LARGEST.get(count, 8)
    while largest and (largest + 1) ** count > most:
        largest -= 1
    return range(largest + 1 if count else 1)


def search(
    premises: Premises, claims: Sequence[Claim], deadline: float, *, quick: bool = False
) -> Searched:
    """Tries the claims at values near the hints and at all small ones; stops at the deadline.

    Where a claim is false, only earlier ones are tried from then on: the earliest is found.
    A quick search tries values near the hints, and a few small ones.
    """
    looking = _Looking(premises, claims)
    looking.at_each(near(premises), deadline)
    reach = -1
    for side in sides(premises, 200 if quick else MOST_POINTS):
        if not looking.at_each(small(premises, side), deadline):
            return Searched(looking.found, reach, looking.points, is_complete=False)
        reach = side
    return Searched(looking.found, reach, looking.points, is_complete=not looking.overflowed)


class _Looking:
    """A search that is under way."""

    def __init__(self, premises: Premises, claims: Sequence[Claim]) -> None:
        self.premises = premises
        self.claims = list(claims)
        self.found: Found | None = None
        self.points = 0
        self.overflowed = False

    def at_each(self, points: Iterator[dict[str, int]], deadline: float) -> bool:
        """Tries each of these; returns whether it came to the end."""
        for values in points:
            if not self.claims:
                return True
            if time.thread_time() > deadline:
                return False
            self._at(values)
        return True

    def _at(self, values: Values) -> None:
        try:
            if not self.premises.admit(values):
                return
        except OverflowError:
            self.overflowed = True
            return
        self.points += 1
        at = Evaluation(values)
        for index, claim in enumerate(self.claims):
            try:
                if claim.holds(at):
                    continue
            except OverflowError:
                self.overflowed = True
                continue
            self.found = Found(index, values)
            del self.claims[index:]
            return
