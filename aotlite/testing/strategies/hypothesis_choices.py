"""Hypothesis as a source of choices for the draws of `aotlite.testing.generate`."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from math import log2
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
_BOOLEANS = st.booleans()
MOST = 16
"""The most options of a likely chance."""


@cache
def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    # Cached: Hypothesis compares strategies by identity, and making one takes longer than a draw.
    return st.integers(least, most)


class Choices:
    """The methods of `random.Random` that draws use, and `chance`, on a strategy's `draw`.

    Each makes native choices of Hypothesis, so that it shrinks: to the first option, to numbers
    near 0, to the given order, and to a chance that is False.

    >>> from hypothesis import find, strategies as st
    >>> coins = st.composite(lambda draw: [Choices(draw).choice("abc") for _ in range(3)])()
    >>> find(coins, lambda letters: letters[1] != "a")
    ['a', 'b', 'a']
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def chance(self, share: float) -> bool:
        """True with about this probability.

        A small probability is several coins: Hypothesis would try many of a thousand numbers,
        although they have the same effect. A large one is one choice, as Hypothesis counts fewer
        choices as simpler.
        """
        if share > 0.5:
            return self.randint(0, min(round(1 / (1 - share)), MOST) - 1) > 0
        return all(self.draw(_BOOLEANS) for _ in range(round(-log2(max(share, 1 / 1024)))))

    def randint(self, a: int, b: int, /) -> int:
        """A number from `a` to `b`, both included."""
        return a if a == b else self.draw(_integers(a, b))

    def randrange(self, start: int, stop: int | None = None, /) -> int:
        """A number from `start` to `stop`, excluded; with one argument, from 0 to `start`."""
        return self.randint(0, start - 1) if stop is None else self.randint(start, stop - 1)

    def choice(self, seq: Sequence[T], /) -> T:
        """One of the options."""
        return seq[self.randrange(len(seq))]

    def choices(
        self, population: Sequence[T], weights: Sequence[int] | None = None, *, k: int = 1
    ) -> list[T]:
        """`k` options, each drawn from all. `weights` are whole numbers."""
        ends = list(accumulate(weights or [1] * len(population)))
        return [population[bisect(ends, self.randrange(ends[-1]))] for _ in range(k)]

    def sample(self, population: Sequence[T], /, k: int) -> list[T]:
        """`k` different options."""
        left = list(population)
        return [left.pop(self.randrange(len(left))) for _ in range(k)]
