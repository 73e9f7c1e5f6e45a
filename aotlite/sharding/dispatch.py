"""Ops on sharded tensors: what each rank computes, and what is exchanged before.

`run(cls, op, args)` is `ShardedTensor.__tensor_dispatch__` for canonical arguments. What a rank
computes reads that rank's parts alone (SHD-1); all else is a collective (`redistribution.py`).
Rules: SHD-3, SHD-6 to SHD-12. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.eager.autograd.nodes.op_nodes import laid_out
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.eager.dispatch.destinations import check_operand
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.effects import EffectOp
from aotlite.ir.errors import AliasError, ShapeError, SubclassError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, DataOp, InplaceOp, MultiViewOp, Op, PureOp, RandomOp, ViewOp
from aotlite.ir.ops.collectives import waited
from aotlite.ir.ops.shape.copies import CLONE, COPY_, FILL, RESTRIDE
from aotlite.ir.ops.views.scatters import AS_STRIDED_SCATTER
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.sharding.collective_counts import note_implicit
from aotlite.sharding.mesh import Mesh, Parts
from aotlite.sharding.placements import Partial, PlacedView, Placement, Replicate, Shard
from aotlite.sharding.redistribution import neutral, redistributed, written_through
from aotlite.sharding.strategy import Plan, choose, replicated
from aotlite.sharding.views import view_of_shards


@attrs.frozen
class Held:
    """What ranks hold of an operand."""

    meta: TensorMeta
    parts: Parts
    placement: Placement


def run(cls: type[Any], op: Op, args: tuple[Any, ...]) -> Any:
    """What the op gives on arguments of which some are of the class; or NotImplemented."""
    operands = op.operands(args)
    if any(_holds(cls, each) for each in operands if not isinstance(each, cls)):
        return NotImplemented  # the other class has the sharded ones inside
    mesh = _mesh_of(cls, op, operands)
    match op:
        case ViewOp():
            return _view(cls, mesh, op, args[0], args[1:])
        case MultiViewOp():
            views = op.parts(args)
            return tuple([_view(cls, mesh, view, args[0], rest) for view, rest in views])
        case InplaceOp():
            return _write(cls, mesh, op, args)
    results, placements = _computed(cls, mesh, op, args)
    metas = _metas(op, args, len(results))
    made = [cls.of(mesh, *each) for each in zip(placements, results, metas, strict=True)]
    return made[0] if len(made) == 1 and _is_single(op) else tuple(made)


def _metas(op: Op, args: tuple[object, ...], count: int) -> tuple[TensorMeta | None, ...]:
    """The results' metas, None where only their values say them."""
    if isinstance(op, DataOp):
        return (None,) * count
    found: Any = op.infer(args)
    return found if type(found) is tuple else (found,)


def _is_single(op: Op) -> bool:
    return len(op.schema.returns) == 1 and not op.schema.returns[0].is_list


def _holds(cls: type[Tensor], tensor: Tensor) -> bool:
    """Whether a tensor of another class has one of this class inside."""
    if not is_wrapper(tensor):
        return False
    return any(isinstance(t, cls) or _holds(cls, t) for t in inner_tensors(tensor).values())


def _mesh_of(cls: type[Tensor], op: Op, operands: Sequence[Tensor]) -> Mesh:
    """The one mesh of the operands (SHD-3)."""
    meshes = list(dict.fromkeys(each.mesh for each in operands if isinstance(each, cls)))
    if len(meshes) > 1:
        raise noted(
            SubclassError(
                f"{op.name}: operands of {cls.__name__} have mesh {meshes[0]} and {meshes[1]}, "
                "expected one mesh"
            ),
            "full_tensor() of one of them is a dense operand, which any mesh takes. (SHD-3)",
        )
    mesh: Mesh = meshes[0]
    return mesh


def _held(cls: type[Tensor], mesh: Mesh, operand: Tensor) -> Held:
    if isinstance(operand, cls):
        return Held(operand.meta, operand.parts, operand.placement)
    return Held(operand.meta, (operand,) * mesh.size, Replicate())  # each rank has computed it


