"""PyTorch's counterparts of indexing by tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.laws.twins.torch_twins import Difference, differences, twins


def _listed(indices: Any, dims: Any) -> list[Any]:
    """An index for each dimension, None where there is none."""
    found: list[Any] = [None] * (max(dims) + 1)
    for index, dim in zip(indices, dims, strict=True):
        found[dim] = index
    return found


def _index_put_(torch: Any, x: Any, indices: Any, dims: Any, values: Any, add: bool) -> Any:
    return torch.ops.aten.index_put_(x, _listed(indices, dims), values, add)


twins(
    index=lambda torch, x, indices, dims: torch.ops.aten.index(x, _listed(indices, dims)),
    index_put=lambda torch, x, indices, dims, values, add: torch.ops.aten.index_put(
        x, _listed(indices, dims), values, add
    ),
    index_put_=_index_put_,
    **{
        "index_put()": lambda torch, x, *rest: torch.ops.aten.index_put(x, *rest),
        "index_put_()": lambda torch, x, *rest: torch.ops.aten.index_put_(x, *rest),
    },
)

differences(
    Difference(
        ("masked_fill", "masked_fill_"),
        "gradient",
        "PyTorch lets an integer result require grad where the value does, and fails later",
        lambda sample: sample.args[0].dtype.kind in "bi" and isinstance(sample.args[2], np.ndarray),
    ),
)
