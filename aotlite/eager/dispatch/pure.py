"""Pure ops in the eager engine: the computation, its cache, and tape nodes.

The cache is explained in `array_functions`. Rules: TEN-13. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from aotlite.eager.autograd.differentiable_views import edges_of
from aotlite.eager.autograd.nodes.op_nodes import Calls, OpNode, calls_of, new_call, new_node
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch.array_functions import function_of, operands_of, run_kernel
from aotlite.ir.arrays import Array, ArrayBackend
from aotlite.ir.dtypes import can_cast_in_place
from aotlite.ir.effects import EffectOp
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.meta import Outline, TensorMeta
from aotlite.ir.op import CACHE_LIMIT, DataOp, InplaceOp, PureOp, Vjp
from aotlite.ir.ops.shape.copies import COPY


def run_pure(
    op: PureOp, args: tuple[object, ...], recorder: Recorder | None
) -> Tensor | tuple[Tensor, ...]:
    key = op.key(args)
    if recorder is None:
        shortcut = op.shortcuts.get(key)
        if shortcut is not None:
            return _called(op, args, shortcut)
    meta = op.results.get(key)
    if meta is None:
        meta = op.result_for(key)
    if type(meta) is tuple:
        return _pure_of_several(op, args, key, meta)
    if recorder is None:
        out = _run(op, args, key, meta)
    else:
        out = Tensor(Storage(None, capture=recorder), meta)
        out.value = recorder.record(op, args, meta)
    if op.vjp is not None and STATE.grad_mode:
        link_result(op, op.vjp, args, calls_of(op, key), out)
    return out


def _called(op: PureOp, args: tuple[Any, ...], shortcut: Any) -> Tensor:
    """The result for arguments whose key has a shortcut."""
    meta, compute, adopt, count, calls = shortcut
    operands: list[object] = []
    plain = True
    for a in args if count is None else args[:count]:
        if isinstance(a, Tensor):
            array = a._array
            operands.append(a._data if array is None else array)
            if a.facts is not a.meta:
                plain = False
        elif type(a) is tuple and a and isinstance(a[0], Tensor):
            several = []
            for item in a:
                array = item._array
                several.append(item._data if array is None else array)
                if item.facts is not item.meta:
                    plain = False
            operands.append(tuple(several))
        else:
            operands.append(a)
    array = compute(*operands)
    if adopt is None:
        out = Tensor(Storage(array), meta)
        out._array = array[...]  # a view, since `adopt` would take over an array without a base
    else:
        out = Tensor(Storage(adopt(array, meta)), meta)
    if not plain and op.vjp is not None and STATE.grad_mode:
        link_result(op, op.vjp, args, calls, out)
    return out


def _run(op: PureOp, args: tuple[Any, ...], key: Any, meta: TensorMeta) -> Tensor:
    """The result for arguments with a new key; makes the shortcut for it."""
    arrays = meta.device.arrays
    compute, count = _computation(op, key, meta)
    result = compute(*operands_of(args[:count]))
    buffer = arrays.adopt(result, meta)
    if buffer is result and count is not None:
        op.shortcuts[key] = meta, compute, None, count, calls_of(op, key)
    return Tensor(Storage(buffer), meta)


def _computation(
    op: PureOp, key: tuple[object, ...], meta: TensorMeta
) -> tuple[Callable[..., Array], int | None]:
    """(the function on arrays for this key, how many of the arguments it takes or None for all).
    The function is the array library's own, or else the kernel."""
    arrays = meta.device.arrays
    function, count = function_of(op, key, meta)
    if function is None:
        function, count = partial(op.kernel, arrays, meta), None
    if len(op.shortcuts) >= CACHE_LIMIT:
        op.shortcuts.clear()
    compute = arrays.quieted(function)
    op.shortcuts[key] = meta, compute, arrays.adopt, count, calls_of(op, key)
    return compute, count


def link_result(
    op: PureOp | EffectOp, vjp: Vjp, args: tuple[object, ...], calls: Calls, out: Tensor
) -> None:
    """Gives the result its tape node, if an operand requires grad."""
    node = _tape_node(op, vjp, args, calls, out.meta)
    if node is None:
        return
    if node.call.plan.results:
        node.save_results((out,))
    recorder = STATE.recorder
    if recorder is not None:
        node.origin = out.value
        recorder.count_tape_node()
    if out.meta.dtype.is_differentiable:
        out._node, out.facts = node, None


def _pure_of_several(
    op: PureOp, args: tuple[object, ...], key: tuple[object, ...], metas: tuple[TensorMeta, ...]
) -> tuple[Tensor, ...]:
    recorder = STATE.recorder
    if recorder is None:
        outs = _computed(op, args, metas)
    else:
        outs = fakes(recorder, recorder.record(op, args, metas), metas)
    if op.vjp is not None and STATE.grad_mode:
        node = link_results(op, op.vjp, args, calls_of(op, key), outs, metas)
        if node is not None:
            note_origin(node, outs[0].value, recorder)
    return outs


