"""`ModeRecorder`: the recorder of a mode that stands on whatever is active where it begins.

    eager, a capture, a fake mode, another stacked mode      the tensors outside
        ModeRecorder                                      stand-ins without data, and a tape
            f                                                the user's function

The function computes on stand-ins. They have the metas and the autograd state that eager's tensors
would have, so Python's decisions and autograd's errors are eager's. What an op computes, the mode
computes by ops on tensors outside, in `outside()`; these may be of a capture, whose graph gets the
ops then. `FunctionalRecorder` makes the ops pure, `TraceRecorder` makes nodes of them.
Rules: FNT-1, FNT-2. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import NO_COUNT, Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import note_refusal
from aotlite.eager.dispatch import dispatch
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.func.mode_state import OuterData, OuterScopes, OuterStreams, StandInGradients
from aotlite.func.state_changes import StateChanges
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op, RandomOp
from aotlite.stages.shared.memory.view_families import copy_autograd
from aotlite.stages.shared.tape_queries import passes_outside
from aotlite.stages.shared.user_frames import describe, user_location


class Outside:
    """A block in which ops run outside of a stacked mode, in `grad_mode` if it is given."""

    __slots__ = ("_before", "_grad_mode", "_recorder")

    def __init__(self, recorder: ModeRecorder, grad_mode: bool | None) -> None:
        self._recorder = recorder
        self._grad_mode = grad_mode

    def __enter__(self) -> None:
        self._before = STATE.recorder, STATE.watch, STATE.grad_mode
        STATE.recorder, STATE.watch = self._recorder.outer
        if self._grad_mode is not None and STATE.grad_mode is not None:
            STATE.grad_mode = self._grad_mode

    def __exit__(self, *error: object) -> None:
        STATE.recorder, STATE.watch, STATE.grad_mode = self._before


class StandInNumbers:
    """The elements of a stand-in, which are asked for outside."""

    def __init__(self, recorder: ModeRecorder, tensor: Tensor) -> None:
        self._recorder = recorder
        self._tensor = tensor

    def tolist(self) -> Any:
        """The elements as Python's numbers; one number where there is one."""
        outer = self._recorder.outer_of(self._recorder.here(self._tensor))
        with self._recorder.outside(False):
            return outer.item() if outer.numel() == 1 and not outer.ndim else outer.tolist()


