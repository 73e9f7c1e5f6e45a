"""The ops of programs: a row for each, with what test equipment knows of it by name.

Place: the one table of such names; coverage, generators, relations, renderers, shrinkers and
engines ask its rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.frozen
class ProgramOp:
    """An op of programs."""

    name: str
    kind: str
    """How it treats memory: "window" (a view of the same dtype, with history and one result), "of
    complex" (a view between complex numbers and their parts), "several" (a view with several
    results), "view" (any other one), "geometry" (changes its operand's geometry, and no memory),
    "new" (new memory), or the kind of its write (`kind_of_op`)."""
    numpy: str | None = attrs.field(kw_only=True, default=None)
    """NumPy's expression of a call, with operands by position."""
    cost: int | None = attrs.field(kw_only=True, default=None)
    """The cost of an op that is simpler than others of its kind."""
    shape_at: int | None = attrs.field(kw_only=True, default=None)
    """The position of the shape among its arguments."""
    example: tuple[object, ...] | None = attrs.field(kw_only=True, default=None)
    """Further arguments that fit most values."""
    computes: bool = attrs.field(kw_only=True, default=False)
    """It computes; all others move or compare bits."""
    keeps_zeros: bool = attrs.field(kw_only=True, default=False)
    """A write that keeps zeros zero."""
    refuses_overlap: bool = attrs.field(kw_only=True, default=False)
    """A write whose elements may get different numbers, which PyTorch refuses on one place."""


_op = ProgramOp
_VIEWS = (
    _op("view", "window", shape_at=1),
    _op("reshape", "window", numpy="{0}.reshape({1})", shape_at=1),
    _op("t", "window", numpy="{0}.T"),
    _op("transpose", "window", numpy="{0}.swapaxes({1}, {2})", example=(0, -1)),
    _op("permute", "window", numpy="{0}.transpose({1})"),
    _op("movedim", "window", numpy="np.moveaxis({0}, {1}, {2})"),
    _op("expand", "window", shape_at=1),
    _op("select", "window", cost=1, example=(0, 0)),
    _op("narrow", "window", cost=2, example=(0, 0, 1)),
    _op("slice", "window"),
    _op("squeeze", "window"),
    _op("unsqueeze", "window", numpy="np.expand_dims({0}, {1})"),
    _op("diagonal", "window"),
    _op("unfold", "window"),
    _op("unflatten", "window", shape_at=2),
    _op("flatten", "window"),
    _op("as_strided", "view", shape_at=1),
    _op("alias", "view", numpy="{0}[...]", cost=3, example=()),
    _op("detach", "view", numpy="{0}[...]", cost=2, example=()),
    _op("view_dtype", "view"),
    _op("view_as_real", "of complex"),
    _op("real", "of complex"),
    _op("imag", "of complex"),
    _op("view_as_complex", "of complex"),
    _op("split", "several"),
    _op("split_with_sizes", "several"),
    _op("chunk", "several"),
    _op("tensor_split", "several", numpy="np.array_split({0}, {1}, {2})"),
    _op("unbind", "several"),
    _op("hidden_alias", "view", numpy="{0}[...]", cost=3),
)
"""Numbers of coverage cells, and so seeds of random programs, depend on the order."""
_WRITES = (
    _op("add_", "pointwise", numpy="{0} += {1}", cost=3, example=(2,), refuses_overlap=True),
    _op("sub_", "pointwise", numpy="{0} -= {1}", refuses_overlap=True),
    _op(
        "mul_",
        "pointwise",
        numpy="{0} *= {1}",
        cost=1,
        example=(2,),
        keeps_zeros=True,
        refuses_overlap=True,
    ),
    _op(
        "neg_",
        "pointwise",
        numpy="np.negative({0}, out={0})",
        keeps_zeros=True,
        refuses_overlap=True,
    ),
    _op(
        "square_",
        "pointwise",
        numpy="np.square({0}, out={0})",
        keeps_zeros=True,
        refuses_overlap=True,
    ),
    _op("clamp_", "pointwise", numpy="np.clip({0}, {1}, {2}, out={0})"),
    _op("relu_", "pointwise", numpy="np.maximum({0}, 0, out={0})", keeps_zeros=True),
    _op("abs_", "pointwise", numpy="np.abs({0}, out={0})"),
    _op("fill_", "fill", numpy="{0}[...] = {1}", cost=2, example=(2,)),
    _op("zero_", "fill", numpy="{0}[...] = 0", keeps_zeros=True),
    _op("index_put_", "index"),
    _op("masked_fill_", "index", numpy='np.copyto({0}, {2}, "unsafe", {1})', refuses_overlap=True),
    _op("index_fill_", "index", refuses_overlap=True),
    _op("index_add_", "index"),
    _op("index_copy_", "index"),
    _op("copy_", "copy", numpy="{0}[...] = {1}", refuses_overlap=True),
    _op("setitem", "setitem"),
    _op("resize_", "resize"),
    _op("set_", "set"),
    _op("div_", "other", refuses_overlap=True),
)
_GEOMETRY = (
    _op("t_", "geometry", example=()),
    _op("transpose_", "geometry"),
    _op("squeeze_", "geometry", example=()),
    _op("unsqueeze_", "geometry", example=(0,)),
    _op("as_strided_", "geometry"),
)
_VALUES = (
    _op("make", "new", cost=0, shape_at=1),
    _op("full", "new", shape_at=0),
    _op("mul", "new", numpy="np.asarray({0} * {1})", cost=1, computes=True),
    _op("add", "new", numpy="np.asarray({0} + {1})", computes=True),
    _op("sub", "new", numpy="np.asarray({0} - {1})", computes=True),
    _op("ne", "new", numpy="np.asarray({0} != {1})"),
    _op("neg", "new", numpy="np.asarray(-{0})", cost=1, computes=True),
    _op("square", "new", numpy="np.asarray(np.square({0}))", computes=True),
    _op("sum", "new", computes=True),
    _op("abs", "new", numpy="np.asarray(np.abs({0}))"),
    _op("relu", "new", numpy="np.asarray(np.maximum({0}, 0))"),
    _op("contiguous", "new", numpy="np.ascontiguousarray({0})"),
)
OPS = {op.name: op for op in (*_VIEWS, *_WRITES, *_GEOMETRY, *_VALUES)}
"""The row of each op that has one."""


def _names(kind: str, rows: Iterable[ProgramOp] = OPS.values()) -> tuple[str, ...]:
    return tuple(op.name for op in rows if op.kind == kind)


WINDOWS = _names("window")
"""View ops of the same dtype, with history and one result. The op of `slice` is `getitem`."""
OF_COMPLEX = _names("of complex")
MULTI = _names("several")
VIEWS = tuple(op.name for op in _VIEWS)
WINDOW_OPS = frozenset({*WINDOWS, *MULTI, "getitem"} - {"slice"})
"""The ops of steps that return views of the same dtype, with history, one or several."""
OTHER_VIEWS = frozenset({*_names("view")} - {"view_dtype", "hidden_alias"})
"""View ops of the same dtype that are no windows: `as_strided`, `alias`, `detach`."""
POINTWISE, FILLS, INDEXED = _names("pointwise"), _names("fill"), _names("index")
GEOMETRY = _names("geometry")
"""Ops that change the geometry of their operand, and no memory."""
COMPUTING = frozenset({*POINTWISE, *(op.name for op in _VALUES if op.computes)})
KEEP_ZEROS = frozenset(op.name for op in _WRITES if op.keeps_zeros)
REFUSE_OVERLAP = frozenset(op.name for op in _WRITES if op.refuses_overlap)
EXAMPLES = {op.name: op.example for op in OPS.values() if op.example is not None}
"""Op -> further arguments that fit most values."""
SHAPES = {op.name: op.shape_at for op in OPS.values() if op.shape_at is not None}
"""Op with a shape among its arguments -> the position of the shape."""

DRAWN_WRITES = ("mul_", "mul_", "add_", "sub_", "neg_", "square_", "relu_")
DRAWN_VALUES = ("mul", "mul", "add", "neg", "clone", "square", "sum")
"""What random programs draw pointwise writes and new values from: some more often."""


def kind_of_op(op: str) -> str | None:
    """The kind of write of an op, by its name; None for an op that does not write."""
    row = OPS.get(op)
    return row.kind if row in _GEOMETRY or (row in _WRITES and row.kind != "other") else None
