"""Value numbering (as in GVN) across the graphs of all orders of derivatives (DBL-2).

Nodes of two graphs have one number only if they have equal values. A double backward's graph
computes the forward again; the numbers say which of its nodes a call has saved already.

Note [Value numbers across writes]
    y = x.clone(); y[0] = a; y[1] = b; return y[0].sin()
In the first graph stage 7 may have replaced `y[0]` by `a`; in the graph of order 2 it is still
`select(select_scatter(select_scatter(..)))`, since other nodes read it. By op and operands the two
would differ. So a number stands for contents: a view is a window on a memory, a scatter is a memory
after a write, and a window that no later write meets is a window on the memory before (SIM-2 to
SIM-6). Strides do not count: a copy has the number of its operand. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import attrs
import numpy as np

from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.ir.errors import AotliteError
from aotlite.ir.geometry.sizes import always_equal, is_symbolic
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.effect_chains import is_effect, numbered
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, ViewOp
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.ir.symbols.symint import SymInt
from aotlite.stages.shared.memory.windows import LOOK_BACK, SCATTERED, MemoryWindow, relation

_COPIES = {op.copies: op for op in list(OPS.values()) if isinstance(op, ViewOp) and op.copies}
"""For each op that copies a view, the view op."""


class _Place(NamedTuple):
    """A window on a memory, which is named by the number of the value that spans it."""

    memory: int
    window: MemoryWindow


class _Write(NamedTuple):
    """A scatter: value `source` is written in `window` to a copy of memory `below`.

    It ends a run of writes that covers the addresses `first` to `end` and began with `bottom`.
    """

    below: int
    source: int
    window: MemoryWindow
    first: int
    end: int
    bottom: int


@attrs.frozen(eq=False, repr=False)
class ValueNumbering:
    """The numbers given so far, by key; the place, and the write, of numbers that have one."""

    _table: dict[Any, int] = attrs.field(factory=dict)
    _places: dict[int, _Place] = attrs.field(factory=dict)
    _writes: dict[int, _Write] = attrs.field(factory=dict)
    _constants: dict[int, tuple[Any, int]] = attrs.field(factory=dict)
    """By id: a constant, which is kept alive, and its number."""

    def of(self, graph: Graph, given: Mapping[Any, int]) -> dict[Node, int]:
        """The number of each node of a graph; `given` has the numbers of inputs, by role."""
        numbers: dict[Node, int] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                numbers[node] = given.get(node.role) or self._input(node)
            elif node.op == "get_attr":
                numbers[node] = self._constant(node.target)
            elif node.op == "call":
                numbers[node] = self._called(node, numbers)
        return numbers

    def unknown(self) -> int:
        """A number that no other value has."""
        return self._number(("unknown", len(self._table)))

    def turned(self, number: int) -> int:
        """The number of a view's base, if the view has all its elements; else `number`."""
        place = self._places.get(number)
        if place is None:
            return number
        whole = self._places[place.memory].window.meta
        return place.memory if whole.numel == place.window.meta.numel else number

    def _input(self, node: Node) -> int:
        """The number of an input, by its role and shape.

        Tangents of two orders may have one role. No saved value depends on both; but the windows
        on a number are those of one shape.
        """
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        return self._number(("input", node.role, meta.as_contiguous()))

    def _constant(self, constant: Any) -> int:
        """The number of a constant, by its content: a graph from a file has constants of its own
        (CACHE-14)."""
        known = self._constants.get(id(constant))
        if known is None:
            value = constant.value
            content: object = id(constant)
            if type(value) is np.ndarray and not value.dtype.hasobject:
                content = sha256(value.tobytes()).digest()
            key = "constant", str(value.dtype), value.shape, content
            known = self._constants[id(constant)] = constant, self._number(key)
        return known[1]

    def _number(self, key: object) -> int:
        return self._table.setdefault(key, len(self._table) + 1)

    def _called(self, node: Node, numbers: dict[Node, int]) -> int:
        op: Any = _COPIES.get(node.target, node.target)
        if op in (CLONE, RESTRIDE):  # the same values in other strides
            return numbers[node.args[0]]
        if is_effect(node):
            return self._number(("effect", op.effect, node.phase, numbered(node)))
        viewed = op if isinstance(op, ViewOp) else SCATTERED.get(op)
        if viewed is None or viewed.recasts or not _has_numbers(node):
            return self._number((op, *_named(node, numbers)))
        if op is AS_STRIDED:
            return self._strided(node, numbers)
        meta: TensorMeta = node.args[0].meta
        place = self._place(numbers[node.args[0]], meta)
        if viewed is AS_STRIDED and not (place.window.meta is meta and meta.dense):
            return self._number((op, meta.stride, *_named(node, numbers)))
        window = _seen_through(viewed, place.window, node.args[1 if op is viewed else 2 :])
        found = None
        if window is not None and op is viewed:
            found = self._shown(place.memory, window)
        elif window is not None and _fits(node.args[1].meta, window.meta):
            found = self._scattered(place, window, numbers[node.args[1]])
        return found or self._number((op, *_named(node, numbers)))

    def _strided(self, node: Node, numbers: Mapping[Node, int]) -> int:
        """The number of an as_strided, which depends on the strides of its operand's root."""
        root, start = _in_memory(node.args[0])
        if storage_root(root) is not root:
            return self.unknown()
        meta: TensorMeta = root.meta  # type: ignore[assignment]
        place = self._place(numbers[root], meta)
        shown, further = node.target.result(node.args)
        window = MemoryWindow(shown, start + further)
        if place.window.meta is not meta or shown.dtype is not meta.dtype:
            return self._number((AS_STRIDED, numbers[root], meta.stride, window))
        return self._shown(place.memory, MemoryWindow(shown, place.window.start + window.start))

    # --- memories
    def _place(self, number: int, meta: TensorMeta) -> _Place:
        """The place of a value; a memory of its own if it is no known view."""
        found = self._places.get(number)
        if found is None:
            whole = MemoryWindow(meta.as_contiguous(), 0)
            found = self._places[number] = _Place(number, whole)
        return found

    def _shown(self, memory: int, window: MemoryWindow) -> int:
        """The number of the value in a window; searches behind writes that do not meet it."""
        for _ in range(LOOK_BACK):
            if window == self._places[memory].window:
                return memory
            write = self._writes.get(memory)
            if write is None:
                break
            if window.start + window.meta.span <= write.first or write.end <= window.start:
                memory = write.bottom
                continue
            how = relation(window, write.window)
            if how == "same":
                return write.source
            if how != "apart":
                inside = self._inside(window, write)
                if inside is None:
                    break
                memory, window = inside
                continue
            memory = write.below
        number = self._number(("window", memory, window))
        self._places.setdefault(number, _Place(memory, window))
        return number

    def _inside(self, window: MemoryWindow, write: _Write) -> _Place | None:
        """The window's place within the written value, if it lies inside it and is easy to find.

        Easy: one is a transpose of the other, or both are contiguous.
        """
        memory, source = self._place(write.source, write.window.meta)
        if window.meta.dtype is not source.meta.dtype:
            return None
        order = _order(window, write.window)
        if order is not None:
            meta = source.meta
            turned = tensor_meta(
                [meta.shape[dim] for dim in order],
                [meta.stride[dim] for dim in order],
                meta.dtype,
                meta.device,
            )
            return _Place(memory, MemoryWindow(turned, source.start))
        start = window.start - write.window.start
        if not (write.window.meta.contiguous and source.meta.contiguous) or start < 0:
            return None
        if start + window.meta.span > write.window.meta.numel:
            return None
        return _Place(memory, MemoryWindow(window.meta, source.start + start))

    def _scattered(self, operand: _Place, window: MemoryWindow, source: int) -> int | None:
        """The number of a scatter's result; None to number it by op and operands.

        None if elements of the window share a place: it is unspecified which value stays.
        """
        memory, whole = operand
        if overlaps_itself(whole.meta) or overlaps_itself(window.meta):
            return None
        if not window.meta.numel or self._shown(memory, window) == source:
            return self._shown(memory, whole)
        if window == whole:
            return source
        place = self._places[self._shown(self._without(memory, window), whole)]
        if place.window != whole:  # all of it was written by one write, from another memory
            place = operand
        return self._behind(place.memory, whole, window, source)

    def _behind(self, memory: int, whole: MemoryWindow, window: MemoryWindow, source: int) -> int:
        """The number of the memory after a write, as far as `whole` spans it."""
        number = self._number(("written", memory, whole, window, source))
        if number not in self._writes:
            self._places[number] = _Place(number, whole)
            self._writes[number] = self._write(memory, window, source)
        return number

    def _write(self, below: int, window: MemoryWindow, source: int) -> _Write:
        first, bottom = window.start, below
        end = first + window.meta.span
        before = self._writes.get(below)
        if before is not None:
            first, end, bottom = min(first, before.first), max(end, before.end), before.bottom
        return _Write(below, source, window, first, end, bottom)

    def _without(self, memory: int, window: MemoryWindow) -> int:
        """The memory without an earlier write to the same window, which is dead (SIM-4)."""
        later: list[tuple[MemoryWindow, _Write]] = []
        below = memory
        for _ in range(LOOK_BACK):
            write = self._writes.get(below)
            if write is None:
                break
            if write.window == window:
                return self._again(write.below, later) or memory
            later.append((self._places[below].window, write))
            below = write.below
        return memory

    def _again(self, memory: int, writes: list[tuple[MemoryWindow, _Write]]) -> int | None:
        """The memory with these writes, newest first, applied again; None if one cannot be."""
        for whole, write in reversed(writes):
            operand = self._places[self._shown(memory, whole)]
            if operand.window != whole:
                return None
            memory = self._behind(operand.memory, whole, write.window, write.source)
        return memory