# ------------------------------------------------------------------------------------- computing
def _computed(
    cls: type[Tensor], mesh: Mesh, op: Op, args: tuple[object, ...]
) -> tuple[list[Parts], tuple[Placement, ...]]:
    """The results' parts and placements."""
    if op is RESTRIDE:  # how parts lie in memory is not told by how the whole does
        op, args = CLONE, args[:1]
    held = [_held(cls, mesh, operand) for operand in op.operands(args)]
    if op is FILL:  # it reads no element
        held = [_unread(held[0])]
    plan = _plan(op, args, [each.placement for each in held], mesh.size)
    moved = [_brought(op, mesh, each, to) for each, to in zip(held, plan.operands, strict=True)]
    if op is AS_STRIDED_SCATTER:  # it speaks of memory: that of the whole
        first, meta = moved[0], held[0].meta
        moved[0] = mesh.each(lambda rank: laid_out(first[rank], meta), [first])
    own = args if plan.cut is None else plan.cut.args(op, args, mesh.size)

    def on(rank: int) -> tuple[Tensor, ...]:
        found = dispatch(op, with_operands(op, own, [parts[rank] for parts in moved]))
        return found if isinstance(found, tuple) else (found,)

    results: list[Parts]
    if isinstance(op, (RandomOp, EffectOp)):  # one draw for all, and one effect
        results = [waited("broadcast", [each] * mesh.size, 0) for each in on(0)]
    else:
        results = [list(each) for each in zip(*mesh.each(on, moved), strict=True)]
    return results, plan.result or (Replicate(),) * len(results)


def _plan(op: Op, args: tuple[object, ...], placements: list[Placement], ranks: int) -> Plan:
    if isinstance(op, PureOp):
        return choose(op, args, placements, ranks)
    return replicated(op, args, 0)


def _unread(held: Held) -> Held:
    """An operand that counts by its shape alone: of parts of a sum each has it."""
    if isinstance(held.placement, Partial):
        return Held(held.meta, held.parts, Replicate())
    return held


def _brought(op: Op, mesh: Mesh, held: Held, target: Placement) -> Parts:
    if held.placement != target:
        note_implicit(op.name, _short(held.placement), target, held.meta)
    return redistributed(mesh, held.parts, held.placement, target)


def _short(placement: Placement) -> str:
    return "a view across ranks" if isinstance(placement, PlacedView) else str(placement)


def with_operands(op: Op, args: tuple[Any, ...], operands: Sequence[object]) -> tuple[Any, ...]:
    """The arguments with other operands, in the order of `Op.operands`."""
    rest, found = iter(operands), list(args)
    for i in (*op.tensors, *op.mixed):
        if isinstance(args[i], Tensor):
            found[i] = next(rest)
    for i in op.lists:
        found[i] = tuple([next(rest) for _ in args[i]])
    return tuple(found)


# ----------------------------------------------------------------------------------------- views
def _view(cls: type[Any], mesh: Mesh, op: ViewOp, x: Tensor, rest: tuple[object, ...]) -> object:
    """A view of each rank's part where there is one, else a window on all of them (SHD-6)."""
    placement, (meta, start) = x.placement, op.result((x, *rest))
    if op is AS_STRIDED:
        _check_inside(cls, x.meta, meta, start)
    own: tuple[Placement, tuple[Any, ...]] | None = (placement, rest)
    if isinstance(placement, PlacedView) or (op.recasts and isinstance(placement, Partial)):
        own = None  # bytes of parts of a sum are no parts of its bytes
    elif isinstance(placement, Shard):
        found = view_of_shards(op, x.meta, rest, placement.dim, mesh.size)
        own = None if found is None else (Shard(found[0]), found[1])
    if own is not None and (op is not AS_STRIDED or x.parts[0].meta is x.meta):
        try:
            parts = mesh.each(lambda rank: dispatch(op, (x.parts[rank], *own[1])), [x.parts])
            return cls.of(mesh, own[0], parts, meta)
        except ShapeError:
            pass  # the whole has this view, and the parts lie otherwise
    if isinstance(placement, PlacedView):
        chain = (*placement.chain, (op.name, rest))
        window = PlacedView(placement.placement, placement.base, chain, meta.dtype)
    else:
        window = PlacedView(placement, x.meta, ((op.name, rest),), meta.dtype)
    parts = mesh.each(lambda rank: dispatch(OPS["alias"], (x.parts[rank],)), [x.parts])
    return cls.of(mesh, window, parts, meta)


