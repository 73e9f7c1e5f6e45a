"""Runs a tape that is one graph: performs its calls, and leaves it where Python did otherwise.

    values of inputs ──> backend's code ──call_hook──> OneTapeRun.call ──> the hook, with tensors
                               │   <── the gradients after it, or `Left` ──┘
                               └──> results: leaves, sinks

Before a call the gradients in flight are made tensors, as the engine would have them. Behind it
they, the saved values and the hooks of the rest are compared with what the graph expects. If they
differ, the code is left (`Left`), and segments go on from there. Rules: CAG-25 to CAG-28.
Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.backends.calling_convention import Value, as_value, window_of
from aotlite.compiled_autograd.node_signatures import form_of, is_plain
from aotlite.compiled_autograd.one_tape.forms import is_freed, saved_records
from aotlite.compiled_autograd.one_tape.program import (
    SAME,
    UNKNOWN,
    Accumulation,
    Learned,
    OneTape,
    TapeCall,
)
from aotlite.compiled_autograd.one_tape.recording import RecordedRun, in_flight
from aotlite.compiled_autograd.one_tape.steps import (
    AFTER_NODE,
    OF_NODE,
    OF_TENSOR,
    RUN,
    NodeStep,
    Pause,
    Pauses,
    performed,
    steps,
)
from aotlite.compiled_autograd.recorder import Place, note_forward
from aotlite.compiled_autograd.segment import Delivered, apart, saved_by
from aotlite.compiled_autograd.structure import signatures
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.new_tensors import tensor_over, tensors_over
from aotlite.eager.base.tape.hooks import HookChanges
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import array_over, copied
from aotlite.ir.errors import AutogradError, GraphError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.effects import RUNNING
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


class Left(BaseException):
    """Raised by a call, through the graph's code: a hook raised, or the rest is another one."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error


