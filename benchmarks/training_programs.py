"""Twenty training programs: functions whose results are differentiated, with their arguments.

They are written for aotlite alone. Sizes are tiny, so that graphs are counted, not kernels timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.nn import functional as F
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor
from benchmarks.programs import TorchLike, program

Make = Callable[[np.random.Generator], Any]


@attrs.frozen
class TrainingProgram:
    """A function and the makers of its arguments."""

    body: Callable[..., Any]
    makers: tuple[Make, ...]

    def arguments(self) -> list[Any]:
        """New arguments: the same numbers each time."""
        draw = np.random.default_rng(0)
        return [make(draw) for make in self.makers]


# ----------------------------------------------------------------------------------- arguments
def _values(shape: tuple[int, ...], draw: np.random.Generator) -> Any:
    return al.tensor(draw.uniform(0.1, 1.0, shape), dtype=al.float32)


def data(*shape: int) -> Make:
    """The maker of a tensor that needs no gradient."""
    return partial(_values, shape)


def weight(*shape: int) -> Make:
    """The maker of a leaf that requires grad."""
    return lambda draw: _values(shape, draw).requires_grad_()


def classes(count: int, *shape: int) -> Make:
    """The maker of integers below a count."""
    return lambda draw: al.tensor(draw.integers(0, count, shape))


def two(*shape: int) -> Make:
    """The maker of a `TwoTensor` that requires grad."""
    return lambda draw: TwoTensor(_values(shape, draw), _values(shape, draw), requires_grad=True)


def masked(*shape: int) -> Make:
    """The maker of a `MaskedTensor` that requires grad."""
    return lambda draw: MaskedTensor(
        _values(shape, draw), al.tensor(draw.uniform(size=shape) < 0.7), requires_grad=True
    )


def quantized(*shape: int) -> Make:
    """The maker of a `QuantizedTensor`: int8 values, a scale and a zero point."""
    return lambda draw: QuantizedTensor.from_dense(_values(shape, draw), affine=True)


# ------------------------------------------------------------------------------------ programs
def _from_pipeline(spec: str) -> TrainingProgram:
    of = program(spec)
    makers = [
        weight(*shape) if wanted else data(*shape)
        for shape, wanted in zip(of.shapes, of.with_grad, strict=True)
    ]
    return TrainingProgram(partial(of.body, TorchLike(F)), tuple(makers))


def _residual(x: Any, kernel: Any, mean: Any, var: Any, scale: Any, shift: Any) -> Any:
    """A residual block: convolution, batch norm, relu, and the input added."""
    normed = F.batch_norm(F.conv2d(x, kernel, padding=1), mean, var, scale, shift, True)
    return (x + normed.relu()).mean()


def _cnn(x: Any, kernel: Any, bias: Any, last: Any, target: Any) -> Any:
    pooled = F.max_pool2d(F.conv2d(x, kernel, bias, padding=1).relu(), 2)
    return F.cross_entropy(pooled.flatten(1) @ last, target)


def _attention(x: Any, projection: Any, heads: int = 2) -> Any:
    """Self-attention whose queries, keys and values are chunks of one product."""
    batch, time, width = x.shape
    parts = (x @ projection).chunk(3, -1)
    shape = (batch, time, heads, width // heads)
    queries, keys, values = [part.reshape(shape).transpose(1, 2) for part in parts]
    return ((queries @ keys.transpose(2, 3)).softmax(-1) @ values).sum()


def _lstm_step(x: Any, hidden: Any, cell: Any, weights: Any) -> Any:
    """One step of an LSTM: four gates, which are chunks of one product."""
    inner, forget, new, out = (al.cat([x, hidden], 1) @ weights).chunk(4, 1)
    cell = forget.sigmoid() * cell + inner.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _recurrence(x: Any, state: Any, weights: Any) -> Any:
    """A recurrent net over the steps of a sequence, which `unbind` takes apart."""
    for step in x.unbind(1):
        state = (step @ weights + state).tanh()
    return state.sum()


def _row_writes(x: Any, scale: Any) -> Any:
    y = x * scale
    for i in range(3):
        y[i].mul_(2.0)
    return y.sin().sum()


PROGRAMS: dict[str, TrainingProgram] = {
    "x + y": TrainingProgram(lambda x, y: x + y, (weight(4), weight(4))),
    "chain": _from_pipeline("chain:16"),
    "MLP": _from_pipeline("mlp:2"),
    "transformer": _from_pipeline("transformer:1"),
    "CNN": TrainingProgram(
        _cnn,
        (data(2, 3, 4, 4), weight(5, 3, 3, 3), weight(5), weight(20, 4), classes(4, 2)),
    ),
    "softmax cross-entropy": TrainingProgram(F.cross_entropy, (weight(6, 5), classes(5, 6))),
    "max pooling": TrainingProgram(lambda x: F.max_pool2d(x.sin(), 2), (weight(2, 3, 4, 4),)),
    "layer norm": TrainingProgram(
        lambda x, w, b: F.layer_norm(x, (4,), w, b), (weight(3, 4), weight(4), weight(4))
    ),
    "group norm": TrainingProgram(
        lambda x, w, b: F.group_norm(x, 2, w, b), (weight(2, 4, 3), weight(4), weight(4))
    ),
    "batch norm": TrainingProgram(
        lambda x, mean, var, w, b: F.batch_norm(x, mean, var, w, b, True),
        (weight(4, 3, 2, 2), data(3), data(3), weight(3), weight(3)),
    ),
    "residual block": TrainingProgram(
        _residual,
        (weight(2, 3, 4, 4), weight(3, 3, 3, 3), data(3), data(3), weight(3), weight(3)),
    ),
    "split": TrainingProgram(lambda x: [part.sin() for part in x.split(2)], (weight(6, 3),)),
    "tensor_split": TrainingProgram(
        lambda x: sum(part.exp().sum() for part in x.tensor_split(3, 1)), (weight(2, 7),)
    ),
    "attention by chunk": TrainingProgram(_attention, (data(2, 3, 4), weight(4, 12))),
    "LSTM step": TrainingProgram(
        _lstm_step, (data(2, 3), weight(2, 4), weight(2, 4), weight(7, 16))
    ),
    "recurrence by unbind": TrainingProgram(
        _recurrence, (weight(2, 4, 3), data(2, 3), weight(3, 3))
    ),
    "writes of rows": TrainingProgram(_row_writes, (weight(3, 4), weight(4))),
    "pair of tensors": TrainingProgram(
        lambda x, w: ((x * w).sin() + x).sum(), (two(3, 4), weight(4))
    ),
    "masked tensor": TrainingProgram(
        lambda x, w: (x * w).sin().filled(0.0).mean(), (masked(3, 4), weight(4))
    ),
    "quantized weight": TrainingProgram(
        lambda x, q, b: (x @ q + b).relu().sum(), (weight(2, 3), quantized(3, 4), weight(4))
    ),
}
"""Name -> program."""
