"""Changes of tensor objects in a functional mode: leaves, `set_`, `resize_`, hooks.

`requires_grad_` and `detach_` change a tensor from outside at once, as in eager. `set_`, `resize_`
and `retain_grad` are replayed on the objects when the function has returned. A hook is placed
twice: on the stand-in, for a backward inside, and on the value outside, for one outside.
Rules: FNT-8, FNT-11, FNT-22. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.eager.base.modes import enable_grad, no_grad
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import cannot_grow, check_growth, take_place, tell_apart
from aotlite.func.functional.memory import TensorAlias, WrittenMemory
from aotlite.func.functional.tensor_history import OwnHistory
from aotlite.func.functional.view_program import (
    TIMES,
    ObjectChange,
    ViewProgram,
    resize_change,
    set_change,
)
from aotlite.func.mode_protocol import FunctionalMode
from aotlite.func.mode_state import OuterData
from aotlite.func.state_changes import StateChanges
from aotlite.ir.errors import noted
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import CLONE
from aotlite.ir.ops.views.view_ops import ALIAS, AS_STRIDED
from aotlite.stages.shared.user_frames import describe, user_location


@attrs.define(eq=False, repr=False)
class HooksOfBoth:
    """The dict of a handle whose hook is on a stand-in and on a value: `remove` removes both."""

    mine: Any
    outer: Any
    """The handle outside."""

    def pop(self, number: int, default: object = None) -> None:
        """Removes the hook."""
        self.mine.pop(number, default)
        self.outer.hooks.pop(self.outer.id, default)


class FunctionalChanges(StateChanges):
    """What a functional mode does where a tensor object changes."""

    def __init__(self, recorder: FunctionalMode) -> None:
        super().__init__(recorder)
        self._mode = recorder
        self._handles: list[Any] = []
        self.unplaced: list[Any] = []
        """Where hooks were registered that are not on a tensor."""

    # --- leaves
    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """`requires_grad_`: of a tensor from outside, it changes that one at once."""
        mode, given = self._mode, self._mode.given.get(id(tensor))
        alias: TensorAlias = tensor.value
        memory, own = alias.memory, alias.history
        if given is None:
            if own is not None and own.owner is alias and not alias.inner and own.written is None:
                self._leaf_of_view(tensor, own, requires_grad=requires_grad)
                return tensor._base is not None
            if alias.chain or alias.made is not None or own is not None:
                raise mode.refuse(
                    "requires_grad_ of a view", "call it on the tensor that it is a view of"
                )
            given = memory.handle or self._leaf_of(memory, tensor)
        with mode.outside():
            given.requires_grad_(requires_grad)
        if memory.version and requires_grad:
            if own is not None:
                own.value, own.version, own.seen = mode.here_outside(given), -1, {}
            elif not alias.chain:
                memory.past, memory.seen, memory.last = mode.here_outside(given), {}, None
        return tensor._base is not None

    def _leaf_of(self, memory: WrittenMemory, tensor: Tensor) -> Tensor:
        """The tensor outside for a leaf that the function makes: it is written as inputs are."""
        mode = self._mode
        found = memory.read(EMPTY_CHAIN, history=False)
        given: Tensor = mode.emit(CLONE, (found,), False)
        memory.handle = memory.value = given
        memory.seen, memory.last = {}, None
        mode.storages[id(given.storage)] = given.storage, tensor.storage
        mode.versions[id(given.storage)] = 0
        mode.input_memory.add(memory)
        return given

    def _leaf_of_view(self, tensor: Tensor, own: OwnHistory, *, requires_grad: bool) -> None:
        """A leaf in the memory of another tensor, as `x.detach().requires_grad_()`: a tensor of its
        own until the function has returned, which then is put there."""
        mode = self._mode
        leaf = own.leaf
        if leaf is None:
            found = own.bytes_of(tensor.value.memory)
            leaf = own.leaf = mode.emit(CLONE, (found,), False)
            mode.note(leaf_change(tensor, leaf))
        with mode.outside():
            leaf.requires_grad_(requires_grad)
        own.value, own.version, own.seen = mode.emit(ALIAS, (leaf,), True), -1, {}

    def detached(self, tensor: Tensor) -> bool:
        """`detach_`: of a tensor from outside, it changes that one at once."""
        mode, given = self._mode, self._mode.given.get(id(tensor))
        alias: TensorAlias = tensor.value
        memory, own = alias.memory, alias.history
        plain = own is None and not alias.chain
        if given is None and plain and alias.made is None:
            value = memory.read(EMPTY_CHAIN, history=False)
            memory.past, memory.seen, memory.last = None, {}, None
            memory.value = mode.values.detached(value) if value.requires_grad_outside() else value
        elif given is not None and given._base is None and not self._is_new(alias):
            with mode.outside():
                given.detach_()
            if own is not None:
                own.value, own.seen = mode.values.detached(own.value), {}
            elif memory.version:
                memory.value = memory.value.detach()
        else:
            raise mode.refuse("detach_ of a view, or after a write,", "call detach() instead")
        return tensor._base is not None or given is not None and given._base is not None

    @staticmethod
    def _is_new(alias: TensorAlias) -> bool:
        """Whether a write changed the history of a tensor."""
        own = alias.history
        return alias.memory.has_new_history or own is not None and own.written is not None

    # --- memory
    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """`set_`: the alias is that of the window; the object is set when f has returned."""
        mode = self._mode
        kept, written = self._kept_history(tensor)
        mode.note(set_change(tensor, window))
        mode.first.setdefault(id(tensor), (tensor, tensor.value, tensor.storage))
        before = tensor.storage
        take_place(tensor, window)
        tell_apart(before, window.storage)
        for storage in (before, window.storage):
            mode.count(storage, 0)
        to: TensorAlias = window.value
        made = mode.alias(to.memory, to.chain, to.start, to.meta)
        made.history = OwnHistory(to.chain, to.start, to.meta, kept, -1, owner=made)
        if written:
            made.history.written = next(TIMES), tensor.storage.version
        to.memory.tensors.histories.append(made.history)
        tensor.value = made

    def _kept_history(self, tensor: Tensor) -> tuple[Tensor | None, bool]:
        """A value with the history of a tensor that gets other memory; whether a write gave it that
        since it got the memory that it has."""
        alias: TensorAlias = tensor.value
        own = alias.history
        if not tensor.requires_grad_outside():
            return None, False
        with enable_grad():
            found = self._mode.outer_of(tensor)
        return found, own is not None and own.owner is alias and own.written is not None

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """`resize_`: another geometry of the same memory, which grows if needed."""
        mode, alias = self._mode, tensor.value
        memory: WrittenMemory = alias.memory
        if is_symbolic((*meta.shape, alias.start, *memory.meta.shape)):
            raise mode.refuse("resize_ to a symbolic size", "make a tensor of the new size")
        end = (alias.start + meta.span) * meta.dtype.itemsize
        if end > self._bytes_behind(memory):
            if mode.outer[0] is not None:
                raise mode.refuse("resize_ that grows, in a capture,", "make a tensor of that size")
            before = memory.start * memory.meta.dtype.itemsize
            if tensor.storage.exported:  # by a hidden alias inside
                raise cannot_grow(before + self._bytes_behind(memory), before + end)
            if memory.handle is not None:
                check_growth(memory.handle.storage, before + end)
            mode.input_memory.grow(memory, end)
            mode.grown.append(tensor)
        mode.note(resize_change(tensor, meta.shape, meta.stride))
        mode.count(tensor.storage, int(meta.shape != tensor.meta.shape))
        tensor.value = mode.moved(AS_STRIDED, tensor, (meta.shape, meta.stride, 0), meta)

    @staticmethod
    def _bytes_behind(memory: WrittenMemory) -> int:
        """The bytes from the root's first one to the end of its storage."""
        size = memory.meta.dtype.itemsize
        buffer = None if memory.handle is None else memory.handle.storage.buffer
        if buffer is None or memory.is_grown:
            return int(memory.meta.span) * size
        return int(buffer.nbytes) - memory.start * size

    # --- hooks
    def placed(self, kind: str, tensor: Tensor, edge: object, handle: Any) -> None:
        """A hook was registered on a tensor: it is placed outside, too.

        Raises UnsupportedError for a view, whose value outside may be another one at each read.
        """
        mode, hook = self._mode, handle.hooks[handle.id]
        self.unplaced.pop()
        given, alias = mode.given.get(id(tensor)), tensor.value
        own: OwnHistory | None = alias.history
        target: Any = None
        if tensor._is_tracked_leaf():
            inside = alias.memory.handle if own is None else own.leaf
            target = inside if given is None else given
        elif given is not None and not alias.memory.version:
            target = given
        elif own is None and not alias.chain:
            with enable_grad():
                target = mode.outer_of(tensor)
        if target is None:
            handle.hooks.pop(handle.id, None)
            raise mode.refuse("a hook of a view", "register it on the tensor that it is a view of")
        with mode.outside():
            if kind == "accumulated":
                outer = target.register_post_accumulate_grad_hook(hook)
            else:
                outer = target.register_hook(hook)
        handle.hooks = HooksOfBoth(handle.hooks, outer)
        self._handles.append(handle)

    def retained(self, tensor: Tensor) -> None:
        """The tensor retains its gradient: the object does, once it is there."""
        self._mode.unrecorded = False
        self._mode.note(retain_change(tensor))

    def check(self) -> None:
        """Raises UnsupportedError for a hook of a tape node: nodes outside are others."""
        if self.unplaced:
            error = self._mode.refuse("a hook of a tape node", "register it on a tensor")
            raise noted(error, describe(self.unplaced[0]))

    def take_back(self) -> None:
        """The function raised: no hook stays."""
        for handle in self._handles:
            handle.hooks.pop(handle.id, None)

    def let_go(self) -> None:
        """The function has returned: handles can be used outside."""
        for handle in self._handles:
            handle._recorder = None


class FunctionalData(OuterData):
    """Sizes, numbers and callbacks, which are asked outside; it notes who registers hooks."""

    def __init__(self, recorder: FunctionalMode, changes: FunctionalChanges) -> None:
        super().__init__(recorder)
        self._mode = recorder
        self._changes = changes

    def keep(self, function: Callable[..., object]) -> None:
        """A hook or callback is registered."""
        if self._mode.unrecorded:  # a hook
            self._mode.unrecorded = False
            self._changes.unplaced.append(user_location())
        else:
            super().keep(function)


def retain_change(tensor: Tensor) -> ObjectChange:
    """The replay of `retain_grad`."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        with program.recorder.outside():
            target.retain_grad()

    return ObjectChange(tensor, apply)


def leaf_change(tensor: Tensor, leaf: Tensor) -> ObjectChange:
    """Puts a leaf into the memory of the view for which it stands, in the place of that."""

    def apply(target: Tensor, program: ViewProgram) -> None:
        left = leaf.storage
        version = left.version
        with program.recorder.outside(), no_grad():
            leaf.set_(target)
        left.version = version  # what was saved of it is as it was
        program.objects[id(tensor)] = leaf

    return ObjectChange(tensor, apply)
