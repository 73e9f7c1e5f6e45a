"""`FunctionalRecorder`: ops on stand-ins become pure ops on tensors outside.

    PureOp            the same op outside, on the newest values of its operands
    ViewOp            an alias: nothing runs until it is read
    InplaceOp         the pure form; its result is pending in the memory that it writes
    GeometryOp, set_  the alias changes; the object outside changes when the function has returned

Used by `functionalize`. The values are in `memory.py`, results in `view_program.py`.
Rules: FNT-1 to FNT-11. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aotlite.eager.autograd.as_strided_chain import window_on
from aotlite.eager.autograd.chain_simplification import further
from aotlite.eager.autograd.differentiable_views import is_stale, root_of
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.input_memory import InputMemory
from aotlite.func.functional.kept_history import flat_history
from aotlite.func.functional.memory import SAME, OutsideValues, TensorAlias, WrittenMemory
from aotlite.func.functional.object_changes import FunctionalChanges, FunctionalData
from aotlite.func.functional.tensor_history import OwnHistory
from aotlite.func.functional.view_program import (
    TIMES,
    ObjectChange,
    ViewCall,
    ViewResult,
    geometry_change,
)
from aotlite.func.mode_recorder import ModeRecorder
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import ShapeError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, Op, RandomOp, Source, ViewOp
from aotlite.ir.ops.declare import real_of
from aotlite.ir.ops.elementwise.comparisons import CAST
from aotlite.ir.ops.shape.copies import CLONE, COPY_
from aotlite.ir.ops.views.view_ops import ALIAS, AS_STRIDED
from aotlite.stages.s6_functionalize.view_inverses import invertible, strided
from aotlite.stages.shared.memory.view_families import give_root, is_apart, is_of_its_own


class FunctionalRecorder(ModeRecorder):
    """The functional mode of one call."""

    def __init__(self, *, removes_views: bool) -> None:
        super().__init__()
        self.eager_values = self
        self.values = OutsideValues(self.emit, self._composed, copies_views=removes_views)
        self.input_memory = InputMemory(self)
        self.changes = self.hooks = FunctionalChanges(self)
        self.data = FunctionalData(self, self.changes)
        self.object_changes: dict[int, list[ObjectChange]] = {}
        """By the id of a stand-in: the changes of that object, in order."""
        self.first: dict[int, tuple[Tensor, TensorAlias, Storage]] = {}
        """By the id of a stand-in that was given other memory: it, its first alias and storage."""
        self.families: set[int] = set()
        """The ids of the roots that several tensors share."""
        self.grown: list[Tensor] = []
        """Tensors whose `resize_` made their memory longer."""
        self.versions: dict[int, int] = {}
        """By the id of a storage outside: its version at entry."""

    def _composed(self, function: Callable[..., Any], *args: object) -> Any:
        with self.outside(True):
            return function(*args)

    def here_outside(self, tensor: Tensor) -> Tensor:
        """A tensor of the caller's as ops outside see it."""
        recorder = self.outer[0]
        return tensor if recorder is None else recorder.here(tensor)

    # --- records of tensors
    def met(self, stand_in: Tensor, outer: Tensor) -> None:
        base = self._base_of(outer)
        if base is None:
            stand_in.value = self.input_memory.alias_of(outer)
            if self.outer[0] is not None and is_of_its_own(outer):
                give_root(outer, stand_in)
        else:
            its = self.here(base)
            stand_in.value = self.input_memory.member(its.value, outer, base)
            stand_in._root, stand_in._base = root_of(its), its
            stand_in._chain, stand_in._kind = outer._chain, outer._kind
            stand_in._seen = -1 if is_stale(outer) else 0
        if type(outer.storage.version) is int:
            self.versions.setdefault(id(outer.storage), outer.storage.version)

    def look_at(self, tensors: Iterable[Tensor]) -> None:
        """Finds the tensors that are views of one base: their histories are one."""
        members: dict[int, set[int]] = {}
        for each in tensors:
            if each._root is not None:
                members.setdefault(id(each._root), set()).add(id(each))
        self.families = {root for root, several in members.items() if len(several) > 1}

    def _base_of(self, outer: Tensor) -> Tensor | None:
        """The base of a tensor that shares its history with others, or is written by it alone."""
        base, root = outer._base, outer._root
        if self.outer[0] is not None or base is None or root is None:
            return None
        moved = base._chain or root.meta is not base.meta or root.offset != base.offset
        if moved or base._root is not root or base.storage is not outer.storage:
            return None
        return base if id(root) in self.families or is_apart(outer) else None

    def made(self, outer: Tensor, meta: TensorMeta) -> TensorAlias:
        memory = WrittenMemory(self.values, meta, outer)
        memory.tensors.root = self.alias(memory, EMPTY_CHAIN, 0, meta)
        return memory.tensors.root

    def alias(self, memory: WrittenMemory, chain: Any, start: int, meta: TensorMeta) -> TensorAlias:
        """A new alias of a memory."""
        made = TensorAlias(memory, chain, start, meta)
        memory.tensors.aliases.add(made)
        return made

    def first_alias(self, stand_in: Tensor) -> TensorAlias:
        """The alias with which the tensor was made, whatever `set_` gave it since."""
        found: TensorAlias = (
            self.first[id(stand_in)][1] if id(stand_in) in self.first else stand_in.value
        )
        return found

    def first_storage(self, stand_in: Tensor) -> Storage:
        """The storage with which the tensor was made."""
        return self.first[id(stand_in)][2] if id(stand_in) in self.first else stand_in.storage

    def drawn(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> TensorAlias:
        """The record of a draw, which happens outside."""
        return self.made(self.emit(op, self.outer_args(args)), meta)

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        first, second = self.here(a), self.here(b)
        return first.storage is second.storage or first.value.memory is second.value.memory

    # --- reads
    def outer_of(self, tensor: Tensor) -> Tensor:
        alias: TensorAlias = tensor.value
        memory = alias.memory
        wanted = tensor.requires_grad_outside()
        self._yield(tensor, alias)
        own: OwnHistory | None = alias.history
        is_known = own is not None and own.value is not None
        is_beside = own is not None and own.version == memory.version and own.owner is not None
        if is_known and (wanted or is_beside):
            found = self._with_own_history(alias, wanted=wanted)
        else:
            found = memory.read(alias.chain, history=wanted and bool(STATE.grad_mode))
        self._age(found, tensor.storage.version)
        if not wanted:
            is_plain = not found.requires_grad_outside()
            return found if is_plain else self.values.detached(found)
        if STATE.grad_mode and not found.requires_grad_outside():
            raise self._lost_history()
        # As eager's view under no_grad: it requires grad, and its gradient goes nowhere (TEN-21).
        return self.emit(ALIAS, (found,), False) if alias.is_dead else found

    @staticmethod
    def _yield(tensor: Tensor, alias: TensorAlias) -> None:
        """Gives a view, which required grad where its base did not, the history of the base."""
        own: OwnHistory | None = alias.history
        memory = alias.memory
        if own is not None and own.yields and memory.has_new_history:
            if not tensor._is_tracked_leaf() and alias.since < memory.tensors.last_write:
                alias.history = None

    def _with_own_history(self, alias: TensorAlias, *, wanted: bool) -> Tensor:
        own: OwnHistory = alias.history
        is_old = not STATE.grad_mode and own.version != alias.memory.version
        if is_old or alias.inner is None and not wanted:
            return alias.memory.read(alias.chain, history=False)
        if alias.inner is None:
            raise self._lost_history()
        return own.read(alias.memory, alias.inner)

    def _lost_history(self) -> Exception:
        return self.refuse(
            "a tensor whose history is not that of its memory, which was written since,",
            "write to a clone() of it",
        )

    def _age(self, value: Tensor, version: int) -> None:
        """Gives a value the version that eager's tensor has: the tape outside may save it, and the
        result that it becomes has that version (FNT-5)."""
        storage = value.storage
        if id(storage) in self.storages or storage.version:
            return  # the tape may have saved it in this version
        if type(storage.version) is int and type(version) is int:
            storage.version = max(storage.version, version)  # a hidden alias counts for itself

    # --- ops
    def record(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        if isinstance(op, ViewOp):
            return self._view(op, args[0], args[1:], meta, ViewResult(self._call(op, args)))
        if isinstance(op, MultiViewOp):
            call = self._call(op, args)
            parts = zip(op.parts(args), meta, strict=True)
            return tuple(
                [
                    self._view(view, args[0], rest, one, ViewResult(call, k))
                    for k, ((view, rest), one) in enumerate(parts)
                ]
            )
        if isinstance(op, InplaceOp):
            self.count(args[0].storage)
            return self._write(op, args)
        if isinstance(op, GeometryOp):
            self.count(args[0].storage)
            return self._geometry(op, args, meta)
        found = self.emit(op, self.outer_args(args))
        if type(meta) is TensorMeta:
            return self.made(found, meta)
        return tuple([self.made(one, of) for one, of in zip(found, meta, strict=True)])

    def _call(self, op: Op, args: tuple[Any, ...]) -> ViewCall:
        return ViewCall(op, args[0], args[1:], args[0].storage.version)

    def _view(
        self, op: ViewOp, source: Tensor, rest: tuple[Any, ...], meta: TensorMeta, made: ViewResult
    ) -> TensorAlias:
        parent: TensorAlias = source.value
        if op is AS_STRIDED:
            self._check_window(source, meta, op.at((source, *rest), source.offset))
        alias = self._shown(op, source, rest, meta)
        alias.made = made
        if op.cuts_history:
            chain, start, memory = alias.chain, alias.start, alias.memory
            alias.history = OwnHistory(chain, start, meta, None, -1, owner=alias)
            memory.tensors.histories.append(alias.history)
        else:
            alias.history = parent.history
            alias.inner, alias.inner_start = self._inner(op, parent, source, rest, meta)
        alias.is_dead = parent.is_dead or not STATE.grad_mode
        return alias

    def _shown(
        self, op: ViewOp, source: Tensor, rest: tuple[Any, ...], meta: TensorMeta
    ) -> TensorAlias:
        """The alias of a view; of a window, on memory that has all of it."""
        parent: TensorAlias = source.value
        start = op.at((source, *rest), parent.start)
        memory = parent.memory
        if op is AS_STRIDED:
            if meta.dtype is not memory.meta.dtype and not self._is_kin(meta, memory.meta):
                self.input_memory.to_bytes(memory)
                memory = parent.memory
            start += self.input_memory.reach(memory, meta, start)
            memory = parent.memory
            return self.alias(memory, self._window(memory.meta, meta, start), start, meta)
        if op in SAME:
            return self.alias(memory, parent.chain, start, meta)
        step = ViewStep(op, rest, source.meta, meta)
        return self.alias(memory, further(parent.chain, step), start, meta)

    def _inner(
        self,
        op: ViewOp,
        parent: TensorAlias,
        source: Tensor,
        rest: tuple[Any, ...],
        meta: TensorMeta,
    ) -> tuple[ViewChain | None, int]:
        """The chain of a view, and its start, from the tensor that has its history."""
        own: OwnHistory | None = parent.history
        if own is None or parent.inner is None:
            return parent.inner, 0
        start = op.at((source, *rest), parent.inner_start)
        if op is not AS_STRIDED:
            step = ViewStep(op, rest, source.meta, meta)
            return (parent.inner if op in SAME else further(parent.inner, step)), start
        if is_symbolic((start, *meta.shape, *own.meta.shape)) or meta.dtype is not own.meta.dtype:
            return None, start
        leaves = start < 0 or bool(meta.numel) and start + meta.span > own.meta.span
        return (None if leaves else window_on(own.meta, 0, meta, start)), start

    def _window(self, root: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
        """The chain from a root to a window on its memory."""
        if meta.dtype is root.dtype or root.dtype is uint8:
            return strided(root, meta, start)
        if not self._is_kin(meta, root):
            raise self.refuse("as_strided of a view of another dtype", "take a view of the window")
        return window_on(root, 0, meta, start)

    @staticmethod
    def _is_kin(one: TensorMeta, other: TensorMeta) -> bool:
        """Whether both are of one dtype, or of a complex one and its real one."""
        return real_of(one.dtype) is real_of(other.dtype)

    def _check_window(self, source: Tensor, meta: TensorMeta, start: int) -> None:
        """Raises what eager raises for a window that leaves the memory."""
        memory: WrittenMemory = source.value.memory
        size = meta.dtype.itemsize
        have = memory.meta.span * memory.meta.dtype.itemsize
        if memory.handle is not None:
            buffer = memory.handle.storage.buffer
            if buffer is None:
                return  # of a capture, which compares with the caller's memory
            have = max(have, buffer.nbytes)
        if is_symbolic((start, have, *meta.shape)):
            return
        if start < 0 or (meta.numel and (start + meta.span) * size > have):
            raise ShapeError(
                f"as_strided: size {meta.shape} with stride {meta.stride} at storage offset "
                f"{start} leaves the {have} bytes of its storage, expected to stay inside"
            )

    def _geometry(self, op: GeometryOp, args: tuple[Any, ...], meta: TensorMeta) -> TensorAlias:
        target = args[0]
        if op.view is AS_STRIDED:
            self._check_window(target, meta, op.view.at(args, target.offset))
        self.note(geometry_change(op, args))
        return self.moved(op.view, target, args[1:], meta)

    def moved(
        self, view: ViewOp, target: Tensor, rest: tuple[Any, ...], meta: TensorMeta
    ) -> TensorAlias:
        """The alias of a tensor that becomes this view of itself."""
        alias: TensorAlias = target.value
        inner = self._inner(view, alias, target, rest, meta)
        to = self._shown(view, target, rest, meta)
        alias.inner, alias.inner_start = inner
        alias.memory, alias.chain, alias.start, alias.meta = to.memory, to.chain, to.start, meta
        alias.memory.tensors.aliases.add(alias)
        return alias

    def note(self, change: ObjectChange) -> None:
        """Notes a change that is replayed on the object when the function has returned."""
        self.object_changes.setdefault(id(change.target), []).append(change)

    # --- writes
    def count(self, storage: Storage, more: int = 1) -> None:
        """Counts a write outside at once: what is saved from now on is of this version."""
        outer = self.outer_storages.get(id(storage))
        if outer is not None and type(outer.version) is int and type(storage.version) is int:
            outer.version = self.versions[id(outer)] + storage.version + more

    def take_back(self) -> None:
        """The function raised: nothing outside has changed."""
        self.changes.take_back()
        for outer in self.outer_storages.values():
            if id(outer) in self.versions:
                outer.version = self.versions[id(outer)]

    def _write(self, op: InplaceOp, args: tuple[Any, ...]) -> TensorAlias:
        target = args[0]
        alias: TensorAlias = target.value
        meta = alias.meta
        if op is COPY_ and args[1] is target:  # counts as a write, and changes nothing
            return alias
        others = [each for each in op.operands(args) if each is not target]
        if type(meta.numel) is int and not meta.numel:
            if not STATE.grad_mode or not any(each.requires_grad_outside() for each in others):
                return alias
        self.input_memory.prepare_write(alias.memory)
        own: OwnHistory | None = alias.history
        if own is not None and own.yields and alias.memory.has_new_history and STATE.grad_mode:
            alias.history = own = None  # a write takes the history of the base
        value = self._result(op, args, meta)
        history = bool(STATE.grad_mode) and value.requires_grad_outside()
        memory = alias.memory
        if history and memory.tensors.is_shared:
            raise self.refuse(
                "a write, with a gradient, to one of several tensors on one memory",
                "pass one of them, and take the others from it inside",
            )
        if history and own is not None and own.yields:
            alias.history = None  # the base's history changes
        if history and alias.history is not None:
            self._write_own(target, alias, value)
            return alias
        memory = self._with_inverses(alias)
        chain = _inverse_of(alias.chain, meta, alias.start, memory.meta)
        memory.write(chain, value, history=history)
        if history or not memory.has_new_history:
            memory.written = next(TIMES), target.storage.version + 1
        return alias

    def _with_inverses(self, alias: TensorAlias) -> WrittenMemory:
        """The memory of a tensor: one of bytes, if its views have no inverse in another dtype."""
        memory = alias.memory
        if alias.chain.repeats and alias.meta.dtype is not memory.meta.dtype:
            if alias.history is not None or not memory.value.requires_grad_outside():
                memory = self.input_memory.to_bytes(memory)
        return memory

    def _write_own(self, target: Tensor, alias: TensorAlias, value: Tensor) -> None:
        """A write with a history to a tensor of a history of its own: the memory gets the bytes."""
        own: OwnHistory = alias.history
        memory, meta = alias.memory, alias.meta
        if alias.inner is None:
            raise self._lost_history()
        inner = _inverse_of(alias.inner, meta, alias.inner_start, own.meta)
        made = own.write(memory, inner, value)
        memory = self._with_inverses(alias)
        chain = _inverse_of(alias.chain, meta, alias.start, memory.meta)
        memory.write(chain, self.values.detached(value), history=False)
        own.value, own.version, own.seen = made, memory.version, {}
        own.written = next(TIMES), target.storage.version + 1
        if own.owner is not None and own.owner.inner is not None:
            own.turned = own.owner.inner
        if not memory.has_new_history:
            memory.written = own.written

    def _result(self, op: InplaceOp, args: tuple[Any, ...], meta: TensorMeta) -> Tensor:
        given = self.outer_args(args)
        pure = op.functional
        if self._is_saved(op, given):
            # The copy into the input at the end would count as a write to what the tape saved.
            given = (self.emit(CLONE, given[:1]), *given[1:])
        value: Tensor = self.emit(pure, given)
        self._age(value, args[0].storage.version + 1)
        if isinstance(value._node, OpNode) and value._node.call.plan.results:
            value._node.save_results((value,))  # in this version
        if value.meta.dtype is not meta.dtype:
            value = self.emit(CAST, (value, meta.dtype))
        value = self.values.in_layout(value, meta)
        if STATE.grad_mode and meta.dtype.is_differentiable and not value.requires_grad_outside():
            for each in op.operands(given):
                if each.requires_grad_outside():
                    flat: Tensor = self._composed(flat_history, each, value)
                    return flat
        return value

    def _is_saved(self, op: InplaceOp, given: tuple[Any, ...]) -> bool:
        """Whether a tape outside saves the target, which is memory of an input."""
        vjp = op.functional.vjp
        if not STATE.grad_mode or vjp is None or id(given[0].storage) not in self.storages:
            return False
        if not any(each.requires_grad_outside() for each in op.operands(given)):
            return False
        return any(0 in formula.reads(Source.OPERAND) for formula in vjp.formulas.values())


def _inverse_of(chain: ViewChain, meta: TensorMeta, start: int, root: TensorMeta) -> ViewChain:
    """A chain equal to this one that puts a written value back exactly: `invertible`, which leaves
    out complex windows on real memory."""
    if chain.repeats and root.dtype is not meta.dtype and root.dtype is real_of(meta.dtype):
        return window_on(root, 0, meta, start)
    return invertible(chain, meta, start, root)
