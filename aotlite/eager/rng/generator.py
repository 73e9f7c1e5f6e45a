"""`Generator`: a seed, and an offset into its counter-based stream; `GENERATOR` is the default one.

While a function is captured, the recorder tracks the default generator's state (`RngState`), and
the generator itself does not change. While a checkpointed region is recomputed, a copy draws in its
place. Rules: RNG-4, RNG-6, RNG-8, RNG-12. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import attrs

from aotlite.eager.base.capture_protocol import RngState
from aotlite.eager.base.modes import STATE, Draws
from aotlite.eager.base.tensor import apply_op
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import RngError, noted
from aotlite.ir.forks import lock
from aotlite.ir.op import RandomOp
from aotlite.ir.ops.random.state import OFFSETS, check_position, stream_ends
from aotlite.ir.symbols.python_number import plain

State = tuple[int, int]


# -------------------------------------------------------------------------------- what may be set
def _checked_seed(op: str, seed: Any) -> int:
    """The seed as 64 unsigned bits; a negative one wraps, as in PyTorch."""
    seed = plain(seed)  # a size that is one is assumed
    is_number = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not is_number or not -(1 << 63) <= int(seed) < 1 << 64:
        raise noted(
            RngError(f"{op}: seed is {seed!r}, expected -2**63 <= seed < 2**64"),
            "A seed is an integer of 64 bits. (RNG-12)",
        )
    return int(seed) % (1 << 64)


def _checked_state(op: str, state: object) -> State:
    if not isinstance(state, tuple) or len(state) != 2:
        raise noted(
            RngError(f"{op}: the state is {state!r}, expected what get_rng_state gives"),
            "A state is (seed, offset). (RNG-6)",
        )
    seed, offset = state
    check_position(op, offset)
    return _checked_seed(op, seed), int(offset)


@attrs.define(repr=False)
class Generator:
    """Philox 4x32-10 keyed by `seed`; `offset` counts the words drawn, a multiple of 4.

    >>> first, second = Generator().manual_seed(3), Generator().manual_seed(3)
    >>> import aotlite as al
    >>> al.rand(2, generator=first).tolist() == al.rand(2, generator=second).tolist()
    True
    """

    device: Device | str = attrs.field(default=CPU, repr=False, eq=False)
    _seed: int = attrs.field(default=0, kw_only=True, alias="seed")
    _offset: int = attrs.field(default=0, kw_only=True, alias="offset")
    _lock: threading.RLock = attrs.field(factory=lock, repr=False, eq=False, init=False)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.device, str):
            self.device = device_named(self.device, op="Generator")
        self._seed = _checked_seed("Generator", self._seed)
        check_position("Generator", self._offset)

    @property
    def seed(self) -> int:
        """The seed that it was restarted with."""
        return self.initial_seed()

    @property
    def offset(self) -> int:
        """The number of words drawn from the stream of this seed."""
        offset: int = self.get_state()[1]
        return offset

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self._offset})"

    # --- what draws are made of; asked of the generator that `drawn_from` gives
    def advance(self, consumed: int, op: str = "draw") -> State:
        """(seed, offset) for a draw of `consumed` words; advances the offset.

        Raises RngError, without advancing, where the stream would end (RNG-4).
        """
        with self._lock:
            start = self._offset
            if start + consumed >= OFFSETS:
                raise stream_ends(op, self._seed, start, consumed)
            self._offset = start + consumed
            return self._seed, start

    def give_back(self, seed: int, start: int, consumed: int) -> None:
        """Undoes an `advance` whose draw failed, unless another thread has drawn since."""
        with self._lock:
            if (self._seed, self._offset) == (seed, start + consumed):
                self._offset = start

    def stand(self, seed: int, offset: int) -> None:
        """Sets seed and offset."""
        with self._lock:
            self._seed, self._offset = seed, offset

    def draw(self, op: RandomOp, args: tuple[object, ...]) -> Any:
        """The result of a random op with canonical arguments, drawn from this generator."""
        if self is GENERATOR:
            return apply_op(op, args)
        recorder = STATE.recorder
        if recorder is not None and recorder.eager_values is not None:
            return recorder.eager_values.drawn_from(self, op, args)
        if recorder is not None:
            raise recorder.refuse(
                "a draw from a generator of your own()", "call it before the compiled function"
            )
        meta: Any = op.infer(args)
        source, consumed = drawn_from(self), op.consumes(meta)
        place = source.advance(consumed, op.name)
        try:
            return apply_op(op.functional, (*place, 0, *args))
        except BaseException:
            source.give_back(*place, consumed)
            raise

    # --- for users
    def manual_seed(self, seed: int) -> Generator:
        """Restarts at offset 0 of this seed; returns itself."""
        seed = _checked_seed("manual_seed", seed)
        tracked = self._tracked()
        if tracked is not None:
            tracked.put((seed, 0))
        else:
            drawn_from(self).stand(seed, 0)
        return self

    def initial_seed(self) -> int:
        """The seed that it was restarted with."""
        tracked = self._tracked()
        return drawn_from(self)._seed if tracked is None else tracked.seed()

    def get_state(self) -> Any:
        """(seed, offset); in a captured function an opaque value for `set_state`."""
        tracked = self._tracked()
        if tracked is not None:
            return tracked.get()
        source = drawn_from(self)
        with source._lock:
            return source._seed, source._offset

    def set_state(self, new_state: object) -> Generator:
        """Restores a state of `get_state`; returns itself."""
        self._set_state("set_state", new_state)
        return self

    def _set_state(self, op: str, new_state: object) -> None:
        tracked = self._tracked()
        if tracked is not None:
            known = tracked.knows(new_state)
            tracked.put(new_state if known else _checked_state(op, new_state))
        else:
            drawn_from(self).stand(*_checked_state(op, new_state))

    def _tracked(self) -> RngState | None:
        """The capture's tracker of its state, for the default generator in a capture (RNG-6)."""
        recorder = STATE.recorder
        return recorder.streams if recorder is not None and self is GENERATOR else None


