"""The ops of programs by kind: views, and writes in place.

Place: the one table of such names; coverage, generators, relations, renderers and engines read it.
"""

from __future__ import annotations

WINDOWS = (
    "view", "reshape", "t", "transpose", "permute", "movedim", "expand", "select", "narrow",
    "slice", "squeeze", "unsqueeze", "diagonal", "unfold", "unflatten", "flatten",
)  # fmt: skip
"""View ops of the same dtype, with history and one result. The op of `slice` is `getitem`."""
OF_COMPLEX = ("view_as_real", "real", "imag", "view_as_complex")
"""View ops between complex numbers and their parts."""
MULTI = ("split", "split_with_sizes", "chunk", "tensor_split", "unbind")
"""View ops with several results."""
VIEWS = (
    *WINDOWS, "as_strided", "alias", "detach", "view_dtype", *OF_COMPLEX, *MULTI, "hidden_alias",
)  # fmt: skip
"""All view ops. Numbers of coverage cells, and so seeds of random programs, depend on the order."""
WINDOW_OPS = frozenset({*WINDOWS, *MULTI, "getitem"} - {"slice"})
"""The ops of steps that return views of the same dtype, with history, one or several."""
POINTWISE = ("add_", "sub_", "mul_", "neg_", "square_", "clamp_", "relu_", "abs_")
FILLS = ("fill_", "zero_")
INDEXED = ("index_put_", "masked_fill_", "index_fill_", "index_add_", "index_copy_")
GEOMETRY = ("t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_")
"""Ops that change the geometry of their operand, and no memory."""


def kind_of_op(op: str) -> str | None:
    """The kind of write of an op, by its name; None for an op that does not write."""
    if op in GEOMETRY:
        return "geometry"
    if op in ("resize_", "set_", "copy_", "setitem"):
        return op.rstrip("_")
    for kind, ops in (("pointwise", POINTWISE), ("fill", FILLS), ("index", INDEXED)):
        if op in ops:
            return kind
    return None
