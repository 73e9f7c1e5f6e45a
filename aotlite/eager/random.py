"""Generators: a seed and an offset into one counter-based stream. The default one is `GENERATOR`.

Rules: RNG-4, RNG-12.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.eager.state import STATE
from aotlite.ir.device import CPU, Device
from aotlite.ir.errors import ArgumentError, DeviceError
from aotlite.ir.forks import lock
from aotlite.ir.op import RandomOp

State = tuple[int, int]


@attrs.define
class Generator:
    """Philox 4x32-10 keyed by `seed`; `offset` counts what was drawn, a multiple of 4.

    >>> first, second = Generator().manual_seed(3), Generator().manual_seed(3)
    >>> import aotlite as al
    >>> al.rand(2, generator=first).tolist() == al.rand(2, generator=second).tolist()
    True
    """

    device: Device | str = attrs.field(default=CPU, repr=False, eq=False)
    seed: int = attrs.field(default=0, kw_only=True)
    offset: int = attrs.field(default=0, kw_only=True)
    _lock: threading.RLock = attrs.field(factory=lock, repr=False, eq=False, init=False)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.device, str):
            if self.device != CPU.name:
                raise DeviceError(
                    f"Generator: device is {self.device!r}, expected 'cpu' or a device object"
                )
            self.device = CPU

    def advance(self, consumed: int) -> State:
        """(seed, offset) for a draw that uses up `consumed` offsets."""
        with self._lock:
            start = self.offset
            self.offset = start + consumed
            return self.seed, start

    def draw(self, op: RandomOp, args: tuple[Any, ...]) -> Any:
        """What a random op gives with canonical arguments, from this generator."""
        from aotlite.eager.dispatch import dispatch

        if self is GENERATOR:
            return dispatch(op, args)
        _forbid_capture("a draw from a generator of your own")
        meta: Any = op.infer(args)
        state = self.get_state()
        try:
            return dispatch(op.functional, (*self.advance(op.consumes(meta)), 0, *args))
        except BaseException:  # what was not drawn is not used up
            self.offset = state[1]
            raise

    def manual_seed(self, seed: int) -> Generator:
        """Restarts at offset 0 of this seed; returns itself."""
        seed = _checked_seed(seed)
        self._forbid("manual_seed")
        self.seed, self.offset = seed, 0
        return self

    def initial_seed(self) -> int:
        """The seed that it was restarted with."""
        self._forbid("initial_seed")
        return self.seed

    def get_state(self) -> State:
        """(seed, offset)."""
        self._forbid("get_state")
        return self.seed, self.offset

    def set_state(self, new_state: State) -> Generator:
        """Puts it back to a state of `get_state`; returns itself."""
        self._forbid("set_state")
        self.seed, self.offset = _checked_state("set_state", new_state)
        return self

    def _forbid(self, what: str) -> None:
        """The default generator is part of a captured function: draws go on from its state."""
        if self is GENERATOR:
            _forbid_capture(what)


GENERATOR = Generator()
"""The generator that `rand`, `dropout` and compiled functions draw from."""
default_generator = GENERATOR


def _checked_seed(seed: Any) -> int:
    """The seed as 64 bits: negative ones stand for their complement, as in PyTorch."""
    if not hasattr(seed, "__index__") or not -(1 << 63) <= seed < 1 << 64:
        raise ArgumentError(f"manual_seed: seed is {seed!r}, expected -2**63 <= seed < 2**64")
    return int(seed) % (1 << 64)


def _checked_state(op: str, state: State) -> State:
    if not isinstance(state, tuple) or len(state) != 2:
        raise ArgumentError(f"{op}: the state is {state!r}, expected what get_rng_state gives")
    seed, offset = state
    if offset % 4:
        raise ArgumentError(f"{op}: offset is {offset}, expected a multiple of 4")
    return seed, offset


def manual_seed(seed: int) -> Generator:
    """Restarts the default generator at offset 0 of this seed; returns it."""
    return GENERATOR.manual_seed(seed)


def initial_seed() -> int:
    """The seed that the default generator was restarted with."""
    return GENERATOR.initial_seed()


def get_rng_state() -> State:
    """(seed, offset) of the default generator."""
    _forbid_capture("get_rng_state")
    return GENERATOR.seed, GENERATOR.offset


def set_rng_state(new_state: State) -> None:
    """Puts the default generator back to a state of `get_rng_state`."""
    _forbid_capture("set_rng_state")
    GENERATOR.seed, GENERATOR.offset = _checked_state("set_rng_state", new_state)


@contextmanager
def fork_rng(enabled: bool = True) -> Iterator[None]:
    """A block behind which the default generator is where it was before."""
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


def _forbid_capture(what: str) -> None:
    """A graph draws from the default generator, and cannot set it (GEN-8)."""
    recorder = STATE.recorder
    if recorder is not None:
        raise recorder.refuse(f"{what}()", "call it before the compiled function")
