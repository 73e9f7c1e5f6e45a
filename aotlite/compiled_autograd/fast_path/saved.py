"""Tables that check the saved values of a tape, and collect those that the kernels read.

A value has to have the recorded meta, and the version at which it was saved. Otherwise the match
fails, and the general path raises what eager raises. Used by `matcher`. Rules: CAG-6, CAG-7.
Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.compiled_autograd.node_signatures import CLOSED, is_number, is_plain
from aotlite.compiled_autograd.structure import TapeStructure
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.ir.meta import TensorMeta

Slot = tuple[int, int]
"""(number of a node, index in its `records_of`)."""
CHECKED, ARRAY, WINDOW = range(3)
"""How a value is used: it is only checked, or passed as an array, or passed as a window."""


@attrs.frozen(eq=False)
class Records:
    """The positions of saved tensors. A node's row is its index in `Way.numbers`."""

    whole: tuple[tuple[int, int], ...]
    """(row, index in the node's `kept`) of single tensors."""
    listed: tuple[tuple[int, int, int], ...]
    """(row, index of a list in `kept`, index in the list)."""
    results: tuple[tuple[int, int], ...]
    """(row, index of the result) of saved results."""
    metas: tuple[TensorMeta, ...]
    """The metas of the tensors, in this order."""
    uses: tuple[int, ...]
    """CHECKED, ARRAY or WINDOW."""
    slots: tuple[Slot, ...]
    """The slots of tensors that are passed."""

    def of(self, nodes: Sequence[Any]) -> list[Any]:
        """The saved tensors. Raises one of `_ERRORS` for a node of an unexpected form."""
        found = [nodes[row].kept[k] for row, k in self.whole]
        if self.listed:
            found += [nodes[row].kept[k][i] for row, k, i in self.listed]
        if self.results:
            found += [nodes[row].saved_results[k] for row, k in self.results]
        return found


@attrs.frozen(eq=False)
class SavedChecks:
    """The checks of the saved values of one structure."""

    arrays: Records
    """Values that are passed as arrays."""
    others: Records
    numbers: tuple[tuple[int, int, type, Any], ...]
    """(row, index in `kept`, type, value) of Python numbers; the value's repr if another number
    may equal it, as -0.0 equals 0.0."""
    rest: tuple[int, ...]
    """The rows of nodes without checks, whose saved values must not have been released."""

    @property
    def given(self) -> tuple[Slot, ...]:
        """The slots of the values that `values` returns."""
        return self.arrays.slots + self.others.slots

    def values(self, nodes: Sequence[Any], *, typed: bool) -> list[Any] | None:
        """The values to pass; None at the first mismatch.

        Raises one of `_ERRORS` for a node of an unexpected form.
        """
        arrays, others = self.arrays.of(nodes), self.others.of(nodes)
        if typed and not all(is_plain(record.tensor) for record in (*arrays, *others)):
            return None
        found: list[Any] = []
        for record, meta in zip(arrays, self.arrays.metas, strict=True):
            tensor = record.tensor
            if tensor.meta is not meta or tensor.storage.version != record.version:
                return None
            array = tensor._array
            found.append(tensor._data if array is None else array)
        for record, meta, use in zip(others, self.others.metas, self.others.uses, strict=True):
            tensor = record.tensor
            if tensor.meta is not meta or tensor.storage.version != record.version:
                return None
            if use == WINDOW:
                found.append((tensor.storage.buffer, tensor.offset))
        for row, k, kind, same in self.numbers:
            value = nodes[row].kept[k]
            if type(value) is not kind or same != (value if type(same) is kind else repr(value)):
                return None
        return None if any(nodes[row].kept is None for row in self.rest) else found


def kept_of(
    look: TapeStructure, numbers: Sequence[int], uses: Mapping[Slot, int] | None
) -> SavedChecks:
    """The tables of a structure, for the nodes with these numbers.

    `uses` says how each slot that is read is used; None: all are only checked.
    """
    tables = _Tables(look, uses)
    for row, number in enumerate(numbers):
        node: Any = look.nodes[number]
        if type(node) is OpNode and look.forms[number][0] != CLOSED and node.extra is None:
            tables.add(row, number, node)
    return SavedChecks(
        tables.records(lambda use: use == ARRAY),
        tables.records(lambda use: use != ARRAY),
        tuple(tables.numbers),
        tuple(tables.rest),
    )


@attrs.frozen(eq=False)
class _Row:
    """One saved tensor: its table, its position, its meta and its use."""

    table: str
    where: Any
    meta: TensorMeta
    use: int
    slot: Slot


class _Tables:
    def __init__(self, look: TapeStructure, uses: Mapping[Slot, int] | None) -> None:
        self.look = look
        self.uses = uses
        self.rows: list[_Row] = []
        self.numbers: list[Any] = []
        self.rest: list[int] = []

    def add(self, row: int, number: int, node: OpNode) -> None:
        """Adds the saved values of a node."""
        found: list[tuple[str, Any, SavedTensor]] = []
        for k, (position, value) in enumerate(zip(node.plan.reads, node.kept or (), strict=True)):
            if type(value) is SavedTensor:
                found.append(("whole", (row, k), value))
            elif type(value) is list:
                found += [("listed", (row, k, i), each) for i, each in enumerate(value)]
            elif is_number(node.op, position, value):
                exact = type(value) in (bool, int, float) and value == value and value != 0
                self.numbers.append((row, k, type(value), value if exact else repr(value)))
        found += [("results", (row, k), each) for k, each in node.saved_results.items()]
        before = len(self.rows)
        for slot, (table, where, record) in enumerate(found):
            use = CHECKED if self.uses is None else self.uses.get((number, slot))
            if use is not None:
                self.rows.append(_Row(table, where, record.tensor.meta, use, (number, slot)))
        if found and len(self.rows) == before:
            self.rest.append(row)

    def records(self, chosen: Callable[[int], bool]) -> Records:
        """The tables of the saved tensors whose use is chosen."""
        names = ("whole", "listed", "results")
        rows = [r for name in names for r in self.rows if r.table == name and chosen(r.use)]
        whole, listed, results = [[r.where for r in rows if r.table == name] for name in names]
        return Records(
            tuple(whole),
            tuple(listed),
            tuple(results),
            tuple([r.meta for r in rows]),
            tuple([r.use for r in rows]),
            tuple([r.slot for r in rows if r.use != CHECKED]),
        )
