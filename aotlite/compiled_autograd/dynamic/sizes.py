"""Splits a segment into its outline and its sizes, and chooses symbols for sizes that vary (CAG-5).

    recorded segments      sizes               column      symbol
    1                       (4, 8)   (8, 4)     (4, 6)      s0
    2                       (6, 8)   (8, 6)     (8, 8)      8, a constant

Segments of one outline differ in sizes only. Each size has a column of numbers: one that varies is
a symbol, and equal columns share it. A column may be a product of others; that of a stride or an
argument may be a size, or the difference of two, plus a constant.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import add, sub
from typing import Any

import attrs

from aotlite.compiled_autograd.node_signatures import CLOSED, Form
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import SliceAssign
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_strides
from aotlite.ir.op import Op
from aotlite.ir.op.schema import WHICH
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.size_regions.kernels import instance_of
from aotlite.stages.s10_runtime.backward.node import CompiledBackward

Item = Any
"""A meta, or an int that may have been computed from sizes."""
Column = tuple[int, ...]
"""The values of one size in several segments."""


# ------------------------------------------------------------------------------ sizes and outlines
def with_items(form: Form, put: Callable[[Item], object]) -> Form:
    """The form with each of its metas and sizes replaced by `put(item)`, in order."""
    kind = form[0]
    if kind is CLOSED:
        return form
    if kind is CompiledBackward:
        return _with_instance(form, put)
    if kind is SliceAssign:
        _, written, chain, root, own = form
        return kind, with_items(written, put), _with_chain(chain, put), put(root), own
    if kind is AccumulateGrad:
        if form[1] is None:
            return form
        _, leaf, rest = form
        return kind, put(leaf), rest if type(rest) is bool else _with_chain(rest, put)
    op, plan, key, result, saved = form
    return op, plan, _with_args(op, key, 0, put), _with(result, put), _with(saved, put)


def _with_instance(form: Form, put: Callable[[Item], object]) -> Form:
    """The form of a compiled backward; of a region's, it is that of all its instances."""
    instance = instance_of(form[1])
    if instance is None:
        return form
    sizes = [put(tensor_meta((value,))) for value in instance.values.values()]
    metas = [put(node.meta) for node in instance.graph.placeholders]
    return CompiledBackward, instance.kernels, tuple(instance.values), tuple(sizes), tuple(metas)


def _with_chain(chain: Any, put: Callable[[Item], object]) -> object:
    return tuple([(op, _with_args(op, args, 1, put), put(meta)) for op, args, meta in chain])


def _with_args(
    op: Op, args: tuple[object, ...], first: int, put: Callable[[Item], object]
) -> object:
    """Arguments with their sizes replaced; an int that names a dimension is no size."""
    parameters = op.schema.parameters[first:]
    pairs = zip(parameters, args, strict=True)
    return tuple([value if p.name in WHICH else _with(value, put) for p, value in pairs])


def _with(value: Any, put: Callable[[Item], object]) -> object:
    kind = type(value)
    if kind is TensorMeta or kind is int:
        return put(value)
    return tuple([_with(each, put) for each in value]) if kind is tuple else value


def outline_of(form: Form, items: list[Item]) -> Hashable:
    """The form without its sizes, which are appended to `items`."""

    def put(item: Item) -> Hashable:
        items.append(item)
        return rank_of(item)

    return with_items(form, put)


def rank_of(item: Item) -> Hashable:
    """An item without its sizes: rank, dtype and device of a meta, the type of an int."""
    if type(item) is int:
        return int
    return TensorMeta, len(item.shape), item.dtype, item.device


