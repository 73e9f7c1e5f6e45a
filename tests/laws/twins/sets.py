"""PyTorch's counterparts of searches, quantiles and sets, and where we differ."""

from __future__ import annotations

from typing import Any

from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import Difference, differences, twins


def _search(torch: Any, sequence: Any, values: Any, int32: bool, right: bool, *rest: Any) -> Any:
    side, sorter = rest
    return torch.searchsorted(
        sequence, values, out_int32=int32, right=right, side=side, sorter=sorter
    )


def _unique(torch: Any, x: Any, dim: Any, consecutive: bool) -> Any:
    if consecutive:
        return torch.unique_consecutive(x, True, True, dim)
    return torch.unique(x, True, True, True, dim)


def _sorts_slices_with_nan(sample: Sample) -> bool:
    array, dim, consecutive = sample.args
    return dim is not None and not consecutive and bool((array != array).any())


twins(
    searchsorted=_search,
    bucketize=lambda torch, *args, **kwargs: torch.bucketize(*args, **kwargs),
    unique_slices=_unique,
    histc=lambda torch, x, bins, low, high: torch.histc(x, bins, low, high),
)

differences(
    Difference(
        ("unique_slices",),
        "values",
        "PyTorch compares slices with nan in them without an order; to us nan is the greatest",
        _sorts_slices_with_nan,
    ),
)
