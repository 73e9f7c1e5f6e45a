"""Ops on wrapper subclasses: the class computes, the engine does autograd, views and versions.

`run_wrapped(op, args, kinds, recorder)` calls the classes among the operands, the most derived
first:

    __tensor_function__    with grad mode on: may replace the op by other ops, which autograd sees
    __tensor_dispatch__    with grad mode off: returns the op's result

The result is checked, and linked to the tape like that of a dense op. A capture records the op for
each wrapper that it returns or writes; the ops that the class runs are recorded too (SUB-8).
Rules: SUB-7, SUB-10, SUB-17, SUB-20, SUB-23. Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.eager.autograd.differentiable_views import link_view, node_of_parts
from aotlite.eager.autograd.inplace_writes import check_counts, check_writable, plan_write, rewrite
from aotlite.eager.autograd.nodes.gradient_forms import keep_form
from aotlite.eager.autograd.nodes.op_nodes import calls_of
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE, Modes, watching
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.destinations import check_operand, check_places
from aotlite.eager.dispatch.devices import on_one_device
from aotlite.eager.dispatch.dispatch_mode import InMode, asked_modes, endless
from aotlite.eager.dispatch.pure import check_result, link_result, link_results, note_origin
from aotlite.eager.dispatch.subclass_results import (
    check_trace,
    checked,
    new_result,
    new_results,
    note_results,
    restrided,
    tuple_of,
    wrong,
)
from aotlite.eager.subclass.checks import DEEP, check_end
from aotlite.eager.subclass.op_functions import function_of
from aotlite.eager.subclass.protocol import (
    inner_tensors,
    is_wrapper,
    memory_of,
    refuse_form,
    refuse_inner_function,
)
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import ProtocolError, SubclassError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.devices import MixedDevicesError
from aotlite.ir.meta.symbolic import always_same_meta
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
from aotlite.ir.ops.views.view_ops import HIDDEN_ALIAS

Kinds = tuple[type[Any], ...]


def kinds_among(args: tuple[object, ...]) -> Kinds:
    """The wrapper classes among the operands: derived ones before their bases, else in order.
    The thread's dispatch modes stand before them (DSP-3)."""
    found: list[type[Any]] = []
    for value in args:
        if isinstance(value, Tensor):
            _add(found, type(value))
        elif type(value) is tuple:
            for item in value:
                if isinstance(item, Tensor):
                    _add(found, type(item))
    watch = STATE.watch
    if watch is not None and watch.modes:
        found.insert(0, InMode)
    return tuple(found)


def _add(found: list[type[Tensor]], cls: type[Tensor]) -> None:
    if cls.__tensor_dispatch__ is None or cls in found:
        return
    place = next((k for k, other in enumerate(found) if issubclass(cls, other)), len(found))
    found.insert(place, cls)


def run_wrapped(op: Op, args: tuple[object, ...], kinds: Kinds, recorder: Recorder | None) -> Any:
    """The result of an op with operands that are wrappers."""
    if kinds[0] is InMode and (op is HIDDEN_ALIAS or type(op) in _UNSEEN):
        return _unseen(op, args)
    depth = STATE.nested = STATE.nested + 1
    try:
        if depth >= DEEP and kinds[0] is InMode:
            raise endless(op, depth)
        if depth >= DEEP:
            check_end(op, op.operands(args), kinds, depth)
        return _run(op, args, kinds, recorder)
    except MixedDevicesError:
        moved = on_one_device(op, args) if kinds[0] is InMode else None
        if moved is None:
            raise
    finally:
        STATE.nested = depth - 1
    return run_wrapped(op, moved, kinds, recorder)


def _unseen(op: Op, args: tuple[object, ...]) -> object:
    """The result of an op that dispatch modes do not see (DSP-2)."""
    with watching(modes=()):
        return Tensor._apply(None, op, args)  # type: ignore[arg-type]


def _run(op: Op, args: tuple[Any, ...], kinds: Kinds, recorder: Recorder | None) -> Any:
    if Modes.functions and STATE.grad_mode:
        _check_outermost(op, args)
    for cls in kinds:
        if cls.__tensor_function__ is not None and not op.views:
            found = _made_of_others(op, args, kinds, cls)
            if found is not NotImplemented:
                return found
    result = _HANDLERS[type(op)](op, args, kinds, recorder)
    if Modes.functions and STATE.grad_mode and not (op.views or op.writes):
        for out in result if isinstance(result, tuple) else (result,):
            refuse_inner_function(op.name, "the result", out)
    return result


