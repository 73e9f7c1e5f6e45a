"""`linear`, and `pair`, which expands a size argument of layers."""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.base.tensor import Tensor

Ints = int | Sequence[int]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (*, i), (o, i), (o,) -> (*, o)."""
    turned = weight.t()
    if input.ndim < 2:
        product = input.matmul(turned)
        return product if bias is None else product + bias
    # As one matrix, so that the weight's gradient is one product and no sum of many.
    rows = input if input.ndim == 2 else input.flatten(0, -2)  # saved: a view where eager has one
    product = rows.matmul(turned) if bias is None else bias.addmm(rows, turned)
    return product if input.ndim == 2 else product.view(*input.shape[:-1], weight.size(0))


def pair(value: Ints) -> tuple[int, ...]:
    """(height, width) from one number or two."""
    return (value, value) if isinstance(value, int) else tuple(value)
