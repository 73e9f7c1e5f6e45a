"""`dispatch(op, args)`: runs an op on tensors, or records it, and updates the autograd state.

Every op call goes through it. Arguments are canonical (`Op.bind`).
Rules: TEN-7..TEN-10, TEN-15..TEN-24. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.autograd.differentiable_views import link_view, node_of_parts, root_of
from aotlite.eager.autograd.inplace_writes import (
    change_geometry,
    check_counts,
    check_writable,
    plan_write,
    rewrite,
)
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_chain import ViewStep
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.array_functions import run_kernel
from aotlite.eager.dispatch.destinations import check_destination
from aotlite.eager.dispatch.devices import on_one_device
from aotlite.eager.dispatch.effects import run_effect, run_token
from aotlite.eager.dispatch.pure import (
    check_result,
    fakes,
    note_origin,
    run_data,
    run_pure,
    write_result,
)
from aotlite.eager.dispatch.subclass import kinds_among, run_wrapped
from aotlite.eager.rng.generator import current
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import BUILTIN, ShapeError, in_words
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.devices import MixedDevicesError
from aotlite.ir.op import (
    Cost,
    DataOp,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    ViewOp,
)
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.ops.structure import ResultOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED, HIDDEN_ALIAS


def dispatch(op: Op, args: tuple[object, ...]) -> Any:
    """The result of `op` on canonical arguments."""
    return _apply(None, op, args)


def _apply(tensor: Tensor | None, op: Op, args: tuple[object, ...]) -> Any:
    """`dispatch` as the method `Tensor._apply`, which nearly every call uses."""
    recorder, handler = STATE.recorder, _HANDLERS[type(op)]
    if STATE.wrappers:
        kinds = kinds_among(args)
        if kinds:
            return _of_wrappers(op, args, kinds, recorder)
    try:
        if recorder is None:
            return handler(op, args, None)
        for value in args:
            if isinstance(value, Tensor):
                if value.storage.capture is not recorder:
                    return _admitted(op, args, recorder)
            elif type(value) is tuple:  # it may hold tensors
                return _admitted(op, args, recorder)
        return handler(op, args, recorder)
    except MixedDevicesError:
        moved = on_one_device(op, args)
        if moved is None:
            raise
    except BUILTIN as error:
        explained = in_words(getattr(op, "functional", op).name, args, error)
        if explained is error:
            raise
        raise explained from error
    return _apply(tensor, op, moved)


def _admitted(op: Op, args: tuple[object, ...], recorder: Recorder) -> object:
    """The result in a capture, where some arguments may be tensors from outside."""
    result = _HANDLERS[type(op)](op, recorder.admit(args), recorder)
    # A write returns its first argument itself, which may be a tensor from outside.
    return args[0] if op.writes or type(op) is GeometryOp else result


def _of_wrappers(
    op: Op, args: tuple[object, ...], kinds: tuple[type[Tensor], ...], recorder: Recorder | None
) -> object:
    """The result where some arguments are wrapper subclasses, or a dispatch mode is active."""
    if recorder is None:
        return run_wrapped(op, args, kinds, None)
    result = run_wrapped(op, recorder.admit(args), kinds, recorder)
    return args[0] if op.writes or type(op) is GeometryOp else result


# --------------------------------------------------------------------------------------- views
def _view(op: ViewOp, args: tuple[Any, ...], recorder: Recorder | None) -> Tensor:
    source: Tensor = args[0]
    meta, start = op.result(args)
    out = _window(op, source, meta, start)
    if recorder is not None:
        out.value = recorder.record(op, args, meta)
    if not op.cuts_history:
        link_view(out, source, op, args[1:])
        if out._node is not None:
            note_origin(out._node, out.value, recorder)
    elif op is HIDDEN_ALIAS:
        out.storage = out.storage.twin()
        out.facts = None
    return out


def _window(op: Op, source: Tensor, meta: TensorMeta, start: int) -> Tensor:
    storage = source.storage
    if storage.buffer is None and STATE.recorder is None and not storage.is_freed:
        raise storage.no_data(op.name)
    offset = source.offset
    if meta.dtype is not source.meta.dtype:
        offset = _recast(op, source, meta)
    offset += start
    if op is AS_STRIDED:
        _check_bounds(op, storage, meta, offset)
    return Tensor(storage, meta, offset)


def _recast(op: Op, source: Tensor, meta: TensorMeta) -> int:
    """The source's offset in elements of the view. ShapeError if it is not aligned (TEN-6)."""
    size, wanted = source.meta.dtype.itemsize, meta.dtype.itemsize
    if size < wanted:
        if STATE.recorder is not None:
            STATE.recorder.note_offset_read(source)
        ratio = wanted // size
        if source.offset % ratio:
            raise ShapeError(
                f"{op.name}: the storage offset is {source.offset}, expected a multiple of {ratio} "
                f"to see {source.meta.dtype} as {meta.dtype}"
            )
    return source.offset * size // wanted


