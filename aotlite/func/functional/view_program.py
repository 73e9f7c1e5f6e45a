"""Results of a functionalized call: eager's views, on the final values of their memory.

Values inside are pure. A result is made at the end: its root is the tensor outside, or the final
value of memory that the function made; the views between the root and the result are taken again,
in the order, and the grad modes, in which the function took them, together with what changes a
tensor object (`t_`, `set_`). So results alias inputs and each other as eager's do, in eager's
strides, with eager's bases. Rules: FNT-7, FNT-8. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.memory import WrittenMemory
from aotlite.func.functional.tensor_history import OwnHistory
from aotlite.func.mode_protocol import FunctionalMode
from aotlite.ir.op import GeometryOp, MultiViewOp, Op
from aotlite.ir.ops.shape.copies import COPY_, RESTRIDE
from aotlite.ir.ops.views.view_ops import ALIAS

TIMES = itertools.count(1)


@attrs.define(eq=False, repr=False)
class ViewCall:
    """A call of a view op; one for all results of a multi-output view."""

    op: Op
    parent: Tensor
    args: tuple[Any, ...]
    version: int
    """The version of the memory at the call."""
    grad_mode: bool = attrs.field(factory=lambda: bool(STATE.grad_mode))
    time: int = attrs.field(factory=lambda: next(TIMES))


@attrs.frozen(eq=False, repr=False)
class ViewResult:
    """How a tensor was made: by a view call, of which it is result `index`."""

    call: ViewCall
    index: int | None = None


@attrs.define(eq=False, repr=False)
class ObjectChange:
    """A change of a tensor object that is no write: a geometry op, `set_`, `resize_`."""

    target: Tensor
    apply: Callable[[Tensor, ViewProgram], None]
    needs: tuple[Tensor, ...] = ()
    grad_mode: bool = attrs.field(factory=lambda: bool(STATE.grad_mode))
    time: int = attrs.field(factory=lambda: next(TIMES))


def geometry_change(op: GeometryOp, args: tuple[Any, ...]) -> ObjectChange:
    """The replay of a geometry op."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        program.recorder.emit(op, (target, *args[1:]))

    return ObjectChange(args[0], apply)


def set_change(target: Tensor, window: Tensor) -> ObjectChange:
    """The replay of `set_`."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        with program.recorder.outside(False):
            target.set_(program.objects[id(window)])

    return ObjectChange(target, apply, (window,))


def resize_change(target: Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> ObjectChange:
    """The replay of a `resize_` that does not grow."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        with program.recorder.outside():
            target.resize_(shape)
            if target.stride() != stride:
                target.as_strided_(shape, stride)

    return ObjectChange(target, apply)


