"""The observation of a call as plain data: everything that a user can observe (GEN-11).

Place: below `observe_call`, which makes observations, and `differences`, which compares them. It
uses no library and no program.
"""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class TensorSnapshot:
    """The observation of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    requires_grad: bool
    leaf: bool | str
    """Whether it is a leaf; the class name of the error if `is_leaf` raises."""
    node: bool | str
    """Whether it has a tape node; the class name of the error if `grad_fn` raises."""
    version: int
    storage: int
    base: int | None
    """The number of its base; -1 if the base is not among the values."""
    values: bytes


@attrs.frozen
class GradientSnapshot:
    """The observation of a `.grad`, with the strides of dimensions of two or more elements."""

    values: bytes
    dtype: str
    stride: tuple[int, ...]
    storage: int
    requires_grad: bool


@attrs.define
class Observation:
    """Everything observable of one call, a backward and a write after it.

    Objects and storages are numbered in the order of their first appearance.
    """

    error: Exception | None = None
    untouched: bool = True
    """Whether a call that raised changed no value."""
    plain: list[Any] = attrs.field(factory=list)
    """The results that are no tensors; None for each tensor."""
    given: int = 0
    """The number of different objects that the setup made."""
    objects: list[int] = attrs.field(factory=list)
    """The number of the object that each setup value, then each result, is."""
    called: list[TensorSnapshot] = attrs.field(factory=list)
    backward: str | None = None
    """The class of the error that the backward raised."""
    grads: list[GradientSnapshot | None] = attrs.field(factory=list)
    write: str | None = None
    written: list[TensorSnapshot] = attrs.field(factory=list)
    has_bits: bool = False
    """Whether values may be the bits of other numbers, through views of another dtype."""
