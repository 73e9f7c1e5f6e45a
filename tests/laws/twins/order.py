"""PyTorch's counterparts of ops of order, and where we differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import Difference, differences, twins


def _has_ties(sample: Sample) -> bool:
    """Whether equal elements stand in the operand: which of them is chosen is open."""
    array = np.asarray(sample.args[0])
    return len(np.unique(array, equal_nan=True)) < array.size


def _is_unstable(sample: Sample) -> bool:
    """PyTorch sorts what is short in a stable way also where it is not asked to."""
    asked = sample.kwargs.get("stable", False)
    return _has_ties(sample) and np.size(sample.args[0]) > 16 and not asked


def _has_nan(sample: Sample) -> bool:
    array = np.asarray(sample.args[0])
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _is_of_no_integers(sample: Sample) -> bool:
    array = np.asarray(sample.args[0])
    return array.dtype.kind in "iu" and array.size == 0


def _is_repeated(value: Any) -> bool:
    """Whether several elements of the array are one in memory."""
    return isinstance(value, np.ndarray) and value.size > 1 and 0 in value.strides


def _with_dim(name: str) -> Any:
    return lambda torch, x, dim, keepdim: getattr(torch, name)(x, dim, keepdim)


twins(
    sort=lambda torch, x, dim, descending, stable: torch.sort(
        x, dim=dim, descending=descending, stable=bool(stable)
    ),
    median_dim=_with_dim("median"),
    nanmedian_dim=_with_dim("nanmedian"),
    linalg_vector_norm=lambda torch, x, ord, dim, keepdim, dtype: torch.linalg.vector_norm(
        x, ord, dim, keepdim, dtype=dtype
    ),
)

_OPEN = ("topk", "kthvalue", "median_dim", "nanmedian_dim")
_REASON = "which of equal elements is taken is open in PyTorch; ours is the first"

differences(
    Difference(_OPEN, "values", _REASON, _has_ties),
    Difference(_OPEN, "gradient", _REASON, _has_ties),
    Difference(("sort", "argsort"), "values", _REASON, _is_unstable),
    Difference(("sort",), "gradient", _REASON, _is_unstable),
    Difference(
        ("mode",),
        "values",
        "PyTorch sorts nan without an order; ours are each of its own kind, and greatest",
        _has_nan,
    ),
    Difference(("mode",), "gradient", "it flows to what was taken, see above", _has_nan),
    Difference(
        ("linalg_vector_norm",),
        "gradient",
        "where ord is 0, PyTorch's is None; ours is zeros, as where nothing flows elsewhere",
        lambda sample: len(sample.args) > 1 and sample.args[1] == 0,
    ),
    Difference(
        ("median", "nanmedian", "median()", "nanmedian()"),
        "call",
        "PyTorch's median of no integers is what becomes of nan in a cast; there is none",
        _is_of_no_integers,
    ),
    Difference(
        ("median()", "nanmedian()"),
        "values",
        "PyTorch orders a copy in which repeated elements are one in memory, and gives others",
        lambda sample: _is_repeated(sample.args[0]),
    ),
)