def link_results(
    op: PureOp | DataOp | EffectOp,
    vjp: Vjp,
    args: tuple[object, ...],
    calls: Calls,
    outs: tuple[Tensor, ...],
    metas: object,
) -> TapeNode | None:
    """Gives the results their tape node, if an operand requires grad."""
    node = _tape_node(op, vjp, args, calls, metas)
    if node is not None:
        _link_each(node, outs)
    return node


def _link_each(node: OpNode, outs: tuple[Tensor, ...]) -> None:
    """Gives each result that can have a gradient its place at the tape node."""
    node.save_results(outs)
    for k, out in enumerate(outs):
        if out.meta.dtype.is_differentiable:
            out._node, out._index, out.facts = node, k, None


def run_data(
    op: DataOp, args: tuple[object, ...], recorder: Recorder | None
) -> Tensor | tuple[Tensor, ...]:
    """The results of a data-dependent op; the kernel's arrays have their shapes."""
    outlines = op.outlines(args)
    if recorder is not None:
        return run_pure(op.fitted, (*args, recorder.data.count(op, args)), recorder)
    single = isinstance(outlines, Outline)
    each = (outlines,) if isinstance(outlines, Outline) else outlines
    arrays = each[0].device.arrays
    found = run_kernel(op, args, outlines, arrays)
    results = (found,) if single else found
    metas = tuple([one.meta(array.shape) for one, array in zip(each, results, strict=True)])
    outs = _adopted(results, metas, arrays)
    if op.vjp is not None and STATE.grad_mode:
        calls = calls_of(op, op.key(args))
        link_results(op, op.vjp, args, calls, outs, metas[0] if single else metas)
    return outs[0] if single else outs


def _tape_node(
    op: PureOp | DataOp | EffectOp, vjp: Vjp, args: tuple[object, ...], calls: Calls, result: object
) -> OpNode | None:
    """The tape node of a call with this result; None if no operand requires grad."""
    found = edges_of(vjp, args)
    if found is None:
        return None
    needed, edges = found
    call = calls.get(needed)
    if call is None or call.result is not result:
        call = new_call(op, vjp, calls, needed, result)
    return new_node(call, args, edges)


def note_origin(node: TapeNode, value: object, recorder: Recorder | None) -> None:
    """Links a captured op and its tape node: node.origin, and the op's sequence number (SEQ-1)."""
    node.origin = value
    if recorder is not None:
        recorder.count_tape_node()


def fakes(
    recorder: Recorder, values: Iterable[object], metas: Iterable[TensorMeta]
) -> tuple[Tensor, ...]:
    outs = []
    for one, value in zip(metas, values, strict=True):
        out = Tensor(Storage(None, capture=recorder), one)
        out.value = value
        outs.append(out)
    return tuple(outs)


def _computed(
    op: PureOp, args: tuple[object, ...], metas: tuple[TensorMeta, ...]
) -> tuple[Tensor, ...]:
    arrays = metas[0].device.arrays
    return _adopted(run_kernel(op, args, metas, arrays), metas, arrays)


def _adopted(
    results: Iterable[Array], metas: tuple[TensorMeta, ...], arrays: ArrayBackend
) -> tuple[Tensor, ...]:
    """New tensors that hold the results of a kernel."""
    pairs = zip(results, metas, strict=True)
    return tuple([Tensor(Storage(arrays.adopt(result, meta)), meta) for result, meta in pairs])


def write_result(op: PureOp, key: tuple[Any, ...], meta: TensorMeta, args: tuple[Any, ...]) -> None:
    """Computes `op` and writes the result to the first operand."""
    arrays = meta.device.arrays
    if op is COPY:
        arrays.copy(args[0]._data, args[1]._data)
        return
    shortcut = op.shortcuts.get(key)
    if shortcut is None:
        compute, count = _computation(op, key, meta)
    else:
        _, compute, _, count, _ = shortcut
    arrays.copy(args[0]._data, compute(*operands_of(args[:count])))


def check_result(op: InplaceOp, target: TensorMeta, result: TensorMeta) -> None:
    """Raises unless the destination can hold the result with its own shape and dtype (TEN-9)."""
    if result.shape != target.shape:
        raise ShapeError(
            f"{op.name}: the destination has shape {target.shape}, expected {result.shape}, the "
            "shape of the result"
        )
    if not op.overwrites and not can_cast_in_place(result.dtype, target.dtype):
        raise DTypeError(
            f"{op.name}: the destination has dtype {target.dtype}, expected one that takes a "
            f"result of {result.dtype}"
        )
