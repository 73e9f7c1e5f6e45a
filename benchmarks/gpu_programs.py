"""The compiled and timed functions for GPUs, for aotlite and PyTorch alike, and their sizes.

`t` is `aotlite` or `torch`. A row of full size has 2^26 elements; tiny ones are for tests without a
GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

FULL, TINY = 26, 12
"""The binary logarithms of the number of elements of a row."""


@attrs.frozen
class Row:
    """A function of tensors, with its name, the shapes of its inputs, and its bytes."""

    name: str
    function: Callable[..., Any]
    """The function, of a module and tensors."""
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    """The binary logarithm of a size -> the shapes of the inputs."""
    written: Callable[[int], int]
    """Elements of the results."""
    numpy: Callable[..., Any] | None = None
    """The same function with NumPy's names, for CuPy and JAX."""
    labels: bool = False
    """Whether the last input has indices into the rows."""
    backward: bool = False

    def bytes(self, size: int, itemsize: int) -> int:
        """The least bytes that are read and written."""
        shapes = self.shapes(size)
        read = sum([math.prod(shape) for shape in shapes[: len(shapes) - self.labels]])
        if self.backward:
            # The tangent is read too; the results are the gradients of the inputs.
            read, written = read + math.prod(shapes[0]), read
        else:
            written = self.written(size)
        labels = math.prod(shapes[-1]) * 8 if self.labels else 0
        return (read + written) * itemsize + labels


def square(size: int) -> tuple[int, int]:
    """A matrix of 2^size elements, about as high as wide."""
    return 1 << size // 2, 1 << size - size // 2


def rows(size: int) -> tuple[int, int]:
    """A matrix of 2^size elements in rows of 1024, or of less in small ones."""
    width = min(10, size // 2)
    return 1 << size - width, 1 << width


def chain(t: Any, x: Any, y: Any) -> Any:
    """Eight operations point by point."""
    return t.tanh(x * 1.5 + y) * y + t.exp(-x * x) - 0.5


def laplacian(t: Any, x: Any) -> Any:
    """The five-point stencil of a torus."""
    across = t.roll(x, 1, 0) + t.roll(x, -1, 0)
    return across + t.roll(x, 1, 1) + t.roll(x, -1, 1) - 4.0 * x


def layer_norm(t: Any, x: Any, w: Any, b: Any) -> Any:
    """Over the last axis."""
    return t.layer_norm(x, (x.shape[-1],), w, b)


def cross_entropy(t: Any, x: Any, labels: Any) -> Any:
    """The mean over rows."""
    made = getattr(t, "cross_entropy", None) or t.nn.functional.cross_entropy
    return made(x, labels)


def _softmax(n: Any, x: Any) -> Any:
    e = n.exp(x - n.max(x, axis=-1, keepdims=True))
    return e / n.sum(e, axis=-1, keepdims=True)


def _layer_norm(n: Any, x: Any, w: Any, b: Any) -> Any:
    centered = x - n.mean(x, axis=-1, keepdims=True)
    variance = n.mean(centered * centered, axis=-1, keepdims=True)
    return centered / n.sqrt(variance + 1e-5) * w + b


def _cross_entropy(n: Any, x: Any, labels: Any) -> Any:
    top = n.max(x, axis=-1, keepdims=True)
    total = n.log(n.sum(n.exp(x - top), axis=-1))
    own = n.take_along_axis(x - top, labels[:, None], axis=-1)[:, 0]
    return n.mean(total - own)


def _roll(n: Any, x: Any) -> Any:
    across = n.roll(x, 1, 0) + n.roll(x, -1, 0)
    return across + n.roll(x, 1, 1) + n.roll(x, -1, 1) - 4.0 * x


def _one(size: int) -> int:
    return 1


def _all(size: int) -> int:
    return 1 << size


def _with_vectors(size: int) -> tuple[tuple[int, ...], ...]:
    shape = rows(size)
    return shape, shape[1:], shape[1:]


ROWS = {
    row.name: row
    for row in (
        Row("chain", chain, lambda s: (square(s), square(s)), _all,
            lambda n, x, y: n.tanh(x * 1.5 + y) * y + n.exp(-x * x) - 0.5),
        Row("softmax", lambda t, x: t.softmax(x, -1), lambda s: (rows(s),), _all, _softmax),
        Row("layer norm", layer_norm, _with_vectors, _all, _layer_norm),
        Row("cross-entropy", cross_entropy, lambda s: (rows(s), rows(s)[:1]), _one,
            _cross_entropy, labels=True),
        Row("sum of rows", lambda t, x: x.sum(-1), lambda s: (rows(s),), lambda s: rows(s)[0],
            lambda n, x: n.sum(x, axis=-1)),
        Row("sum of columns", lambda t, x: x.sum(0), lambda s: (rows(s),), lambda s: rows(s)[1],
            lambda n, x: n.sum(x, axis=0)),
        Row("sum of all", lambda t, x: x.sum(), lambda s: (rows(s),), _one,
            lambda n, x: n.sum(x)),
        Row("transposed", lambda t, x, y: x.t() + y, lambda s: (square(s)[::-1], square(s)), _all,
            lambda n, x, y: x.T + y),
        Row("laplacian", laplacian, lambda s: (square(s),), _all, _roll),
        Row("softmax backward", lambda t, x: t.softmax(x, -1), lambda s: (rows(s),), _all,
            backward=True),
        Row("layer norm backward", layer_norm, _with_vectors, _all, backward=True),
    )
}  # fmt: skip
