"""The functions of the CPU benchmark's programs, in aotlite and PyTorch, and in JAX.

A program is written once, as a function of a library and of tensors. Operators, slices, `.T` of a
matrix, `@` and `.reshape` are the same in all three; everything else is a method of `Library`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

EPSILON = 1e-5


class Library(Protocol):
    """The functions that programs call, on tensors of the library."""

    def pointwise(self, name: str, x: Any) -> Any: ...
    def softmax(self, x: Any, axis: int) -> Any: ...
    def log_softmax(self, x: Any, axis: int) -> Any: ...
    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any: ...
    def rms_norm(self, x: Any, weight: Any) -> Any: ...
    def cross_entropy(self, x: Any, labels: Any) -> Any: ...
    def reduce(self, name: str, x: Any, axis: int | None) -> Any: ...
    def roll(self, x: Any, shift: int, axis: int) -> Any: ...
    def swap(self, x: Any, i: int, j: int) -> Any: ...
    def attention(self, queries: Any, keys: Any, values: Any) -> Any: ...


class TorchLike:
    """aotlite or PyTorch: the same methods, and functions in `nn.functional`."""

    def __init__(self, functional: Any) -> None:
        self.functional = functional

    def pointwise(self, name: str, x: Any) -> Any:
        """gelu, silu, relu, softplus, tanh, sigmoid, exp or sin."""
        of = self.functional if name in ("gelu", "silu", "relu", "softplus") else None
        return getattr(of, name)(x) if of else getattr(x, name)()

    def softmax(self, x: Any, axis: int) -> Any:
        return x.softmax(axis)

    def log_softmax(self, x: Any, axis: int) -> Any:
        return x.log_softmax(axis)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        """The norm over the last axis."""
        return self.functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)

    def rms_norm(self, x: Any, weight: Any) -> Any:
        """The norm over the last axis."""
        return self.functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        """The mean over rows."""
        return self.functional.cross_entropy(x, labels)

    def reduce(self, name: str, x: Any, axis: int | None) -> Any:
        """sum, mean, amax or logsumexp, of one axis or of all."""
        if axis is None:
            return getattr(x.reshape(-1), name)(0)
        return getattr(x, name)(axis)

    def roll(self, x: Any, shift: int, axis: int) -> Any:
        return x.roll(shift, axis)

    def swap(self, x: Any, i: int, j: int) -> Any:
        return x.transpose(i, j)

    def attention(self, queries: Any, keys: Any, values: Any) -> Any:
        """softmax(queries @ keys.T / sqrt(width)) @ values; PyTorch has a fused kernel for it."""
        return self.functional.scaled_dot_product_attention(queries, keys, values)


class Jax:
    """JAX: `jax.numpy`, and `jax.nn` where it has the function."""

    def __init__(self) -> None:
        self.jax, self.jnp = import_module("jax"), import_module("jax.numpy")

    def pointwise(self, name: str, x: Any) -> Any:
        """See `TorchLike.pointwise`."""
        if name == "gelu":
            return self.jax.nn.gelu(x, approximate=False)
        return getattr(self.jnp if hasattr(self.jnp, name) else self.jax.nn, name)(x)

    def softmax(self, x: Any, axis: int) -> Any:
        return self.jax.nn.softmax(x, axis)

    def log_softmax(self, x: Any, axis: int) -> Any:
        return self.jax.nn.log_softmax(x, axis)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.jax.nn.standardize(x, epsilon=EPSILON) * weight + bias

    def rms_norm(self, x: Any, weight: Any) -> Any:
        square = self.jnp.mean(x * x, -1, keepdims=True)
        return x * self.jax.lax.rsqrt(square + EPSILON) * weight

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        of_rows = self.jax.nn.log_softmax(x, -1)
        taken = self.jnp.take_along_axis(of_rows, labels[:, None], 1, mode="promise_in_bounds")
        return -self.jnp.mean(taken)

    def reduce(self, name: str, x: Any, axis: int | None) -> Any:
        if name == "logsumexp":
            return self.jax.nn.logsumexp(x, axis)
        return getattr(self.jnp, name)(x, axis)

    def roll(self, x: Any, shift: int, axis: int) -> Any:
        return self.jnp.roll(x, shift, axis)

    def swap(self, x: Any, i: int, j: int) -> Any:
        return self.jnp.swapaxes(x, i, j)

    def attention(self, queries: Any, keys: Any, values: Any) -> Any:
        scores = queries @ self.swap(keys, -1, -2) * (queries.shape[-1] ** -0.5)
        return self.jax.nn.softmax(scores, -1) @ values