class ModeRecorder:
    """Runs a function on stand-ins of tensors outside. The eager engine calls it for each op."""

    mode, verb = "functionalize", "functionalized"
    eager_values: Any = None
    closed = unrecorded = False
    refusal: BaseException | None = None
    origin: Any = None
    recompute: bool | None = None
    failed: Any = None

    def __init__(self) -> None:
        self.outer = STATE.recorder, STATE.watch
        self.stand_ins: dict[int, Tensor] = {}
        """By the id of a tensor outside: its stand-in."""
        self.given: dict[int, Tensor] = {}
        """By the id of such a stand-in: the tensor, as the caller has it."""
        self.entries: list[tuple[Tensor, Edge | None, Tensor]] = []
        """Each stand-in with the history of a tensor outside: its edge at entry, that tensor."""
        self.storages: dict[int, tuple[Storage, Storage]] = {}
        """By the id of a storage outside: it, and the one of its stand-ins."""
        self.outer_storages: dict[int, Storage] = {}
        """By the id of such a storage of stand-ins: the one outside."""
        self.changes: Any = StateChanges(self)
        self.hooks = self.changes
        self.grads, self.streams = StandInGradients(self), OuterStreams(self)
        self.data, self.scopes = OuterData(self), OuterScopes(self)

    # --- outside
    def outside(self, grad_mode: bool | None = None) -> Outside:
        """A block in which ops run on the tensors outside, as where the mode began."""
        return Outside(self, grad_mode)

    def emit(self, op: Op, args: tuple[object, ...], grad_mode: bool | None = None) -> Any:
        """The result of an op on tensors outside."""
        watch = STATE.watch
        if watch is not None and watch.pack is not None and watch is not self.outer[1]:
            raise self.refuse(
                "saved_tensors_hooks inside", "enter saved_tensors_hooks around the call"
            )
        with Outside(self, grad_mode):
            return dispatch(op, args)

    def outer_of(self, tensor: Tensor) -> Tensor:
        """The tensor outside that has this tensor's value now."""
        raise AssertionError("each mode says what it computes")

    def outer_args(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with the tensors outside in place of stand-ins."""
        return tuple([self._outer_arg(value) for value in args])

    def _outer_arg(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.outer_of(value)
        return self.outer_args(value) if type(value) is tuple else value

    def made(self, outer: Tensor, meta: Any) -> Any:
        """The record of a stand-in for a new tensor outside."""
        raise AssertionError("each mode says what it records")

    def drawn(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """The record of a draw, which happens outside."""
        raise AssertionError("each mode says what it records")

    # --- tensors from outside
    def here(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor; a stand-in itself."""
        if tensor.storage.capture is self:
            return tensor
        found = self.stand_ins.get(id(tensor))
        return self._lift(tensor) if found is None else found

    def admit(self, args: tuple[object, ...]) -> tuple[Any, ...]:
        """The arguments with stand-ins for all tensors."""
        for i, value in enumerate(args):
            if isinstance(value, Tensor):
                if value.storage.capture is not self:
                    args = (*args[:i], self.here(value), *args[i + 1 :])
            elif type(value) is tuple and value and isinstance(value[0], Tensor):
                args = (*args[:i], self.admit(value), *args[i + 1 :])
        return args

    def _lift(self, tensor: Tensor) -> Tensor:
        if is_wrapper(tensor):
            raise self.refuse(
                f"a wrapper {type(tensor).__name__}", "pass its inner tensors, or use it outside"
            )
        recorder = self.outer[0]
        outer: Tensor = tensor if recorder is None else recorder.here(tensor)
        self.check_outer(outer)
        stand_in = Tensor(self._storage_of(outer), outer.meta, outer.offset)
        kind = type(tensor)
        stand_in.__class__ = kind if "__slots__" in vars(kind) else Tensor
        copy_autograd(outer, stand_in, requires_grad=outer.requires_grad_outside())
        self.stand_ins[id(tensor)] = self.stand_ins[id(outer)] = stand_in
        self.given[id(stand_in)] = tensor
        self.met(stand_in, outer)
        self.entries.append(
            (stand_in, edge_of(stand_in) if stand_in._kind is None else None, tensor)
        )
        return stand_in

    def met(self, stand_in: Tensor, outer: Tensor) -> None:
        """A tensor from outside is used for the first time: its stand-in gets its record."""
        raise AssertionError("each mode says what it records")

    def check_outer(self, outer: Tensor) -> None:
        """Refuses a tensor that belongs to a capture that does not run, or has no data."""
        if outer.storage.buffer is None and outer.storage.capture is not self.outer[0]:
            raise outer.storage.no_data(self.mode)

    def _storage_of(self, outer: Tensor) -> Storage:
        known = self.storages.get(id(outer.storage))
        if known is None:
            made = Storage(None, writable=outer.storage.writable, capture=self)
            made.version = 0 if type(outer.storage.version) is int else NO_COUNT
            known = self.storages[id(outer.storage)] = outer.storage, made
            self.outer_storages[id(made)] = outer.storage
        return known[1]

    def is_outside(self, tensor: Tensor) -> bool:
        return tensor.storage.capture is not self or id(tensor) in self.given

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        first, second = self.here(a), self.here(b)
        if first.storage is second.storage:
            return True
        one, other = self.memory_outside(first), self.memory_outside(second)
        if one is None or other is None:
            return False
        if self.outer[0] is not None:
            with self.outside():
                return bool(self.outer[0].is_one_memory(one, other))
        return one.storage.buffer is other.storage.buffer

    def memory_outside(self, stand_in: Tensor) -> Tensor | None:
        """The tensor outside in whose memory a stand-in lies; None if that is not known."""
        return self.given.get(id(stand_in))

    def note_offset_read(self, tensor: Tensor) -> None:
        recorder, given = self.outer[0], self.given.get(id(self.here(tensor)))
        if recorder is not None and given is not None:
            with self.outside():
                recorder.note_offset_read(given)

    def constant(self, data: object, tensor: Tensor) -> Tensor:
        recorder = self.outer[0]
        with self.outside():
            outer = tensor if recorder is None else recorder.constant(data, tensor)
        return self.new(outer, outer.meta)

    def new(self, outer: Tensor, meta: Any) -> Tensor:
        """A stand-in for a new tensor outside."""
        made = Tensor(Storage(None, capture=self), meta)
        made.value = self.made(outer, meta)
        return made

    def known(self, tensor: Tensor) -> Any:
        """The numbers of a tensor, by the tensor outside that Python may ask for them."""
        return StandInNumbers(self, tensor)

    # --- autograd inside
    def ask_gradients(self, inputs: Sequence[Any]) -> None:
        """Gradients of any input may be asked for: hooks of stand-ins are the function's own."""

    def check_paths(self, starts: Sequence[Edge | None], sinks: Sequence[Edge | None]) -> None:
        outside = [(entry, edge_of(outer)) for _, entry, outer in self.entries if entry is not None]
        if passes_outside(starts, sinks, outside):
            raise self.refuse(
                "the gradient of a tensor from outside by another, which it was computed from,",
                "ask for the gradient outside, or compute the tensor inside the function",
            )

    def run_before(self, node: TapeNode) -> None:
        """Nothing is noted of the node of a backward inside."""

    def backward_inside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def summed(self, add: Callable[..., Any], *args: object) -> Any:
        return add(*args)

    def count_tape_node(self) -> None:
        """Nodes of the tape inside are not numbered."""

    def apply(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The results of a custom function, which runs outside: so its backward does, too.

        Raises UnsupportedError for one that returns an operand or a view of one, or writes one.
        """
        given, named = self.admit(args), dict(kwargs)
        outer = self.outer_args(given)
        operands = [each for each in outer if isinstance(each, Tensor)]
        before = [each.storage.version for each in operands]
        with self.outside():
            found = function.apply(*outer, **named)
        several = found if isinstance(found, tuple) else (found,)
        storages = {id(each.storage) for each in operands}
        same = any(isinstance(x, Tensor) and id(x.storage) in storages for x in several)
        if same or before != [each.storage.version for each in operands]:
            raise self.refuse(
                f"a custom Function, {function.__name__}, that writes or returns an operand",
                "return a clone() from its forward",
            )
        made = [self._with_history(x) if isinstance(x, Tensor) else x for x in several]
        return tuple(made) if isinstance(found, tuple) else made[0]

    def drawn_from(self, generator: Any, op: RandomOp, args: tuple[Any, ...]) -> Tensor:
        """The result of a draw from a generator of the user's own, which is outside."""
        with self.outside():
            outer: Tensor = generator.draw(op, self.outer_args(self.admit(args)))
        return self.new(outer, outer.meta)

    def _with_history(self, outer: Tensor) -> Tensor:
        """A stand-in for a new tensor outside, with its history."""
        made = self.new(outer, outer.meta)
        copy_autograd(outer, made, requires_grad=outer.requires_grad_outside())
        self.entries.append((made, edge_of(made), outer))
        return made

    def record_wrapped(self, op: Op, args: object, outs: object, meta: object) -> Any:
        raise self.refuse(f"{op.name} that returns a wrapper", "use plain tensors")

    # --- Modules
    def read_attribute(self, owner: object, name: str, value: Any) -> Any:
        recorder = self.outer[0]
        return value if recorder is None else recorder.read_attribute(owner, name, value)

    def read_absent(self, owner: object, name: str) -> None:
        if self.outer[0] is not None:
            self.outer[0].read_absent(owner, name)

    def created(self, thing: object) -> None:
        if self.outer[0] is not None:
            self.outer[0].created(thing)

    def is_created(self, thing: object) -> bool:
        return self.outer[0] is None or self.outer[0].is_created(thing)

    # --- refusals
    def refuse(self, what: str, advice: str) -> Exception:
        error = UnsupportedError(
            f"{self.mode}: {what} cannot be {self.verb}, expected a function without it"
        )
        place = describe(user_location())
        return note_refusal(noted(error, place, f"Instead: {advice}."), self)