def _check_outermost(op: Op, args: tuple[object, ...]) -> None:
    """Raises for a part with a `__tensor_function__` where gradients are needed: only that of the
    outermost class is called (SUB-10)."""
    operands = op.operands(args)
    if op.views or not any(each.requires_grad for each in operands):
        return
    for each in operands:
        refuse_inner_function(op.name, "an operand", each, of_gradients=True)


def _made_of_others(op: Op, args: tuple[Any, ...], kinds: Kinds, cls: type[Any]) -> object:
    """The result of a class's `__tensor_function__`, whose ops the tape records (SUB-10)."""
    given, named = op.schema.given(args)
    if isinstance(op, InplaceOp):
        _check_write(op, args)
    found = cls.__tensor_function__(function_of(op), kinds, given, dict(named))
    if found is NotImplemented:
        return found
    if op.writes:
        return _the_target(op, found, cls, args[0])
    if isinstance(op, PureOp):
        metas = op.result_for(op.key(args))
        if type(metas) is tuple:
            outs = zip(tuple_of(op, found, cls, len(metas)), metas, strict=True)
            return tuple([restrided(op, checked(op, out, cls, meta), meta) for out, meta in outs])
        return restrided(op, checked(op, found, cls, metas), metas)
    return found


def _ask(op: Op, args: tuple[object, ...], kinds: Kinds) -> tuple[object, type[Tensor]]:
    """(result, class) of the first class that does not return NotImplemented."""
    function, before = function_of(op), STATE.grad_mode
    given, named = op.schema.given(args)
    if before:
        STATE.grad_mode = False
    types = kinds[1:] if kinds[0] is InMode else kinds
    names = [cls.__name__ for cls in types]
    try:
        STATE.asked_in = before
        if kinds[0] is InMode:
            found, cls = asked_modes(function, types, given, named)
            if found is not NotImplemented:
                return found, cls
            names.insert(0, cls.__name__)
        for cls in types:
            found = cls.__tensor_dispatch__(function, types, given, dict(named))
            if found is not NotImplemented:
                return found, cls
    finally:
        STATE.grad_mode = before
    gives = "give" if names[1:] else "gives"
    raise noted(
        SubclassError(
            f"{op.name}: {' and '.join(names)} {gives} NotImplemented, "
            "expected a class that knows it"
        ),
        f"__tensor_dispatch__ is called for each op; add {op.name!r} to it. (SUB-10)",
    )


# ------------------------------------------------------------------------------------ new results
def _pure(
    op: PureOp | EffectOp, args: tuple[object, ...], kinds: Kinds, recorder: Recorder | None
) -> object:
    key = op.key(args)
    meta = op.result_for(key)
    found, cls = _ask(op, args, kinds)
    if type(meta) is tuple:
        outs = new_results(op, found, cls, meta, args)
        if recorder is not None:
            note_results(op, args, cls, outs, recorder)
        if op.vjp is not None and STATE.grad_mode:
            metas = tuple([out.meta for out in outs])
            node = link_results(op, op.vjp, args, calls_of(op, key), outs, metas)
            if node is not None:
                note_origin(node, outs[0].value, recorder)
                _keep_forms(outs)
        return outs
    out = new_result(op, found, cls, meta, args)
    if recorder is not None:
        note_results(op, args, cls, (out,), recorder)
    if op.vjp is not None and STATE.grad_mode:
        link_result(op, op.vjp, args, calls_of(op, key), out)
        keep_form(out)
    return out


def _data(op: DataOp, args: tuple[object, ...], kinds: Kinds, recorder: Recorder | None) -> object:
    outlines = op.outlines(args)
    found, cls = _ask(op, args, kinds)
    single = type(outlines) is not tuple
    outs = (found,) if single else found
    if type(outs) is not tuple or len(outs) != (1 if single else len(outlines)):  # type: ignore[arg-type]
        raise wrong(op, cls, found, "as many tensors as the op has results")
    each: Any = (outlines,) if single else outlines
    outs = tuple([new_result(op, out, cls, None, args) for out in outs])
    for out, known in zip(outs, each, strict=True):
        if out.meta.dtype is not known.dtype or out.dim() != known.ndim:
            raise wrong(op, cls, out.meta, f"{known.dtype} of {known.ndim} dimensions")
    if recorder is not None:
        check_trace(op, cls, outs, recorder)  # what it made of its parts has a shape of its own
    if op.vjp is not None and STATE.grad_mode:
        metas = tuple([out.meta for out in outs])
        shown: object = metas[0] if single else metas
        link_results(op, op.vjp, args, calls_of(op, op.key(args)), outs, shown)
        _keep_forms(outs)
    return outs[0] if single else outs


