"""Attention as functions: `scaled_dot_product_attention` and `multi_head_attention_forward`.

Composites of matrix products and a softmax. Source: Vaswani et al., "Attention is all you need"
(NeurIPS 2017). Heads are (n, h, l, e): batch, heads, length of the sequence, size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call, ones
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry.sizes import broadcast_shapes
from aotlite.ir.ops.precision import widened
from aotlite.ir.ops.views.forms import in_shape
from aotlite.nn.functional.dropouts import dropout
from aotlite.nn.functional.products import linear

Heads = tuple[Tensor, Tensor, Tensor]
"""Query, key and value of each head."""


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value: (*, l, e), (*, s, e), (*, s, v) -> (*, l, v).

    `scale` is 1 / sqrt(e) by default. A bool mask selects the keys that take part; another mask is
    added to the scores. `is_causal` lets position i see the keys up to i. A query without keys
    gives zeros. With `enable_gqa`, each key and value head (dimension -3) serves several query
    heads.
    """
    name = "scaled_dot_product_attention"
    _check_attention(query, key, value)
    if is_causal and attn_mask is not None:
        raise ArgumentError(f"{name}: attn_mask is given and is_causal is True, expected one")
    if enable_gqa:
        key, value = _shared(query, key), _shared(query, value)
    if attn_mask is not None:
        _check_mask(name, "attn_mask", attn_mask, query)
    dtype = query.dtype
    query, key, value = each_once((query, key, value), widened)
    factor = 1.0 / math.sqrt(max(query.size(-1), 1)) if scale is None else scale
    scores = (query * factor).matmul(key.mT)
    if is_causal:
        later = ones(scores.shape[-2:], dtype=bool_, device=query.device).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
    elif attn_mask is None:
        weights = scores.softmax(-1)
    else:
        weights = _masked_softmax(scores, attn_mask)
    result: Tensor = dropout(weights, dropout_p).matmul(value).to(dtype)
    return result


def _check_attention(query: Tensor, key: Tensor, value: Tensor) -> None:
    name = "scaled_dot_product_attention"
    for what, given in (("query", query), ("key", key), ("value", value)):
        if given.ndim < 2:
            raise ShapeError(
                f"{name}: the {what} has shape {given.shape}, expected at least 2 dimensions"
            )
    if key.size(-1) != query.size(-1) or key.size(-2) != value.size(-2):
        raise ShapeError(
            f"{name}: the key has shape {key.shape}, expected sizes {value.size(-2)} and "
            f"{query.size(-1)} at the end, those of value and query"
        )


