"""Views of another dtype (TEN-6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import chain, new, poke
from aotlite.conformance.rules import attempt, expect, refuses, rule
from aotlite.conformance.unsupported import Absent

SIZES = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
PAIRS: tuple[tuple[str, str], ...] = (
    ("int32", "float32"), ("int64", "float64"), ("int8", "uint8"), ("int32", "int8"),
    ("int64", "int32"), ("int32", "int64"), ("uint8", "int16"),
)  # fmt: skip


def seen(shape: Shape, dtype: str, other: str, changed: bool) -> Any:
    """Returns the bytes of 0, 1, 2, ... read as another dtype; with `changed`, of 100, 1, 2, ..."""
    numbers = np.arange(math.prod(shape), dtype=dtype).reshape(shape)
    if changed:
        numbers.reshape(-1)[0] = 100
    return np.frombuffer(numbers.tobytes(), other).reshape(*shape[:-1], -1).tolist()


@rule("TEN-6a", "a view of another dtype shares memory", [
    (shape, *pair) for shape in ((2,), (4,), (2, 2), (1, 4)) for pair in PAIRS
    if shape[-1] * SIZES[pair[0]] % SIZES[pair[1]] == 0
])  # fmt: skip
def shares(on: Adapter, case: tuple[Shape, str, str]) -> None:
    """The last dimension scales with the item sizes, and later writes show as bytes."""
    shape, dtype, other = case
    twin = new(on, shape, dtype)
    made = on.view_dtype(twin.array, other)
    expect(on.to_list(made), seen(shape, dtype, other, False), "the bytes as another dtype")
    poke(on, twin, 100)
    expect(on.to_list(made), seen(shape, dtype, other, True), "the bytes after the write")


@rule("TEN-6b", "a write through a view of another dtype reaches the bytes", [
    (shape, *pair) for shape in ((1,), (2,), (2, 2)) for pair in PAIRS[:5]
])  # fmt: skip
def writes(on: Adapter, case: tuple[Shape, str, str]) -> None:
    """Zeros written through the view are zeros in the array."""
    shape, dtype, other = case
    twin = new(on, shape, dtype, first=1)
    made = on.view_dtype(twin.array, other)
    attempt(on.setitem, made, ..., 0)
    zero = twin.view.as_strided(shape, twin.view.strides, 0)
    zero.update(lambda _: 0)
    expect(on.to_list(twin.array), zero.to_list(), "the array after zeros were written")


@rule("TEN-6c", "a view of another dtype refuses a gapped last dimension", [
    ((2, 2), (("transpose", 0, 1),), "int32", "int64"),
    ((4,), (("slice", 0, 0, 4, 2),), "int32", "int64"),
    ((4,), (("slice", 0, 0, 4, 2),), "int32", "int8"),
    ((2, 4), (("slice", 1, 0, 4, 2),), "int32", "int64"),
])  # fmt: skip
def gapped(on: Adapter, case: tuple[Shape, Any, str, str]) -> None:
    """A last dimension with gaps has no elements of another item size."""
    if on.immutable:
        raise Absent("views")
    shape, steps, dtype, other = case
    _, [twin] = chain(on, (shape, steps), dtype)
    expect(refuses(on.view_dtype, twin.array, other), True, "whether the view was refused")


@rule("TEN-6d", "a view of another dtype refuses bytes that do not divide", [
    ((1,), "int32", "int64"), ((3,), "int8", "int16"), ((2, 1), "int32", "int64"),
    ((), "int64", "int32"),
])  # fmt: skip
def indivisible(on: Adapter, case: tuple[Shape, str, str]) -> None:
    """The bytes of the last dimension must be a whole number of elements."""
    shape, dtype, other = case
    twin = new(on, shape, dtype)
    expect(refuses(on.view_dtype, twin.array, other), True, "whether the view was refused")
