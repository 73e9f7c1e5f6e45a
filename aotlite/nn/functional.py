"""The functions of layers and losses, with PyTorch's names, arguments and defaults."""

from aotlite.nn.attention import multi_head_attention_forward, scaled_dot_product_attention
from aotlite.nn.embedding import embedding
from aotlite.nn.functions import (
    conv2d,
    cross_entropy,
    dropout,
    gelu,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    relu,
    softmax,
)
from aotlite.nn.normalization import batch_norm, layer_norm

__all__ = [
    "batch_norm",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "multi_head_attention_forward",
    "relu",
    "scaled_dot_product_attention",
    "softmax",
]
