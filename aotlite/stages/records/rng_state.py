"""States of the generator in a captured function, and where a call leaves it.

Spec: `specs/randomness.md`. Rules: RNG-1..RNG-9.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Phase


# ---------------------------------------------------------------------------------------- states
@attrs.frozen(eq=False)
class Start:
    """Where the generator stood when the call, or its backward, began."""

    phase: Phase


@attrs.frozen(eq=False)
class Given:
    """Offset 0 or another of a seed, both known numbers."""

    seed: int
    offset: int


@attrs.frozen(eq=False)
class Drawn:
    """Behind draws from another state."""

    before: State
    count: int
    moment: Any
    """When it happens (`late_effects.LateEffect`); None if in any case."""


@attrs.frozen(eq=False)
class Put:
    """Another state, if its moment comes; else the one before."""

    before: State
    to: State
    moment: Any


State = Start | Given | Drawn | Put


@attrs.frozen(eq=False)
class After:
    """Where a call, or a backward, leaves the generator."""

    state: State
    phase: Phase

    def consumed(self, absent: frozenset[Any] = frozenset()) -> int | None:
        """Offsets that are used up where these moments do not come.

        None if the generator is put elsewhere: the graph returns where.
        """
        count, state = 0, self.state
        while True:
            match state:
                case Drawn(before, drawn, moment):
                    count += 0 if moment in absent else drawn
                    state = before
                case Put(before, to, moment):
                    state = before if moment in absent else to
                case Start(phase):
                    return count if phase is self.phase else None
                case Given():
                    return None
