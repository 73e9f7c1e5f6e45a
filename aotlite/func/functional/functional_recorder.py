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
from aotlite.eager.creation.memory import take_place, tell_apart
from aotlite.func.functional.input_memory import InputMemory
from aotlite.func.functional.kept_history import flat_history
from aotlite.func.functional.memory import SAME, OutsideValues, TensorAlias, WrittenMemory
from aotlite.func.functional.view_program import (
    TIMES,
    ObjectChange,
    ViewCall,
    ViewResult,
    geometry_change,
    own_change,
    resize_change,
    set_change,
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
from aotlite.stages.shared.memory.view_families import is_apart


class FunctionalRecorder(ModeRecorder):
    """The functional mode of one call."""

    def __init__(self, *, removes_views: bool) -> None:
        super().__init__()
        self.eager_values = self
        self.values = OutsideValues(self.emit, self._composed, copies_views=removes_views)
        self.input_memory = InputMemory(self)
        self.object_changes: dict[int, list[ObjectChange]] = {}
        """By the id of a stand-in: the changes of that object, in order."""
        self.first: dict[int, tuple[Tensor, TensorAlias, Storage]] = {}
        """By the id of a stand-in that was given other memory: it, its first alias and storage."""
        self.families: set[int] = set()
        """The ids of the roots that several tensors share."""
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
        return self.alias(WrittenMemory(self.values, meta, outer), EMPTY_CHAIN, 0, meta)

    def alias(self, memory: WrittenMemory, chain: Any, start: int, meta: TensorMeta) -> TensorAlias:
        """A new alias of a memory."""
        made = TensorAlias(memory, chain, start, meta)
        memory.aliases.add(made)
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
        if alias.own is not None and alias.own[0] == memory.version:
            found = alias.own[1]
        else:
            found = memory.read(alias.chain, history=wanted and bool(STATE.grad_mode))
            self._age(found, tensor.storage.version)
        if not wanted:
            is_plain = not found.requires_grad_outside()
            return found if is_plain else self.values.detached(found)
        if STATE.grad_mode and not found.requires_grad_outside():
            found = self._by_parent(alias)
        # As eager's view under no_grad: it requires grad, and its gradient goes nowhere (TEN-21).
        return self.emit(ALIAS, (found,), False) if alias.is_dead else found

    def _age(self, value: Tensor, version: int) -> None:
        """Gives a value the version that eager's tensor has: the tape outside may save it, and the
        result that it becomes has that version (FNT-5)."""
        storage = value.storage
        if id(storage) in self.storages:
            return
        if type(storage.version) is int and type(version) is int:
            storage.version = max(storage.version, version)  # a hidden alias counts for itself

    def _by_parent(self, alias: TensorAlias) -> Tensor:
        """The value of a view whose history is that of the tensor it was taken of."""
        made: Any = alias.made
        if made is None or made.call.op.writes or made.call.version != self._writes(made):
            raise self.refuse(
                "a tensor whose history is not that of its memory, which was written since,",
                "write to a clone() of it",
            )
        found = self.emit(made.call.op, (self.outer_of(made.call.parent), *made.call.args), True)
        return found if made.index is None else found[made.index]

    @staticmethod
    def _writes(made: ViewResult) -> int:
        return made.call.parent.storage.version

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
            self._count(args[0].storage)
            return self._write(op, args)
        if isinstance(op, GeometryOp):
            self._count(args[0].storage)
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
        alias.is_cut = parent.is_cut or op.cuts_history
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
            start += self.input_memory.reach(memory, meta, start)
            memory = parent.memory
            return self.alias(memory, self._window(memory.meta, meta, start), start, meta)
        if op in SAME:
            return self.alias(memory, parent.chain, start, meta)
        step = ViewStep(op, rest, source.meta, meta)
        return self.alias(memory, further(parent.chain, step), start, meta)

    def _window(self, root: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
        """The chain from a root to a window on its memory."""
        if meta.dtype is root.dtype or root.dtype is uint8:
            return strided(root, meta, start)
        if real_of(meta.dtype) is not real_of(root.dtype):
            raise self.refuse("as_strided of a view of another dtype", "take a view of the window")
        return window_on(root, 0, meta, start)

    def _check_window(self, source: Tensor, meta: TensorMeta, start: int) -> None:
        """Raises what eager raises for a window that leaves the memory."""
        memory: WrittenMemory = source.value.memory
        size = meta.dtype.itemsize
        have = memory.meta.span * memory.meta.dtype.itemsize
        if memory.handle is not None:
            buffer = memory.handle.storage.buffer
            if buffer is None:
                return  # of a capture, which compares with the caller's memory
            have = buffer.nbytes
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
        self._note(geometry_change(op, args))
        return self._moved(op.view, target, args[1:], meta)

    def _moved(
        self, view: ViewOp, target: Tensor, rest: tuple[Any, ...], meta: TensorMeta
    ) -> TensorAlias:
        """The alias of a tensor that becomes this view of itself."""
        alias: TensorAlias = target.value
        to = self._shown(view, target, rest, meta)
        alias.memory, alias.chain, alias.start, alias.meta = to.memory, to.chain, to.start, meta
        alias.memory.aliases.add(alias)
        if alias.own is not None:
            alias.own = alias.own[0], self.emit(view, (alias.own[1], *rest), True)
        return alias

    def _note(self, change: ObjectChange) -> None:
        self.object_changes.setdefault(id(change.target), []).append(change)

    # --- writes
    def _count(self, storage: Storage, more: int = 1) -> None:
        """Counts a write outside at once: what is saved from now on is of this version."""
        outer = self.outer_storages.get(id(storage))
        if outer is not None and type(outer.version) is int and type(storage.version) is int:
            outer.version = self.versions[id(outer)] + storage.version + more

    def take_counts_back(self) -> None:
        """The function raised: nothing outside has changed."""
        for outer in self.outer_storages.values():
            if id(outer) in self.versions:
                outer.version = self.versions[id(outer)]

    def _write(self, op: InplaceOp, args: tuple[Any, ...]) -> TensorAlias:
        target = args[0]
        alias: TensorAlias = target.value
        meta = alias.meta
        if op is COPY_ and args[1] is target:  # counts as a write, and changes nothing
            return alias
        if type(meta.numel) is int and not meta.numel:
            self._check_empty(op, args)
            return alias
        self.input_memory.prepare_write(alias.memory)
        value = self._result(op, args, meta)
        history = bool(STATE.grad_mode) and value.requires_grad_outside()
        memory = alias.memory
        if history and memory.is_shared:
            raise self.refuse(
                "a write, with a gradient, to one of several tensors on one memory",
                "pass one of them, and take the others from it inside",
            )
        own = None
        if history and alias.is_cut:
            own, value, history = value, self.values.detached(value), False
            self._note(own_change(target, own))
        chain = invertible(alias.chain, meta, alias.start, memory.meta)
        memory.write(chain, value, history=history)
        if history or not memory.has_new_history:
            memory.written = next(TIMES), target.storage.version + 1
        alias.own = None if own is None else (memory.version, own)
        return alias

    def _check_empty(self, op: InplaceOp, args: tuple[Any, ...]) -> None:
        """A write of no elements changes a history at most: refused, as no value says so."""
        others = [each for each in op.operands(args) if each is not args[0]]
        if STATE.grad_mode and any(each.requires_grad_outside() for each in others):
            raise self.refuse(
                "a write of no elements, with a gradient,", "write it under no_grad()"
            )

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

    # --- changes that are no ops
    def made_leaf(self, tensor: Tensor, requires_grad: bool) -> None:
        """`requires_grad_` inside: of a tensor from outside, it changes that one at once."""
        given = self.given.get(id(tensor))
        alias: TensorAlias = tensor.value
        if given is None:
            if alias.chain or alias.made is not None:
                raise self.refuse(
                    "requires_grad_ of a view", "call it on the tensor that it is a view of"
                )
            given = alias.memory.handle
            if given is None:
                found = alias.memory.read(EMPTY_CHAIN, history=False)
                given = alias.memory.handle = self.emit(CLONE, (found,), False)
                alias.memory.value, alias.memory.seen, alias.memory.last = given, {}, None
                self.storages[id(given.storage)] = given.storage, tensor.storage
                self.versions[id(given.storage)] = 0
                self.input_memory.add(alias.memory)
        with self.outside():
            given.requires_grad_(requires_grad)

    def detached(self, tensor: Tensor) -> None:
        """`detach_` inside: of a tensor from outside, it changes that one at once."""
        given, memory = self.given.get(id(tensor)), tensor.value.memory
        if given is None and not tensor.value.chain and tensor.value.made is None:
            value = memory.read(EMPTY_CHAIN, history=False)
            memory.past, memory.seen, memory.last = None, {}, None
            memory.value = self.values.detached(value) if value.requires_grad_outside() else value
        elif given is not None and given._base is None and not memory.has_new_history:
            with self.outside():
                given.detach_()
            memory.value = memory.value.detach() if memory.version else memory.value
        else:
            raise self.refuse("detach_ of a view, or after a write,", "call detach() instead")

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """`set_`: the alias is that of the window; the object is set when f has returned."""
        if tensor.requires_grad_outside():
            raise self.refuse("set_ of a tensor that requires grad", "make a new tensor")
        self._note(set_change(tensor, window))
        self.first.setdefault(id(tensor), (tensor, tensor.value, tensor.storage))
        before = tensor.storage
        take_place(tensor, window)
        tell_apart(before, window.storage)
        for storage in (before, window.storage):
            self._count(storage, 0)
        tensor.value = window.value

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """`resize_` that does not grow: another geometry of the same memory."""
        have = tensor.value.memory.meta
        start = tensor.value.start
        if is_symbolic((*meta.shape, start)) or start + meta.span > have.span:
            raise self.refuse("resize_ that grows", "make a tensor of the new size")
        if meta.dtype is not have.dtype:
            raise self.refuse("resize_ of a view of another dtype", "take a view of it")
        self._note(resize_change(tensor, meta.shape, meta.stride))
        rest = (meta.shape, meta.stride, 0)
        tensor.value = self._moved(AS_STRIDED, tensor, rest, meta)
