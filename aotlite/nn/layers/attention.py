"""`MultiheadAttention`: the layer over `multi_head_attention_forward`."""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import empty
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.nn import init
from aotlite.nn.functional.attention import each_once, multi_head_attention_forward
from aotlite.nn.functional.dropouts import check_probability
from aotlite.nn.layers.linear import Linear
from aotlite.nn.module import Module
from aotlite.nn.parameter import Parameter


class MultiheadAttention(Module):
    """Attention with several heads: (l, n, e), (s, n, kdim), (s, n, vdim) -> (l, n, e), weights.

    With `batch_first` the batch comes first; without batch (l, e), (s, kdim), (s, vdim) -> (l, e).
    Projections start uniform by their fans (`init.xavier_uniform_`), their biases with zeros.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device = CPU,
        dtype: DType | None = None,
    ) -> None:
        _check_sizes(embed_dim, num_heads, dropout)
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        for name, shape in self._shapes(bias, add_bias_kv).items():
            self.register_parameter(
                name, None if shape is None else Parameter(empty(shape, **options))
            )
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **options)
        self._reset_parameters()

    def _shapes(self, bias: bool, add_bias_kv: bool) -> dict[str, object]:
        """The shape of each parameter in the order of the state, None for one that is absent."""
        size = self.embed_dim
        packed = self.kdim == size == self.vdim
        added = (1, 1, size) if add_bias_kv else None
        return {
            "q_proj_weight": None if packed else (size, size),
            "k_proj_weight": None if packed else (size, self.kdim),
            "v_proj_weight": None if packed else (size, self.vdim),
            "in_proj_weight": (3 * size, size) if packed else None,
            "in_proj_bias": (3 * size,) if bias else None,
            "bias_k": added,
            "bias_v": added,
        }

    def _reset_parameters(self) -> None:
        """Draws initial values of all but `out_proj.weight`, which is a `Linear`'s."""
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                init.xavier_uniform_(weight)
        for zero in (self.in_proj_bias, self.out_proj.bias):
            if zero is not None:
                init.zeros_(zero)
        for added in (self.bias_k, self.bias_v):
            if added is not None:
                init.xavier_normal_(added)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the attention weights if `need_weights`, else None."""
        turned = self.batch_first and query.ndim == 3
        inputs = (query, key, value)
        if turned:
            inputs = each_once(inputs, lambda tensor: tensor.transpose(0, 1))
        result, weights = multi_head_attention_forward(
            *inputs,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            self.in_proj_weight is None,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return result.transpose(0, 1) if turned else result, weights


def _check_sizes(embed_dim: int, num_heads: int, dropout: float) -> None:
    if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
        raise ArgumentError(
            f"MultiheadAttention: embed_dim is {embed_dim} with {num_heads} heads, expected a "
            "positive multiple of the heads"
        )
    check_probability("MultiheadAttention", dropout, "dropout")
