"""Dropout as functions, composed of ops."""

from __future__ import annotations

import math

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import rand
from aotlite.ir.errors import AotliteError, ArgumentError, ShapeError


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeros with probability `p`, the rest times 1 / (1 - p), by the default generator.

    Returns the input itself if not training or p is 0 (FUN-13).
    """
    return _dropped("dropout", input, input.shape, p, training, inplace)


def _dropped(
    name: str, input: Tensor, drawn: tuple[int, ...], p: float, training: bool, inplace: bool
) -> Tensor:
    """`dropout` by one draw of this shape, which broadcasts to the input."""
    check_probability(name, p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    kept = rand(drawn, dtype=input.dtype, device=input.device) >= p
    scale = 1.0 / (1.0 - p)
    # Two products rather than one by a scaled mask: what is saved for backward is the bool mask.
    return input.mul_(kept).mul_(scale) if inplace else input * kept * scale


def check_probability(name: str, p: float, argument: str = "p") -> None:
    """Raises ArgumentError unless `p` is a number from 0 to 1."""
    try:
        known = 0 <= p <= 1
    except TypeError as error:  # of what has no order with numbers
        if isinstance(error, AotliteError):
            raise
        known = False
    if not known:
        raise ArgumentError(f"{name}: {argument} is {p!r}, expected 0 <= p <= 1")


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels: (n, c, l), or (c, l)."""
    drawn = _channels("dropout1d", input, 1, (2, 3))
    return _dropped("dropout1d", input, drawn, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout` of whole channels: (n, c, h, w)."""
    drawn = _channels("dropout2d", input, 2, (4,))
    return _dropped("dropout2d", input, drawn, p, training, inplace)


def _channels(name: str, input: Tensor, rank: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one draw for each channel, in front of `rank` dimensions."""
    if input.ndim not in ranks:
        raise ShapeError(
            f"{name}: the input has shape {input.shape}, expected "
            f"{' or '.join(map(str, ranks))} dimensions"
        )
    return (*input.shape[:-rank], *[1] * rank)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`dropout` that keeps mean 0 and variance 1: dropped elements become selu's lowest value.

    Source: Klambauer et al., "Self-normalizing neural networks" (NeurIPS 2017).
    """
    check_probability("alpha_dropout", p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    lowest = -1.7580993408473766
    scale = 1.0 / math.sqrt((lowest * lowest * p + 1) * (1 - p))
    kept = rand(input.shape, dtype=input.dtype, device=input.device) >= p
    shift = (~kept).to(input.dtype).mul_(lowest * scale).add_(-lowest * scale * p)
    if inplace:
        return input.mul_(kept).mul_(scale).add_(shift)
    return input * kept * scale + shift
