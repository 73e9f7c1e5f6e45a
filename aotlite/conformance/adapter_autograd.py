"""The methods of `Adapter` for histories, gradients, version counters and compilation.

Every method is optional. A leaf is an array that collects gradients; a history leads from an array
back to leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.conformance.unsupported import optional

Array = Any


class Differentiable:
    """The methods of libraries that have gradients, count writes, or compile functions."""

    # --- histories

    @optional
    def requires_grad_(self, a: Array, flag: bool) -> Array:
        """Makes an array require a gradient, or makes a leaf require none."""

    @optional
    def requires_grad(self, a: Array) -> Any:
        """Whether an array requires gradients."""

    @optional
    def is_leaf(self, a: Array) -> Any:
        """Whether an array has no history."""

    @optional
    def detach(self, a: Array) -> Array:
        """The same values, on the same memory, without history."""

    @optional
    def detach_(self, a: Array) -> Array:
        """Removes the history of this object."""

    @optional
    def hidden_alias(self, a: Array) -> Array:
        """The same memory; the library does not count writes through this alias."""

    @optional
    def no_grad(self) -> Any:
        """A block in which results get no history."""

    @optional
    def inference_mode(self) -> Any:
        """A block whose new arrays never get a history, and need not count writes."""

    # --- gradients

    @optional
    def backward(self, a: Array, gradient: Array) -> None:
        """Adds to each leaf of `a`'s history its gradient, given that of `a`."""

    @optional
    def backward_kept(self, a: Array, gradient: Array) -> None:
        """As `backward`, but keeps the graph for another one."""

    @optional
    def backward_recorded(self, a: Array, gradient: Array) -> None:
        """As `backward`, but the gradients get histories."""

    @optional
    def grad(self, a: Array) -> Any:
        """The accumulated gradient of a leaf; None before the first."""

    @optional
    def gradient_of(self, a: Array, x: Array, gradient: Array) -> Array:
        """The gradient of `x`, given that of `a`, with a history; no leaf accumulates it."""

    @optional
    def retain_grad(self, a: Array) -> None:
        """Makes an array that is no leaf keep its gradient in backwards."""

    @optional
    def on_gradient(self, a: Array, hook: Callable[[Array], None]) -> None:
        """Calls `hook` with the gradient of an array in every backward."""

    @optional
    def custom(self, forward: Callable[..., Array], backward: Callable[..., object]) -> Any:
        """A custom function of `forward(ctx, *arrays)` and `backward(ctx, grad)`.

        `ctx` has PyTorch's `save_for_backward`, `saved_tensors` and `mark_dirty`.
        """

    @optional
    def call(self, function: Callable[..., Array], arrays: list[Array]) -> Any:
        """The result of calling a function that `custom` or `compile` made."""

    @optional
    def vjp(self, function: Callable[..., Array], arrays: list[Array], gradient: Array) -> Any:
        """The gradients of `function(*arrays)` for each of the arrays; no leaf accumulates them."""

    # --- versions

    @optional
    def write_count(self, a: Array) -> Any:
        """The library's count of writes to the memory of an array."""

    # --- compilation

    @optional
    def compile(self, function: Callable[..., Any]) -> Any:
        """The function, compiled by the library's usual compiler."""

    @optional
    def compile_donating(self, function: Callable[..., object]) -> Any:
        """The function compiled so that it may reuse the memory of its first argument."""

    # --- more ops

    @optional
    def exp(self, a: Array) -> Array:
        """`exp(a)`, new; its gradient reads the result."""

    @optional
    def sin(self, a: Array) -> Array:
        """`sin(a)`, new; its gradient reads `a`."""

    @optional
    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product, new."""

    @optional
    def uniform_(self, a: Array) -> Array:
        """Writes random numbers into `a`."""