def _has_numbers(node: Node) -> bool:
    """Whether no size is symbolic."""
    metas: Any = (node.meta, node.args[0].meta)
    return not any(is_symbolic((*meta.shape, *meta.stride)) for meta in metas)


def _fits(source: TensorMeta, window: TensorMeta) -> bool:
    return source.shape == window.shape and source.dtype is window.dtype


def _order(window: MemoryWindow, other: MemoryWindow) -> list[int] | None:
    """The permutation of `other`'s dimensions that gives `window`; None if there is none."""
    have = list(zip(window.meta.shape, window.meta.stride, strict=True))
    rest = dict(enumerate(zip(other.meta.shape, other.meta.stride, strict=True)))
    if window.start != other.start or sorted(have) != sorted(rest.values()):
        return None
    found = []
    for each in have:
        found.append(next(dim for dim, its in rest.items() if its == each))
        del rest[found[-1]]
    return found


class _Operand(NamedTuple):
    meta: TensorMeta


def _seen_through(
    op: ViewOp, window: MemoryWindow, rest: tuple[object, ...]
) -> MemoryWindow | None:
    """The window of a view of a window; None if the view op fails on its strides."""
    try:
        meta, start = op.result((_Operand(window.meta), *rest))
    except AotliteError:
        return None
    return MemoryWindow(meta, window.start + start)


