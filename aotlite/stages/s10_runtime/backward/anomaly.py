"""Checks of compiled backwards in anomaly mode, run before the backward (JNT-8).

Used by stage 10. A `CompiledAnomalyTrace` computes the gradient of each op of a compiled function,
op by op, from the saved values of a call. It raises for the first one with a nan, and names the
op's line. Without anomaly mode nothing of this is made.
Spec: `specs/anomaly.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from traceback import FrameSummary
from typing import Any

import attrs

from aotlite.backends.protocol import Run, Window
from aotlite.eager.autograd.anomaly import (
    forward_note,
    has_nan,
    location_of,
    made_of,
    nan_error,
    notes_of,
    split,
)
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import NUMPY
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.forks import UNFORKED, lock
from aotlite.ir.meta import TensorMeta
from aotlite.ir.provenance.location import place_of
from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.s10_runtime.backward.plan import BackwardCall
from aotlite.stages.s10_runtime.backward.writer import laid_out

Roles = frozenset[Any]


@attrs.frozen(eq=False, repr=False)
class CompiledAnomalyTrace:
    """The checks of a backward for one set of arriving and one set of wanted gradients."""

    run: Run
    """Computes the readings from the saved values and the arriving gradients."""
    arriving: tuple[tuple[Any, TensorMeta], ...]
    """The results whose gradients it takes, in order, with the layouts."""
    readings: tuple[tuple[TapeNode, int, TensorMeta], ...]
    """For each result of `run` the tape node and the index of its gradient, and its meta."""
    failure: tuple[TapeNode | None, Exception] | None
    reads: tuple[tuple[TapeNode, SavedOf], ...]
    is_whole: bool
    """Whether all of eager's checks can be made from the saved values."""
    within: Mapping[TapeNode, TapeNode]
    """For each node made in a backward, the node that ran at that time."""
    order: int


@attrs.define(eq=False, repr=False)
class CompiledAnomalyTraces:
    """The anomaly traces of one plan's backward, made on first use."""

    _make: Callable[[Roles, Roles | None], CompiledAnomalyTrace]
    _made: dict[Any, CompiledAnomalyTrace] = attrs.field(factory=dict)
    _lock: AbstractContextManager[bool] = attrs.field(factory=lock)

    def look(self, call: BackwardCall, grads: Sequence[Any], wanted: Sequence[bool] | None) -> bool:
        """Raises the error that eager raises. Returns whether nothing is left to check."""
        plan = call.plan
        pairs = zip(plan.tangents, grads, strict=True)
        arriving = {role: grad for (role, _), grad in pairs if grad is not None}
        sought: Roles | None = None
        if wanted is not None:
            ends = zip(plan.gradients, wanted, strict=True)
            sought = frozenset([role for (role, _), is_wanted in ends if is_wanted])
        look = self._of(frozenset(arriving), sought)
        self._check_versions(look, call, grads)
        watch = STATE.watch
        if watch is not None and watch.check_nan:
            given = [_window(arriving[role], meta) for role, meta in look.arriving]
            _check_readings(look, call, given)
        if look.failure is not None:
            node, error = look.failure
            raise noted(copied_error(error), *notes_within(look, node, call))
        return look.is_whole

    def _of(self, arriving: Roles, wanted: Roles | None) -> CompiledAnomalyTrace:
        key = arriving, wanted
        look = self._made.get(key)
        if look is None:
            with self._lock:
                look = self._made.get(key)
                if look is None:
                    look = self._make(arriving, wanted)
                    with UNFORKED:
                        self._made[key] = look
        return look

    def _check_versions(
        self, look: CompiledAnomalyTrace, call: BackwardCall, grads: Sequence[Any]
    ) -> None:
        """SAV-2: an error about a saved tensor that was written also names the op that saved it."""
        versions = dict(zip(call.plan.saved_tensors, call.saved_versions, strict=True))
        for node, saved in look.reads:
            storage, version = versions.get(saved, (None, 0))
            if storage is None or storage.version == version:
                continue
            try:
                call.check(call.absent(grads))
            except AutogradError as error:
                noted(error, f"{node.name()} has saved it.", *notes_within(look, node, call))
                raise