class OneTapeRun(RecordedRun):
    """A backward that runs by one graph as far as that holds, and then by segments."""

    one: OneTape

    def begin(self, one: OneTape, learned: Learned) -> None:
        """Sets what the run needs besides the tape."""
        self.one, self.learned = one, learned
        self.step: NodeStep | None = None
        self.paused: Pauses | None = None
        self.pause: Pause | None = None
        self.reason = ""
        """Why the graph was left, or was not entered; empty if it ran to its end."""
        self.is_new = False
        """Whether a call gave what it was not known to give."""
        self.errors = np.geterr()

    def at(self, place: Place) -> Tensor | None:
        if place[0] == "grads" or place[0] == "found":
            assert self.step is not None
            grads: Any = self.step.grads if place[0] == "grads" else self.step.found
            found: Tensor | None = grads[place[1]]
            return found
        return super().at(place)

    # --- the whole
    def go(self) -> list[Tensor | None]:
        """Runs the backward; the gradients of the sinks."""
        one = self.one
        self._watch()
        values, metas = self._values(), [value.meta for value in one.pure.outputs]  # type: ignore
        buffers = {id(window_of(value)[0]) for value in values} if one.shared else ()
        before, RUNNING.call = RUNNING.call, self.call
        failed: Exception | None = None
        try:
            assert one.run is not None
            results = one.run.called(values)
        except Left as left:
            failed = left.error
        except Exception as error:
            note_forward(error, enumerate(self.nodes))
            raise
        else:
            if buffers:
                results = [apart(r, m, buffers) for r, m in zip(results, metas, strict=True)]
            found = tensors_over(results, metas)
            for made, version in zip(found, one.versions, strict=True):
                if version and made is not None:
                    made.storage.version = version
            del results
            return self._delivered(found)
        finally:
            RUNNING.call = before
        if failed is not None:
            raise failed
        return self._left()

    def _values(self) -> list[Value]:
        """The values of the inputs that are read."""
        one, saved = self.one, dict[int, Any]()
        values = []
        assert one.pure is not None and one.run is not None
        pairs = zip(one.places, one.pure.placeholders, one.run.reads, strict=True)
        for place, node, is_read in pairs:
            if not is_read:
                continue
            value: Any
            if place[0] == "call":
                value = np.array(place[1]), 0
            elif place[0] == "saved":
                number = place[1]
                if number not in saved:
                    node_of = self.nodes[number]
                    is_custom = type(node_of) is CustomNode
                    saved[number] = (saved_records if is_custom else saved_by)(node_of)
                value = saved[number][place[2]]
                if type(value) is SavedTensor:
                    tensor = value.tensor
                    value = tensor.storage.buffer, tensor.offset
            else:
                grad = self.at(place)
                assert grad is not None
                value = grad.storage.buffer, grad.offset
            values.append(as_value(value, node.meta))
        return values

    def _delivered(self, found: list[Tensor | None]) -> list[Tensor | None]:
        """Gives the results to sinks and leaves."""
        one, values = self.one, Delivered(found, self)
        collected = [values.at(of) for of in one.sinks]
        leaves = [(number, values.at(of)) for number, of in one.leaves]
        self._release(one.ran)
        self._buffers, self.collected, self.step = {}, collected, None
        del values
        found.clear()
        leaves.reverse()
        while leaves:
            number, grad = leaves.pop()
            given = [grad]
            del grad
            self.nodes[number].run(given)
        return self.collected

    def _release(self, numbers: tuple[int, ...]) -> None:
        if not self.retain:
            for number in numbers:
                self.nodes[number].release()

    # --- calls
    def call(self, number: int, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Performs a call of the graph: its results. Raises Left."""
        call = self.one.calls[number]
        mode = STATE.grad_mode
        STATE.grad_mode = False
        try:
            with np.errstate(**self.errors):
                if type(call) is Accumulation:
                    self._accumulate(call, operands)
                    return ()
                assert type(call) is TapeCall
                self._perform(number, call, operands)
        except Exception as error:
            raise Left(error) from error
        finally:
            STATE.grad_mode = mode
        return tuple([_snapshot(self.at(place), meta) for place, meta in call.results])

    def _accumulate(self, call: Accumulation, operands: tuple[Any, ...]) -> None:
        of = call.value
        grad = _own(operands[0], call.meta, call.version) if of == 0 else self.at(of)
        given = [grad]
        del grad
        self.nodes[call.node].run(given)

    def _perform(self, number: int, call: TapeCall, operands: tuple[Any, ...]) -> None:
        self._enter(call, operands)
        pause = self.pause
        if pause is None or pause.told != call.pause:
            self._leave(f"a hook of {self.nodes[call.node].name()} is another one than expected")
        assert pause is not None
        step: Any = self.step
        answer = performed(self, step, pause)
        seen = _outcome(pause, answer, step)
        self._send(answer)
        if self.pause is None and step.found is not None and not self.retain:
            step.node.release()
        self._check(number, call, seen)

    def _enter(self, call: TapeCall, operands: tuple[Any, ...]) -> None:
        """Makes the gradients in flight tensors, and goes to the pause."""
        found: list[Tensor | None] = [_own(operands[k], meta, at) for k, meta, at in call.operands]
        values, frame = Delivered(found, self), call.frame
        buffers = {self.nodes[k]: [values.at(of) for of in row] for k, row in frame.buffers}
        sinks = [values.at(of) for of in frame.sinks]
        grads = None if frame.grads is None else [values.at(of) for of in frame.grads]
        given = None if frame.found is None else [values.at(of) for of in frame.found]
        self._release(call.ran)
        self._buffers, self.collected = buffers, sinks
        if call.begins:
            self.step = NodeStep(self.nodes[call.node], grads)
            self.paused = steps(self, self.step)
            self.pause = next(self.paused, None)
        else:
            assert self.step is not None
            for mine, new in ((self.step.grads, grads), (self.step.found, given)):
                if mine is not None and new is not None:
                    mine[:] = new
        if call.gives and self.pause is not None and self.pause.kind == RUN:
            self._send(self.nodes[call.node].gathered(given or ()))  # behind it, hooks see all

    def _send(self, answer: Any) -> None:
        assert self.paused is not None
        try:
            self.pause = self.paused.send(answer)
        except StopIteration:
            self.pause = None
            if self.step is not None:
                self.step.grads = None

    def _leave(self, reason: str) -> None:
        self.reason = reason
        raise Left(None)

    # --- what the rest of the graph expects
    def _check(self, number: int, call: TapeCall, seen: tuple[Any, ...]) -> None:
        """Leaves the graph unless all is as it expects."""
        step: Any = self.step
        name = step.node.name()
        flight = signatures([grad for _, grad in in_flight(self, step)])
        if flight != call.in_flight:
            known = self.learned.get(number)
            if seen != known and UNKNOWN not in seen:
                self.learned[number], self.is_new = seen, True
            self._leave(f"{call.pause[0]} of {name}: it gave other gradients than expected")
        then = None if self.pause is None else self.pause.told
        if then != call.then:
            self._leave(f"{call.pause[0]} of {name}: it changed the hooks of the node")
        extra = step.node.extra
        if then is not None and (0 if extra is None else len(extra.post)) != call.posts:
            self._leave(f"{call.pause[0]} of {name}: it changed the hooks of the node")
        if not self._is_known(call):
            what = "hooks, leaves or variables of the rest"
            self._leave(f"{call.pause[0]} of {name}: it changed {what}")
        if not self._is_intact(call.rest, call.until):
            self._leave(f"{call.pause[0]} of {name}: it wrote or freed a saved value")

    def _is_known(self, call: TapeCall) -> bool:
        """Whether the nodes up to the next call have the forms with which they were recorded, and
        all later ones, too, if hooks have changed."""
        changes = HookChanges.count
        if self.tape.changes == changes:
            places = self.watched
            return all(map(self._is_as_before, _between(places, call.rest, call.until)))
        if not all(map(self._has_forms, self.one.order[call.rest :])):
            return False
        self.tape.changes = changes
        return True

    def _is_as_before(self, at: int) -> bool:
        """Whether the node at this place is as it was recorded; hooks have not changed."""
        number = self.one.order[at]
        node: Any = self.nodes[number]
        if type(node) is not AccumulateGrad:
            return self._has_form(number)
        form, leaf = self.bare[number], node.leaf
        if form[-1] is True and leaf is not None and leaf.meta is form[1] and not node.edges:
            return True
        return self._has_forms(number)

    def _has_forms(self, number: int) -> bool:
        """Whether a node has the forms with which it was recorded, with its hooks and without."""
        node = self.nodes[number]
        is_current = self.step is not None and node is self.step.node  # some hooks have run
        if not is_current and form_of(node) != self.tape.look.forms[number]:
            return False
        return self._has_form(number)

    def _has_form(self, number: int) -> bool:
        """Whether a node has the form with which it was recorded, without its hooks."""
        return self.forms.of(self.nodes[number]) == self.bare[number]

    def _watch(self) -> None:
        """Lists what the graph reads that Python may change: saved values, and leaves."""
        one, found = self.one, []
        for at, slots, absent in one.saved:
            node = self.nodes[one.order[at]]
            records = saved_records(node) if slots else []
            found.append((at, node, [records[k] for k in slots] if records else [], absent))
        self.saved, self.starts = found, [each[0] for each in found]
        self.watched = [
            at
            for at, number in enumerate(one.order)
            if type(self.nodes[number]) is AccumulateGrad or self.bare[number][0] is CustomNode
        ]

    def _is_intact(self, start: int, end: int) -> bool:
        """Whether the saved values that are read between these places are as they were saved."""
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        for _, node, records, absent in self.saved[first:last]:
            if is_freed(node):
                return False
            if type(node) is CompiledBackward:
                try:
                    node.check(absent)
                except AutogradError:
                    return False
            for record in records:
                tensor = None if record is None else record.tensor
                if record is None or tensor is None or tensor.storage.version != record.version:
                    return False
        return True

    # --- going on without the graph
    def _left(self) -> list[Tensor | None]:
        """Finishes the step in which the graph was left, as the engine does; then runs segments."""
        step: Any = self.step
        while self.pause is not None:
            self._send(performed(self, step, self.pause))
        node = step.node
        if step.found is not None:
            if not self.retain:
                node.release()
            for edge, grad in zip(node.edges, step.found, strict=True):
                if edge is not None and grad is not None:
                    self._give(edge, grad)
        self.step = self.paused = None
        return self._resumed(self.one.order.index(self.number[node]) + 1)

    def _resumed(self, start: int) -> list[Tensor | None]:
        """Runs the nodes from this place on by segments."""
        order, after = self.one.order, self.one.after
        pattern = start, self._pattern(order[start:])
        piece = after.get(pattern)
        if piece is None:
            after[pattern] = self.record(order, start)
            return self.collected
        return self.follow_from(piece, order, start)


def _between(places: list[int], start: int, end: int) -> list[int]:
    """Those of ascending places that are at least `start` and less than `end`."""
    return places[bisect_left(places, start) : bisect_left(places, end)]


def _own(operand: Any, meta: TensorMeta, version: int) -> Tensor:
    """A tensor with a copy of an operand: a hook may keep it, and write it."""
    made = tensor_over(copied(meta.device.arrays, operand, meta), meta)
    made.storage.version = version
    return made


def _snapshot(tensor: Tensor | None, meta: TensorMeta) -> Any:
    """A copy of a gradient, which Python may write later, for the graph."""
    if tensor is None:
        raise GraphError("one tape: a gradient that a call gives is missing")
    arrays = meta.device.arrays
    source = array_over(arrays, tensor.storage.buffer, tensor.meta, tensor.offset)
    return array_over(arrays, copied(arrays, source, meta), meta)


def _outcome(pause: Pause, answer: Any, step: NodeStep) -> tuple[Any, ...]:
    """What a call gave, as `program.Learned` has it."""
    if pause.kind == OF_TENSOR:
        grads: Any = step.grads
        return (SAME if answer is None else _kind_of(answer, (), step, grads[pause.index]),)
    if pause.kind in (OF_NODE, AFTER_NODE):
        if type(answer) is not tuple:
            return ()
        before: Any = step.grads if pause.kind == OF_NODE else step.found
        return tuple([_kind_of(x, answer[:k], step, before[k]) for k, x in enumerate(answer)])
    if pause.kind == RUN:
        return tuple([_kind_of(x, answer[:k], step, None) for k, x in enumerate(answer)])
    return ()


def _kind_of(given: Any, earlier: Sequence[Any], step: NodeStep, before: Tensor | None) -> Any:
    if given is None or given is before:
        return None if given is None else SAME
    for name, grads in (("grads", step.grads or ()), ("found", earlier)):
        for index, grad in enumerate(grads):
            if grad is given:
                return name, index
    return given.meta if isinstance(given, Tensor) and is_plain(given) else UNKNOWN
