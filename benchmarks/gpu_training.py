"""Train steps alike for aotlite and PyTorch: a perceptron, and a block of a transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np


@attrs.frozen
class Model:
    """A loss of parameters and inputs, and their shapes."""

    name: str
    loss: Callable[..., Any]
    """The loss, as a function of a module, the parameters and the inputs."""
    parameters: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    rate: float = 1e-3


def perceptron(t: Any, p: Sequence[Any], x: Any, y: Any) -> Any:
    """Three layers, and the mean of squares."""
    hidden = t.relu(x @ p[0] + p[1])
    hidden = t.relu(hidden @ p[2] + p[3])
    error = hidden @ p[4] + p[5] - y
    return (error * error).mean()


def transformer(heads: int) -> Callable[..., Any]:
    """A block: attention and a perceptron, each behind a norm, each added to its input."""

    def loss(t: Any, p: Sequence[Any], x: Any, y: Any) -> Any:
        batch, length, width = x.shape
        norm = t.layer_norm(x, (width,), p[0], p[1])
        mixed = (norm @ p[2]).reshape(batch, length, 3, heads, width // heads)
        q, k, v = (mixed[:, :, part].transpose(1, 2) for part in range(3))
        scores = q @ k.transpose(-2, -1) * (width // heads) ** -0.5
        taken = t.softmax(scores, -1) @ v
        x = x + taken.transpose(1, 2).reshape(batch, length, width) @ p[3]
        norm = t.layer_norm(x, (width,), p[4], p[5])
        hidden = norm @ p[6]
        # The tanh form of gelu, with ops that both libraries have.
        hidden = hidden * 0.5 * (1.0 + t.tanh(0.7978845608 * (hidden + 0.044715 * hidden**3)))
        error = x + hidden @ p[7] - y
        return (error * error).mean()

    return loss


DTYPES = ("float32", "bfloat16")
NAMES = tuple([f"{model}, {dtype}" for model in ("MLP", "transformer block") for dtype in DTYPES])
"""The names of the timed models."""


def models(dry: bool) -> tuple[Model, ...]:
    """Both models, so large that the device takes longer than the host in bfloat16 too; or tiny."""
    batch, width = (4, 8) if dry else (8192, 4096)
    sizes = ((width, width), (width,)) * 3
    first = Model("MLP", perceptron, sizes, ((batch, width), (batch, width)))
    batch, length, width, heads = (2, 4, 8, 2) if dry else (16, 1024, 1024, 16)
    shape, vector = (batch, length, width), (width,)
    matrices = ((width, 3 * width), (width, width), vector, vector)
    parameters = (vector, vector, *matrices, (width, 4 * width), (4 * width, width))
    second = Model("transformer block", transformer(heads), parameters, (shape, shape))
    return first, second


@cache
def _drawn(shape: tuple[int, ...], number: int, scale: float) -> np.ndarray:
    generator = np.random.default_rng(number)
    return generator.standard_normal(shape, np.float32) * np.float32(scale)


def step_of(
    t: Any,
    model: Model,
    dtype: Any,
    tensor: Callable[[np.ndarray], Any],
    compiled: Callable[..., Any],
) -> Callable[[int], Any]:
    """A training step: loss, gradients and descent; the loss with its backward is compiled."""
    parameters = [
        tensor(_drawn(shape, number, shape[0] ** -0.5)).to(dtype).requires_grad_()
        for number, shape in enumerate(model.parameters)
    ]
    inputs = [
        tensor(_drawn(shape, number, 1.0)).to(dtype)
        for number, shape in enumerate(model.inputs, len(parameters))
    ]

    def loss(*given: Any) -> Any:
        count = len(parameters)
        return model.loss(t, given[:count], *given[count:])

    function = compiled(loss)

    def step(number: int) -> Any:
        value = function(*parameters, *inputs)
        gradients = t.autograd.grad(value, parameters)
        with t.no_grad():
            for each, gradient in zip(parameters, gradients, strict=True):
                each.sub_(gradient * model.rate)
        return value

    return step
