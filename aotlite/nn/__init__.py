"""Modules and layers with PyTorch's names, arguments and defaults. Guide: `docs/nn.md`."""

from aotlite.nn import functional, init
from aotlite.nn.containers import ModuleDict, ModuleList, ParameterList, Sequential
from aotlite.nn.convolutions import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from aotlite.nn.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d
from aotlite.nn.embedding import Embedding
from aotlite.nn.files import load_state, save_state
from aotlite.nn.layers import GELU, Flatten, Identity, Linear, ReLU
from aotlite.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from aotlite.nn.module import Module
from aotlite.nn.multihead import MultiheadAttention
from aotlite.nn.normalization import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
)
from aotlite.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell
from aotlite.nn.swap import functional_call
from aotlite.nn.transformer import TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AlphaDropout",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Buffer",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Embedding",
    "Flatten",
    "GRUCell",
    "GroupNorm",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SmoothL1Loss",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "functional",
    "functional_call",
    "init",
    "load_state",
    "save_state",
]