def _check_bounds(op: Op, storage: Storage, meta: TensorMeta, offset: int) -> None:
    if storage.buffer is None and not offset < 0:  # a capture compares with the caller's memory
        return
    needed = (offset + meta.span) * meta.dtype.itemsize
    have = needed if storage.buffer is None else storage.buffer.nbytes
    if offset < 0 or (meta.numel and needed > have):
        raise ShapeError(
            f"{op.name}: size {meta.shape} with stride {meta.stride} at storage offset {offset} "
            f"needs {needed} bytes, expected an offset of at least 0 and at most the storage's "
            f"{have} bytes"
        )


def _multi_view(
    op: MultiViewOp, args: tuple[Any, ...], recorder: Recorder | None
) -> tuple[Tensor, ...]:
    source: Tensor = args[0]
    parts = op.parts(args)
    windows = [view.result((source, *rest)) for view, rest in parts]
    values: Sequence[object] = [None] * len(parts)
    if recorder is not None:
        values = recorder.record(op, args, tuple([meta for meta, _ in windows]))
    outs = []
    node = node_of_parts(op, source, args[1:], tuple([meta for meta, _ in windows]))
    for i, ((view, rest), (meta, start), value) in enumerate(
        zip(parts, windows, values, strict=True)
    ):
        out = _window(op, source, meta, start)
        out.value = value
        edge = None if node is None else (node, i)
        link_view(out, source, view, rest, CreationKind.MULTI_OUTPUT, edge)
        outs.append(out)
    if node is not None and outs:
        node.origin = outs[0].value
    return tuple(outs)


# -------------------------------------------------------------------------------------- writes
def _inplace(op: InplaceOp, args: tuple[Any, ...], recorder: Recorder | None) -> Tensor:
    target: Tensor = args[0]
    functional = op.functional
    key = functional.key(args)
    result: TensorMeta = functional.results.get(key) or functional.result_for(key)
    if result is not target.meta:
        check_result(op, target.meta, result)
    others = [a for a in args if isinstance(a, Tensor) and a is not target]
    if op.lists:
        others += [t for i in op.lists for t in args[i] if t is not None]
    onto_itself = op is COPY_ and args[1] is target  # counts as a write, and changes nothing
    if not onto_itself or not target.storage.writable:
        _check_memory(op, target, others, args)
    node, base_edge = None, None
    if type(target.storage.version) is not int:
        check_counts(op.name, target)
    if STATE.grad_mode and not (_is_plain(target) and all(map(_is_plain, others))):
        check_writable(op.name, target, others)
        node = None if onto_itself else plan_write(op, args)
    if node is not None and target._root is not None:
        base_edge = target._root.edge()
    if recorder is not None:
        value = recorder.record(op, args, target.meta)
        target.value = value
        if node is not None:
            note_origin(node, value, recorder)
    else:
        if target.storage.write_observers is not None:
            target.storage.before_write()
        write_result(functional, key, result, args)
    target.storage.version += 1
    if node is not None:
        node.save_results((target,))
        rewrite(target, node, base_edge)
    return target


def _is_plain(tensor: Tensor) -> bool:
    """Whether it has no history and no view family, and a buffer, which a fake has not."""
    return tensor.facts is tensor.meta


def _check_memory(
    op: InplaceOp, target: Tensor, others: list[Tensor], args: tuple[object, ...]
) -> None:
    may_overlap = op.functional.cost is Cost.FACTORY
    check_destination(op.name, target, others, may_overlap=may_overlap, call=args)


def _geometry(op: GeometryOp, args: tuple[Any, ...], recorder: Recorder | None) -> Tensor:
    target: Tensor = args[0]
    meta, start = op.view.result(args)
    check_writable(op.name, target, [])
    if op.view is AS_STRIDED:
        _check_bounds(op, target.storage, meta, target.offset + start)
    if recorder is not None:
        target.value = recorder.record(op, args, meta)
    step = ViewStep(op.view, args[1:], target.meta, meta)
    root_of(target)  # the family keeps the geometry that older views were taken in
    target.storage.version += 1
    target.meta = meta
    target.facts = None
    target.offset += start
    target._array = None
    change_geometry(target, step)
    return target


# -------------------------------------------------------------------------------------- random
def _random(op: RandomOp, args: tuple[object, ...], recorder: Recorder | None) -> Tensor:
    meta = op.infer(args)
    assert isinstance(meta, TensorMeta)
    if recorder is not None:
        return fakes(recorder, (recorder.streams.draw(op, args, meta),), (meta,))[0]
    generator, consumed = current(), op.consumes(meta)
    place = generator.advance(consumed, op.name)
    arrays = meta.device.arrays
    try:
        drawn = run_kernel(op.functional, (*place, 0, *args), meta, arrays)
    except BaseException:
        generator.give_back(*place, consumed)
        raise
    return Tensor(Storage(arrays.adopt(drawn, meta)), meta)


def _result_of(op: ResultOp, args: tuple[Any, ...], recorder: Recorder | None) -> object:
    return args[0][args[1]]


_HANDLERS: dict[type, Callable[..., object]] = {
    PureOp: run_pure,
    ViewOp: _view,
    MultiViewOp: _multi_view,
    InplaceOp: _inplace,
    GeometryOp: _geometry,
    RandomOp: _random,
    DataOp: run_data,
    EffectOp: run_effect,
    TokenOp: run_token,
    ResultOp: _result_of,
}
