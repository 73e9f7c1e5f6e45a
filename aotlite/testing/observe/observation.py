"""The observation of a call, as plain data: all that a user can tell.

Place: below everything that makes such data (`observe_call`) or compares it (`differences`). It
knows no library and no program. Rules: GEN-11.
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
    """Whether it is a leaf; the error's name where asking raises."""
    node: bool | str
    """Whether it has a tape node; the error's name where asking raises."""
    version: int
    storage: int
    base: int | None
    """The number of its base, -1 for one that is not among the values."""
    values: bytes


@attrs.frozen
class GradientSnapshot:
    """The observation of a `.grad`; strides only where they matter."""

    values: bytes
    dtype: str
    stride: tuple[int, ...]
    storage: int
    requires_grad: bool


@attrs.define
class Observation:
    """All that can be observed of one call and what follows it. Objects and storages are numbered
    as they first appear."""

    error: Exception | None = None
    untouched: bool = True
    """Whether a call that raised has left all values as they were."""
    plain: list[Any] = attrs.field(factory=list)
    """The results that are no tensors, None for tensors."""
    given: int = 0
    """The number of different objects that the setup made."""
    objects: list[int] = attrs.field(factory=list)
    """Setup values, then results: which object each is."""
    called: list[TensorSnapshot] = attrs.field(factory=list)
    backward: str | None = None
    """The class of the error that the backward raised."""
    grads: list[GradientSnapshot | None] = attrs.field(factory=list)
    write: str | None = None
    written: list[TensorSnapshot] = attrs.field(factory=list)
    has_bits: bool = False
    """Whether the program looks at memory in another dtype: its values may be bits of others."""
