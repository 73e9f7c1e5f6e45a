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
from aotlite.func.functional.memory import TensorAlias, WrittenMemory
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


def own_change(target: Tensor, value: Tensor) -> ObjectChange:
    """A write through `detach()` with a history, which that object alone gets."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        program.recorder.emit(COPY_, (target, value), True)

    return ObjectChange(target, apply)


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


def check_results(recorder: FunctionalMode, results: Iterable[Tensor]) -> None:
    """Raises UnsupportedError where a result has a history that no value has."""
    for each in results:
        alias: TensorAlias = each.value
        if alias.is_cut and each.requires_grad_outside() and not each._is_tracked_leaf():
            if alias.own is None or alias.own[0] != alias.memory.version:
                raise recorder.refuse(
                    "a result whose history is not that of its memory", "return a clone() of it"
                )


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
        for each in self._needed(wanted):
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
        restricted = bool(self.recorder.object_changes) or any(
            _restricts(several[0][1].call) for several in calls.values()
        )
        for memory in self.recorder.input_memory.written():
            time = memory.written[0] if restricted and memory.has_new_history else 0
            steps.append((time, self._copy_back(memory)))
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
        changes = [c for several in self.recorder.object_changes.values() for c in several]
        if any(self.recorder.given.get(id(change.target)) is handle for change in changes):
            handle = self.recorder.emit(ALIAS, (handle,), True)  # the object's geometry changes

        def copy() -> None:
            before = self.recorder.versions.get(id(handle.storage), 0)
            _count(handle.storage, memory.written[1] - 1, before)
            self.recorder.emit(COPY_, (handle, value), history)
            # Views were asked for their histories at versions that this write has again.
            for given in self.recorder.given.values():
                if given._base is not None and given.storage is handle.storage:
                    given._seen = -1

        return copy

    def _root(self, memory: WrittenMemory, stand_in: Tensor) -> Tensor:
        """The final value of memory that the function made, in memory of its own."""
        if memory.handle is not None:  # a leaf that the function made, written as inputs are
            return memory.handle
        value = memory.read(EMPTY_CHAIN, history=stand_in.requires_grad_outside())
        is_own = value._base is None and value._root is None and not value.offset
        if not is_own or value.meta.stride != memory.meta.stride:
            value = self.recorder.emit(RESTRIDE, (value, memory.meta.stride), True)
        return value


def _restricts(call: ViewCall) -> bool:
    """Whether autograd tells views of this call that were taken before a write from those since."""
    return not call.grad_mode or isinstance(call.op, MultiViewOp)


def _count(storage: Storage, writes: int, before: int) -> None:
    """Sets the version counter to what eager's would be after so many writes."""
    if type(storage.version) is int and type(writes) is int:
        storage.version = before + writes
