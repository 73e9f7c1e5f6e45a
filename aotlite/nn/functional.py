"""The functions of layers and losses, with PyTorch's names, arguments and defaults."""

from aotlite.ir.ops.convolutions import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from aotlite.ir.ops.labels import cross_entropy, nll_loss, one_hot
from aotlite.ir.ops.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from aotlite.ir.ops.mean_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
)
from aotlite.ir.ops.pad import pad
from aotlite.ir.ops.pooling import max_pool1d, max_pool2d
from aotlite.ir.ops.similarity import (
    cosine_similarity,
    normalize,
    pixel_shuffle,
    pixel_unshuffle,
)
from aotlite.ir.ops.upsample import interpolate
from aotlite.nn.attention import multi_head_attention_forward, scaled_dot_product_attention
from aotlite.nn.embedding import embedding
from aotlite.nn.functions import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    gelu,
    linear,
    log_softmax,
    relu,
    softmax,
    softmin,
)
from aotlite.nn.normalization import batch_norm, group_norm, layer_norm, rms_norm

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "embedding",
    "gelu",
    "group_norm",
    "huber_loss",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "multi_head_attention_forward",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "relu",
    "rms_norm",
    "scaled_dot_product_attention",
    "smooth_l1_loss",
    "softmax",
    "softmin",
]
