"""PyTorch's counterparts of reductions, scans and softmax, and where we differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import Difference, differences, twins


def _dtype_of(sample: Sample) -> str:
    return str(getattr(sample.args[0], "dtype", ""))


def _is_special(sample: Sample) -> bool:
    array = sample.args[0]
    return (
        isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all()
    )


# ------------------------------------------------------------------------------------ twins
def _any(name: str) -> Any:
    def call(torch: Any, x: Any, dim: Any, keepdim: bool) -> Any:
        if dim is None:
            dim = tuple(range(x.ndim))
        return getattr(torch, name)(x, dim=dim, keepdim=keepdim)

    return call


def _prod(torch: Any, x: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Any:
    if dim is None:
        return torch.prod(x, dtype=dtype)
    return torch.prod(x, dim, keepdim, dtype=dtype)


def _amax(name: str) -> Any:
    return lambda torch, x, dim, keepdim: getattr(torch, name)(
        x, () if dim is None else dim, keepdim
    )


def _with_dtype(name: str) -> Any:
    """Of ops whose last argument is a dtype, by keyword."""
    return lambda torch, *args: getattr(torch, name)(*args[:-1], dtype=args[-1])


def _spread(name: str) -> Any:
    return lambda torch, x, dim, correction, keepdim: getattr(torch, name)(
        x, dim, correction=1 if correction is None else correction, keepdim=keepdim
    )


WITH_DTYPE = "sum mean nansum softmax log_softmax cumsum cumprod"

twins(
    any=_any("any"),
    all=_any("all"),
    prod=_prod,
    amax=_amax("amax"),
    amin=_amax("amin"),
    max_dim=lambda torch, x, dim, keepdim: torch.max(x, dim, keepdim),
    min_dim=lambda torch, x, dim, keepdim: torch.min(x, dim, keepdim),
    aminmax=lambda torch, x, dim, keepdim: torch.aminmax(x, dim=dim, keepdim=keepdim),
    var=_spread("var"),
    std=_spread("std"),
    **{name: _with_dtype(name) for name in WITH_DTYPE.split()},
    cumsum_=lambda torch, x, dim, dtype: x.cumsum_(dim, dtype=dtype),
    cumprod_=lambda torch, x, dim, dtype: x.cumprod_(dim, dtype=dtype),
)


# ------------------------------------------------------------------------ known differences
differences(
    Difference(
        ("argmax", "argmin"),
        "call",
        "PyTorch has no kernel for bool; where the first True lies has a plain meaning",
        lambda sample: _dtype_of(sample) == "bool",
    ),
    Difference(
        ("prod", "cumprod"),
        "gradient",
        "PyTorch's is 0 where two elements are 0, also next to infinity and nan",
        _is_special,
    ),
    Difference(
        ("var", "std"),
        "gradient",
        "PyTorch takes no dimensions for all of them in the forward and for none in the backward",
        lambda sample: len(sample.args) > 1 and sample.args[1] == (),
    ),
)
