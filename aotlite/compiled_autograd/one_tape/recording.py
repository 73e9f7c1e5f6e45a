"""Records a whole tape as one graph, with a call wherever Python runs.

The steps of the nodes (`steps`) run on fakes in the engine's order. At a pause for a hook nothing
is called: the graph gets a call, and the fakes of all gradients that Python may have changed are
replaced by its results. So a recording has no effects, and may be given up at any time.
Rules: CAG-3, CAG-25, CAG-27. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import attrs

from aotlite.compiled_autograd.execution import TapeRun
from aotlite.compiled_autograd.node_signatures import CLOSED, Form, is_plain
from aotlite.compiled_autograd.one_tape.custom_backwards import Again, Called
from aotlite.compiled_autograd.one_tape.forms import TapeForms
from aotlite.compiled_autograd.one_tape.program import (
    SAME,
    Accumulation,
    Frame,
    Learned,
    NotOneGraph,
    OneTape,
    TapeCall,
)
from aotlite.compiled_autograd.one_tape.steps import (
    ACCUMULATE,
    AFTER_LEAF,
    OF_NODE,
    OF_TENSOR,
    RETAIN,
    RUN,
    NodeStep,
    Pause,
    Pauses,
    steps,
)
from aotlite.compiled_autograd.recorder import Closed, Place, TapeRecorder, node_note
from aotlite.compiled_autograd.segment_recording import Values
from aotlite.compiled_autograd.structure import signatures
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import OpNode, SliceAssign
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.dtypes import int64
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.ops.effects import ACCUMULATE_GRAD, CALL_BACKWARD, CALL_HOOK
from aotlite.ir.provenance.scope import COMPILATION, TAPE_NODE, Scope
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import NOTHING_ABSENT

_NUMBER = tensor_meta((), None, int64)
CALLED = "called"
"""The tag of a `call_backward`: why the node is not recorded (CAG-30)."""


class RecordedRun(TapeRun):
    """A backward of which it is known what each node is in the graph."""

    forms: TapeForms
    bare: list[Form]
    """The forms of the nodes without their hooks."""
    stale: frozenset[int]
    """The nodes of which a saved value was written since: they are called, and raise."""


class _WholeRecorder(TapeRecorder):
    """The tracer: it knows the places of gradients that pass through from the call before."""

    def __init__(self, place_of: Callable[[Tensor], Place]) -> None:
        super().__init__(place_of)
        self.known: dict[int, Place] = {}
        """The id of a fake -> its place in the state after the call before."""
        self.alive: list[Tensor] = []

    def place_in(self, fake: Tensor) -> Place | None:
        return self.known.get(id(fake))

    def scope_of(self, node: TapeNode, number: int) -> Scope:
        """The tape node; and the compilation, which a template of sizes would not know."""
        tags: dict[str, Any] = {TAPE_NODE: node_note(node, number)}
        if type(node) is CompiledBackward:
            tags[COMPILATION] = node.plan.number
        return Scope("", tags)

    def custom(self, node: CustomNode, number: int, run: Callable[[TapeNode], Any]) -> Any:
        """The gradients of a custom function, recorded by its backward. Raises Called."""
        self._number, self.kept[number] = number, NOTHING_ABSENT
        self.marker.scope = self.scope_of(node, number)
        twin, ctx = copy(node), copy(node.ctx)
        twin.ctx, ctx._kept, fakes = ctx, [], []
        for slot, each in enumerate(node.ctx._kept or ()):
            stand = None
            if each is not None:
                meta, name = each.record.tensor.meta, f"{node.name().lower()}_{number}_{slot}"
                fakes.append(self.lift(("saved", number, slot), meta, name))
                stand = copy(each)
                stand.record = SavedTensor(fakes[-1])
            ctx._kept.append(stand)
        storages = {id(each.storage): each.storage.version for each in fakes}
        found = run(twin)
        if any(each.storage.version != storages[id(each.storage)] for each in fakes):
            raise Called("it writes a saved tensor")
        if any(each is not None and id(each.storage) in storages for each in found):
            raise Called("it gives a saved tensor")
        return found

    def call(self, op: Any, args: tuple[object, ...], metas: tuple[TensorMeta, ...]) -> Any:
        """Records a call, past the refusal of effects in formulas."""
        return super(TapeRecorder, self).record(op, args, metas)


def in_flight(run: TapeRun, step: NodeStep | None) -> Iterator[tuple[Place, Any]]:
    """All gradients in flight, by place: at nodes, at sinks, and in the step that has begun."""
    for node in run._arrived():
        for index, grad in enumerate(run._buffers[node]):
            yield ("at", run.number[node], index), grad
    for index, grad in enumerate(run.collected):
        yield ("sink", index), grad
    if step is not None:
        for name, grads in (("grads", step.grads), ("found", step.found)):
            for index, grad in enumerate(grads or ()):
                yield (name, index), grad


class OneTapeRecorder:
    """One recording of a tape."""

    def __init__(self, run: RecordedRun, order: Sequence[int]) -> None:
        self.run, self.order, self.bare = run, order, run.bare
        self.called: dict[int, str] = {}
        """Why nodes are called which might be recorded, by number."""
        self.learned: Learned = {}
        self.calls: list[TapeCall | Accumulation] = []
        self.ran: list[int] = []
        """The nodes that have run since the last call."""
        self.done = 0
        """How many nodes have run, in order."""
        self.exposed: set[int] = set()
        """The ids of the storages that Python may write."""
        places = run.places()
        self.recorder = _WholeRecorder(lambda tensor: places[id(tensor)])

    # --- the tape
    def record(self, learned: Learned) -> OneTape:
        """The recorded tape; the gradients in flight are those before. Raises NotOneGraph."""
        run, self.learned = self.run, learned
        before, collected = run._buffers, run.collected
        run._buffers = {node: list(map(self._arrived, row)) for node, row in before.items()}
        run.collected = list(collected)
        retain, run.retain = run.retain, True
        run.recorder = STATE.recorder = self.recorder
        try:
            for place in self.order:
                self._node(place)
            return self._ended()
        except Closed as error:
            raise NotOneGraph("a formula draws or has an effect") from error
        except (NotOneGraph, Again):
            raise
        except Exception as error:  # nothing has happened: the engine says what is wrong, if it is
            raise NotOneGraph(f"a formula raises {type(error).__name__}") from error
        finally:
            STATE.recorder = run.recorder = None
            run.retain = retain
            run._buffers, run.collected = before, collected
            self.recorder.close()

    def _arrived(self, grad: Tensor | None) -> Tensor | None:
        """The fake of a gradient that comes from outside: hooks may write it."""
        if grad is None:
            return None
        if not is_plain(grad):
            raise NotOneGraph("a gradient is a wrapper")
        fake = self.recorder.here(grad)
        self.exposed.add(id(fake.storage))
        self.recorder.known[id(fake)] = self.recorder.place_of(grad)
        return fake

    def _node(self, number: int) -> None:
        run = self.run
        node = run.nodes[number]
        if STATE.wrappers and node.extra is not None and node.extra.forms:
            raise NotOneGraph("a tape node makes wrappers")
        step = NodeStep(node, run._buffers.pop(node, None))
        paused = steps(run, step)
        pause = next(paused, None)
        begins, gives = True, False
        while pause is not None:
            found = self._formula(node, number, step) if pause.kind == RUN else None
            if found is not None:
                gives = True
                pause = _sent(paused, found)
            else:
                pause = self._call(number, step, paused, pause, begins=begins, gives=gives)
                begins, gives = False, False
        self.done += 1
        if step.found is None:
            return
        self.ran.append(number)
        for edge, grad in zip(node.edges, step.found, strict=True):
            if edge is not None and grad is not None:
                run._give(edge, grad)

    def _formula(self, node: TapeNode, number: int, step: NodeStep) -> Any:
        """The gradients of a node's edges, recorded by its formula; None if it is called."""
        run, recorder, grads = self.run, self.recorder, step.grads
        assert grads is not None
        if self.bare[number][0] == CLOSED or number in run.stale:
            self.called[number] = run.forms.why_called(node)
            return None
        wanted = None if run.sinks is None else run.sinks.wanted_of(node)

        def recorded(twin: TapeNode) -> Any:
            return run._recorded(twin, grads=grads)

        if type(node) is not CustomNode:
            return recorder.run(node, number, grads, wanted, self.bare[number], recorded)
        try:
            return recorder.custom(node, number, recorded)
        except Called as reason:
            why = str(reason)
        except Closed:
            why = "it draws or has an effect"
        except Exception as error:  # the engine raises it, if it does
            why = f"it raises {type(error).__name__} while it is recorded"
        run.forms.failed(self.bare[number], why)
        raise Again

    # --- calls
    def _call(
        self,
        number: int,
        step: NodeStep,
        paused: Pauses,
        pause: Pause,
        *,
        begins: bool,
        gives: bool,
    ) -> Pause | None:
        """Records a call at a pause of a step; the next pause."""
        self._flush()
        recorder, run = self.recorder, self.run
        recorder.marker.scope = recorder.scope_of(step.node, number)
        values = Values(recorder, recorder.place_of)
        frame = self._frame(values, step)
        args = self._args(step, pause)
        self.exposed |= {id(each.storage) for each in args}
        others = [each for each in values.results if all(each is not arg for arg in args)]
        places = {id(each): k for k, each in enumerate([*args, *others])}
        operands = tuple(
            [(places[id(each)], each.meta, each.storage.version) for each in values.results]
        )
        call = TapeCall(number, pause.told, operands, frame, begins, gives, tuple(self.ran))
        self.ran = []
        fresh = self._replace(step)
        answer = self._answer(step, pause, self.learned.get(len(self.calls)), fresh)
        then = _sent(paused, answer)
        if then is None:
            step.grads = None
        flight = list(in_flight(run, step))
        found = {id(grad): (place, grad) for place, grad in reversed(flight) if id(grad) in fresh}
        call.results = tuple([(place, grad.meta) for place, grad in found.values()])
        self._emit(step.node, pause, args, others, list(found.values()))
        recorder.known = {key: place for key, (place, _) in found.items()}
        call.in_flight = signatures([grad for _, grad in flight])
        call.then = None if then is None else then.told
        call.posts = 0 if step.node.extra is None else len(step.node.extra.post)
        call.rest = self.done + (then is None or then.kind != RUN)
        self.calls.append(call)
        return then

    def _emit(
        self,
        node: TapeNode,
        pause: Pause,
        args: list[Tensor],
        others: list[Tensor],
        results: list[tuple[Place, Tensor]],
    ) -> None:
        """Adds the call to the graph; its results become the values of these fakes."""
        recorder, number = self.recorder, len(self.calls)
        kind, metas = pause.kind, tuple([fake.meta for _, fake in results])
        op = _OPS.get(kind, CALL_HOOK)
        handle = recorder._input(("call", number), _NUMBER, f"{kind}_{number}")
        values = tuple([each.value for each in args]), tuple([each.value for each in others])
        text = "; ".join(map(meta_text, metas))
        told = node.name() if kind == RUN else kind
        if kind == RUN:
            reason = self.called[self.run.number[node]]
            recorder.marker.scope = tagged(recorder.marker.scope, reason)
        made = recorder.call(op, (told, handle, *values, text), metas)
        for (_, fake), value in zip(results, made, strict=True):
            fake.value = value

    def _flush(self) -> None:
        """Records the sums into leaves whose turn has come."""
        recorder = self.recorder
        for number, grad in recorder.pending:
            place = recorder.place_in(grad)
            recorder.marker.scope = recorder.scope_of(self.run.nodes[number], number)
            self._emit(self.run.nodes[number], Pause(ACCUMULATE), [grad], [], [])
            value = 0 if place is None else place
            self.calls.append(Accumulation(number, grad.meta, grad.storage.version, value))
        recorder.pending = []

    def _frame(self, values: Values, step: NodeStep | None) -> Frame:
        run = self.run

        def row(grads: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(map(values.seen, grads))

        buffers = tuple([(run.number[node], row(run._buffers[node])) for node in run._arrived()])
        frame = Frame(buffers, row(run.collected))
        if step is None:
            return frame
        grads = None if step.grads is None else row(step.grads)
        return attrs.evolve(
            frame, grads=grads, found=None if step.found is None else row(step.found)
        )

    def _args(self, step: NodeStep, pause: Pause) -> list[Tensor]:
        """The different gradients that Python gets."""
        if pause.kind in (OF_TENSOR, RETAIN):
            asked = [step.grads[pause.index]] if step.grads else []
        elif pause.kind == AFTER_LEAF:
            asked = []
        else:
            asked = [*(step.found or ()), *(step.grads or ())]
        return list({id(each): each for each in asked if each is not None}.values())

    def _replace(self, step: NodeStep) -> dict[int, Tensor]:
        """Puts a new fake in the place of each gradient in flight that Python may have changed."""
        run = self.run
        new: dict[int, Tensor] = {}
        fresh: dict[int, Tensor] = {}

        def later(grad: Tensor | None) -> Tensor | None:
            if grad is None or id(grad.storage) not in self.exposed:
                return grad
            if id(grad) not in new:
                made = new[id(grad)] = self._fake(grad.meta, fresh)
                self.recorder.alive += (grad, made)
            return new[id(grad)]

        for row in (*run._buffers.values(), run.collected, step.grads, step.found):
            if row is not None:
                row[:] = map(later, row)
        return fresh

    def _fake(self, meta: TensorMeta, fresh: dict[int, Tensor]) -> Tensor:
        """A gradient that a call gives; its value is known when the call is recorded."""
        made = Tensor(Storage(None, capture=self.recorder), meta)
        self.recorder.alive.append(made)
        self.exposed.add(id(made.storage))
        fresh[id(made)] = made
        return made

    def _answer(
        self,
        step: NodeStep,
        pause: Pause,
        learned: tuple[Any, ...] | None,
        fresh: dict[int, Tensor],
    ) -> Any:
        """What the call gives: what it gave when it ran, or the gradients that it got."""
        if pause.kind == RUN:
            given = self._guessed(step.node) if learned is None else learned
            return self._given(given, step, None, fresh)
        if learned is None or all(each == SAME for each in learned):
            return None
        if pause.kind == OF_TENSOR:
            return self._given(learned, step, None, fresh)[0]
        before = step.grads if pause.kind == OF_NODE else step.found
        return tuple(self._given(learned, step, before, fresh))

    def _given(
        self, learned: Sequence[Any], step: NodeStep, before: Any, fresh: dict[int, Tensor]
    ) -> list[Any]:
        found: list[Any] = []
        for index, each in enumerate(learned):
            if each is None:
                found.append(None)
            elif each == SAME:
                found.append(before[index])
            elif type(each) is tuple:
                found.append((step.grads if each[0] == "grads" else found)[each[1]])  # type: ignore[index]
            else:
                found.append(self._fake(each, fresh))
        return found

    def _guessed(self, node: TapeNode) -> list[TensorMeta | None]:
        """The gradients that a node gives which is called: those of the results of its operands."""
        wanted = [True] * len(node.edges)
        if self.run.sinks is not None:
            wanted = self.run.sinks.wanted_of(node)
        given = node._given if type(node) is CustomNode else [None] * len(wanted)
        return [
            None if edge is None or not asked else own or _meta_at(edge)
            for edge, asked, own in zip(node.edges, wanted, given, strict=True)
        ]

    # --- the end
    def _ended(self) -> OneTape:
        recorder = self.recorder
        values = Values(recorder, recorder.place_of)
        leaves = tuple([(leaf, values.taken(grad)) for leaf, grad in recorder.pending])
        sinks = self._frame(values, None).sinks
        slots: dict[int, list[int]] = {}
        for place in recorder.places:
            if place[0] == "saved":
                slots.setdefault(place[1], []).append(place[2])
        saved = [
            (at, tuple(slots.get(node, ())), recorder.kept.get(node, NOTHING_ABSENT))
            for at, node in enumerate(self.order)
            if node in recorder.kept or node in slots
        ]
        until = len(self.order)
        for call in reversed(self.calls):
            if type(call) is TapeCall:
                call.until, until = until, self.order.index(call.node) + 1
        return OneTape(
            tuple(self.order),
            recorder.graph(values.results, "tape"),
            tuple(recorder.places),
            tuple(self.calls),
            tuple(saved),
            tuple(self.ran),
            leaves,
            sinks,
            tuple([each.storage.version for each in values.results]),
            {node_note(self.run.nodes[k], k): why for k, why in self.called.items()},
        )


_OPS = {RUN: CALL_BACKWARD, ACCUMULATE: ACCUMULATE_GRAD}


def tagged(scope: Scope | None, reason: str) -> Scope:
    """The scope of a call that says why it is one."""
    assert scope is not None
    return Scope(scope.module, {**scope.tags, CALLED: reason}, scope.is_backward)


def _sent(paused: Pauses, answer: Any) -> Pause | None:
    """Resumes a step; None at its end."""
    try:
        return paused.send(answer)
    except StopIteration:
        return None


def _meta_at(edge: Edge) -> TensorMeta:
    """The meta of the result to which an edge leads, which its gradient nearly always has."""
    node, index = edge
    meta: Any = None
    if type(node) is OpNode:
        meta = node.call.result
        meta = meta[index] if type(meta) is tuple else meta
    elif type(node) is AccumulateGrad:
        meta = None if node.leaf is None else node.leaf.meta
    elif type(node) is SliceAssign:
        meta = node.root_meta
    elif type(node) is CustomNode:
        meta = node.metas[index]
    elif type(node) is CompiledBackward:
        meta = node.plan.tangents[index][1]
    if type(meta) is not TensorMeta:
        raise NotOneGraph(
            f"the gradient that goes to {node.name()} is not known before it is there"
        )
    return meta
