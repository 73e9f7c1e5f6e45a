"""What an argument of a compiled function may be. Used where calls are taken apart. Rule: GEN-7."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.observed import Observed
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import ArgumentError, noted
from aotlite.stages.records.guards.snapshots import PLAIN


def check_leaf(leaf: Any, path: str) -> None:
    """Raises ArgumentError for an argument that can be neither guarded nor lifted (GEN-7)."""
    if not isinstance(leaf, (*PLAIN, Tensor, np.ndarray, np.generic, Observed)):
        raise noted(
            ArgumentError(
                f"compile: argument {path} is {leaf!r} of type {type(leaf).__name__}, expected a "
                "tensor, ndarray, number, bool, str, None, Module or optimizer"
            ),
            "Pass its tensors instead, or register its type as a pytree with optree. (GEN-7)",
        )
