"""Primitives of JAX that are products of matrices, and convolutions. Spec: `specs/jaxpr.md`."""

from __future__ import annotations

import math
from typing import Any

from aotlite.interchange.jaxpr.geometry import pad
from aotlite.interchange.jaxpr.pointwise import Lowering, Parameters
from aotlite.ir.dtypes import from_numpy


def _dot_general(params: Parameters, a: Any, b: Any) -> Any:
    """As a product of stacks of matrices: (batch, rows, sum) and (batch, sum, columns)."""
    (sum_a, sum_b), (batch_a, batch_b) = params["dimension_numbers"]
    wanted = params["preferred_element_type"]
    if wanted is not None:
        dtype = from_numpy(wanted)
        a, b = [x if x.meta.dtype is dtype else x._do("cast", dtype) for x in (a, b)]
    rows = [d for d in range(len(a.meta.shape)) if d not in sum_a and d not in batch_a]
    columns = [d for d in range(len(b.meta.shape)) if d not in sum_b and d not in batch_b]
    left, right = a.meta.shape, b.meta.shape
    batch = [left[d] for d in batch_a]
    shape = (*batch, *[left[d] for d in rows], *[right[d] for d in columns])
    inner = math.prod(left[d] for d in sum_a)
    a = a._do("permute", (*batch_a, *rows, *sum_a))
    b = b._do("permute", (*batch_b, *sum_b, *columns))
    a = a.reshape((math.prod(batch), math.prod(left[d] for d in rows), inner))
    b = b.reshape((math.prod(batch), inner, math.prod(right[d] for d in columns)))
    return a._do("bmm", b).reshape(shape)


def _convolution(params: Parameters, image: Any, weight: Any) -> Any:
    """Of images in rows and columns, or of one row, in any order of dimensions."""
    numbers, wanted = params["dimension_numbers"], params["preferred_element_type"]
    rank = len(numbers.lhs_spec) - 2
    if rank not in (1, 2) or params["batch_group_count"] != 1:
        return NotImplemented
    if wanted is not None and from_numpy(wanted) is not image.meta.dtype:
        image, weight = [x._do("cast", from_numpy(wanted)) for x in (image, weight)]
    image = image._do("permute", tuple(numbers.lhs_spec))
    weight = weight._do("permute", tuple(numbers.rhs_spec))
    between = [step - 1 for step in params["lhs_dilation"]]
    edges = [(*pair, n) for pair, n in zip(params["padding"], between, strict=True)]
    zero = image._filled((), 0, image.meta.dtype, image.meta.device)
    image = pad(image, zero, [(0, 0, 0), (0, 0, 0), *edges])
    steps, spread = tuple(params["window_strides"]), tuple(params["rhs_dilation"])
    if rank == 1:
        image, weight = image._do("unsqueeze", 2), weight._do("unsqueeze", 2)
        steps, spread = (1, *steps), (1, *spread)
    groups = params["feature_group_count"]
    made = image._do("conv2d", weight, None, steps, (0, 0), spread, groups)
    made = made._do("squeeze", (2,)) if rank == 1 else made
    order = [numbers.out_spec.index(dim) for dim in range(rank + 2)]
    return made._do("permute", tuple(order))


PRODUCTS: dict[str, Lowering] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
}
"""Primitive -> its form."""
