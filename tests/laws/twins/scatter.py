"""PyTorch's counterparts of ops that write at positions along a dimension."""

from __future__ import annotations

from typing import Any

from tests.laws.twins.torch_twins import Difference, differences, twins


def _reduced(name: str) -> Any:
    def call(torch: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, own: bool) -> Any:
        return getattr(x, name)(dim, index, src, reduce, include_self=own)

    return call


twins(
    scatter=lambda torch, x, dim, index, src: torch.scatter(x, dim, index, src),
    scatter_=lambda torch, x, dim, index, src: x.scatter_(dim, index, src),
    scatter_reduce=_reduced("scatter_reduce"),
    scatter_reduce_=_reduced("scatter_reduce_"),
)

differences(
    Difference(
        ("scatter", "scatter_", "scatter_reduce", "scatter_reduce_"),
        "gradient",
        "PyTorch's fails where the index spans less than src; ours has zeros there",
        lambda sample: (
            getattr(sample.args[3], "shape", sample.args[2].shape) != sample.args[2].shape
        ),
    ),
    Difference(
        ("scatter_reduce", "scatter_reduce_"),
        "gradient",
        "PyTorch's shares with self where it equals the extreme, though self is not in it",
        lambda sample: (
            sample.args[-1] in ("amax", "amin") and not sample.kwargs.get("include_self", True)
        ),
    ),
    Difference(
        ("index_fill", "index_fill_"),
        "gradient",
        "PyTorch takes negative places, and fails in the gradient of the value there",
        lambda sample: bool((sample.args[2] < 0).any()),
    ),
)