def _window(grad: Tensor, meta: TensorMeta) -> Window:
    """An arriving gradient in the layout of the recorded backward (TAN-3)."""
    if grad.meta is not meta:
        grad = laid_out(grad, meta)
    return grad.storage.buffer, grad.offset


def _check_readings(look: CompiledAnomalyTrace, call: BackwardCall, given: list[Window]) -> None:
    with call._lock if call.plan.copied_on_write else nullcontext():  # no copies meanwhile
        saved = [each if type(each) is tuple else (each, 0) for each in call.saved or ()]
        found = NUMPY.quiet(look.run, [*saved, *given])
    for (node, index, meta), window in zip(look.readings, found, strict=True):
        if window is not None and has_nan(tensor_over(window[0], meta, window[1])):
            raise noted(nan_error(node, index), *notes_within(look, node, call))


# ----------------------------------------------------------------------------------------- notes
def notes_within(look: CompiledAnomalyTrace, node: TapeNode | None, call: Any) -> Iterator[str]:
    """Notes that say where the forward ran an op of a compiled call, and where the call was.

    The caller's frames are from this call, the function's frames from its compilation. A node that
    was made in a backward belongs to the call that this backward is (DBL-2).
    """
    if node is None:
        yield from notes_of(call)
        return
    calls = _calls(look, call)
    each: TapeNode | None = node
    level = 0
    while each is not None:
        level = min(_level(each), len(calls) - 1)
        yield _note(each, calls[level], is_first=level == 0)
        each = look.within.get(each)
        if each is not None:
            yield f"That was in the backward of {each.name()}:"
    made = None if level or calls[0] is None else made_of(calls[0])
    if made is not None and made.within is not None:
        yield f"That was in the backward of {made.within.name()}:"
        yield from notes_of(made.within)


def _level(node: TapeNode) -> int:
    """The order of the derivative that recorded a node: 0 for the function itself."""
    level, place = 0, node.origin
    while place is not None and place.origin is not None:
        level += place.scope is None or not place.scope.is_backward
        place = place.origin
    return level


def _calls(look: CompiledAnomalyTrace, call: TapeNode) -> list[TapeNode | None]:
    """The nodes of the call and of its backwards, up to this one."""
    calls: list[TapeNode | None] = [call]
    for _ in range(look.order - 1):
        made = None if calls[-1] is None else made_of(calls[-1])
        calls.append(None if made is None else made.within)
    return calls[::-1]


def _note(node: TapeNode, call: TapeNode | None, *, is_first: bool) -> str:
    frames, rest = _inside(node) if is_first else ([], "")
    outer = None if call is None else made_of(call)
    if outer is not None:
        return forward_note(node.name(), [*outer.stack, *frames], rest)
    rest = f" (the call was made before anomaly mode was on){'' if frames else ': not known'}"
    return forward_note(node.name(), frames, rest)


def _inside(node: TapeNode) -> tuple[list[FrameSummary], str]:
    """The frames of the compiled function, and the words that introduce them."""
    made, location = made_of(node), location_of(node)
    frames = [] if made is None else split(made.stack)[1]
    if frames or location is None:
        return frames, ""
    place = place_of(location)
    last = FrameSummary(place.file, place.line, place.function, line=place.text)
    return [last], " (of the compiled function the last line alone)"


def copied_error(error: Exception) -> Exception:
    """A copy of an error for this call; the same object if a user's class cannot be copied."""
    try:
        made = copy.copy(error)
        if hasattr(error, "__notes__"):
            made.__notes__ = list(error.__notes__)
        return made
    except Exception:  # whatever its __init__ or __reduce__ raises
        return error
