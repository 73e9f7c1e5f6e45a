"""The default generator: a seed and an offset into one counter-based stream.

Rules: RNG-4, RNG-12.
"""

from __future__ import annotations

import threading

import attrs

from aotlite.eager.state import STATE
from aotlite.ir.errors import ArgumentError


@attrs.define
class Generator:
    """Philox 4x32-10 keyed by `seed`; `offset` counts what was drawn, a multiple of 4."""

    seed: int = 0
    offset: int = 0
    _lock: threading.Lock = attrs.field(factory=threading.Lock, repr=False, eq=False)

    def advance(self, consumed: int) -> tuple[int, int]:
        """(seed, offset) for a draw that uses up `consumed` offsets."""
        with self._lock:
            start = self.offset
            self.offset = start + consumed
            return self.seed, start


GENERATOR = Generator()
"""The generator that `rand`, `dropout` and compiled functions draw from."""


def manual_seed(seed: int) -> Generator:
    """Restarts the default generator at offset 0 of this seed; returns it."""
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"manual_seed: seed is {seed}, expected 0 <= seed < 2**64")
    _forbid_capture("manual_seed")
    GENERATOR.seed, GENERATOR.offset = seed, 0
    return GENERATOR


def get_rng_state() -> tuple[int, int]:
    """(seed, offset) of the default generator."""
    _forbid_capture("get_rng_state")
    return GENERATOR.seed, GENERATOR.offset


def set_rng_state(state: tuple[int, int]) -> None:
    """Puts the default generator back to a state of `get_rng_state`."""
    _forbid_capture("set_rng_state")
    seed, offset = state
    if offset % 4:
        raise ArgumentError(f"set_rng_state: offset is {offset}, expected a multiple of 4")
    GENERATOR.seed, GENERATOR.offset = seed, offset


def _forbid_capture(what: str) -> None:
    """A graph draws from the generator, and cannot set it (GEN-8)."""
    recorder = STATE.recorder
    if recorder is not None:
        raise recorder.refuse(f"{what}()", "call it before the compiled function")
