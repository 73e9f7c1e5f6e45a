"""Modules and layers with PyTorch's names, arguments and defaults. Guide: `docs/nn.md`."""

from aotlite.nn import functional, init
from aotlite.nn.embedding import Embedding
from aotlite.nn.files import load_state, save_state
from aotlite.nn.layers import (
    GELU,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Sequential,
)
from aotlite.nn.module import Module
from aotlite.nn.multihead import MultiheadAttention
from aotlite.nn.normalization import BatchNorm2d, LayerNorm
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.nn.swap import functional_call

__all__ = [
    "GELU",
    "BatchNorm2d",
    "Buffer",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "Module",
    "MultiheadAttention",
    "Parameter",
    "ReLU",
    "Sequential",
    "functional",
    "functional_call",
    "init",
    "load_state",
    "save_state",
]