def _shared(query: Tensor, given: Tensor) -> Tensor:
    """Keys or values with each head repeated for the heads of the query that it serves."""
    if min(query.ndim, given.ndim) < 3 or query.size(-3) % max(given.size(-3), 1):
        raise ShapeError(
            "scaled_dot_product_attention: the key or value of shared heads has shape "
            f"{given.shape}, expected a divisor of the query's heads in dimension -3 of "
            f"{query.shape}"
        )
    times = query.size(-3) // max(given.size(-3), 1)
    *batch, heads, length, size = given.shape
    repeated = given.unsqueeze(-3).expand(*batch, heads, times, length, size)
    return in_shape(repeated, (*batch, heads * times, length, size))


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax over unmasked scores; zeros for a row without any."""
    if broadcast_shapes(scores.shape, mask.shape, op="scaled_dot_product_attention") != (
        scores.shape
    ):
        raise ShapeError(
            f"scaled_dot_product_attention: attn_mask has shape {mask.shape}, expected one that "
            f"broadcasts to {scores.shape}"
        )
    # The mask of a row without keys is lifted, not only its result replaced: a softmax of nothing
    # is nan, and so would be its gradient.
    if mask.dtype is bool_:
        lost = ~mask.any((-1,), True)
        scores = scores.masked_fill(~(mask | lost), -math.inf)
    else:
        lost = (mask == -math.inf).all((-1,), True)
        scores = scores + lost.where(0.0, mask)
    return lost.where(0.0, scores.softmax(-1))


def _check_mask(name: str, argument: str, mask: Tensor, query: Tensor) -> None:
    if mask.dtype is not bool_ and mask.dtype is not query.dtype:
        raise DTypeError(
            f"{name}: {argument} has dtype {mask.dtype}, expected bool or {query.dtype}, the "
            "query's"
        )


# ------------------------------------------------------------------------------- several heads
_NAME = "multi_head_attention_forward"


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    *,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention: projects the inputs, attends with each head, and projects back.

    (l, n, e), (s, n, k), (s, n, v) -> (l, n, e); without batch (l, e), (s, k), (s, v) -> (l, e).
    The second result is None unless `need_weights`; else the weights after dropout, (n, l, s)
    averaged over heads or (n, h, l, s).
    `attn_mask` is (l, s) or (n * h, l, s), `key_padding_mask` (n, s): bool masks say what is left
    out, others are added. `is_causal` says that `attn_mask` is the causal one.
    """
    inputs = (query, key, value)
    _check_inputs(inputs, embed_dim_to_check, num_heads)
    batched = query.ndim == 3
    if not batched:
        inputs = each_once(inputs, lambda tensor: tensor.unsqueeze(1))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise ArgumentError(f"{_NAME}: attn_mask is None and is_causal is True, expected the mask")
    # As in PyTorch the hint counts only where the mask would be all there is to it.
    causal = is_causal and key_padding_mask is None and not need_weights
    mask = _merged_masks(inputs, num_heads, None if causal else attn_mask, key_padding_mask)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else (in_proj_weight,)
    heads = _in_heads(_projected(inputs, weights, in_proj_bias), num_heads)
    heads = _extended(heads, bias_k, bias_v, add_zero_attn)
    p = dropout_p if training else 0.0
    result, attention = _attended(heads, mask, p, need_weights, causal)
    rows = in_shape(result.permute(2, 0, 1, 3), inputs[0].shape[:2] + (embed_dim_to_check,))
    result = linear(rows, out_proj_weight, out_proj_bias)
    if attention is not None and average_attn_weights:
        attention = attention.mean((1,))
    if batched:
        return result, attention
    return result.squeeze(1), None if attention is None else attention.squeeze(0)


def each_once(inputs: Heads, change: Callable[[Tensor], Tensor]) -> Heads:
    """`change` of each of the three; inputs that are the same tensor are changed once."""
    query, key, value = inputs
    changed = change(key)
    return (
        changed if query is key else change(query),
        changed,
        changed if value is key else change(value),
    )


def _check_inputs(inputs: Heads, embed_dim: int, num_heads: int) -> None:
    query, key, value = inputs
    if query.ndim not in (2, 3) or {key.ndim, value.ndim} != {query.ndim}:
        raise ShapeError(
            f"{_NAME}: {_shapes(inputs)}, expected 3 dimensions each, or 2 without batch"
        )
    if query.size(-1) != embed_dim or embed_dim % num_heads:
        raise ShapeError(
            f"{_NAME}: the query has size {query.size(-1)} with {num_heads} heads, expected the "
            f"embed_dim {embed_dim}, a multiple of the heads"
        )
    if key.shape[:-1] != value.shape[:-1] or key.shape[1:-1] != query.shape[1:-1]:
        raise ShapeError(
            f"{_NAME}: {_shapes(inputs)}, expected one length of key and value, and one batch size"
        )


def _shapes(inputs: Heads) -> str:
    """For an error alone: a text of sizes that are symbols makes them numbers (DYN-23)."""
    query, key, value = inputs
    return f"query, key and value have shapes {query.shape}, {key.shape} and {value.shape}"


