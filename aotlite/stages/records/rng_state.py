"""States of the random generator in a captured function, and its state after a call.

Spec: `specs/randomness.md`. Rules: RNG-1..RNG-9.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Phase


# ---------------------------------------------------------------------------------------- states
@attrs.frozen(eq=False)
class StateAtEntry:
    """The generator's state at the start of the call, or of its backward."""

    phase: Phase


@attrs.frozen(eq=False)
class KnownState:
    """A state whose seed and offset are known numbers."""

    seed: int
    offset: int


@attrs.frozen(eq=False)
class Advanced:
    """The state after `count` offsets are drawn from another state."""

    before: RngState
    count: int
    moment: Any
    """The `BackwardEffect` in which the draw happens; None if it always happens."""


@attrs.frozen(eq=False)
class Reseeded:
    """The state `to` if its `moment` happens, else the one before."""

    before: RngState
    to: RngState
    moment: Any


RngState = StateAtEntry | KnownState | Advanced | Reseeded


@attrs.frozen(eq=False)
class FinalRngState:
    """The generator's state after a call, or after a backward."""

    state: RngState
    phase: Phase

    def consumed(self, absent: frozenset[object] = frozenset()) -> int | None:
        """The number of consumed offsets if the `absent` moments do not happen.

        None if the function sets the generator: the graph returns its state.
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
