"""`TransformerEncoderLayer` and `TransformerEncoder`.

Source: Vaswani et al., "Attention is all you need" (NeurIPS 2017).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, bool_
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.nn.containers import ModuleList
from aotlite.nn.functional.activations import gelu, relu
from aotlite.nn.layers.attention import MultiheadAttention
from aotlite.nn.layers.dropout import Dropout
from aotlite.nn.layers.linear import Linear
from aotlite.nn.layers.normalization import LayerNorm
from aotlite.nn.module import Module

Activation = str | Callable[[Tensor], Tensor]


class TransformerEncoderLayer(Module):
    """Self-attention, then two linear layers, each with a residual connection.

    (l, n, d) -> (l, n, d), with `batch_first` (n, l, d), without batch (l, d). `norm_first`
    normalizes before each part, and not after it.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **options
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        mask = _as_added("src_mask", src_mask, src)
        padding = _as_added("src_key_padding_mask", src_key_padding_mask, src)
        if self.norm_first:
            src = src + self._attended(self.norm1(src), mask, padding, is_causal)
            return src + self._transformed(self.norm2(src))
        src = self.norm1(src + self._attended(src, mask, padding, is_causal))
        result: Tensor = self.norm2(src + self._transformed(src))
        return result

    def _attended(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        found, _ = self.self_attn(
            x,
            x,
            x,
            attn_mask=mask,
            key_padding_mask=padding,
            need_weights=False,
            is_causal=is_causal,
        )
        result: Tensor = self.dropout1(found)
        return result

    def _transformed(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return result


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    match given:
        case "relu":
            return relu
        case "gelu":
            return gelu
    raise ArgumentError(
        f"TransformerEncoderLayer: activation is {given!r}, expected 'relu', 'gelu' or a function"
    )


def _as_added(argument: str, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The mask in additive form: -inf where a bool mask is True."""
    if mask is None or mask.dtype is like.dtype:
        return mask
    if mask.dtype is not bool_:
        raise DTypeError(
            f"TransformerEncoder: argument '{argument}' has dtype {mask.dtype}, expected bool or "
            f"{like.dtype}"
        )
    added: Tensor = like.new_zeros(mask.shape).masked_fill(mask, -math.inf)
    return added


class TransformerEncoder(Module):
    """A stack of copies of a layer, with an optional normalization at the end."""

    norm: Module | None

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        if num_layers < 0:
            raise ArgumentError(
                f"TransformerEncoder: num_layers is {num_layers}, expected at least 0"
            )
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        mask = _as_added("mask", mask, src)
        padding = _as_added("src_key_padding_mask", src_key_padding_mask, src)
        for layer in self.layers:
            src = layer(src, mask, padding, bool(is_causal))
        return src if self.norm is None else self.norm(src)
