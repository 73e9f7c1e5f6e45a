"""`embedding`: rows of a table by position."""

from __future__ import annotations

import math

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, ShapeError, UnsupportedError


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` at these positions: (*,) int64, (n, d) -> (*, d).

    The row `padding_idx` gets no gradient. `scale_grad_by_freq` divides a row's gradient by how
    often it occurs. With `max_norm`, the rows used that have a larger `norm_type`-norm are first
    scaled down to it, in place and without history. Raises IndexOutOfRangeError for an invalid
    position.
    """
    refuse_sparse("embedding", sparse)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"embedding: argument 'weight' is {weight!r}, expected a tensor")
    if weight.ndim != 2:
        raise ShapeError(
            f"embedding: argument 'weight' has shape {weight.shape}, expected 2 dimensions"
        )
    if max_norm is not None:
        with no_grad():
            _shorten(weight, input, max_norm, norm_type)
    padding = padding_row("embedding", padding_idx, weight.size(0))
    return call("embedding", weight, input, -1 if padding is None else padding, scale_grad_by_freq)


def refuse_sparse(name: str, sparse: bool) -> None:
    if sparse:
        raise UnsupportedError(f"{name}: sparse is True, expected False: gradients are dense")


def padding_row(name: str, padding_idx: int | None, rows: int) -> int | None:
    """`padding_idx` counted from 0. Raises ArgumentError if it is out of range."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"{name}: padding_idx is {padding_idx}, expected a row: at least {-rows} and below "
            f"{rows}"
        )
    return padding_idx % rows


def _shorten(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scales the rows at these positions down to the norm, in place."""
    rows = input.reshape(input.numel())
    counts = weight.new_zeros(weight.shape[:1]).index_add(0, rows, weight.new_ones(rows.shape))
    norms = _norms(weight, norm_type)
    long = (counts > 0) & (norms > max_norm)
    # PyTorch's margin against division by 0.
    weight.mul_(long.where(max_norm / (norms + 1e-7), 1.0).unsqueeze(-1))


def _norms(weight: Tensor, norm_type: float) -> Tensor:
    """(n, d) -> (n,): the norm of each row."""
    if not norm_type > 0:
        raise ArgumentError(f"embedding: norm_type is {norm_type}, expected a number above 0")
    sizes: Tensor = weight.abs()
    if norm_type == math.inf:
        return sizes.amax((1,))
    return sizes.pow(norm_type).sum((1,)).pow(1.0 / norm_type)
