"""Composites of views: other names and forms of view ops, made of those in `views`."""

from __future__ import annotations

from typing import Any

from aotlite.ir import sizes
from aotlite.ir.composite import composite
from aotlite.ir.errors import ShapeError


@composite("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor")
def flatten(self: Any, start_dim: int, end_dim: int) -> Any:
    """The dimensions from `start_dim` to `end_dim` merged into one."""
    if self.ndim == 0:
        return self.reshape(1)
    start = sizes.wrap_dim(start_dim, self.ndim, op="flatten")
    end = sizes.wrap_dim(end_dim, self.ndim, op="flatten")
    if start > end:
        raise ShapeError(f"flatten: start_dim is {start_dim}, expected at most end_dim {end_dim}")
    shape = self.shape
    merged = sizes.numel(shape[start : end + 1])
    return self.reshape(shape[:start] + (merged,) + shape[end + 1 :])


@composite(is_property=True)
def mT(self: Any) -> Any:
    """A view with the last two dimensions swapped."""
    return self._do("transpose", -2, -1)