GENERATOR = Generator()
"""The generator that `rand`, `dropout` and compiled functions draw from."""
default_generator = GENERATOR


# ------------------------------------------------------------------- regions that are run again
def drawn_from(generator: Generator) -> Generator:
    """The generator that draws in this one's place in this thread: itself, nearly always."""
    source = STATE.draws
    return generator if source is None else source.of(generator)


def current() -> Generator:
    """The generator that draws in the default one's place in this thread."""
    source = STATE.draws
    return GENERATOR if source is None else source.of(GENERATOR)


class Noting:
    """Records the state of each generator when a region first draws from it (RNG-8)."""

    def __init__(self) -> None:
        self.states: dict[int, tuple[Generator, State]] = {}
        self._outer = STATE.draws

    def of(self, generator: Generator) -> Generator:
        """The generator itself, or its substitute in an outer region."""
        source = generator if self._outer is None else self._outer.of(generator)
        self.states.setdefault(id(generator), (generator, (source._seed, source._offset)))
        return source


class Replaying:
    """Substitutes copies of generators in their recorded states, to repeat the draws (RNG-8)."""

    def __init__(self, noted: Noting) -> None:
        self._states = noted.states
        self._copies: dict[int, Generator] = {}

    def of(self, generator: Generator) -> Generator:
        """The copy; the generator itself does not advance."""
        copy = self._copies.get(id(generator))
        if copy is None:
            known = self._states.get(id(generator))
            seed, offset = (generator._seed, generator._offset) if known is None else known[1]
            copy = self._copies[id(generator)] = Generator(seed=seed, offset=offset)
        return copy


class Refusing:
    """Refuses draws from the default generator in effects of compiled code, which has advanced its
    state for the whole call beforehand."""

    def __init__(self, outer: Draws | None) -> None:
        self._outer = outer

    def of(self, generator: Generator) -> Generator:
        """Another generator. Raises RngError for the default one."""
        if generator is GENERATOR:
            raise noted(
                RngError(
                    "generator: an effect of a compiled function that draws random numbers uses "
                    "the default generator, expected one of its own"
                ),
                "Compiled code advances the default generator at the start of a call. Pass random "
                "tensors as operands, or use a Generator of your own. (TOK-7)",
            )
        return generator if self._outer is None else self._outer.of(generator)


@contextmanager
def drawing(source: Noting | Replaying) -> Iterator[None]:
    """A block in which `source` substitutes this thread's generators."""
    before, STATE.draws = STATE.draws, source
    try:
        yield
    finally:
        STATE.draws = before


# ------------------------------------------------------------------------- the default generator
def manual_seed(seed: int) -> Generator:
    """Restarts the default generator at offset 0 of this seed; returns it."""
    return GENERATOR.manual_seed(seed)


def initial_seed() -> int:
    """The seed that the default generator was restarted with."""
    return GENERATOR.initial_seed()


def get_rng_state() -> Any:
    """(seed, offset) of the default generator; in a captured function an opaque value for
    `set_rng_state`.
    """
    return GENERATOR.get_state()


def set_rng_state(new_state: object) -> None:
    """Restores a state of `get_rng_state` in the default generator."""
    GENERATOR._set_state("set_rng_state", new_state)


@contextmanager
def fork_rng(enabled: bool = True) -> Iterator[None]:
    """A block that restores the default generator's state at its end."""
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)
