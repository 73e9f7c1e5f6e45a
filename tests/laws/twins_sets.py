"""PyTorch's counterparts of searches, quantiles and sets, and where we differ."""

from __future__ import annotations

from typing import Any

from tests.laws.torch_twins import twins


def _search(torch: Any, sequence: Any, values: Any, int32: bool, right: bool, *rest: Any) -> Any:
    side, sorter = rest
    return torch.searchsorted(
        sequence, values, out_int32=int32, right=right, side=side, sorter=sorter
    )


def _unique(torch: Any, x: Any, dim: Any, consecutive: bool) -> Any:
    if consecutive:
        return torch.unique_consecutive(x, True, True, dim)
    return torch.unique(x, True, True, True, dim)


twins(
    searchsorted=_search,
    bucketize=lambda torch, *args, **kwargs: torch.bucketize(*args, **kwargs),
    unique_slices=_unique,
    histc=lambda torch, x, bins, low, high: torch.histc(x, bins, low, high),
)
