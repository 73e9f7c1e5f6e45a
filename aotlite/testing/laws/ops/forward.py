"""Laws of the forward of an op: its values, its memory, and its effects on other memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.rng.generator import get_rng_state, set_rng_state
from aotlite.ir.arrays import Array
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import Outline, TensorMeta
from aotlite.ir.op import (
    OPS,
    DataOp,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    ViewOp,
)
from aotlite.ir.run.interpreter import ArrayValue, call_arrays, run_graph
from aotlite.testing.laws.ops.runs import (
    addresses,
    bound,
    changes_first,
    elements,
    kernel_op,
    memory,
    run,
    same_bits,
    tensor_of,
    tensors_in,
    tight_tensor_of,
    with_kernel,
)
from aotlite.testing.laws.samples.sample import Sample

Samples = Sequence[Sample]


# ------------------------------------------------------------------------- L1: meta = kernel
def meta_is_what_the_kernel_gives(op: Op, samples: Samples) -> None:
    """L1: the meta rule gives the shape, dtype and strides of the computed result."""
    for sample in samples:
        match op:
            case PureOp() | InplaceOp() | RandomOp():
                _check_computed(op, sample)
            case DataOp():
                _check_outlined(op, sample)
            case ViewOp():
                args = bound(op, sample)
                _check_window(op, sample, args[0], op, args[1:])
            case MultiViewOp():
                args = bound(op, sample)
                for view, rest in op.parts(args):
                    _check_window(op, sample, args[0], view, rest)
            case GeometryOp():
                args = bound(op, sample)
                _check_window(op, sample, args[0], op.view, args[1:])


def _check_computed(op: Op, sample: Sample) -> None:
    raw: list[object] = []
    seen = _listening(op, raw)
    args = bound(op, sample)
    declared = _metas(kernel_op(op).infer(_pure_args(op, args)))  # type: ignore[union-attr]
    if isinstance(op, RandomOp):
        assert op.infer(args) == declared[0], (
            f"{op.name}{sample}: the rule says {op.infer(args)}, expected {declared[0]} as of "
            "the pure form"
        )
    outs = run(seen, args)
    computed = raw[0] if type(raw[0]) is tuple else (raw[0],)
    for out, meta, array in zip(outs, declared, computed, strict=True):
        _check_array(op, sample, meta, array)
        if not isinstance(op, InplaceOp):
            _check_layout(op, sample, out, meta, array)


def _check_outlined(op: DataOp, sample: Sample) -> None:
    """Checks the outline of a data-dependent op at the shape of the kernel's result."""
    raw: list[object] = []
    seen, args = _listening(op, raw), bound(op, sample)
    outlines = op.outlines(args)
    outs = run(seen, args)
    computed = raw[0] if type(raw[0]) is tuple else (raw[0],)
    declared = (outlines,) if isinstance(outlines, Outline) else outlines
    for out, outline, array in zip(outs, declared, computed, strict=True):
        assert array.ndim == outline.ndim, (
            f"{op.name}{sample}: the kernel gives {array.ndim} dimensions, expected {outline.ndim}"
        )
        _check_array(op, sample, outline.meta(array.shape), array)
        _check_layout(op, sample, out, outline.meta(array.shape), array)


def _listening(op: Op, raw: list[object]) -> Op:
    """The op with a kernel that appends its results to `raw`, before they are copied or cast."""
    pure = kernel_op(op)

    def kernel(arrays: object, meta: object, *args: object) -> Any:
        result = pure.kernel(arrays, meta, *args)  # type: ignore[union-attr]
        raw.append(result)
        return result

    listening = with_kernel(pure, kernel)  # type: ignore[arg-type]
    return listening if op is pure else attrs.evolve(op, functional=listening)  # type: ignore[call-arg]


def _pure_args(op: Op, args: tuple[object, ...]) -> tuple[object, ...]:
    return (0, 0, 0, *args) if isinstance(op, RandomOp) else args


def _metas(meta: object) -> tuple[TensorMeta, ...]:
    return meta if type(meta) is tuple else (meta,)


def _check_array(op: Op, sample: Sample, meta: TensorMeta, array: Array) -> None:
    got = (np.shape(array), np.asarray(array).dtype)
    assert got == (meta.shape, meta.dtype.numpy), (
        f"{op.name}{sample}: the kernel gives {got[1]}{list(got[0])}, expected {meta} by the rule"
    )


