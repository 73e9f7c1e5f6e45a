"""The rows of the CPU benchmark that are functions: each is written once, for all libraries.

A row has a function, its inputs, and the measured directions. Rows whose
step writes parameters in place and has a rule of its own are in `steps.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels.libraries import Library

FORWARD, BOTH, STEP = "forward", "forward+backward", "step"

Body = Callable[..., Any]
"""A function of a library and tensors, which returns a tensor."""
Shape = tuple[int, ...]


@attrs.frozen
class Input:
    """An input array of a row: normal numbers, or labels."""

    shape: Shape
    scale: float = 1.0
    labels: int | None = None
    """Integers below this number, in place of normal numbers."""
    with_grad: bool = True

    def draw(self, generator: np.random.Generator, dtype: str) -> np.ndarray:
        """The values, determined by the state of the generator."""
        if self.labels is not None:
            return generator.integers(self.labels, size=self.shape)
        values = generator.standard_normal(self.shape, np.float32)
        return (values * np.float32(self.scale)).astype(dtype)


@attrs.frozen(kw_only=True)
class Row:
    """A function to measure."""

    name: str
    body: Body
    inputs: tuple[Input, ...]
    directions: tuple[str, ...] = (FORWARD, BOTH)
    dtype: str = "float32"
    rate: float = 1e-3
    """The rate of gradient descent; small, so that numbers stay stable over many steps."""
    products: int = 0
    """Multiply-adds of the matrix products of one forward run."""
    written: str | None = None
    """The name of the file of handwritten C, without its ending."""
    passed_on: tuple[int, ...] = ()
    """The inputs whose gradient is the tangent itself, which no kernel writes."""
    asked: float = 1.05
    """The largest allowed ratio to the best framework."""

    def arrays(self) -> list[np.ndarray]:
        """The inputs' values, the same at every call."""
        generator = np.random.default_rng(7)
        return [each.draw(generator, self.dtype) for each in self.inputs]

    def dtype_of(self, arrays: Sequence[np.ndarray]) -> str:
        """The dtype of the numbers, which may be cast for a check."""
        return next(each.dtype.name for each in arrays if each.dtype.kind == "f")

    @property
    def with_grad(self) -> list[int]:
        """The inputs that get a gradient."""
        return [
            place for place, each in enumerate(self.inputs) if each.with_grad and not each.labels
        ]


# ----------------------------------------------------------------------- pointwise and reductions
def scaled(lib: Library, x: Any, w: Any, b: Any, r: Any, *, op: str) -> Any:
    """op(x * w + b) + r"""
    return lib.pointwise(op, x * w + b) + r


def scaled_row(name: str, size: int, **more: Any) -> Row:
    """All four are vectors of that size."""
    body, inputs = partial(scaled, op="gelu"), (Input((size,)),) * 4
    return Row(name=name, body=body, inputs=inputs, written="gelu", passed_on=(3,), **more)


def along(lib: Library, x: Any, *, word: str, axis: int) -> Any:
    """softmax or log_softmax of an axis."""
    return getattr(lib, word)(x, axis)


def normalized(lib: Library, x: Any, *affine: Any, word: str) -> Any:
    """layer_norm or rms_norm of the last axis, with its parameters."""
    return getattr(lib, word)(x, *affine)


def classified(lib: Library, x: Any, labels: Any) -> Any:
    """The cross-entropy of rows with labels."""
    return lib.cross_entropy(x, labels)


def reduced(lib: Library, x: Any, *, op: str, axis: int | None) -> Any:
    """sum, mean, amax or logsumexp."""
    return lib.reduce(op, x, axis)


def stencil(lib: Library, x: Any, *, shifts: Sequence[tuple[int, int]], middle: float) -> Any:
    """The sum of x rolled by each (shift, axis), and of `middle` times x."""
    rolled = [lib.roll(x, shift, axis) for shift, axis in shifts]
    return sum(rolled[1:], rolled[0]) + x * middle


LAPLACIAN = ((1, 0), (-1, 0), (1, 1), (-1, 1))


def strided(lib: Library, x: Any, y: Any, z: Any, *, step: int, axis: int) -> Any:
    """Every `step`-th column (or row) of x, times y transposed, plus z along the last axis."""
    taken = x[:, ::step] if axis else x[::step]
    return taken * y.T + z


# --------------------------------------------------------------------------------- the transformer
def block_inputs(batch: int, time: int, width: int) -> tuple[Input, ...]:
    """x; then scale and shift of two norms; then four projections and two layers with biases."""
    norms = (Input((width,)),) * 2
    projection = (Input((width, width), width**-0.5), Input((width,), 0.1))
    layers = (
        Input((width, 4 * width), width**-0.5),
        Input((4 * width,), 0.1),
        Input((4 * width, width), (4 * width) ** -0.5),
        Input((width,), 0.1),
    )
    return (Input((batch, time, width)), *norms, *projection * 4, *norms, *layers)