def _merged_masks(
    inputs: Heads, num_heads: int, attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> Tensor | None:
    """The mask to add to the scores: (n or 1, h or 1, l or 1, s), or None."""
    query, key, _ = inputs
    (length, batch, _), keys = query.shape, key.size(0)
    merged = None
    if attn_mask is not None:
        full = (batch * num_heads, length, keys)
        _check_mask_shape("attn_mask", attn_mask, (full[1:], full))
        shape = (1, 1, length, keys) if attn_mask.ndim == 2 else (batch, num_heads, length, keys)
        merged = _added(_NAME, "attn_mask", in_shape(attn_mask, shape), query)
    if key_padding_mask is not None:
        _check_mask_shape("key_padding_mask", key_padding_mask, ((batch, keys),))
        padding = in_shape(key_padding_mask, (batch, 1, 1, keys))
        padding = _added(_NAME, "key_padding_mask", padding, query)
        merged = padding if merged is None else merged + padding
    return merged


def _check_mask_shape(name: str, mask: Tensor, expected: tuple[tuple[int, ...], ...]) -> None:
    if mask.shape not in expected:
        shapes = " or ".join(map(str, expected))
        raise ShapeError(f"{_NAME}: {name} has shape {mask.shape}, expected {shapes}")


def _added(name: str, argument: str, mask: Tensor, query: Tensor) -> Tensor:
    """The mask in additive form: -inf where a bool mask is True."""
    _check_mask(name, argument, mask, query)
    if mask.dtype is not bool_:
        return mask
    added: Tensor = query.new_zeros(mask.shape).masked_fill(mask, -math.inf)
    return added


def _projected(inputs: Heads, weights: tuple[Tensor | None, ...], bias: Tensor | None) -> Heads:
    """(l, n, e) each. One product serves inputs that are one tensor, where weights are packed."""
    given = [weight for weight in weights if weight is not None]
    if len(given) < len(weights):
        raise ArgumentError(f"{_NAME}: a projection's weight is None, expected a tensor")
    query, key, value = inputs
    if len(given) == 1 and key is value:
        packed, size = given[0], query.size(-1)
        if query is key:
            first, second, third = linear(query, packed, bias).chunk(3, -1)
            return first, second, third
        first, rest = packed.split((size, 2 * size))
        bias_first, bias_rest = (None, None) if bias is None else bias.split((size, 2 * size))
        second, third = linear(key, rest, bias_rest).chunk(2, -1)
        return linear(query, first, bias_first), second, third
    separate = given[0].chunk(3) if len(given) == 1 else given
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    made = [linear(*group) for group in zip(inputs, separate, biases, strict=True)]
    return made[0], made[1], made[2]


def _in_heads(projected: Heads, num_heads: int) -> Heads:
    """(l, n, h * e) -> (n, h, l, e) each, as views."""

    def one(tensor: Tensor) -> Tensor:
        length, batch, size = tensor.shape
        heads: Tensor = tensor.view(length, batch, num_heads, size // num_heads)
        return heads.permute(1, 2, 0, 3)

    query, key, value = projected
    return one(query), one(key), one(value)


def _extended(heads: Heads, bias_k: Tensor | None, bias_v: Tensor | None, zero: bool) -> Heads:
    """Keys and values with a learned one, and with one of zeros, at their end."""
    query, key, value = heads
    if (bias_k is None) != (bias_v is None):
        raise ArgumentError(f"{_NAME}: one of bias_k and bias_v is None, expected both or none")
    batch, count, _, size = key.shape
    if bias_k is not None and bias_v is not None:
        key, value = (
            call("cat", (old, bias.view(1, count, 1, size).expand(batch, count, 1, size)), 2)
            for old, bias in ((key, bias_k), (value, bias_v))
        )
    if zero:
        hollow = key.new_zeros((batch, count, 1, size))
        key, value = (call("cat", (old, hollow), 2) for old in (key, value))
    return query, key, value


def _attended(
    heads: Heads, mask: Tensor | None, p: float, need_weights: bool, causal: bool
) -> tuple[Tensor, Tensor | None]:
    """(result of each head, (n, h, l, e); attention weights or None)."""
    query, key, value = heads
    if mask is not None:
        more = key.size(2) - mask.size(-1)
        mask = call("cat", (mask, mask.new_zeros((*mask.shape[:-1], more))), -1) if more else mask
    if not need_weights:
        return scaled_dot_product_attention(query, key, value, mask, p, causal), None
    dtype = query.dtype
    query, key, value = each_once((query, key, value), widened)
    scores = (query * math.sqrt(1.0 / query.size(-1))).matmul(key.mT)
    weights = dropout((scores if mask is None else scores + mask).softmax(-1), p)
    return weights.matmul(value).to(dtype), weights.to(dtype)