@attrs.define(eq=False, repr=False)
class ViewProgram:
    """The views and changes that results need."""

    recorder: FunctionalMode
    objects: dict[int, Tensor] = attrs.field(factory=dict)
    """By the id of a stand-in: the tensor that is returned for it."""
    counts: dict[int, tuple[Storage, Storage, int]] = attrs.field(factory=dict)
    """By the id of a storage that is returned: it, that of the stand-in, its version at entry."""

    def run(self, wanted: Iterable[Tensor]) -> None:
        """Makes the objects of these stand-ins."""
        steps: list[tuple[int, Callable[[], None]]] = []
        calls: dict[int, list[tuple[Tensor, ViewResult]]] = {}
        needed = self._needed(wanted)
        for each in needed:
            for change in self.recorder.object_changes.get(id(each), ()):
                steps.append((change.time, partial(self._change, change)))
            alias = self.recorder.first_alias(each)
            if id(each) in self.recorder.given:
                self._know(each, self.recorder.given[id(each)])
            elif alias.made is None:
                self._know(each, self._root(alias.memory, each))
            else:
                calls.setdefault(id(alias.made.call), []).append((each, alias.made))
        for several in calls.values():
            steps.append((several[0][1].call.time, partial(self._view, several)))
        own = self._own_histories(needed)
        restricted = bool(self.recorder.object_changes) or any(
            _restricts(several[0][1].call) for several in calls.values()
        )
        restricted = restricted or any(each.owner is not None for _, each, _ in own)
        for memory in self.recorder.input_memory.written():
            if memory.is_grown:
                at = partial(self._flat, memory.handle, memory)
                steps.append((next(TIMES), self._copy_bytes(memory, at)))
                continue
            time = memory.written[0] if restricted and memory.has_new_history else 0
            steps.append((time, self._copy_back(memory)))
        for each in needed:
            alias = self.recorder.first_alias(each)
            memory = alias.memory
            if memory.is_grown and memory.handle is None and alias is memory.tensors.root:
                at = partial(self._flat_of, each, memory)
                steps.append((next(TIMES), self._copy_bytes(memory, at)))
        for memory, history, owner in own:
            time = (
                history.written[0] if history.written and (restricted or owner is not None) else 0
            )
            steps.append((time, self._copy_own(memory, history, owner)))
        for _, step in sorted(steps, key=itemgetter(0)):
            step()
        for storage, inner, before in self.counts.values():
            _count(storage, inner.version, before)

    def _know(self, each: Tensor, found: Tensor) -> None:
        self.objects[id(each)] = found
        storage = self.recorder.here_outside(found).storage
        if id(storage) not in self.counts:
            before = self.recorder.versions.get(id(storage), 0)
            inner = self.recorder.first_storage(each)
            self.counts[id(storage)] = storage, inner, before

    def _needed(self, wanted: Iterable[Tensor]) -> list[Tensor]:
        found: dict[int, Tensor] = {}
        stack = list(wanted)
        while stack:
            each = stack.pop()
            if id(each) in found:
                continue
            found[id(each)] = each
            made = self.recorder.first_alias(each).made
            if id(each) not in self.recorder.given and made is not None:
                stack.append(made.call.parent)
            for change in self.recorder.object_changes.get(id(each), ()):
                stack.extend(change.needs)
        return list(found.values())

    def _change(self, change: ObjectChange) -> None:
        before = STATE.grad_mode
        if before is not None:
            STATE.grad_mode = change.grad_mode
        try:
            change.apply(self.objects[id(change.target)], self)
        finally:
            STATE.grad_mode = before

    def _view(self, several: list[tuple[Tensor, ViewResult]]) -> None:
        call = several[0][1].call
        parent = self.objects[id(call.parent)]
        storage, _, before = self.counts[id(self.recorder.here_outside(parent).storage)]
        _count(storage, call.version, before)  # a view knows the version that it was taken at
        found = self.recorder.emit(call.op, (parent, *call.args), call.grad_mode)
        for each, made in several:
            self._know(each, found if made.index is None else found[made.index])

    def _copy_back(self, memory: WrittenMemory) -> Callable[[], None]:
        """The copy of a final value into memory outside (FNT-5). It comes before all views, unless
        autograd would tell: then at the time of the last write that has a history."""
        history = memory.has_new_history
        value = memory.read(EMPTY_CHAIN, history=history)
        handle: Any = memory.handle
        if self._changes(handle):
            handle = self.recorder.emit(ALIAS, (handle,), True)  # the object's geometry changes

        def copy() -> None:
            self._copy(handle, value, memory.written[1], history=history)

        return copy

    def _own_histories(self, needed: list[Tensor]) -> list[tuple[Any, OwnHistory, Tensor | None]]:
        """(memory, history, its tensor of the function) of all histories that a write changed."""
        found: list[tuple[Any, OwnHistory, Tensor | None]] = []
        for memory in self.recorder.input_memory.all():
            found += [
                (memory, own, None) for own in memory.tensors.histories if own.handle is not None
            ]
        for each in needed:
            first, last = self.recorder.first_alias(each), each.value
            for alias in (first,) if last is first else (first, last):
                if alias.history is not None and alias.history.owner is alias:
                    found.append((alias.memory, alias.history, each))
        return [one for one in found if one[1].written is not None]

    def _copy_own(
        self, memory: WrittenMemory, own: OwnHistory, owner: Tensor | None
    ) -> Callable[[], None]:
        """The copy of the final value of a tensor that has a history of its own."""
        value = own.read(memory, EMPTY_CHAIN if owner is None else own.turned)
        handle: Any = own.handle
        if owner is None and self._changes(handle):
            handle = self.recorder.emit(ALIAS, (handle,), True)
        _, version = own.written or (0, 1)

        def copy() -> None:
            target = handle if owner is None else self.objects[id(owner)]
            self._copy(target, value, version, history=True)

        return copy

    def _copy_bytes(
        self, memory: WrittenMemory, target: Callable[[], Tensor]
    ) -> Callable[[], None]:
        """The copy of the final value of memory that grew, after it has grown outside."""
        value = memory.read(EMPTY_CHAIN, history=False)

        def copy() -> None:
            self.recorder.emit(COPY_, (target(), value), False)

        return copy

    def _flat_of(self, stand_in: Tensor, memory: WrittenMemory) -> Tensor:
        return self._flat(self.objects[id(stand_in)], memory)

    @staticmethod
    def _flat(tensor: Tensor, memory: WrittenMemory) -> Tensor:
        """The bytes of the storage that a tensor outside has now."""
        return Tensor(tensor.storage, memory.meta, memory.start)

    def _changes(self, handle: object) -> bool:
        """Whether the geometry of a tensor from outside changes."""
        changes = [c for several in self.recorder.object_changes.values() for c in several]
        return any(self.recorder.given.get(id(change.target)) is handle for change in changes)

    def _copy(self, handle: Tensor, value: Tensor, version: int, *, history: bool) -> None:
        """Copies a value into a tensor outside; its storage has this version then."""
        storage = self.recorder.here_outside(handle).storage
        _count(storage, version - 1, self.recorder.versions.get(id(storage), 0))
        self.recorder.emit(COPY_, (handle, value), history)
        # Views were asked for their histories at versions that this write has again.
        for given in self.recorder.given.values():
            if given._base is not None and given.storage is storage:
                given._seen = -1

    def _root(self, memory: WrittenMemory, stand_in: Tensor) -> Tensor:
        """The final value of memory that the function made, in memory of its own."""
        if memory.handle is not None:  # a leaf that the function made, written as inputs are
            return memory.handle
        own, meta = self.recorder.first_alias(stand_in).history, memory.meta
        if own is None:
            value = memory.read(EMPTY_CHAIN, history=stand_in.requires_grad_outside())
        else:  # the memory became one of bytes
            meta = own.meta
            value = own.bytes_of(memory) if own.value is None else own.now(memory)
        is_own = value._base is None and value._root is None and not value.offset
        if not is_own or value.meta.stride != meta.stride:
            value = self.recorder.emit(RESTRIDE, (value, meta.stride), True)
        return value


def _restricts(call: ViewCall) -> bool:
    """Whether autograd tells views of this call that were taken before a write from those since."""
    return not call.grad_mode or isinstance(call.op, MultiViewOp)


def _count(storage: Storage, writes: int, before: int) -> None:
    """Sets the version counter to what eager's would be after so many writes."""
    if type(storage.version) is int and type(writes) is int:
        storage.version = before + writes