def _keep_forms(outs: tuple[Tensor, ...]) -> None:
    for out in outs:
        keep_form(out)


def _random(
    op: RandomOp, args: tuple[object, ...], kinds: Kinds, recorder: Recorder | None
) -> Tensor:
    found, cls = _ask(op, args, kinds)
    out = new_result(op, found, cls, op.infer(args), args)
    if recorder is not None:
        note_results(op, args, cls, (out,), recorder)
    return out


# ------------------------------------------------------------------------------------------ views
def _view(op: ViewOp, args: tuple[Any, ...], kinds: Kinds, recorder: Recorder | None) -> Tensor:
    source: Tensor = args[0]
    if op is HIDDEN_ALIAS:
        advice = "Versions count the writes of a wrapper as a whole: use detach()"
        raise refuse_form(op.name, source, advice)
    meta, start = op.result(args)
    found, cls = _ask(op, args, kinds)
    out = _window(op, source, found, cls, meta, start)
    if recorder is not None:
        note_results(op, args, cls, (out,), recorder)
    if not op.cuts_history:
        link_view(out, source, op, args[1:])
        if out._node is not None:
            note_origin(out._node, out.value, recorder)
    return out


def _multi_view(
    op: MultiViewOp, args: tuple[Any, ...], kinds: Kinds, recorder: Recorder | None
) -> tuple[Tensor, ...]:
    source: Tensor = args[0]
    parts = op.parts(args)
    found, cls = _ask(op, args, kinds)
    if not isinstance(found, (tuple, list)) or len(found) != len(parts):
        raise wrong(op, cls, found, f"a tuple of {len(parts)} views")
    outs = []
    for (view, rest), each in zip(parts, found, strict=True):
        meta, start = view.result((source, *rest))
        outs.append(_window(op, source, each, cls, meta, start))
    if recorder is not None:
        note_results(op, args, cls, tuple(outs), recorder)
    node = None
    if not is_wrapper(source):
        node = node_of_parts(op, source, args[1:], tuple([out.meta for out in outs]))
    for i, ((view, rest), out) in enumerate(zip(parts, outs, strict=True)):
        own = None if node is None else (node, i)
        link_view(out, source, view, rest, CreationKind.MULTI_OUTPUT, own)
        if out._node is not None and node is None:
            out._node.origin = out.value
    if node is not None and outs:
        node.origin = outs[0].value
    return tuple(outs)


def _window(
    op: Op, source: Tensor, out: object, cls: type[Any], meta: TensorMeta, start: int
) -> Tensor:
    """A view of a wrapper: of the same class and storage, with views as its parts (SUB-17)."""
    if not is_wrapper(source):
        return _dense_window(op, source, out, cls, meta, start)
    out = checked(op, out, cls, meta)
    if out is source or type(out) is not type(source):
        raise wrong(op, cls, _described(out, source), f"another {type(source).__name__}, a view")
    mine, theirs = inner_tensors(source), inner_tensors(out)
    for name, part in theirs.items():
        if name in mine and memory_of(part) is not memory_of(mine[name]):
            raise noted(
                ProtocolError(
                    f"{op.name}: {cls.__name__}.__tensor_dispatch__ gives a view whose {name!r} "
                    "has memory of its own, expected a view of the operand's"
                ),
                "A write to a view has to reach what it is a view of. (SUB-17)",
            )
    out.storage, out.meta = source.storage, meta
    out.offset = source.offset + start
    return out


