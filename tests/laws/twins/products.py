"""PyTorch's forms of products, and where ours differ."""

from typing import Any

import numpy as np

from tests.laws.twins.torch_twins import Difference, differences, twins


def _added(name: str) -> Any:
    def call(torch: Any, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        owner = torch.Tensor if name.endswith("_") else torch
        return getattr(owner, name)(x, a, b, beta=beta, alpha=alpha)

    return call


_ADDED = "addmm addmv addr baddbmm addbmm".split()

twins(
    **{name: _added(name) for stem in _ADDED for name in (stem, stem + "_")},
    linalg_cross=lambda torch, a, b, dim=-1: torch.linalg.cross(a, b, dim=dim),
    linalg_multi_dot=lambda torch, tensors: torch.linalg.multi_dot(tensors),
)


_UNSUMMED = ("bool", "uint16", "uint32", "uint64")


def _has_integers(sample: Any) -> bool:
    return any(isinstance(a, np.ndarray) and a.dtype == np.int64 for a in sample.args)


def _only_integers(sample: Any) -> bool:
    return all(a.dtype == np.int64 for a in sample.args)


def _is_flipped(sample: Any) -> bool:
    """Whether an operand's strides are neither the contiguous ones nor repeat elements."""
    return any(
        0 not in a.strides and a.strides != np.empty_like(a, order="C").strides for a in sample.args
    )


differences(
    Difference(
        ("addr", "addr_"),
        "gradient",
        "PyTorch takes operands of several dtypes and its gradient raises on them",
        lambda sample: _has_integers(sample) and not _only_integers(sample),
    ),
    Difference(
        ("mm", "bmm", "mv", "inner"),
        "call",
        "PyTorch looks at the dtype only where there are elements to multiply",
        lambda sample: sample.args[0].size == 0 and str(sample.args[0].dtype) in _UNSUMMED,
    ),
    Difference(
        ("kron",),
        "call",
        "PyTorch takes a view of the products, which fails for operands that are not contiguous",
        _is_flipped,
    ),
    *[
        Difference(
            ("addmv",),
            aspect,
            "PyTorch forgets to expand self where there is nothing to multiply",
            lambda sample: sample.args[0].ndim == 0 and sample.args[2].size == 0,
        )
        for aspect in ("shape", "strides")
    ],
    Difference(
        ("cross",),
        "values",
        "where the CPU can, PyTorch rounds a product and the difference once, and equal products "
        "leave a rounding",
        lambda sample: not np.isfinite(sample.args[0].astype(complex)).all(),
        at=lambda sample, ours, theirs: (ours == 0) & np.isfinite(theirs),
        everywhere=False,
    ),
)