# --------------------------------------------------------------------------------------- symbols
class Numbers:
    """Replaces symbols by numbers, given by name; memoized, so that one meta stays one object."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values
        self._known: dict[Any, Any] = {}

    def put(self, value: Any) -> Any:
        """A size, a meta or a tuple with its symbols replaced; anything else as it is."""
        kind = type(value)
        if kind is tuple:
            return tuple(map(self.put, value))
        if kind is not TensorMeta and kind is not SymInt:
            return value
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = concrete(value, self.values)
        return found


@attrs.frozen(eq=False)
class Symbols:
    """The items of a segment, with symbols for the sizes that vary."""

    table: SymbolTable
    items: tuple[Item, ...]
    places: Mapping[str, tuple[int, int]]
    """By the name of a symbol: the index of a meta, and the dimension that has this size."""

    def values(self, items: Sequence[Item]) -> dict[str, int]:
        """The values of the symbols in another segment of the outline."""
        return {name: items[k].shape[dim] for name, (k, dim) in self.places.items()}

    def misfit(self, items: Sequence[Item]) -> int | None:
        """The number of the first item that cannot be one of these; None where all are."""
        values = self.values(items)
        for name, value in values.items():
            if value < 2:  # DYN-1
                return self.places[name][0]
        put = Numbers(values).put
        for number, (mine, item) in enumerate(zip(self.items, items, strict=True)):
            if mine is not item and put(mine) != item:
                return number
        return None

    def settled(self) -> list[str]:
        """The symbols of which one value was assumed."""
        ranges = {name: self.table.range(self.table.named(name)) for name in self.places}
        return [name for name, (low, high) in ranges.items() if low == high]


def symbols_of(
    samples: Sequence[Sequence[Item]], fixed: Iterable[tuple[int, int]]
) -> Symbols | None:
    """Symbols for what differs in these lists of items, whose values in the last one are the hints.

    None where something else differs: a size that was 0 or 1, or is one of those that are `fixed`
    (the number of a meta, a dimension), or an argument or a stride that is neither a product of
    sizes nor a size, or a difference of two, and a number more.
    """
    table = SymbolTable()
    places = _places(samples)
    if any(places.get(_column(samples, *place)) for place in fixed) or any(
        min(column) < 2 for column in places
    ):
        return None
    factors: list[tuple[Column, Any]] = []
    named: dict[str, tuple[int, int]] = {}
    for column in sorted(places, key=lambda column: (max(column), column)):
        if _product(column, factors) is None:
            made = table.symbol(column[-1], lower=2)
            factors.insert(0, (column, made))
            named[str(made)] = places[column]
    given = [{str(size): column[k] for column, size in factors} for k in range(len(samples))]
    laid = _Laid(table, factors, given)
    items = [laid.item(row) for row in zip(*samples, strict=True)]
    return None if None in items else Symbols(table, tuple(items), named)


def _places(samples: Sequence[Sequence[Item]]) -> dict[Column, tuple[int, int]]:
    """The columns of sizes that vary, with the first (item, dimension) of each."""
    found: dict[Column, tuple[int, int]] = {}
    for number, row in enumerate(zip(*samples, strict=True)):
        if type(row[-1]) is TensorMeta and any(meta is not row[-1] for meta in row):
            for dim, column in enumerate(zip(*[meta.shape for meta in row], strict=True)):
                if len(set(column)) > 1:
                    found.setdefault(column, (number, dim))
    return found


def _column(samples: Sequence[Sequence[Item]], number: int, dim: int) -> Column:
    return tuple([items[number].shape[dim] for items in samples])


def _product(column: Column, factors: Sequence[tuple[Column, object]]) -> Any:
    """The column as a constant times some of the factors; None if it is no such product."""
    if len(set(column)) == 1:
        return column[0]
    for place, (other, size) in enumerate(factors):
        if not any(n % m for n, m in zip(column, other, strict=True)):
            rest = tuple([n // m for n, m in zip(column, other, strict=True)])
            found = _product(rest, factors[place:])
            if found is not None:
                return found * size
    return None


def _number(column: Column, factors: Sequence[tuple[Column, Any]]) -> object:
    """The column as a product, as a size or as the difference of two, plus a constant; None if it
    is none of these. A slice that begins in the middle, `x[n // 2 :]`, has such a difference."""
    found = _product(column, factors)
    if found is not None:
        return found
    for other, size in factors:
        rest = tuple(map(sub, column, other))
        if len(set(rest)) == 1:
            return size + rest[0]
        for less, taken in factors:
            more = set(map(add, rest, less))
            if len(more) == 1:
                return size - taken + more.pop()
    return None


@attrs.frozen(eq=False)
class _Laid:
    """Makes symbolic items from the items of several segments."""

    table: SymbolTable
    factors: list[tuple[Column, Any]]
    values: list[dict[str, int]]
    """The values of the symbols, in each segment."""

    def item(self, row: tuple[Item, ...]) -> Item | None:
        """The symbolic item whose values are these; None if there is none."""
        last = row[-1]
        if all(item is last for item in row):
            return last
        if type(last) is not TensorMeta:
            return _number(row, self.factors)
        shape = self._numbers([meta.shape for meta in row])
        stride = None if shape is None else self._stride(shape, row)
        return None if stride is None else tensor_meta(shape, stride, last.dtype, last.device)

    def _stride(self, shape: Any, row: tuple[TensorMeta, ...]) -> Any:
        stride = symbolic_strides(shape, row[-1].shape, row[-1].stride)
        pairs = zip(self.values, row, strict=True)
        if all(concrete(stride, values) == meta.stride for values, meta in pairs):
            return stride
        return self._numbers([meta.stride for meta in row])

    def _numbers(self, rows: list[tuple[int, ...]]) -> Any:
        numbers = [_number(column, self.factors) for column in zip(*rows, strict=True)]
        return None if None in numbers else tuple(numbers)