def _dense_window(
    op: Op, source: Tensor, out: object, cls: type[Any], meta: TensorMeta, start: int
) -> Tensor:
    """The view of a dense tensor that a mode gave, as a new object without history (DSP-4)."""
    out = checked(op, out, cls, meta)
    begin = source.offset * source.meta.dtype.itemsize // meta.dtype.itemsize + start
    if is_wrapper(out) or memory_of(out) is not memory_of(source):
        raise wrong(op, cls, "a tensor with other memory", "a view of the operand")
    if not always_same_meta(out.meta, meta) or out.offset != begin:
        raise wrong(op, cls, f"a view {out.meta} at offset {out.offset}", f"{meta} at {begin}")
    view = Tensor(source.storage, meta, begin)
    view.value = out.value
    return view


def _described(out: Tensor, source: Tensor) -> str:
    return "the operand itself" if out is source else f"a {type(out).__name__}"


# ----------------------------------------------------------------------------------------- writes
def _check_write(op: InplaceOp, args: tuple[Any, ...]) -> None:
    """Raises unless the first operand can hold the result, and may be written (TEN-9, TEN-21)."""
    target: Tensor = args[0]
    result: TensorMeta = op.functional.result_for(op.functional.key(args))
    if result is not target.meta:
        check_result(op, target.meta, result)
    others = [operand for operand in op.operands(args) if operand is not target]
    if is_wrapper(target) and not (op is COPY_ and args[1] is target):
        _check_places(op, target, others, args)
    if type(target.storage.version) is not int:
        check_counts(op.name, target)
    if STATE.grad_mode:
        check_writable(op.name, target, others)


def _check_places(op: InplaceOp, target: Tensor, others: list[Any], args: tuple[Any, ...]) -> None:
    """Raises where the target overlaps itself, or an operand overlaps it in part (TEN-7)."""
    if op.functional.cost is not Cost.FACTORY:
        check_places(op.name, target)
    for other in others:
        if other.storage is target.storage:
            check_operand(op.name, target, other, args)


def _inplace(
    op: InplaceOp, args: tuple[Any, ...], kinds: Kinds, recorder: Recorder | None
) -> Tensor:
    target: Tensor = args[0]
    _check_write(op, args)
    onto_itself = op is COPY_ and args[1] is target
    node = plan_write(op, args) if STATE.grad_mode and not onto_itself else None
    base_edge = None
    if node is not None and target._root is not None:
        base_edge = target._root.edge()
    parts = inner_tensors(target) if is_wrapper(target) else {}
    before = target.storage.version
    found, cls = _ask(op, args, kinds)
    _the_target(op, found, cls, target)
    for name, part in (inner_tensors(target) if parts else {}).items():
        if parts.get(name) is not part:
            raise noted(
                ProtocolError(
                    f"{op.name}: {cls.__name__}.__tensor_dispatch__ puts another tensor at "
                    f"attribute {name!r}, expected a write to the one that is there"
                ),
                "Views share the inner tensors' memory: write to it, with copy_ for instance. "
                "(SUB-15)",
            )
    dense = kinds[0] is InMode and not is_wrapper(target)
    if (parts or dense) and target.storage.version == before:  # it may ask another one to write
        target.storage.version += 1
    if parts and recorder is not None:
        (target.value,) = recorder.record_wrapped(op, args, (target,), target.meta)
    if node is not None:
        note_origin(node, target.value, recorder)
        node.save_results((target,))
        rewrite(target, node, base_edge)
    return target


def _the_target(op: Op, found: object, cls: type[Tensor], target: Tensor) -> Tensor:
    if found is not target:
        raise wrong(op, cls, found, "the tensor that is written, itself")
    return target


def _geometry(
    op: GeometryOp, args: tuple[Any, ...], kinds: Kinds, recorder: Recorder | None
) -> Tensor:
    target: Tensor = args[0]
    if is_wrapper(target):
        raise refuse_form(op.name, target, f"Take the view: {op.view.name}")
    meta, start = op.view.result(args)
    start += target.offset
    check_writable(op.name, target, [])
    found, cls = _ask(op, args, kinds)
    _the_target(op, found, cls, target)
    if not always_same_meta(target.meta, meta) or target.offset != start:
        raise wrong(op, cls, f"{target.meta} at offset {target.offset}", f"{meta} at {start}")
    return target


_HANDLERS: dict[type, Callable[..., object]] = {
    PureOp: _pure,
    EffectOp: _pure,
    DataOp: _data,
    RandomOp: _random,
    ViewOp: _view,
    MultiViewOp: _multi_view,
    InplaceOp: _inplace,
    GeometryOp: _geometry,
}
_UNSEEN = (TokenOp, ResultOp)
