"""WrittenMemory of tensors from outside: which of them share it, and what is copied back.

    a = base[:3]; b = base[2:]; f(a, b)     `a` and `b` are two views of one flat memory

A tensor from outside is the root of its memory, as long as it is alone on it. Where another one
overlaps it, or a window reaches further, the root becomes a flat view of all that they reach, or
their base if they have histories. Nothing outside is written before the function has returned.
Rules: FNT-4, FNT-5. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.as_strided_chain import bytes_window, strided_step
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, chain_of, overlaps_itself
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.byte_memory import is_bytes, lengthened, made_bytes
from aotlite.func.functional.memory import TensorAlias, WrittenMemory
from aotlite.func.functional.tensor_history import OwnHistory, own_history_of
from aotlite.func.mode_protocol import FunctionalMode
from aotlite.ir.dtypes import uint8
from aotlite.ir.geometry.overlap import overlaps_bytes
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.views.reinterpret import VIEW_DTYPE
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.shared.memory.view_families import is_of_its_own


class InputMemory:
    """The memories of tensors from outside."""

    def __init__(self, recorder: FunctionalMode) -> None:
        self._recorder = recorder
        self._known: dict[int, list[WrittenMemory]] = {}
        """By the id of a buffer, or of a storage without data: the memories on it."""
        self._alive: list[object] = []

    def all(self) -> list[WrittenMemory]:
        """The memories, in the order in which they were met."""
        return [memory for several in self._known.values() for memory in several]

    def alias_of(self, outer: Tensor) -> TensorAlias:
        """The alias of a tensor that is met for the first time."""
        several = self._known.setdefault(self._place_of(outer), [])
        near = [memory for memory in several if _meet(memory, outer)]
        if not near:
            several.append(self._alone(outer))
            return self._recorder.alias(several[-1], EMPTY_CHAIN, 0, outer.meta)
        related = self._is_related(near, outer)
        alias = self._beside(several, near, outer)
        memory = alias.memory
        memory.tensors.is_shared = memory.tensors.is_shared or related
        version = -1 if memory.version else 0
        made = OwnHistory(alias.chain, alias.start, outer.meta, outer, version, outer)
        alias.history = made
        memory.tensors.histories.append(made)
        return alias

    def _is_related(self, near: list[WrittenMemory], outer: Tensor) -> bool:
        """Whether a tensor here is a view of one base with this one: a write changes the history
        of both, and no value says so."""
        handles = [memory.handle for memory in near if not memory.tensors.histories]
        handles += [history.handle for memory in near for history in memory.tensors.histories]
        root = outer._root
        related = root is not None and any(x is not None and x._root is root for x in handles)
        if related and any(memory.has_new_history for memory in near):
            raise self._recorder.refuse(
                "a tensor whose base was written, with a gradient, before it was met,",
                "pass it as an argument",
            )
        return related

    def member(self, base: TensorAlias, outer: Tensor, of: Tensor) -> TensorAlias:
        """The alias of a view of a base that has an alias: both have one history."""
        size, its = outer.meta.dtype.itemsize, of.meta.dtype.itemsize
        start = base.start * its // size + (outer.offset * size - of.offset * its) // size
        chain = base.chain.joined(outer._chain.steps)
        alias = self._recorder.alias(base.memory, chain, start, outer.meta)
        if is_of_its_own(outer):
            made = OwnHistory(
                chain, start, outer.meta, outer, -1 if base.memory.version else 0, outer
            )
            made.yields = True
            if not outer._is_tracked_leaf():  # a write to it would change the base's history, too
                base.memory.tensors.is_shared = True
            alias.history = made
            base.memory.tensors.histories.append(made)
            return alias
        alias.history, alias.inner_start = base.history, start - base.start + base.inner_start
        if base.inner is not None:
            alias.inner = base.inner.joined(outer._chain.steps)
        if alias.history is None and not base.memory.version:
            base.memory.seen[chain] = outer
        return alias

    def _beside(
        self, several: list[WrittenMemory], near: list[WrittenMemory], outer: Tensor
    ) -> TensorAlias:
        """The alias of a tensor that shares bytes with these memories."""
        memory = near[0]
        if memory.is_grown:
            chain, start = self._window(memory, outer.meta, outer.offset)
            return self._recorder.alias(memory, chain, start, outer.meta)
        is_same = outer.meta is memory.meta and outer.offset == memory.start
        if len(near) == 1 and is_same:
            if not memory.tensors.histories:
                own_history_of(memory)
            return self._recorder.alias(memory, EMPTY_CHAIN, 0, outer.meta)
        memory = self._joined(several, near, outer)
        chain, start = self._window(memory, outer.meta, outer.offset)
        return self._recorder.alias(memory, chain, start, outer.meta)

    def _alone(self, outer: Tensor) -> WrittenMemory:
        values = self._recorder.values
        return WrittenMemory(values, outer.meta, outer, handle=outer, start=outer.offset)

    def _place_of(self, outer: Tensor) -> int:
        """The key of the memory that a tensor is on: storages may share it (TEN-5)."""
        buffer, recorder = outer.storage.buffer, self._recorder.outer[0]
        place = outer.storage if buffer is None else buffer
        self._alive.append(place)
        if buffer is None and recorder is not None and id(place) not in self._known:
            for key, several in self._known.items():
                handle = several[0].handle if several else None
                if handle is not None and recorder.is_one_memory(handle, outer):
                    return key
        return id(place)

    def add(self, memory: WrittenMemory) -> None:
        """A leaf that the function made: it is written as tensors from outside are."""
        handle: Any = memory.handle
        self._alive.append(handle)
        self._known.setdefault(id(handle.storage), []).append(memory)

    # --- one root for several
    def _joined(
        self, several: list[WrittenMemory], near: list[WrittenMemory], outer: Tensor
    ) -> WrittenMemory:
        """One flat memory of all that these show, with what was written so far."""
        tensors = [*[memory.handle for memory in near], outer]
        kinds = {each.meta.dtype for each in tensors if each is not None}
        if any(is_symbolic((*x.meta.shape, x.offset)) for x in tensors if x is not None):
            raise self._recorder.refuse(
                "tensors of symbolic sizes that share memory", "pass one, and take views inside"
            )
        spans = [_bytes(each.meta, each.offset) for each in tensors if each is not None]
        low, high = min(first for first, _ in spans), max(end for _, end in spans)
        made = self._flat(outer, low, high, bytes_alone=len(kinds) > 1, history=False)
        for memory in near:
            self._move(memory, made, is_alone=False)
        several[:] = [each for each in several if each not in near] + [made]
        return made

    def _flat(
        self, outer: Tensor, low: int, high: int, *, bytes_alone: bool, history: bool
    ) -> WrittenMemory:
        """A flat memory from byte `low` to byte `high` of a storage."""
        emit, size = self._recorder.emit, outer.meta.dtype.itemsize
        if not history and outer.requires_grad_outside():
            outer = self._recorder.values.detached(outer)
        if bytes_alone:
            low, high = low - low % size, high + -high % size
        first, count = low // size, (high - low) // size
        flat: Tensor = emit(AS_STRIDED, (outer, (count,), (1,), first - outer.offset), True)
        if bytes_alone and outer.meta.dtype is not uint8:
            flat = emit(VIEW_DTYPE, (flat, uint8), True)
            first = low
        return WrittenMemory(self._recorder.values, flat.meta, flat, handle=flat, start=first)

    def _move(self, memory: WrittenMemory, to: WrittenMemory, *, is_alone: bool) -> None:
        chain, start = self._window(to, memory.meta, memory.start)
        if not is_alone:
            own_history_of(memory)
        memory.fold()
        to.tensors.is_shared = to.tensors.is_shared or memory.tensors.is_shared
        if memory.version:
            value = memory.value
            to.value = to.outside.put(to, to.value, chain, value)
            to.past = memory.past if to.past is None else to.past
            to.version += memory.version
            to.has_new_history = to.has_new_history or memory.has_new_history
        memory.moved_to(to, chain, start)

    @staticmethod
    def _window(memory: WrittenMemory, meta: TensorMeta, offset: int) -> tuple[ViewChain, int]:
        """The chain from a flat root to a tensor, and its start, in elements of its own."""
        if meta.dtype is memory.meta.dtype:
            start = offset - memory.start
            return chain_of(strided_step(memory.meta, meta, start)), start
        first = offset * meta.dtype.itemsize - memory.start
        return bytes_window(memory.meta, meta, first), first // meta.dtype.itemsize

    # --- roots that a write, or a window, needs
    def prepare_write(self, memory: WrittenMemory) -> None:
        """A root that shows an element twice becomes flat before it is written (FUN-9)."""
        if memory.handle is not None and overlaps_itself(memory.meta):
            self._flatten(memory, *_bytes(memory.meta, memory.start))

    def reach(self, memory: WrittenMemory, meta: TensorMeta, start: int) -> int:
        """Makes a root reach a window; returns by how many elements its start moves."""
        if memory.handle is None or is_symbolic((start, *meta.shape, *memory.meta.shape)):
            return 0
        size, own = meta.dtype.itemsize, memory.meta.dtype.itemsize
        low, high = _bytes(memory.meta, memory.start)
        first = memory.start * own + start * size
        inside = not meta.numel or low <= first and first + meta.span * size <= high
        if inside and memory.meta.dense and memory.meta.dtype in (meta.dtype, uint8):
            return 0
        before = memory.start * own
        wanted = min(low, first), max(high, first + meta.span * size)
        made = self._flatten(memory, *(wanted if meta.numel else (low, high)))
        return (before - made.start * made.meta.dtype.itemsize) // size

    def to_bytes(self, memory: WrittenMemory) -> WrittenMemory:
        """Makes a root one of bytes, on which windows of all dtypes have inverses."""
        if is_symbolic((*memory.meta.shape, memory.start)) or is_bytes(memory.meta):
            return memory
        if memory.handle is None:
            return made_bytes(memory)
        return self._flatten(memory, *_bytes(memory.meta, memory.start), bytes_alone=True)

    def grow(self, memory: WrittenMemory, needed: int) -> None:
        """Makes a root one of bytes, at least this many from its first byte on: new ones are zeros
        (TEN-25). All that tensors outside show of the storage belongs to it then."""
        handle = memory.handle
        if handle is None:
            lengthened(self.to_bytes(memory), needed)
            return
        several = next(each for each in self._known.values() if memory in each)
        needed += memory.start * memory.meta.dtype.itemsize
        if not memory.is_grown:
            line = tensor_meta((handle.storage.nbytes(),), None, uint8, handle.device)
            flat = Tensor(handle.storage, line)
            whole = WrittenMemory(self._recorder.values, line, flat, handle=flat)
            for each in several:
                self._move(each, whole, is_alone=False)
            memory = whole
        several[:] = [lengthened(memory, needed)]

    def _flatten(
        self, memory: WrittenMemory, low: int, high: int, *, bytes_alone: bool = False
    ) -> WrittenMemory:
        handle: Any = memory.handle
        several = next(each for each in self._known.values() if memory in each)
        others, found = self._within(several, low, high)
        for each in found:
            low, high = min(low, each[0]), max(high, each[1])
        others = [each for each in others if each is not memory]
        kinds = {each.meta.dtype for each in (memory, *others)}
        bytes_alone = bytes_alone or len(kinds) > 1
        is_alone = not others and not bytes_alone
        made = self._flat(handle, low, high, bytes_alone=bytes_alone, history=is_alone)
        for each in (memory, *others):
            self._move(each, made, is_alone=is_alone)
        several[:] = [each for each in several if each is not memory and each not in others]
        several.append(made)
        return made

    @staticmethod
    def _within(
        several: list[WrittenMemory], low: int, high: int
    ) -> tuple[list[WrittenMemory], list[Any]]:
        """The memories that lie within these bytes, or overlap others that do, and their bytes."""
        found: list[WrittenMemory] = []
        while True:
            new = [
                each
                for each in several
                if each not in found and _overlap(_bytes(each.meta, each.start), (low, high))
            ]
            if not new:
                return found, [_bytes(each.meta, each.start) for each in found]
            found += new
            spans = [_bytes(each.meta, each.start) for each in found]
            low = min([low, *[first for first, _ in spans]])
            high = max([high, *[end for _, end in spans]])

    # --- the end
    def written(self) -> list[WrittenMemory]:
        """The memories of tensors from outside that were written."""
        return [each for each in self.all() if each.version and each.handle is not None]


def _bytes(meta: TensorMeta, offset: int) -> tuple[int, int]:
    size = meta.dtype.itemsize
    return offset * size, (offset + meta.span) * size


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _meet(memory: WrittenMemory, outer: Any) -> bool:
    """Whether a memory and a tensor on the same storage share a byte."""
    handle: Any = memory.handle
    if is_symbolic((*handle.meta.shape, *outer.meta.shape, handle.offset, outer.offset)):
        return True
    return bool(
        overlaps_bytes(
            (memory.meta.shape, memory.meta.stride, memory.start),
            memory.meta.dtype.itemsize,
            (outer.meta.shape, outer.meta.stride, outer.offset),
            outer.meta.dtype.itemsize,
        )
    )
