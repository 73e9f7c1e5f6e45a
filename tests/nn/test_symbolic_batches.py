"""Modules with symbols for sizes of their inputs: one entry serves them, bit for bit eager's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm": (lambda: nn.BatchNorm1d(5), (5,)),
    "batch norm of images": (lambda: nn.BatchNorm2d(3), (3, 4, 2)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (3, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_running_statistics_of_a_symbolic_batch(name: str) -> None:
    make, shape = MODULES[name]
    module = make()
    twin = deepcopy(module)
    compiled = al.compile(lambda x: module(x), dynamic_shapes={"x": {0: True}}, backend="reference")
    for n in (6, 5, 17, 3, 2):
        x = al.tensor(np.random.default_rng(n).standard_normal((n, *shape)).astype(np.float32))
        found, expected = compiled(x), twin(x)
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
        for ours, theirs in zip(module.buffers(), twin.buffers(), strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert len(compiled.entries) == 1


def causal(attention: nn.MultiheadAttention) -> Callable[[al.Tensor], al.Tensor]:
    def run(x: al.Tensor) -> al.Tensor:
        later = al.ones(x.shape[1], x.shape[1], dtype=al.bool_).triu(1)
        return attention(x, x, x, attn_mask=later, need_weights=False)

    return run


def padded(attention: nn.MultiheadAttention) -> Callable[[al.Tensor], al.Tensor]:
    def run(x: al.Tensor) -> al.Tensor:
        batch, length = x.shape[:2]
        behind = al.arange(length)[None, :].expand(batch, length) > 2
        return attention(x, x, x, key_padding_mask=behind)

    return run


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)


ROWS, LINES, IMAGES = (2, 5, 4), (2, 4, 5), (2, 4, 5, 6)
LAYERS: dict[str, tuple[Callable[[], Callable[[Any], Any]], tuple[int, ...], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 3), ROWS, (0, 1)),
    "LayerNorm": (lambda: nn.LayerNorm(4), ROWS, (0, 1)),
    "RMSNorm": (lambda: nn.RMSNorm(4), ROWS, (0, 1)),
    "Softmax": (lambda: nn.Softmax(-1), ROWS, (0, 1)),
    "GLU": (lambda: nn.GLU(-1), ROWS, (0, 1)),
    "Dropout": (lambda: nn.Dropout(0.3), ROWS, (0, 1)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), ROWS, (0, 1)),
    "PReLU": (lambda: nn.PReLU(), ROWS, (0, 1)),
    "Flatten": (lambda: nn.Flatten(), ROWS, (0, 1)),
    "Conv1d": (lambda: nn.Conv1d(4, 3, 3, padding=1), LINES, (0, 2)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 3, 3), LINES, (0, 2)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), LINES, (0, 2)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4), LINES, (0, 2)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), LINES, (0, 2)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), LINES, (0, 2)),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(2), LINES, (0, 2)),
    "Dropout1d": (lambda: nn.Dropout1d(0.3), LINES, (0, 2)),
    "Conv2d": (lambda: nn.Conv2d(4, 4, 3, stride=2, groups=2), IMAGES, (0, 2, 3)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2), IMAGES, (0, 2, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGES, (0, 2, 3)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), IMAGES, (0, 2, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGES, (0, 2, 3)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), IMAGES, (0, 2, 3)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), IMAGES, (0, 2, 3)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), IMAGES, (0, 2, 3)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), IMAGES, (0, 2, 3)),
    "Dropout2d": (lambda: nn.Dropout2d(0.3), IMAGES, (0, 2, 3)),
    "LSTM": (lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True), ROWS, (1,)),
    "GRU": (lambda: nn.GRU(4, 3, batch_first=True), ROWS, (0,)),
    "RNN": (lambda: nn.RNN(4, 3), ROWS, (1,)),
    "MultiheadAttention, causal": (
        lambda: causal(nn.MultiheadAttention(4, 2, batch_first=True)),
        ROWS,
        (0, 1),
    ),
    "MultiheadAttention, padded": (
        lambda: padded(nn.MultiheadAttention(4, 2, batch_first=True)),
        ROWS,
        (0, 1),
    ),
    "TransformerEncoderLayer": (encoder, ROWS, (0, 1)),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(encoder(), 2), ROWS, (0, 1)),
}
"""A layer, the shape of its first input, and the dimensions that change."""


@pytest.mark.rules("DYN-4", "DYN-20", "DYN-23")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_compiled_twice_at_most(name: str) -> None:
    make, shape, changing = LAYERS[name]
    al.manual_seed(0)
    layer = make()
    compiled = al.compile(lambda x: layer(x), backend="reference")
    for k in range(5):
        sizes = [n + (k + 1 if dim in changing else 0) for dim, n in enumerate(shape)]
        outcomes = []
        for function in (layer, compiled):
            al.manual_seed(k)
            x = al.rand(*sizes).requires_grad_()
            result = function(x)
            result = result[0] if isinstance(result, tuple) else result
            result.sin().sum().backward()
            assert x.grad is not None
            outcomes.append([result.detach().numpy(), x.grad.numpy()])
        np.testing.assert_array_equal(outcomes[0][0], outcomes[1][0])
        np.testing.assert_allclose(outcomes[0][1], outcomes[1][1], rtol=2e-5, atol=1e-6)
    assert len(compiled.entries) == 2, str(compiled.regions())
