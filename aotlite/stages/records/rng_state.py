"""States of the generator in a captured function, and where a call leaves it.

Spec: `specs/randomness.md`. Rules: RNG-1..RNG-9.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Phase


# ---------------------------------------------------------------------------------------- states
@attrs.frozen(eq=False)
class StateAtEntry:
    """Where the generator stood when the call, or its backward, began."""

    phase: Phase


@attrs.frozen(eq=False)
class KnownState:
    """Offset 0 or another of a seed, both known numbers."""

    seed: int
    offset: int


@attrs.frozen(eq=False)
class Advanced:
    """Behind draws from another state."""

    before: RngState
    count: int
    moment: Any
    """When it happens (`BackwardEffect`); None if in any case."""


@attrs.frozen(eq=False)
class Reseeded:
    """Another state, if its moment comes; else the one before."""

    before: RngState
    to: RngState
    moment: Any


RngState = StateAtEntry | KnownState | Advanced | Reseeded


@attrs.frozen(eq=False)
class FinalRngState:
    """Where a call, or a backward, leaves the generator."""

    state: RngState
    phase: Phase

    def consumed(self, absent: frozenset[Any] = frozenset()) -> int | None:
        """Offsets that are used up where these moments do not come.

        None if the generator is put elsewhere: the graph returns where.
        """
        count, state = 0, self.state
        while True:
            match state:
                case Advanced(before, drawn, moment):
                    count += 0 if moment in absent else drawn
                    state = before
                case Reseeded(before, to, moment):
                    state = before if moment in absent else to
                case StateAtEntry(phase):
                    return count if phase is self.phase else None
                case KnownState():
                    return None
