"""Modules and layers with PyTorch's names, arguments and defaults. Guide: `docs/nn.md`."""

from aotlite.nn import functional, init
from aotlite.nn.files import load_state, save_state
from aotlite.nn.layers import (
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Sequential,
)
from aotlite.nn.module import Module
from aotlite.nn.normalization import BatchNorm2d
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.nn.swap import functional_call

__all__ = [
    "BatchNorm2d",
    "Buffer",
    "Conv2d",
    "Dropout",
    "Flatten",
    "Linear",
    "MaxPool2d",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "functional",
    "functional_call",
    "init",
    "load_state",
    "save_state",
]
