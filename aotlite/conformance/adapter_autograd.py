"""What the rules about histories, gradients, versions and compilation ask of an array library.

The second half of `Adapter`, in the same manner: every method is optional. A leaf is an array that
collects gradients; a history is what leads from an array back to leaves.
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
        """Makes an array a leaf that collects gradients, or no longer one."""

    @optional
    def requires_grad(self, a: Array) -> Any:
        """Whether gradients lead to an array."""

    @optional
    def is_leaf(self, a: Array) -> Any:
        """Whether an array has no history."""

    @optional
    def detach(self, a: Array) -> Array:
        """The same values, on the same memory, without history."""

    @optional
    def detach_(self, a: Array) -> Array:
        """Takes the history of this object away."""

    @optional
    def hidden_alias(self, a: Array) -> Array:
        """The same memory, writes through which the library promises not to notice."""

    @optional
    def no_grad(self) -> Any:
        """A block in which nothing gets a history."""

    @optional
    def inference_mode(self) -> Any:
        """A block whose new arrays can never have one, and need not count writes."""

    # --- gradients

    @optional
    def backward(self, a: Array, gradient: Array) -> None:
        """Adds to every leaf that leads to `a` its gradient, given that of `a`."""

    @optional
    def backward_kept(self, a: Array, gradient: Array) -> None:
        """As `backward`, and the graph stays for another one."""

    @optional
    def backward_recorded(self, a: Array, gradient: Array) -> None:
        """As `backward`, and the gradients have histories themselves."""

    @optional
    def grad(self, a: Array) -> Any:
        """The gradient that a leaf has collected, None before any."""

    @optional
    def gradient_of(self, a: Array, x: Array, gradient: Array) -> Array:
        """The gradient of `a` for `x`, with a history, collected nowhere."""

    @optional
    def retain_grad(self, a: Array) -> None:
        """Lets an array that is no leaf keep its gradient as well."""

    @optional
    def on_gradient(self, a: Array, hook: Callable[[Array], None]) -> None:
        """Calls `hook` with the gradient of an array in every backward."""

    @optional
    def custom(self, forward: Callable[..., Array], backward: Callable[..., Any]) -> Any:
        """A function with a gradient of its own: `forward(ctx, *arrays)`, `backward(ctx, grad)`.

        `ctx` has PyTorch's `save_for_backward`, `saved_tensors` and `mark_dirty`.
        """

    @optional
    def call(self, function: Callable[..., Array], arrays: list[Array]) -> Any:
        """What `custom` or `compile` made, called."""

    @optional
    def vjp(self, function: Callable[..., Array], arrays: list[Array], gradient: Array) -> Any:
        """The gradients of `function(*arrays)` for each of the arrays, in a functional manner."""

    # --- versions

    @optional
    def write_count(self, a: Array) -> Any:
        """How often the memory of an array was written, as far as the library counts."""

    # --- compilation

    @optional
    def compile(self, function: Callable[..., Any]) -> Any:
        """The function compiled, as the library's users do it."""

    @optional
    def compile_donating(self, function: Callable[..., Any]) -> Any:
        """The function compiled so that it may take the memory of its first argument."""

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
