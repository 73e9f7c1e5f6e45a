"""The maximum of windows that cover an image evenly, as many as the result has elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.composite import composite
from aotlite.ir.errors import DTypeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.mean_pooling import adaptive_size, check_covered, covered, filled_in
from aotlite.ir.ops.memory_format import image_strides, suggests_channels_last
from aotlite.ir.ops.pooling import lowest, to_maxima
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.window import Ints


def _rule(self: TensorMeta, output_size: Ints) -> tuple[TensorMeta, TensorMeta]:
    name = "adaptive_max_pool2d"
    check_covered(name, self.shape)
    if not self.dtype.is_floating_point:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating one")
    shape = (*self.shape[:-2], *adaptive_size(name, output_size))
    stride = image_strides(shape, channels_last=suggests_channels_last(self))
    values = tensor_meta(shape, stride, self.dtype, self.device)
    return values, values.with_dtype(dtypes.int64)


def _kernel(
    xp: Any, metas: tuple[TensorMeta, TensorMeta], a: Any, output_size: Ints
) -> tuple[Any, Any]:
    a, shape = wide(xp, a, metas[0].dtype), metas[0].shape
    (height, width), out = a.shape[-2:], shape[-2:]
    rows, columns = covered(xp, out[0], height), covered(xp, out[1], width)
    best = xp.full(shape, lowest(xp, a.dtype), dtype=a.dtype)
    where = xp.broadcast_to(rows[0][:, None] * width + columns[0], shape)
    for i in range(_longest(xp, rows)):
        row = xp.minimum(rows[0] + i, rows[1] - 1)
        line = xp.take(a, row, axis=-2)
        for j in range(_longest(xp, columns)):
            # Past its end a window sees its last place again, which changes nothing.
            column = xp.minimum(columns[0] + j, columns[1] - 1)
            seen = xp.take(line, column, axis=-1)
            better = xp.logical_or(seen > best, seen != seen)
            best = xp.where(better, seen, best)
            where = xp.where(better, row[:, None] * width + column, where)
    return cast(xp, best, metas[0].dtype), where


def _longest(xp: Any, stretch: tuple[Any, Any]) -> int:
    first, end = stretch
    return int(xp.max(end - first)) if first.size else 0


ADAPTIVE_MAX_POOL2D: PureOp = pure(
    "adaptive_max_pool2d(Tensor self, int[] output_size) -> (Tensor values, Tensor indices)",
    meta=_rule,
    kernel=_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": to_maxima},
    cost=Cost.REDUCTION,
)
"""The maxima and their places in the plane (row-major); the first of equal ones."""


@composite(is_method=False)
def adaptive_max_pool2d(
    input: Any, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """The maxima of windows that cover the image evenly: (n, c, h, w) -> (n, c, *output_size).

    None in the place of a size keeps the input's; with indices, a pair.
    """
    size = filled_in(output_size, input.shape[-2:])
    values, indices = input._do("adaptive_max_pool2d", size)
    return (values, indices) if return_indices else values
