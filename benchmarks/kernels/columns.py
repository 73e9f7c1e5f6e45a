"""The columns of a row, each an action of a library, and the comparison of their results.

The reference is float64 on NumPy: aotlite's eager ops, whose kernels are NumPy's (or, for an
optimizer, its formula). Each column's first call is compared with it before anything is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels import adamw, digits, functions
from benchmarks.kernels.adamw import AdamW
from benchmarks.kernels.digits import Digits
from benchmarks.kernels.functions import Action, Wrap
from benchmarks.kernels.rows import FUNCTIONS, STEP, Row

Measured = Row | AdamW | Digits

OURS, EAGER, COMPILED, JAX, WRITTEN = "aotlite", "torch eager", "torch.compile", "jax.jit", "C"
FRAMEWORKS = (EAGER, COMPILED, JAX)
COLUMNS = (OURS, *FRAMEWORKS, WRITTEN)
LIBRARY = {EAGER: "torch", COMPILED: "torch", JAX: "jax"}

JOINT_NODES: list[int] = []
"""The nodes of the joint graph of each function that this process compiled with aotlite."""

_LAYER = ((999, 1000), (1000,))
ROWS: tuple[Measured, ...] = (
    *FUNCTIONS,
    Digits(name="CNN"),
    AdamW(name="AdamW", shapes=_LAYER * 10),  # 10^7 numbers
)
"""The table's rows, in its order."""


@attrs.frozen
class Backend:
    """A backend of aotlite."""

    name: str

    def wrap(self, function: Any) -> Any:
        """The function, compiled."""
        import aotlite

        return aotlite.compile(function, backend=self.name, verify=0, observer=_count)


def _count(stage: str, made: Any) -> None:
    if stage == "4 joint":
        JOINT_NODES.append(len(made.calls))


def default_backend() -> str:
    """aotlite's own default: "auto" as soon as there is one, till then "reference"."""
    from aotlite.backends.lookup import backend_from
    from aotlite.ir.errors import ArgumentError

    try:
        backend_from("auto")
    except ArgumentError:
        return "reference"
    return "auto"


# -------------------------------------------------------------------------------------- the actions
def make_action(
    row: Measured, direction: str, column: str, arrays: Sequence[np.ndarray], backend: str
) -> Action:
    """The action of a column."""
    if column == WRITTEN:
        from benchmarks.kernels.written import written_action

        return written_action(row, direction, arrays)
    if column == JAX:
        import_module("jax").config.update("jax_enable_x64", row.dtype == "float64")
        return _jax_action(row, direction, arrays)
    module, wrap = _module(column, backend)
    # PyTorch's fused optimizer is its fastest eager one, and has no graph to compile.
    return _tensor_action(row, direction, module, (wrap, arrays, column == EAGER))


def _module(column: str, backend: str) -> tuple[Any, Wrap]:
    if column == OURS:
        return import_module("aotlite"), Backend(backend).wrap
    torch = import_module("torch")
    return torch, (lambda f: f) if column == EAGER else partial(torch.compile, dynamic=False)


def _jax_action(row: Measured, direction: str, arrays: Sequence[np.ndarray]) -> Action:
    match row:
        case AdamW():
            return adamw.jax_action(row, arrays)
        case Digits():
            return digits.jax_action(row, arrays)
    return functions.jax_action(row, direction, arrays)


def _tensor_action(
    row: Measured, direction: str, module: Any, more: tuple[Wrap, Sequence[np.ndarray], bool]
) -> Action:
    wrap, arrays, fused = more
    match row:
        case AdamW():
            options = {"fused": True} if fused else {}
            return adamw.tensor_action(row, module, wrap, arrays, **options)
        case Digits():
            return digits.tensor_action(row, module, wrap, arrays)
    return functions.tensor_action(row, direction, module, wrap, arrays)


# --------------------------------------------------------------------------------------- agreement
def reference(row: Measured, direction: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The right results of a first call, in float64."""
    if isinstance(row, AdamW):
        return adamw.reference(row, arrays)
    import aotlite

    exact = [each.astype("float64") if each.dtype.kind == "f" else each for each in arrays]
    action = _tensor_action(row, direction, aotlite, (lambda f: f, exact, False))
    return as_arrays(action())


def as_arrays(results: Sequence[Any]) -> list[np.ndarray]:
    """Copies of what an action returned."""
    detached = [each.detach() if hasattr(each, "detach") else each for each in results]
    return [np.array(each.numpy() if hasattr(each, "numpy") else each) for each in detached]


def disagreement(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest error of any result, as a part of that result's root mean square; 0 for none.

    An element is measured by its own size where that is larger. Infinite where shapes differ.
    """
    if [each.shape for each in found] != [each.shape for each in expected]:
        return float("inf")
    typical = [float(np.sqrt(np.mean(np.square(each, dtype="float64")))) for each in expected]
    least = max(typical) * 1e-2 or 1.0  # some gradients are 0 but for rounding
    triples = zip(found, expected, typical, strict=True)
    return max(_error(one, other, max(usual, least)) for one, other, usual in triples)


def _error(found: np.ndarray, expected: np.ndarray, typical: float) -> float:
    size = np.maximum(np.abs(expected), typical)
    error = float(np.max(np.abs(found - expected) / size, initial=0.0))
    return error if np.isfinite(error) else float("inf")


def tolerance(row: Measured) -> float:
    """The largest disagreement that counts as agreement: float32, sums in other orders."""
    products = isinstance(row, Digits) or row.products
    return (1e-3 if products else 5e-5) * (1e-6 if row.dtype == "float64" else 1)


def for_check(row: Measured) -> Measured:
    """The row for the comparison: with a long step, so that gradients show, and without dropout.

    Libraries draw different numbers for dropout.
    """
    match row:
        case AdamW():
            return attrs.evolve(row, rate=1.0)
        case Digits():
            return attrs.evolve(row, rate=100.0, dropout=0.0)
    return attrs.evolve(row, rate=100.0) if STEP in row.directions else row
