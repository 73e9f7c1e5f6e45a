"""The row of the demo's step: a small convolutional network, its loss and its update.

As in `aotlite.cli.digits`: two blocks (convolution, batch normalization, relu, pooling), dropout, a
linear layer, the loss with a write through a transposed view and a count of what was read right,
and gradient descent with momentum. JAX has neither writes nor such layers; what it computes is
written here as a function that returns the new state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels.functions import Action, Wrap
from benchmarks.kernels.rows import STEP

MOMENTUM, DECAY = 0.9, 5e-4
BLEND, EPSILON = 0.1, 1e-5
SIDE, CLASSES = 8, 10


@attrs.frozen(kw_only=True)
class Digits:
    """A step of a network with a block for each number of channels, on images of 8 x 8."""

    name: str
    batch: int = 64
    channels: tuple[int, ...] = (16, 32)
    kernel: int = 3
    dropout: float = 0.25
    rate: float = 1e-3
    dtype: str = "float32"
    directions: tuple[str, ...] = (STEP,)
    written: str | None = None
    asked: float = 1.05

    @property
    def products(self) -> int:
        """Multiply-adds of one forward run."""
        side, before, total = SIDE, 1, 0
        for after in self.channels:
            total += side**2 * before * after * self.kernel**2
            side, before = side // 2, after
        return self.batch * (total + side**2 * before * CLASSES)

    def arrays(self) -> list[np.ndarray]:
        """Images and labels; the parameters; the running mean and variance of each block."""
        generator = np.random.default_rng(7)
        images = generator.random((self.batch, 1, SIDE, SIDE))
        values = [images, *self._parameters(generator), *self._statistics()]
        labels = generator.integers(CLASSES, size=self.batch)
        cast = [each.astype(self.dtype) for each in values]
        return [cast[0], labels, *cast[1:]]

    def _parameters(self, generator: np.random.Generator) -> Iterator[np.ndarray]:
        before = 1
        for after in self.channels:
            shape = (after, before, self.kernel, self.kernel)
            yield generator.standard_normal(shape) * (before * self.kernel**2) ** -0.5
            yield generator.standard_normal(after) * 0.1
            yield np.ones(after)
            yield np.zeros(after)
            before = after
        features = before * (SIDE // 2 ** len(self.channels)) ** 2
        yield generator.standard_normal((CLASSES, features)) * features**-0.5
        yield generator.standard_normal(CLASSES) * 0.1

    def _statistics(self) -> Iterator[np.ndarray]:
        for after in self.channels:
            yield np.zeros(after)
            yield np.ones(after)

    def parts(self, values: Sequence[Any]) -> tuple[Any, Any, list[Any], list[Any]]:
        """Images, labels, parameters, statistics."""
        blocks = len(self.channels)
        return values[0], values[1], list(values[2 : -2 * blocks]), list(values[-2 * blocks :])


# ---------------------------------------------------------------------------- aotlite and PyTorch
def tensor_action(row: Digits, module: Any, wrap: Wrap, arrays: Sequence[np.ndarray]) -> Action:
    """The action in the words of aotlite or PyTorch: loss, then parameters and statistics."""
    functional = import_module(f"{module.__name__}.nn.functional")
    tensors = [module.tensor(each) for each in arrays]
    images, labels, parameters, statistics = row.parts(tensors)
    for each in parameters:
        each.requires_grad_()
    read_right = module.tensor(0)
    momenta = [module.zeros_like(each) for each in parameters]

    def loss(images: Any, labels: Any, parameters: Any, statistics: Any, read_right: Any) -> Any:
        scores = _scores(row, functional, images, parameters, statistics)
        read_right.add_((scores.argmax(1) == labels).sum())
        by_class = scores.t()
        by_class.sub_(by_class.detach().amax(0))
        return functional.cross_entropy(scores, labels)

    def update(parameters: Any, gradients: Any, momenta: Any) -> None:
        with module.no_grad():
            for parameter, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
                momentum.mul_(MOMENTUM).add_(gradient.add(parameter, alpha=DECAY))
                parameter.sub_(momentum, alpha=row.rate)

    run_loss, run_update, grad = wrap(loss), wrap(update), module.autograd.grad

    def action() -> list[Any]:
        value = run_loss(images, labels, parameters, statistics, read_right)
        run_update(parameters, grad(value, parameters), momenta)
        return [value, *parameters, *statistics, read_right]

    return action


def _scores(row: Digits, functional: Any, x: Any, parameters: Any, statistics: Any) -> Any:
    for index in range(len(row.channels)):
        weight, bias, scale, shift = parameters[4 * index : 4 * index + 4]
        mean, variance = statistics[2 * index : 2 * index + 2]
        x = functional.conv2d(x, weight, bias, padding=row.kernel // 2)
        x = functional.batch_norm(x, mean, variance, scale, shift, True, BLEND, EPSILON)
        x = functional.max_pool2d(functional.relu(x), 2)
    x = functional.dropout(x.reshape(x.shape[0], -1), row.dropout, True)
    return functional.linear(x, *parameters[-2:])


# -------------------------------------------------------------------------------------------- JAX
def jax_action(row: Digits, arrays: Sequence[np.ndarray]) -> Action:
    """The action by `jax.jit`, with donated state."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    images, labels, parameters, statistics = row.parts([jnp.array(each) for each in arrays])

    def step(state: Any, images: Any, labels: Any) -> Any:
        parameters, statistics, momenta, read_right, key = state
        key, drawn = jax.random.split(key)

        def loss(parameters: list[Any]) -> Any:
            scores, new = _jax_scores(row, jax, (images, drawn), parameters, statistics)
            right = (scores.argmax(1) == labels).sum()
            chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1)
            return -chosen.mean(), (new, right)

        (value, (new, right)), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        triples = zip(parameters, gradients, momenta, strict=True)
        momenta = [MOMENTUM * m + g + DECAY * p for p, g, m in triples]
        moved = [p - row.rate * m for p, m in zip(parameters, momenta, strict=True)]
        return value, (moved, new, momenta, read_right + right, key)

    run = jax.jit(step, donate_argnums=0)
    zeros = [jnp.zeros_like(each) for each in parameters]
    state = [(parameters, statistics, zeros, jnp.zeros((), int), jax.random.key(0))]

    def action() -> list[Any]:
        value, state[0] = jax.block_until_ready(run(state[0], images, labels))
        parameters, statistics, _, read_right, _ = state[0]
        return [value, *parameters, *statistics, read_right]

    return action