def _check_inside(cls: type[Tensor], whole: TensorMeta, seen: TensorMeta, start: int) -> None:
    """Memory around a tensor, and between its elements, is not the same for its parts."""
    if seen.numel and not _is_inside(whole, seen, start):
        raise noted(
            SubclassError(
                f"as_strided: {seen} at {start} reaches beyond a {cls.__name__} of {whole}, "
                "expected a window on its own elements"
            ),
            "Its parts have no memory around them in common: take views of its base. (SHD-6)",
        )


def _is_inside(whole: TensorMeta, seen: TensorMeta, start: int) -> bool:
    """Whether each element of a window that begins at `start` is one of the whole."""
    if not 0 <= start <= whole.span - seen.span:
        return False
    return whole.dense or bool(np.isin(_places(seen) + start, _places(whole)).all())


def _places(meta: TensorMeta) -> np.ndarray:
    """Where the elements lie, counted from the first one."""
    found = np.zeros((1,), np.int64)
    for size, stride in zip(meta.shape, meta.stride, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).reshape(-1)
    return np.unique(found)


# ---------------------------------------------------------------------------------------- writes
def _write(cls: type[Any], mesh: Mesh, op: InplaceOp, args: tuple[Any, ...]) -> object:
    """Computes the result, and copies each rank's part of it into what the rank holds."""
    target = args[0]
    if not isinstance(target, cls):  # a dense tensor takes the whole
        results, (placement,) = _computed(cls, mesh, op.functional, args)
        target.copy_(redistributed(mesh, results[0], placement, Replicate())[0])
        return target
    if op.functional is FILL:
        _filled(mesh, op, target, args[1])
        return target
    if op is COPY_ and args[1] is target:
        return target  # which may overlap itself: nothing is written
    _check_places(op, args)
    results, (placement,) = _computed(cls, mesh, op.functional, args)
    held = target.placement
    wanted = Replicate() if isinstance(held, PlacedView) else held
    if placement != wanted:
        note_implicit(op.name, placement, wanted, target.meta)
    value = redistributed(mesh, results[0], placement, wanted)
    if isinstance(held, PlacedView):
        copy = lambda view, rank: view.copy_(value[rank])
        written_through(mesh, target.parts, held, copy, value)
    else:
        mesh.each(lambda rank: target.parts[rank].copy_(value[rank]), [target.parts, value])
    return target


def _filled(mesh: Mesh, op: InplaceOp, target: Tensor, value: object) -> None:
    """Of what it writes no element is read; places may be written twice."""
    held = target.placement
    if isinstance(held, PlacedView):
        fill = lambda view, rank: dispatch(op, (view, value))
        written_through(mesh, target.parts, held, fill, target.parts)
        return

    def on(rank: int) -> object:
        of_sum = isinstance(held, Partial)
        nothing = neutral(target.dtype, held.reduce_op, rank) if of_sum else None
        return dispatch(op, (target.parts[rank], value if nothing is None else nothing))

    mesh.each(on, [target.parts])


def _check_places(op: InplaceOp, args: tuple[Any, ...]) -> None:
    """TEN-7, in the geometry of the whole: no two elements of what is written lie at one place, nor
    others that are read."""
    target, meta = args[0], args[0].meta
    for other in op.operands(args):
        if other is not target and other.storage is target.storage:
            check_operand(op.name, target, other, args)
    if has_internal_overlap(meta.shape, meta.stride):
        raise noted(
            AliasError(
                f"{op.name}: the destination {meta} overlaps itself, expected one memory place "
                "for each element"
            ),
            "Write to a clone(). (TEN-7)",
        )
