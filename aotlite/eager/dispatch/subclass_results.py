"""Results of `__tensor_dispatch__`: checks, strides of the op, and their record in a capture.

Rules: SUB-8, SUB-10, SUB-23. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aotlite.eager.autograd.nodes.saved_tensors import detached_alias
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.checks import text_of
from aotlite.eager.subclass.protocol import (
    MADE,
    alias_of,
    captured_part,
    inner_tensors,
    is_made,
    is_wrapper,
    leaves_of,
)
from aotlite.ir.errors import ProtocolError, SubclassError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.op import MultiViewOp, Op


def checked(op: Op, out: object, cls: type[Tensor], meta: TensorMeta | None) -> Tensor:
    if not isinstance(out, Tensor):
        raise wrong(op, cls, out, "a tensor")
    if not is_made(out):
        raise wrong(op, cls, f"a {type(out).__name__} without geometry", MADE)
    if meta is not None and (out.meta.shape != meta.shape or out.meta.dtype is not meta.dtype):
        raise wrong(op, cls, out.meta, f"shape and dtype of {meta}")
    if STATE.recorder is None:
        path = captured_part(out)
        if path is not None:
            where = f"a {type(out).__name__} whose {path!r} is a " if path else "a "
            raise wrong(op, cls, f"{where}tensor of a capture", "tensors with data")
    return out


def wrong(op: Op, cls: type[Tensor], found: object, expected: str) -> Exception:
    return noted(
        ProtocolError(
            f"{op.name}: {cls.__name__}.__tensor_dispatch__ gives {text_of(found)}, "
            f"expected {expected}"
        ),
        "What a class gives for an op has the outer geometry that the op has. (SUB-23)",
    )


def new_result(op: Op, out: Any, cls: type[Tensor], meta: Any, args: tuple[Any, ...]) -> Tensor:
    """The result with the op's geometry, as a new object: an operand is refused, and a part of one
    gets an alias."""
    out = checked(op, out, cls, meta)
    for operand in op.operands(args):
        if out is operand:
            raise wrong(op, cls, "an operand", "a new tensor")
        if is_wrapper(operand) and any(out is each for each in inner_tensors(operand).values()):
            out = _without_history(out.detach)  # a result's history is not that of a part
    if not is_wrapper(out) and (out._node is not None or out._leaf or out._root is not None):
        out = detached_alias(out)  # a mode keeps it, or has made it with a history of its own
    if meta is not None:
        out = _without_history(partial(restrided, op, out, meta))
    if is_wrapper(out) and out.value is not None:
        out = alias_of(out)  # the class has asked another op for it, and a value has one op
        out.value = None
    return out


def new_results(
    op: Op, found: object, cls: type[Tensor], metas: tuple[object, ...], args: tuple[object, ...]
) -> tuple[Tensor, ...]:
    pairs = zip(tuple_of(op, found, cls, len(metas)), metas, strict=True)
    return tuple([new_result(op, out, cls, meta, args) for out, meta in pairs])


def tuple_of(op: Op, found: object, cls: type[Tensor], count: int) -> Sequence[object]:
    if not isinstance(found, (tuple, list)) or len(found) != count:
        raise wrong(op, cls, found, f"a tuple of {count} tensors")
    return found


def restrided(op: Op, out: Tensor, meta: TensorMeta) -> Tensor:
    """The result with the op's strides; if the class cannot restride, only its meta has them."""
    if out.meta is meta or always_same_meta(out.meta, meta):
        return out
    if not is_wrapper(out):
        return out.restride(meta.stride)
    laid = out
    if op.name != "restride":
        with suppress(SubclassError):
            laid = out.restride(meta.stride)
    if type(laid) is not type(out):
        laid = out
    laid.meta = meta
    return laid


def _without_history(function: Callable[[], Tensor]) -> Tensor:
    before = STATE.grad_mode
    STATE.grad_mode = None if before is None else False
    try:
        return function()
    finally:
        STATE.grad_mode = before


def note_results(
    op: Op,
    args: tuple[object, ...],
    cls: type[Tensor],
    outs: tuple[Tensor, ...],
    recorder: Recorder,
) -> None:
    """Gives the results the graph values that the capture recorded for the op.

    A result that an op on parts returned, a wrapper of the parts' class, has one already.
    """
    check_trace(op, cls, outs, recorder)
    if any(is_wrapper(out) and not _has_own_value(op, out) for out in outs):
        metas = tuple([out.meta for out in outs])
        listed = any(returned.is_list for returned in op.schema.returns)
        several = type(op) is MultiViewOp or len(outs) > 1 or listed
        values = recorder.record_wrapped(op, args, outs, metas if several else metas[0])
        for out, value in zip(outs, values, strict=True):
            if is_wrapper(out) and not _has_own_value(op, out):
                out.value = value


def check_trace(op: Op, cls: type[Tensor], outs: tuple[Tensor, ...], recorder: Recorder) -> None:
    """Raises unless results and their parts were made in this capture (SUB-23)."""
    for out in outs:
        captures = {leaf.storage.capture for leaf in leaves_of(out)} - {None, recorder}
        if captures or out.storage.capture is not recorder:
            what = "a tensor of another trace"
            raise wrong(op, cls, what, "one made by this op, in this capture")


def _has_own_value(op: Op, out: Tensor) -> bool:
    """Whether an op on parts gave the wrapper its graph value; a view has that of its source."""
    return out.value is not None and not op.views and out.value.meta is out.meta
