"""Copying forms of views: `reshape_copy`, and a `<view>_copy` for each view op.

The copies are contiguous, whatever the operand's strides, and have the gradient of their view.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, MultiViewOp, Op, ViewOp
from aotlite.ir.op.composite import COMPOSITES, composite
from aotlite.ir.op.dims import regrouped
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.loops import Loops, LoopTensor
from aotlite.ir.ops.views import multi_views, reinterpret, view_ops
from aotlite.ir.ops.views.forms import in_shape


def _reshape_loops(k: Loops, meta: TensorMeta, a: LoopTensor, size: tuple[int, ...]) -> LoopTensor:
    """In the operand's dimensions, which the result has in the order of its memory."""
    out = k.new(meta)
    k.store(out.view(a.shape, layout.contiguous_strides(a.shape)), lambda *i: a[i])
    return out


RESHAPE_COPY = pure(
    "reshape_copy(Tensor self, int[] size) -> Tensor",
    meta=lambda self, size: self.as_contiguous(
        sizes.infer_size(size, self.numel, op="reshape_copy")
    ),
    kernel=lambda xp, meta, a, size: xp.reshape(a, meta.shape),
    loops=_reshape_loops,
    vjp={"self": lambda grad, self_meta: in_shape(grad, self_meta.shape)},
    cost=Cost.INDEXING,
    moves=("self",),
    dims=regrouped,
    linear=(("self",),),
)
"""The copy that `reshape` returns where the strides allow no view."""


# --------------------------------------------------------------------------- copies of each view
def _declare_copy(op: Op) -> None:
    """Declares `<op>_copy`, with the arguments of the view."""
    text = str(op.schema).replace("(a)", "").replace(f"{op.name}(", f"{op.name}_copy(", 1)

    def copy(self: Operand, *args: object) -> Operand | tuple[Operand, ...]:
        shown = self._do(op.name, *args)
        return tuple(map(_copied, shown)) if isinstance(op, MultiViewOp) else _copied(shown)

    copy.__doc__ = f"A contiguous copy of what `{op.name}` shows."
    composite(text, is_method=False)(copy)


def _copied(shown: Any) -> Any:
    meta: TensorMeta = shown.meta
    return shown._do("restride", meta.as_contiguous().stride)


@composite("view_copy(Tensor self, int[] size) -> Tensor", is_method=False)
def view_copy(self: Operand, size: tuple[int, ...]) -> Operand:
    """A contiguous copy of this shape, also where the strides allow no view."""
    return self._do("reshape_copy", size)


@composite(
    "as_strided_copy(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    is_method=False,
)
def as_strided_copy(
    self: Operand, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None
) -> Operand:
    """A contiguous copy of what `as_strided` shows."""
    return _copied(self.as_strided(size, stride, storage_offset))


_OTHERS = (view_ops.AS_STRIDED, view_ops.VIEW, view_ops.HIDDEN_ALIAS)
"""View ops whose copies are declared above, or would equal `detach_copy`."""

for _module in (view_ops, multi_views, reinterpret):
    for _op in vars(_module).values():
        if isinstance(_op, (ViewOp, MultiViewOp)) and _op not in _OTHERS:
            if f"{_op.name}_copy" not in OPS and f"{_op.name}_copy" not in COMPOSITES:
                _declare_copy(_op)
