"""Immutable arrays: no call writes them; functional updates return new arrays."""

from __future__ import annotations

from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.memory_model import Shape, dense, nested
from aotlite.conformance.models.model_arrays import new, see
from aotlite.conformance.rules import attempt, expect, refuses, rule
from aotlite.conformance.rules.mutation.writes import WRITES, write
from aotlite.conformance.unsupported import Absent

SHAPES: tuple[Shape, ...] = ((1,), (2,), (2, 2), (64,))


def frozen(on: Adapter, shape: Shape, dtype: str = "int64") -> tuple[Array, object]:
    """Returns an immutable array and its values."""
    size = len(dense([], shape).addresses())
    values = nested(list(range(size)), shape)
    return on.frozen(values, dtype), values


@rule("IMM-1", "item assignment to an immutable array is refused", SHAPES)
def assignment(on: Adapter, case: Shape) -> None:
    """`a[0] = 9` raises, and `a` keeps its values."""
    a, values = frozen(on, case)
    refused = refuses(on.assign_item, a, (0,) * len(case), 9)
    expect(refused, True, "whether the assignment was refused")
    expect(on.to_list(a), values, "the array after the refusal")


@rule("IMM-2", "`a += b` writes `a` in place, or does not change it", [
    (shape, kind) for shape in SHAPES[:3] for kind in ("frozen", "ordinary")
])  # fmt: skip
def augmented(on: Adapter, case: tuple[Shape, str]) -> None:
    """If `+=` binds another object, the old one keeps its values."""
    shape, kind = case
    twin = new(on, shape)
    a = frozen(on, shape)[0] if kind == "frozen" else twin.array
    result: list[Array] = []
    if attempt(lambda: result.append(on.iadd(a, 1))) is None and result[0] is a:
        expect(kind, "ordinary", "the array that `+=` wrote")
        twin.view.update(lambda value: value + 1)
    expect(on.to_list(a), twin.values(), "the array")


@rule("IMM-3", "every in-place op refuses an immutable array", [
    (shape, way) for shape in SHAPES[:3] for way in (*WRITES[:4], "add_out")
])  # fmt: skip
def in_place(on: Adapter, case: tuple[Shape, str]) -> None:
    """`add_`, `fill_`, `copy_`, `out=` raise, and `a` keeps its values."""
    shape, way = case
    a, values = frozen(on, shape)
    operand = new(on, shape, first=5)
    expect(refuses(write, on, way, a, operand.array), True, "whether the write was refused")
    expect(on.to_list(a), values, "the array after the refusal")


@rule("IMM-4", "views of an immutable array are immutable", [
    (shape, made) for shape in SHAPES[:3]
    for made in (("narrow", 0, 0, 1), ("view", shape), ("unsqueeze", 0))
])  # fmt: skip
def views(on: Adapter, case: tuple[Shape, Any]) -> None:
    """A write through a view raises, or writes a copy: the array keeps its values."""
    shape, (name, *arguments) = case
    a, values = frozen(on, shape)
    view = getattr(on, name)(a, *arguments)
    attempt(on.assign_item, view, ..., 9)
    expect(on.to_list(a), values, "the array after a write through its view")


@rule("IMM-5", "NumPy cannot write an immutable array", [
    (shape, way) for shape in SHAPES for way in ("to_numpy", "dlpack_to_numpy", "memoryview")
])  # fmt: skip
def through_numpy(on: Adapter, case: tuple[Shape, str]) -> None:
    """The exports to NumPy, DLPack and buffers are refused, read-only, or copies."""
    shape, way = case
    a, values = frozen(on, shape)
    attempt(lambda: on.assign_item(getattr(on, way)(a), (0,) * len(shape), 9))
    expect(on.to_list(a), values, "the array after the write")


@rule("IMM-6", "an immutable array made from NumPy's memory never changes", [
    (size, way) for size in (1, 2, 16, 64, 1024) for way in ("convert", "from_dlpack", "from_numpy")
])  # fmt: skip
def from_writable(on: Adapter, case: tuple[int, str]) -> None:
    """In a library whose arrays are all immutable, NumPy's later writes do not show in them."""
    size, way = case
    if not on.immutable:
        raise Absent("arrays that are all immutable")
    source = on.numpy_source(size)
    made = getattr(on, way)(source)
    before = on.to_list(made)
    on.assign_item(source, slice(None), 9)
    expect(on.to_list(made), before, "the immutable array after NumPy's write")


UPDATES: tuple[tuple[Shape, object], ...] = (
    ((1,), 0), ((2,), slice(1, 2)), ((2, 2), (0, 1)), ((2, 2), (..., 0)), ((3,), slice(0, 0)),
)  # fmt: skip


@rule("IMM-7", "a functional update has the values of a write", UPDATES)
def update(on: Adapter, case: tuple[Shape, Any]) -> None:
    """`set_at` returns the new values, and does not change its operand."""
    shape, key = case
    twin = new(on, shape)
    made = on.set_at(twin.array, key, 9)
    see(on, twin, "the operand after the update")
    target = twin.view.getitem(key)
    target.write([9] * len(target.values()))
    expect(on.to_list(made), twin.values(), "the update")


@rule(
    "IMM-8",
    "functional accumulation adds once for each mention of an index",
    [[0], [0, 0], [0, 1, 0], [1, 1, 1]],
)
def update_twice(on: Adapter, case: list[int]) -> None:
    """`add_at` with an index given twice adds twice, and does not change its operand."""
    twin = new(on, (2,))
    made = on.add_at(twin.array, case, 5)
    see(on, twin, "the operand after the update")
    for place in case:
        twin.view.memory[place] += 5
    expect(on.to_list(made), twin.values(), "the update")


@rule("IMM-9", "a functional update out of bounds is refused", [(1, 1), (1, -2), (2, 2)])
def update_outside(on: Adapter, case: tuple[int, int]) -> None:
    """`set_at` with an index out of bounds raises; it is neither dropped nor clamped."""
    count, place = case
    twin = new(on, (count,))
    expect(refuses(on.set_at, twin.array, place, 9), True, "whether the update was refused")
