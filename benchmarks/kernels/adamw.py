"""The row of an optimizer's step: AdamW over many parameters, in place.

Each library uses its own optimizer, with the same gradients at every step. JAX has none, so its
step is written here, with donated state.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels.functions import Action, Wrap
from benchmarks.kernels.rows import STEP, Shape

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@attrs.frozen(kw_only=True)
class AdamW:
    """A step over parameters of these shapes."""

    name: str
    shapes: tuple[Shape, ...]
    dtype: str = "float32"
    decay: float = 1e-2
    rate: float = 1e-3
    directions: tuple[str, ...] = (STEP,)
    products: int = 0
    written: str | None = None
    asked: float = 1.05

    def arrays(self) -> list[np.ndarray]:
        """The parameters, then their gradients."""
        generator = np.random.default_rng(7)
        return [
            generator.standard_normal(shape, np.float32).astype(self.dtype)
            for shape in (*self.shapes, *self.shapes)
        ]


def reference(row: AdamW, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The parameters after the first step, in float64."""
    half = len(row.shapes)
    return [
        _first_step(row, parameter.astype("float64"), gradient.astype("float64"))
        for parameter, gradient in zip(arrays[:half], arrays[half:], strict=True)
    ]


def _first_step(row: AdamW, parameter: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The first step, at which both bias-corrected means are the gradient's own."""
    kept = parameter * (1 - row.rate * row.decay)
    return kept - row.rate * gradient / (np.abs(gradient) + EPSILON)


def tensor_action(
    row: AdamW, module: Any, wrap: Wrap, arrays: Sequence[np.ndarray], **options: Any
) -> Action:
    """The action by the optimizer of aotlite or PyTorch, which `options` are for."""
    half = len(row.shapes)
    parameters = [module.tensor(each).requires_grad_() for each in arrays[:half]]
    for parameter, gradient in zip(parameters, arrays[half:], strict=True):
        parameter.grad = module.tensor(gradient)
    adamw = import_module(f"{module.__name__}.optim").AdamW
    optimizer = adamw(parameters, lr=row.rate, weight_decay=row.decay, **options)

    def update(optimizer: Any) -> None:
        optimizer.step()

    run = wrap(update)

    def action() -> list[Any]:
        run(optimizer)
        return parameters

    return action


def jax_action(row: AdamW, arrays: Sequence[np.ndarray]) -> Action:
    """The action by `jax.jit`."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    half = len(row.shapes)
    parameters, gradients = (
        [jnp.array(each) for each in part] for part in (arrays[:half], arrays[half:])
    )

    def step(state: Any, gradients: list[Any]) -> Any:
        count, *parts = state
        count = count + 1
        corrections = 1 - BETA1**count, 1 - BETA2**count
        moved = [
            _moved(jnp, row, each, corrections) for each in zip(*parts, gradients, strict=True)
        ]
        return count, *[list(part) for part in zip(*moved, strict=True)]

    run = jax.jit(step, donate_argnums=0)
    zeros = [[jnp.zeros_like(each) for each in parameters] for _ in range(2)]
    state = [(jnp.zeros((), row.dtype), parameters, *zeros)]

    def action() -> list[Any]:
        state[0] = jax.block_until_ready(run(state[0], gradients))
        return list(state[0][1])

    return action


def _moved(jnp: Any, row: AdamW, given: tuple[Any, ...], by: Any) -> tuple[Any, Any, Any]:
    parameter, mean, square, gradient = given
    mean = BETA1 * mean + (1 - BETA1) * gradient
    square = BETA2 * square + (1 - BETA2) * gradient * gradient
    step = (mean / by[0]) / (jnp.sqrt(square / by[1]) + EPSILON)
    return parameter * (1 - row.rate * row.decay) - row.rate * step, mean, square
