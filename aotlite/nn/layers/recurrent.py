"""Recurrent layers: `LSTM`, `GRU`, `RNN`, and their cells. Each step is recorded in a graph.

Sequences are (l, n, i): length, batch, size of the input; with `batch_first` (n, l, i); without
batch (l, i).
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call, empty
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.nn import init
from aotlite.nn.functional.dropouts import check_probability, dropout
from aotlite.nn.functional.products import linear
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter

State = tuple[Tensor, ...]
"""The hidden state: (h,), or (h, c) of an LSTM."""


# ---------------------------------------------------------------------------------------- steps
def _lstm_step(given: Tensor, seen: Tensor, state: State) -> State:
    """Source: Hochreiter and Schmidhuber, "Long short-term memory" (1997)."""
    enters, keeps, new, leaves = (given + seen).chunk(4, -1)
    cell = keeps.sigmoid() * state[1] + enters.sigmoid() * new.tanh()
    return leaves.sigmoid() * cell.tanh(), cell


def _gru_step(given: Tensor, seen: Tensor, state: State) -> State:
    """Source: Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014)."""
    (reset, keep, new), (reset_seen, keep_seen, new_seen) = given.chunk(3, -1), seen.chunk(3, -1)
    new = (new + (reset + reset_seen).sigmoid() * new_seen).tanh()
    keep = (keep + keep_seen).sigmoid()
    return ((state[0] - new) * keep + new,)


def _tanh_step(given: Tensor, seen: Tensor, state: State) -> State:
    return ((given + seen).tanh(),)


def _relu_step(given: Tensor, seen: Tensor, state: State) -> State:
    return ((given + seen).relu(),)


_STEPS = {
    "LSTM": (_lstm_step, 4),
    "GRU": (_gru_step, 3),
    "RNN_TANH": (_tanh_step, 1),
    "RNN_RELU": (_relu_step, 1),
}
"""Kind of unit -> (its step, the number of gates)."""


# --------------------------------------------------------------------------------------- layers
class _Recurrent(Module):
    """Base of recurrent layers, in one or both directions.

    Parameters have PyTorch's names and initial values: uniform in +-1 / sqrt(hidden_size).
    """

    mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        self._check(hidden_size, num_layers, dropout)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        values = _STEPS[self.mode][1] * hidden_size
        for layer in range(num_layers):
            size = input_size if layer == 0 else hidden_size * (1 + bidirectional)
            for suffix in self._suffixes(layer):
                shapes = {"weight_ih": (values, size), "weight_hh": (values, hidden_size)}
                if bias:
                    shapes |= {"bias_ih": (values,), "bias_hh": (values,)}  # type: ignore[dict-item]
                for name, shape in shapes.items():
                    parameter = Parameter(empty(shape, dtype=dtype, device=device))
                    self.register_parameter(f"{name}_{suffix}", parameter)
        self.reset_parameters()

    def _check(self, hidden_size: int, num_layers: int, dropout: float) -> None:
        name = type(self).__name__
        for argument, value in (("hidden_size", hidden_size), ("num_layers", num_layers)):
            if value < 1:
                raise ArgumentError(f"{name}: {argument} is {value}, expected at least 1")
        check_probability(name, dropout, "dropout")

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"][: 1 + self.bidirectional]

    def reset_parameters(self) -> None:
        """Draws initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _run(self, input: Tensor, states: State) -> tuple[Tensor, State]:
        """(outputs of the last layer, final states of all layers), with a batch dimension."""
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                start = tuple([state[len(ends)] for state in states])
                output, end = self._one_way(input, suffix, start)
                outputs.append(output)
                ends.append(end)
            input = outputs[0] if len(outputs) == 1 else call("cat", tuple(outputs), 2)
            if layer < self.num_layers - 1:
                input = dropout(input, self.dropout, self.training)
        return input, tuple([call("stack", parts, 0) for parts in zip(*ends, strict=True)])

    def _one_way(self, input: Tensor, suffix: str, state: State) -> tuple[Tensor, State]:
        """The outputs (l, n, h) of one direction, and the state after its last step."""
        step = _STEPS[self.mode][0]
        weight, bias = getattr(self, f"weight_hh_{suffix}"), None
        bias_ih = None
        if self.bias:
            bias, bias_ih = getattr(self, f"bias_hh_{suffix}"), getattr(self, f"bias_ih_{suffix}")
        # One product for the inputs of all steps.
        given = linear(input, getattr(self, f"weight_ih_{suffix}"), bias_ih).unbind(0)
        backward = suffix.endswith("_reverse")
        outputs = []
        for part in reversed(given) if backward else given:
            state = step(part, linear(state[0], weight, bias), state)
            outputs.append(state[0])
        if backward:
            outputs.reverse()
        if not outputs:
            return input.new_zeros((0, *state[0].shape)), state
        return call("stack", tuple(outputs), 0), state

    def _call(self, input: Tensor, states: State | None) -> tuple[Tensor, State]:
        """`forward` with the states in a tuple: checks, and arranges the batch dimension."""
        name = type(self).__name__
        if input.ndim not in (2, 3) or input.size(-1) != self.input_size:
            raise ShapeError(
                f"{name}: the input has shape {input.shape}, expected 2 or 3 dimensions, the last "
                f"of size {self.input_size}"
            )
        batched = input.ndim == 3
        turned = batched and self.batch_first
        sequence = input.transpose(0, 1) if turned else input
        sequence = sequence if batched else sequence.unsqueeze(1)
        shape = (
            self.num_layers * (1 + self.bidirectional),
            sequence.size(1),
            self.hidden_size,
        )
        if states is None:
            count = 2 if self.mode == "LSTM" else 1
            states = (input.new_zeros(shape),) * count
        else:
            expected = shape if batched else (shape[0], shape[2])
            _check_states(name, states, expected)
            states = states if batched else tuple([state.unsqueeze(1) for state in states])
        output, ends = self._run(sequence, states)
        if not batched:
            return output.squeeze(1), tuple([end.squeeze(1) for end in ends])
        return output.transpose(0, 1) if turned else output, ends

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        parts += [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return ", ".join(parts)


def _check_states(name: str, states: State, expected: tuple[int, ...]) -> None:
    for state in states:
        if state.shape != expected:
            raise ShapeError(f"{name}: a state has shape {state.shape}, expected {expected}")


class LSTM(_Recurrent):
    """Long short-term memory: (l, n, i) -> (l, n, h), (h_n, c_n) of shape (layers, n, h) each."""

    mode = "LSTM"

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = self._call(input, hx)
        return output, (hidden, cell)


class GRU(_Recurrent):
    """Gated recurrent units: (l, n, i) -> (l, n, h), h_n of shape (layers, n, h)."""

    mode = "GRU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, (hidden,) = self._call(input, None if hx is None else (hx,))
        return output, hidden


class RNN(_Recurrent):
    """Units with a tanh, or a relu: (l, n, i) -> (l, n, h), h_n of shape (layers, n, h)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        **options: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        self.mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(input_size, hidden_size, num_layers, **options)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, (hidden,) = self._call(input, None if hx is None else (hx,))
        return output, hidden


# ---------------------------------------------------------------------------------------- cells
class _Cell(Module):
    """One step of one layer: (n, i) and states (n, h), or without n."""

    mode = "LSTM"
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        values = _STEPS[self.mode][1] * hidden_size
        made = lambda *shape: Parameter(empty(shape, dtype=dtype, device=device))
        self.weight_ih, self.weight_hh = made(values, input_size), made(values, hidden_size)
        self.bias_ih, self.bias_hh = (made(values), made(values)) if bias else (None, None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _call(self, input: Tensor, states: State | None) -> State:
        name = type(self).__name__
        if input.ndim not in (1, 2) or input.size(-1) != self.input_size:
            raise ShapeError(
                f"{name}: the input has shape {input.shape}, expected 1 or 2 dimensions, the last "
                f"of size {self.input_size}"
            )
        shape = (*input.shape[:-1], self.hidden_size)
        if states is None:
            states = (input.new_zeros(shape),) * (2 if self.mode == "LSTM" else 1)
        _check_states(name, states, shape)
        given = linear(input, self.weight_ih, self.bias_ih)
        return _STEPS[self.mode][0](given, linear(states[0], self.weight_hh, self.bias_hh), states)

    def extra_repr(self) -> str:
        rest = "" if self.bias else ", bias=False"
        return f"{self.input_size}, {self.hidden_size}{rest}"


class LSTMCell(_Cell):
    """One step of an `LSTM`: (n, i), ((n, h), (n, h)) -> (n, h), (n, h)."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden, cell = self._call(input, hx)
        return hidden, cell


class GRUCell(_Cell):
    """One step of a `GRU`: (n, i), (n, h) -> (n, h)."""

    mode = "GRU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (hidden,) = self._call(input, None if hx is None else (hx,))
        return hidden
