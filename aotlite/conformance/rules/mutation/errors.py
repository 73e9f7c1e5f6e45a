"""Refusals: an invalid write is refused, and changes nothing (TEN-9)."""

from __future__ import annotations

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import new, see
from aotlite.conformance.rules import attempt, expect, maybe, refuses, rule
from aotlite.conformance.rules.mutation.writes import write

WAYS = ("add_", "mul_", "copy_", "setitem")
GROWS: tuple[tuple[Shape, Shape], ...] = (
    ((1,), (2,)), ((2,), (2, 2)), ((2,), (3,)), ((1, 2), (2, 2)), ((2,), (0,)), ((), (2,)),
    ((1,), (0,)),
)  # fmt: skip


@rule("TEN-9a", "a write never broadcasts its destination", [
    (*shapes, way) for shapes in GROWS for way in WAYS
])  # fmt: skip
def grows(on: Adapter, case: tuple[Shape, Shape, str]) -> None:
    """An operand that needs a larger destination is refused; shape and values stay."""
    shape, large, way = case
    twin, operand = new(on, shape), new(on, large, first=5)
    refused = refuses(write, on, way, twin.array, operand.array)
    expect(refused, True, "whether the write was refused")
    see(on, twin, "the destination after the refusal")


@rule("TEN-9b", "in-place arithmetic never casts to a lower kind", [
    (shape, ours, theirs, way) for shape in ((1,), (2,), ()) for way in ("add_", "mul_")
    for ours, theirs in (("int64", "float64"), ("bool", "int64"), ("float64", "complex128"))
])  # fmt: skip
def loses_kind(on: Adapter, case: tuple[Shape, str, str, str]) -> None:
    """A result of a higher kind (bool < int < float < complex) is refused; values stay."""
    shape, ours, theirs, way = case
    twin, operand = new(on, shape, ours), new(on, shape, theirs, first=5)
    on.dtype(twin.array)  # a library without dtypes lacks the method: absent
    refused = refuses(write, on, way, twin.array, operand.array)
    expect(refused, True, "whether the write was refused")
    see(on, twin, "the destination after the refusal")


@rule("TEN-9c", "in-place arithmetic keeps the dtype", [
    (shape, ours, theirs) for shape in ((1,), ())
    for ours, theirs in (("int32", "int64"), ("float32", "float64"), ("float64", "int64"))
])  # fmt: skip
def keeps_dtype(on: Adapter, case: tuple[Shape, str, str]) -> None:
    """A wider result of the same kind is cast to the destination's dtype, or refused."""
    shape, ours, theirs = case
    twin, operand = new(on, shape, ours), new(on, shape, theirs, first=5)
    if attempt(on.add_, twin.array, operand.array) is None:
        twin.view.update(lambda value: value + 5)
    see(on, twin, "the destination after the write")
    expect(maybe(on.dtype, twin.array) in (None, ours), True, f"whether the dtype is still {ours}")


@rule("TEN-9d", "copy_ casts from any dtype", [
    (ours, theirs) for ours, theirs in (
        ("int64", "float64"), ("float64", "int64"), ("int32", "int64"), ("bool", "int64"))
], choice=True)  # fmt: skip
def casts(on: Adapter, case: tuple[str, str]) -> None:
    """`copy_` into another dtype casts, also to a lower kind."""
    ours, theirs = case
    twin, operand = new(on, (2,), ours), new(on, (2,), theirs)
    on.copy_(twin.array, operand.array)
    twin.view.write([bool(v) if ours == "bool" else v for v in operand.view.values()])
    see(on, twin, "the destination after the copy")


@rule("OUT-5", "`out=` of another shape is refused", [
    ((2,), (1,)), ((2,), (3,)), ((2, 2), (2,)), ((2,), (2, 1)), ((1,), ()), ((2,), (4,)),
])  # fmt: skip
def out_shape(on: Adapter, case: tuple[Shape, Shape]) -> None:
    """`out=` of a shape that is not the result's raises, and keeps its shape and values."""
    shape, other = case
    a, out = new(on, shape), new(on, other, first=9)
    refused = refuses(on.add_out, a.array, a.array, out.array)
    expect(refused, True, "whether the call was refused")
    see(on, out, "out after the refusal")


@rule("OUT-6", "`out=` of a lower kind is refused", [
    ("int64", "float64"), ("bool", "int64"), ("float64", "complex128")
])  # fmt: skip
def out_kind(on: Adapter, case: tuple[str, str]) -> None:
    """`out=` of a lower kind than the result raises, and keeps its values."""
    ours, theirs = case
    a, out = new(on, (2,), theirs), new(on, (2,), ours, first=9)
    on.dtype(out.array)
    refused = refuses(on.add_out, a.array, a.array, out.array)
    expect(refused, True, "whether the call was refused")
    see(on, out, "out after the refusal")


@rule("TEN-9e", "an assignment of a shape that does not broadcast is refused", [
    ((2,), (slice(0, 1), ...), (2,)), ((3,), (slice(1, None), ...), (3,)), ((2, 2), (0, ...), (3,)),
    ((2, 2), (..., 0), (2, 2)),
])  # fmt: skip
def assigns_too_much(on: Adapter, case: tuple[Shape, object, Shape]) -> None:
    """A value that does not broadcast to `a[key]` raises, and `a` keeps its values."""
    shape, key, large = case
    twin, operand = new(on, shape), new(on, large, first=5)
    refused = refuses(on.setitem, twin.array, key, operand.array)
    expect(refused, True, "whether the assignment was refused")
    see(on, twin, "the array after the refusal")
