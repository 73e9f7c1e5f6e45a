"""The functions of layers and losses, with PyTorch's names, arguments and defaults."""

from aotlite.ir.ops.convolutions import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from aotlite.ir.ops.mean_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
)
from aotlite.ir.ops.pooling import max_pool1d, max_pool2d
from aotlite.nn.attention import multi_head_attention_forward, scaled_dot_product_attention
from aotlite.nn.embedding import embedding
from aotlite.nn.functions import (
    cross_entropy,
    dropout,
    gelu,
    linear,
    log_softmax,
    mse_loss,
    relu,
    softmax,
)
from aotlite.nn.normalization import batch_norm, layer_norm

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "multi_head_attention_forward",
    "relu",
    "scaled_dot_product_attention",
    "softmax",
]