# --------------------------------------------------------------------------------- without numbers
def are_known(values: Iterable[Node], known: set[Node], graph: Graph) -> bool:
    """Whether each value is a known one of a graph, or a known one reshaped or transposed.

    False where it takes numbers to say: where a known value is a view, a copy, or a write of or
    into one, it may be another value in other words.
    """
    own: set[Node] = set()
    for node in graph.nodes:
        is_other = isinstance(node.target, ViewOp) or node.target in (*_COPIES, CLONE, RESTRIDE)
        if not is_other and (node.target not in SCATTERED or own.issuperset(node.args[:2])):
            own.add(node)
    return known <= own and all(v in known or _is_turned(v) and v.args[0] in known for v in values)


def _is_turned(node: Node) -> bool:
    """Whether a value is a view of all elements of its operand."""
    op = node.target
    if not isinstance(op, ViewOp) or op is AS_STRIDED or op.recasts:
        return False
    return always_equal(node.meta.numel, node.args[0].meta.numel)  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------ other calls
def _named(node: Node, numbers: Mapping[Node, int]) -> tuple[Any, ...]:
    """The arguments as a key: value numbers, and literals with their types."""
    args = map_nodes(node.args, lambda value: _Numbered(numbers[value]))
    return tuple(map(_literal, args))


@attrs.frozen
class _Numbered:
    number: int


def _literal(value: object) -> Any:
    if type(value) is tuple:
        return tuple([_literal(item) for item in value])
    kind = type(value)
    return value if kind is _Numbered or kind is SymInt else (kind, repr(value))


def _in_memory(value: Node) -> tuple[Node, int]:
    """The root of a chain of views, and the start of the value in it, in elements."""
    views: list[Node] = []
    while isinstance(value.target, ViewOp):
        views.append(value)
        value = value.args[0]
    start = 0
    for each in reversed(views):
        start = each.target.at(each.args, start)
    return value, start