def _jax_scores(
    row: Digits, jax: Any, given: tuple[Any, Any], parameters: list[Any], statistics: list[Any]
) -> tuple[Any, list[Any]]:
    """The scores, and the new statistics."""
    (x, drawn), new = given, []
    for index in range(len(row.channels)):
        weight, bias, scale, shift = parameters[4 * index : 4 * index + 4]
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME") + bias[:, None, None]
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
        old_mean, old_variance = statistics[2 * index : 2 * index + 2]
        count = x.size // x.shape[1]
        new.append(old_mean * (1 - BLEND) + mean * BLEND)
        new.append(old_variance * (1 - BLEND) + variance * (BLEND * count / (count - 1)))
        factor = scale * jax.lax.rsqrt(variance + EPSILON)
        x = (x - mean[:, None, None]) * factor[:, None, None] + shift[:, None, None]
        x = _pooled(jax, jax.nn.relu(x))
    x = x.reshape(x.shape[0], -1)
    if row.dropout:
        kept = jax.random.bernoulli(drawn, 1 - row.dropout, x.shape)
        x = jax.numpy.where(kept, x / (1 - row.dropout), 0)
    return x @ parameters[-2].T + parameters[-1], new


def _pooled(jax: Any, x: Any) -> Any:
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, window, window, "VALID")
