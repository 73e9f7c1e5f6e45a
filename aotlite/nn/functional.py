"""The functions of layers and losses, with PyTorch's names, arguments and defaults."""

from aotlite.nn.functions import (
    conv2d,
    cross_entropy,
    dropout,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    relu,
    softmax,
)
from aotlite.nn.normalization import batch_norm

__all__ = [
    "batch_norm",
    "conv2d",
    "cross_entropy",
    "dropout",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "relu",
    "softmax",
]
