"""Tracks the state (seed and offset) of the default generator during a capture.

Used by the recorder, and by stage 4 for the backward. A draw is recorded as a random op, whose
position follows from the draws before it; stage 6 makes it pure. After `manual_seed` or
`set_rng_state`, and in backwards, a draw is recorded in its pure form `op(seed, offset, advance)`.
Its seed and offset are inputs of the graph (those of the call, or of the backward) or constants.
Rules: RNG-2 to RNG-6, RNG-8. Spec: `specs/randomness.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.ir.dtypes import bool_, uint64
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import (
    Arrived,
    BackwardOffset,
    BackwardSeed,
    NextBackwardOffset,
    NextBackwardSeed,
    NextOffset,
    NextSeed,
    Offset,
    Role,
    Seed,
)
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Op, RandomOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.random.state import ADVANCE_OFFSET, ends_stream, stream_ends
from aotlite.stages.records.rng_state import (
    Advanced,
    FinalRngState,
    KnownState,
    Reseeded,
    RngState,
    StateAtEntry,
)
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.shared.rng_inputs import STATE_META

WHERE = OPS["where"]
_START: dict[Phase, tuple[type, type]] = {
    Phase.FORWARD: (Seed, Offset),
    Phase.BACKWARD: (BackwardSeed, BackwardOffset),
}
_END: dict[Phase, tuple[Any, Any]] = {
    Phase.FORWARD: (NextSeed(), NextOffset()),
    Phase.BACKWARD: (NextBackwardSeed(), NextBackwardOffset()),
}

_AT_ENTRY = StateAtEntry(Phase.FORWARD)

_Moments = Callable[[], Any]


class TrackedState:
    """What `get_rng_state` returns in a captured function: only `set_rng_state` can use it.

    Its seed and offset are those of each call, so they cannot be read as numbers.
    """

    __slots__ = ("_state", "_streams")

    def __init__(self, streams: RngTracker, state: RngState) -> None:
        self._streams = streams
        self._state = state

    def _no_numbers(self, *args: object) -> Any:
        raise self._streams.recorder.refuse(
            "the seed or the offset of a generator's state",
            "pass the state to set_rng_state as it is, or read its numbers outside (RNG-6)",
        )

    __iter__ = __getitem__ = __len__ = __eq__ = __bool__ = _no_numbers
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<a state of the generator in a captured function>"


# --------------------------------------------------------------------------------------- tracking
@attrs.define(eq=False, repr=False)
class RngTracker:
    """The generator's state in one capture, and the graph inputs that it is computed from."""

    recorder: CaptureTrace
    state: RngState = _AT_ENTRY
    forward: RngState = _AT_ENTRY
    """The state when the function returned."""
    inputs: dict[type, Node] = attrs.field(factory=dict)
    """Placeholders by the class of their role."""
    flags: dict[Any, Node] = attrs.field(factory=dict)
    """Bool placeholders (`Arrived`): does a moment of the backward come, or some gradient?

    A moment is the turn of a tape node: it comes if a gradient arrives at some of its results
    and one of its inputs is asked for.
    """
    moments: dict[Any, None] = attrs.field(factory=dict)
    """The moments at which something is drawn or set, unless they come in every backward."""
    _explicit: bool = False
    """Draws are recorded in their pure form."""
    _replays: bool = False
    _forward_says: bool = False
    """The function set the generator: its graph returns the final state itself."""
    _backward: bool = False
    _of_forward: dict[type, Node] = attrs.field(factory=dict)
    """The inputs of the forward alone, to return to if the backward is dropped."""
    _last: Any = None
    """The last draw: the nodes of the final state get its location."""
    _now: _Moments = lambda: None
    _made: dict[tuple[RngState, Any], tuple[Any, Any]] = attrs.field(factory=dict)

    # --- what the generator is asked while a function is captured
    def draw(self, op: RandomOp, args: tuple[object, ...], meta: TensorMeta) -> Any:
        """Records a draw; returns the node of its result."""
        called: Op = op
        consumed = op.consumes(meta)
        if self.recorder.recompute and self._moment() is not None and not self._replays:
            raise self.recorder.refuse(
                "a new draw in a region that is computed again for some of the results",
                "leave preserve_rng_state as it is (CKP-3)",
            )
        if self._explicit:
            seed, offset, advance = self._place(self.state, self._moment())
            if type(offset) is int and ends_stream(offset + advance + consumed):
                raise stream_ends(op.name, seed, offset + advance, consumed)
            called, args = op.functional, (seed, offset, advance, *args)
        value = self._last = self.recorder.record(called, args, meta)
        self._use(consumed)
        return value

    def get(self) -> Any:
        """The present state: (seed, offset) if these are constants, else a `TrackedState`."""
        count, state = 0, self.state
        while type(state) is Advanced and state.moment is None:
            count, state = count + state.count, state.before
        if type(state) is KnownState:
            return state.seed, state.offset + count
        return TrackedState(self, self.state)

    def put(self, state: Any) -> None:
        """Sets the generator to a state of `get`, or to (seed, offset)."""
        self._explicit = True
        to = state._state if type(state) is TrackedState else KnownState(*state)
        moment = self._moment()
        before = _without(self.state, moment)
        self.state = to if moment is None or before is to else Reseeded(before, to, moment)

    def knows(self, state: object) -> bool:
        """Whether `get` returned this state. UnsupportedError for a state of another capture."""
        if type(state) is TrackedState and state._streams is not self:
            raise self.recorder.refuse(
                "a state of the generator that another captured function has kept",
                "keep a state that is read outside of compiled functions (RNG-6)",
            )
        return type(state) is TrackedState

    def seed(self) -> int:
        """The present seed. UnsupportedError where it is an input: each call may have another."""
        state = self.get()
        if type(state) is TrackedState:
            raise self.recorder.refuse("initial_seed()", "call it before the compiled function")
        seed: int = state[0]
        return seed

    @contextmanager
    def replaying(self, state: Any) -> Iterator[None]:
        """A block that draws from a state of `get`; afterwards the state is as before (CKP-3)."""
        before = self.state, self._explicit, self._replays
        self.state = state._state if type(state) is TrackedState else KnownState(*state)
        self._explicit = self._replays = True
        try:
            yield
        finally:
            self.state, self._explicit, self._replays = before

    # --- what stages ask
    def end_forward(self) -> None:
        """The function has returned."""
        self.forward, self._forward_says = self.state, self._explicit

    def begin_backward(self, now: _Moments = lambda: None) -> None:
        """Begins a backward; `now()` returns the moment of the tape node that runs (RNG-5)."""
        self.state = StateAtEntry(Phase.BACKWARD)
        self._explicit = self._backward = True
        self._now = now
        self.moments.clear()
        self._made.clear()
        self.flags.clear()
        for kind in _START[Phase.BACKWARD]:
            self.inputs.pop(kind, None)

    def after_forward(self) -> FinalRngState | None:
        """The state in which the function leaves the generator; None if it does not touch it."""
        if (
            type(self.forward) is StateAtEntry
            and not self._forward_says
            and Offset not in self.inputs
        ):
            return None
        return FinalRngState(self.forward, Phase.FORWARD)

    def after_backward(self) -> FinalRngState | None:
        """The state in which the backward leaves the generator; None if it does not touch it."""
        state = self.state
        untouched = type(state) is StateAtEntry and state.phase is Phase.BACKWARD
        if not self._backward or (untouched and BackwardOffset not in self.inputs):
            return None
        return FinalRngState(self.state, Phase.BACKWARD)

    def placeholders(self) -> tuple[Node, ...]:
        """The inputs, in the order in which graphs take them (RNG-2)."""
        order = (*_START[Phase.FORWARD], *_START[Phase.BACKWARD])
        found = [self.inputs[kind] for kind in order if kind in self.inputs]
        return (*self.flags.values(), *found)

    def arrivals(self) -> tuple[frozenset[Any], ...]:
        """For each of `flags` the moments, or results, of which one must come to set it."""
        return tuple([f if type(f) is frozenset else frozenset((f,)) for f in self.flags])

    def outputs(self, phase: Phase) -> list[tuple[Role, Any]]:
        """The final state as graph outputs; none where stage 6 counts the draws itself (RNG-3)."""
        after = self.after_backward()
        if phase is Phase.FORWARD:
            after = self.after_forward() if self._forward_says else None
        found = [] if after is None else self._ends(after, phase)
        if phase is Phase.FORWARD:
            self._of_forward = dict(self.inputs)
        return found

    def drop_backward(self) -> None:
        """Forgets the inputs of a backward that is not kept."""
        self.inputs, self._backward = dict(self._of_forward), False
        for known in (self.flags, self.moments, self._made):
            known.clear()

    # --- inside
    def _ends(self, after: FinalRngState, phase: Phase) -> list[tuple[Role, Any]]:
        self.recorder.origin = self._last
        seed, offset, advance = self._place(after.state, None)
        found = [(_END[phase][1], self._add(ADVANCE_OFFSET, (offset, advance)))]
        if after.consumed() is None:
            found.insert(0, (_END[phase][0], self._seed_value(seed)))
        self.recorder.origin = None
        return found

    def _moment(self) -> object:
        moment = self._now()
        if moment is not None and not self._replays:
            self.moments[moment] = None
        return moment

    def _use(self, count: int) -> None:
        moment, state = self._moment(), self.state
        if type(state) is Advanced and state.moment is moment:
            self.state = Advanced(state.before, state.count + count, moment)
        else:
            self.state = Advanced(state, count, moment)

    # Note [draws of a backward that may not come]
    #     y, z = Noisy.apply(x), Noisy.apply(x)   # whose backward draws noise
    # Eager's backward of z alone draws once, from where the generator is; that of both draws twice.
    # So the offset of y's draw depends on whether a gradient of z arrives. The state is a chain of
    # changes, each with its moment (None: always). The offset of a draw is computed along it: a
    # change whose moment the draw's own implies adds a constant; any other change becomes
    # where(arrived[its moment], offset after, offset before).
    def _place(self, state: RngState, moment: object) -> tuple[Any, Any, int]:
        """(seed, offset, advance) of a state, as a draw at this moment sees it.

        Note [draws of a backward that may not come].
        """
        match state:
            case StateAtEntry(phase):
                seed, offset = map(self._input, _START[phase])
                return seed, offset, 0
            case KnownState(seed, offset):
                return seed, offset, 0
            case Advanced(before, count, of):
                seed, offset, advance = self._place(before, moment)
                if _implied(moment, of):
                    return seed, offset, advance + count
                drawn = state, moment
                if drawn not in self._made:
                    yes = self._add(ADVANCE_OFFSET, (offset, advance + count))
                    no = self._offset_value(offset, advance)
                    self._made[drawn] = seed, self._chosen(of, yes, no)
                return (*self._made[drawn], 0)
            case Reseeded(before, to, of):
                if _implied(moment, of):
                    return self._place(to, moment)
                key = state, moment
                if key not in self._made:
                    other = self._place(before, moment)
                    self._made[key] = self._one_of(of, self._place(to, of), other)
                return (*self._made[key], 0)
        raise AssertionError("there is no other state")

    def _one_of(self, of: object, to: Any, other: Any) -> tuple[object, object]:
        seeds = [self._seed_value(place[0]) for place in (to, other)]
        offsets = [self._offset_value(*place[1:]) for place in (to, other)]
        return self._chosen(of, *seeds), self._chosen(of, *offsets)

    def _chosen(self, of: object, yes: Node, no: Node) -> Node:
        return self._add(WHERE, (self.flag(of), yes, no))

    def flag(self, of: object) -> Node:
        """The bool input of a moment, or of a set of results: does a gradient of one arrive?"""
        found = self.flags.get(of)
        if found is None:
            role = Arrived(len(self.flags))
            meta = tensor_meta((), None, bool_)
            found = Node("placeholder", role, meta=meta, role=role, phase=Phase.BACKWARD)
            self.flags[of] = found
        return found

    def _input(self, kind: type) -> Node:
        """The placeholder of this role; seed and offset are made together."""
        if kind not in self.inputs:
            phase = Phase.FORWARD if kind in (Seed, Offset) else Phase.BACKWARD
            for each in _START[phase]:
                role = each()
                self.inputs[each] = Node(
                    "placeholder", role, meta=STATE_META, role=role, phase=phase, grad_mode=False
                )
        return self.inputs[kind]

    def _seed_value(self, seed: object) -> Node:
        if type(seed) is Node:
            return seed
        return self._add(FULL, ((), seed, uint64, STATE_META.device))

    def _offset_value(self, offset: Any, advance: int) -> Node:
        known = type(offset) is Node and not advance
        return offset if known else self._add(ADVANCE_OFFSET, (offset, advance))

    def _add(self, op: Any, args: tuple[Any, ...]) -> Node:
        made: Node = self.recorder.add_node(op, args, op.infer(args))
        return made


def _implied(moment: Any, of: Any) -> bool:
    """Whether moment `of` comes whenever `moment` comes."""
    if of is None or moment is None:
        return of is None
    return bool(moment.arrivals <= of.arrivals and moment.reachable_inputs <= of.reachable_inputs)


def _without(state: RngState, moment: object) -> RngState:
    """The state before the latest changes that were made at this moment."""
    while isinstance(state, (Advanced, Reseeded)) and state.moment is moment:
        state = state.before
    return state