def block(lib: Library, x: Any, *parameters: Any, heads: int) -> Any:
    """x plus attention, plus an MLP with gelu; norms come first."""
    scale, shift, *projections = parameters[:10]
    x = x + _attended(lib, lib.layer_norm(x, scale, shift), projections, heads)
    scale, shift, weight, bias, back, last = parameters[10:]
    hidden = lib.pointwise("gelu", lib.layer_norm(x, scale, shift) @ weight + bias)
    return x + (hidden @ back + last)


def _attended(lib: Library, x: Any, projections: Sequence[Any], heads: int) -> Any:
    batch, time, width = x.shape
    pairs = list(zip(projections[::2], projections[1::2], strict=True))
    split = [
        lib.swap((x @ weight + bias).reshape(batch, time, heads, width // heads), 1, 2)
        for weight, bias in pairs[:3]
    ]
    joined = lib.swap(lib.attention(*split), 1, 2).reshape(batch, time, width)
    weight, bias = pairs[3]
    return joined @ weight + bias


def block_row(name: str, batch: int, time: int, width: int, heads: int, **more: Any) -> Row:
    """A block, whose products are those of its layers and of attention."""
    products = batch * time * width * (12 * width + 2 * time)
    inputs = block_inputs(batch, time, width)
    body = partial(block, heads=heads)
    return Row(name=name, body=body, inputs=inputs, directions=(BOTH,), products=products, **more)


# ------------------------------------------------------------------------------------------ the MLP
def mlp_inputs(batch: int, widths: Sequence[int]) -> tuple[Input, ...]:
    """x and labels, then a weight and a bias for each layer."""

    def layers() -> Iterator[Input]:
        for before, after in itertools.pairwise(widths):
            yield Input((before, after), before**-0.5)
            yield Input((after,), 0.1)

    first = Input((batch, widths[0]), with_grad=False), Input((batch,), labels=widths[-1])
    return (*first, *layers())


def mlp(lib: Library, x: Any, labels: Any, *parameters: Any, op: str) -> Any:
    """The loss of linear layers with a pointwise function between them."""
    *pairs, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    for inner, shift in pairs:
        x = lib.pointwise(op, x @ inner + shift)
    return lib.cross_entropy(x @ weight + bias, labels)


def mlp_row(name: str, batch: int, widths: Sequence[int], op: str = "relu", **more: Any) -> Row:
    """One step of gradient descent."""
    products = batch * sum(math.prod(pair) for pair in itertools.pairwise(widths))
    return Row(
        name=name,
        body=partial(mlp, op=op),
        inputs=mlp_inputs(batch, widths),
        directions=(STEP,),
        products=products,
        **more,
    )


# ----------------------------------------------------------------------------------------- the rows
def matrix_row(name: str, body: Body, shape: Shape, **more: Any) -> Row:
    """A function of one matrix."""
    return Row(name=name, body=body, inputs=(Input(shape),), **more)


def norm_row(name: str, word: str, shape: Shape, **more: Any) -> Row:
    """layer_norm or rms_norm with its parameters."""
    affine = (Input(shape[-1:]),) * (2 if word == "layer_norm" else 1)
    body = partial(normalized, word=word)
    return Row(name=name, body=body, inputs=(Input(shape), *affine), **more)


def classified_row(name: str, shape: Shape, **more: Any) -> Row:
    """Cross-entropy of a matrix's rows."""
    inputs = Input(shape), Input(shape[:1], labels=shape[1])
    return Row(name=name, body=classified, inputs=inputs, **more)


def strided_row(name: str, shape: Shape, step: int = 2, axis: int = 1, **more: Any) -> Row:
    """`shape` is that of the result."""
    rows, columns = shape
    x = (rows, columns * step) if axis else (rows * step, columns)
    inputs = Input(x), Input((columns, rows)), Input((columns,))
    return Row(name=name, body=partial(strided, step=step, axis=axis), inputs=inputs, **more)


SQUARE = (4096, 4096)
LOW = (4096, 1024)
FUNCTIONS = (
    scaled_row("gelu 2^14", 2**14, asked=0.6),
    scaled_row("gelu 2^20", 2**20),
    scaled_row("gelu 2^24", 2**24, asked=0.6),
    matrix_row("softmax", partial(along, word="softmax", axis=1), LOW, written="softmax"),
    norm_row("layer norm", "layer_norm", LOW, written="layer_norm"),
    classified_row("cross-entropy", LOW, written="cross_entropy", asked=0.6),
    *(
        matrix_row(
            f"sum {'all' if axis is None else axis}",
            partial(reduced, op="sum", axis=axis),
            SQUARE,
            directions=(FORWARD,),
            written="sum_all" if axis is None else f"sum_{axis}",
        )
        for axis in (0, 1, None)
    ),
    matrix_row(
        "Laplacian", partial(stencil, shifts=LAPLACIAN, middle=-4.0), SQUARE, written="laplacian"
    ),
    strided_row("strided", SQUARE, written="strided", asked=0.6),
    mlp_row("MLP", 256, (784, 512, 512, 10)),
    block_row("transformer", 8, 128, 256, 4),
)
"""In the order of the table."""