def _check_layout(op: Op, sample: Sample, out: Tensor, meta: TensorMeta, array: object) -> None:
    assert out.meta == meta, f"{op.name}{sample}: the result is {out.meta}, expected {meta}"
    steps = tuple(step // out.array.itemsize for step in out.array.strides)
    assert out.numel() == 0 or steps == meta.stride, (
        f"{op.name}{sample}: the memory has strides {steps}, expected {meta.stride} by the rule"
    )
    assert same_bits(out.array, array), (
        f"{op.name}{sample}: strides {meta.stride} do not keep the kernel's elements apart"
    )


def _check_window(
    op: Op, sample: Sample, operand: Tensor, view: ViewOp, rest: tuple[object, ...]
) -> None:
    meta, start = view.result((operand, *rest))
    assert view.recasts or meta.dtype is operand.dtype, (
        f"{op.name}{sample}: the rule gives dtype {meta.dtype}, expected {operand.dtype}, the "
        "memory's"
    )
    if view.keeps_all:
        assert meta.nbytes == operand.nbytes, (
            f"{op.name}{sample}: the rule gives {meta.nbytes} bytes, expected {operand.nbytes}"
        )
    if meta.numel and not view.name.startswith("as_strided"):
        size, room = meta.dtype.itemsize, operand.meta.span * operand.itemsize
        assert start >= 0 and (start + meta.span) * size <= room, (
            f"{op.name}{sample}: the window {meta} at {start} leaves the memory of {operand.meta}"
        )


# ------------------------------------------------------------------------ L3: declared aliasing
def memory_shows_the_declared_aliasing(op: Op, samples: Samples) -> None:
    """L3: results share memory, and bytes change, exactly where the schema declares it."""
    _check_marks(op)
    for sample in samples:
        for make in (tensor_of, tight_tensor_of):
            args = bound(op, sample, make)
            before = [(t, memory(t).copy(), t.version) for t in tensors_in(args)]
            own = _own_bytes(args[0]) if op.writes else None
            outs = run(op, args)
            _check_sharing(op, sample, args, outs)
            for k, (tensor, image, version) in enumerate(before):
                _check_writes(op, sample, k, tensor, image, own if k == 0 else None)
                bumps = tensor.version - version
                expected = int(k == 0 and changes_first(op))
                assert bumps == expected, (
                    f"{op.name}{sample}: operand {k} is {bumps} versions on, expected {expected}"
                )
        if not changes_first(op) and not op.views:
            _check_fresh_each_time(op, sample)


def _check_marks(op: Op) -> None:
    """Checks that the alias marks of the schema agree with the class of the op."""
    marked = [p.alias for p in op.schema.parameters]
    wanted = (changes_first(op) or op.views, changes_first(op))
    first = marked[0] if marked else None
    got = (first is not None, first is not None and first.writes)
    assert got == wanted and not any(marked[1:]), (
        f"{op.name}: the schema {op.schema} marks its operands otherwise than {type(op).__name__}"
    )
    shares = [r.alias is not None for r in op.schema.returns]
    assert shares == [wanted[0]] * len(shares), (
        f"{op.name}: the schema {op.schema} marks its results otherwise than {type(op).__name__}"
    )


def _own_bytes(tensor: Tensor) -> np.ndarray:
    size = tensor.dtype.itemsize
    return (addresses(tensor).reshape(-1, 1) * size + np.arange(size)).reshape(-1)


def _check_sharing(op: Op, sample: Sample, args: Any, outs: tuple[Tensor, ...]) -> None:
    if changes_first(op):
        assert outs == () or outs[0] is args[0], f"{op.name}{sample}: it gives another object"
        return
    declared = op.schema.returns[0].alias is not None
    for out in outs:
        for k, operand in enumerate(tensors_in(args)):
            shared = out.storage.buffer is operand.storage.buffer or (
                np.shares_memory(memory(out), memory(operand))
            )
            if declared and k == 0 or shared:
                assert shared == (declared and k == 0), (
                    f"{op.name}{sample}: sharing memory with operand {k} is {shared}, expected "
                    f"{declared and k == 0} by the schema"
                )
    if not declared:
        _check_apart(op, sample, outs)


def _check_apart(op: Op, sample: Sample, outs: Sequence[Tensor]) -> None:
    for i, out in enumerate(outs):
        for other in outs[:i]:
            assert not np.shares_memory(memory(out), memory(other)), (
                f"{op.name}{sample}: two results share memory, which the schema does not declare"
            )


def _check_fresh_each_time(op: Op, sample: Sample) -> None:
    args = bound(op, sample)
    _check_apart(op, sample, (*run(op, args), *run(op, args)))


def _check_writes(
    op: Op, sample: Sample, k: int, tensor: Tensor, before: np.ndarray, own: np.ndarray | None
) -> None:
    changed = memory(tensor) != before
    if own is not None:
        changed[own] = False
    assert not changed.any(), (
        f"{op.name}{sample}: {int(changed.sum())} bytes of operand {k} changed that the op may not "
        "write"
    )


# ----------------------------------------------------------- L5: in-place = functional, then copy
def in_place_is_functional_then_copy(op: Op, samples: Samples) -> None:
    """L5: `f_` writes the cast result of `f` to its operand; `t_` takes the geometry of `t`."""
    twin = OPS[op.name.removesuffix("_")]
    for sample in samples:
        if isinstance(op, GeometryOp):
            _check_geometry(op, twin, sample)
        else:
            _check_in_place(op, twin, sample)


def _check_in_place(op: Op, twin: Op, sample: Sample) -> None:
    expected = run(twin, bound(twin, sample))[0]
    args = bound(op, sample)
    target, meta, offset, version = args[0], args[0].meta, args[0].offset, args[0].version
    out = run(op, args)[0]
    assert out is target, f"{op.name}{sample}: it gives another object, expected its operand"
    assert (out.meta, out.offset) == (meta, offset), f"{op.name}{sample}: the geometry changed"
    assert out.version == version + 1, (
        f"{op.name}{sample}: the version is {out.version}, expected {version + 1}"
    )
    with np.errstate(all="ignore"):
        cast = np.asarray(expected.array).astype(meta.dtype.numpy)
    assert same_bits(out.array, cast), (
        f"{op.name}{sample}: the operand holds {elements(out).tolist()}, expected "
        f"{cast.tolist()}, the result of {twin.name}"
    )


def _check_geometry(op: GeometryOp, view: Op, sample: Sample) -> None:
    args = bound(op, sample)
    target, bytes_before, version = args[0], memory(args[0]).copy(), args[0].version
    seen = run(view, args)[0]
    out = run(op, args)[0]
    assert out is target, f"{op.name}{sample}: it gives another object, expected its operand"
    got, expected = (out.meta, out.offset), (seen.meta, seen.offset)
    assert got == expected, (
        f"{op.name}{sample}: the geometry is {got}, expected {expected}, that of {view.name}"
    )
    assert out.version == version + 1 and (memory(out) == bytes_before).all(), (
        f"{op.name}{sample}: bytes changed or the version is {out.version}, expected {version + 1}"
    )


# ---------------------------------------------------------------- L9: graph, interpreted = eager
def interpreted_graph_is_eager(op: Op, samples: Samples) -> None:
    """L9: the op, recorded in a graph and interpreted, has the result of eager, bit for bit.

    The graph's op is a copy without cached rules: a rule must be a function of its arguments.
    """
    cold = _cold(op)
    for sample in samples:
        args = bound(op, sample)
        values = [ArrayValue(t.storage.buffer.copy(), t.meta, t.offset) for t in tensors_in(args)]
        outs = run(op, args)
        build = Builder()
        proxies = iter([build.placeholder(value.meta) for value in values])
        made = build.call(cold, proxied(args, proxies))
        results = made if type(made) is tuple else (made,)
        metas = [out.meta for out in results]
        with np.errstate(all="ignore"):
            got = run_graph(build.finish(results), *values)
        _check_equal(op, sample, outs, metas, got)


def _cold(op: Op) -> Op:
    if isinstance(op, GeometryOp):
        return attrs.evolve(op, view=attrs.evolve(op.view))
    return attrs.evolve(op)


def proxied(value: object, proxies: Any) -> Any:
    if isinstance(value, Tensor):
        return next(proxies)
    return tuple(proxied(item, proxies) for item in value) if type(value) is tuple else value


def _check_equal(op: Op, sample: Sample, outs: Any, metas: Any, got: Any) -> None:
    assert len(outs) == len(got), (
        f"{op.name}{sample}: the graph gives {len(got)} results, expected {len(outs)} as eager"
    )
    for out, meta, array in zip(outs, metas, got, strict=True):
        assert meta == out.meta, f"{op.name}{sample}: the graph says {meta}, eager {out.meta}"
        assert same_bits(array, out.array), (
            f"{op.name}{sample}: the interpreted graph gives {np.asarray(array).tolist()}, "
            f"expected {elements(out).tolist()} as eager"
        )


# ------------------------------------------------------------------------------ L10: random ops
def draws_are_the_pure_form(op: Op, samples: Samples) -> None:
    """L10: a draw is the pure form at the generator's offset; two draws share no numbers."""
    assert isinstance(op, RandomOp)
    for sample in samples:
        _check_draw(op, sample)


def _check_draw(op: RandomOp, sample: Sample) -> None:
    args = bound(op, sample)
    seed, offset = 11, 40
    set_rng_state((seed, offset))
    first = run(op, args)[0]
    used = get_rng_state()[1] - offset
    assert used % 4 == 0 and used >= first.numel(), (
        f"{op.name}{sample}: it uses up {used} offsets, expected a multiple of 4, one an element"
    )
    second = run(op, args)[0]
    for place, draw in ((offset, first), (offset + used, second)):
        values = [
            ArrayValue(a.storage.buffer, a.meta, a.offset) if isinstance(a, Tensor) else a
            for a in args
        ]
        pure = call_arrays(op.functional, (seed, place, 0, *values))
        assert same_bits(pure.array, draw.array), (
            f"{op.name}{sample}: the draw at offset {place} is not {op.functional.name}'s result"
        )
    if np.array_equal(elements(first), np.trunc(elements(first).real)):
        return  # whole numbers, of which draws have some in common by chance
    common = set(elements(first).ravel().tolist()) & set(elements(second).ravel().tolist())
    assert not common, f"{op.name}{sample}: two draws have {len(common)} numbers in common"
