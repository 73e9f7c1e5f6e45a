"""Which placements an op's operands are brought to, and which its results then have.

What is possible follows from the op's declaration (`ir/op/dims.py`): operands may be cut along one
label, or be parts of a sum in which the op is linear, or be whole on every rank. Of what is
possible that is taken which moves least. Rules: SHD-7 to SHD-10. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.sharding.parts import Cut, cuts_of, linear_groups
from aotlite.sharding.placements import Partial, Placed, Placement, Replicate, Shard, is_formed
from aotlite.sharding.redistribution import bytes_moved


@attrs.frozen
class Plan:
    """What operands are brought to, in the order of `Op.operands`, and what results are."""

    operands: tuple[Placed, ...]
    result: tuple[Placed, ...]
    cut: Cut | None = None


def choose(op: Op, args: tuple[object, ...], placements: Sequence[Placement], ranks: int) -> Plan:
    """The plan that moves least; of equal ones that which changes the fewest operands."""
    metas = [operand.meta for operand in op.operands(args)]
    results = _results(op, args)

    def cost(plan: Plan) -> tuple[float, int]:
        pairs = list(zip(metas, placements, plan.operands, strict=True))
        moved = sum(bytes_moved(meta, old, new, ranks) for meta, old, new in pairs)
        return moved, sum(old != new for _, old, new in pairs)

    return min(_plans(op, args, placements, results, ranks), key=cost)


def replicated(op: Op, args: tuple[object, ...], results: int) -> Plan:
    """The plan that every op has: whole operands on each rank."""
    whole = Replicate()
    return Plan((whole,) * len(op.operands(args)), (whole,) * results)


def _plans(
    op: Op,
    args: tuple[object, ...],
    placements: Sequence[Placement],
    results: Sequence[TensorMeta],
    ranks: int,
) -> Iterator[Plan]:
    yield replicated(op, args, len(results))
    if all(placement == Replicate() for placement in placements):
        return
    for cut in cuts_of(op, args, ranks) if any(type(p) is Shard for p in placements) else ():
        pairs = zip(placements, cut.operands, strict=True)
        is_held = any(dim is not None and p == Shard(dim) for p, dim in pairs)
        if is_held and _is_formed(cut.joins, results):
            yield _cut_plan(cut)
    for group in linear_groups(op, args):
        held = {p for p, inside in zip(placements, group, strict=True) if inside}
        if len(held) == 1 and (part := held.pop()) in (Partial("sum"), Partial("avg")):
            operands = tuple([part if inside else Replicate() for inside in group])
            yield Plan(operands, (part,) * len(results))


def _cut_plan(cut: Cut) -> Plan:
    operands: list[Placed] = []
    for dim, added in zip(cut.operands, cut.added, strict=True):
        whole = Partial() if added else Replicate()
        operands.append(whole if dim is None else Shard(dim))
    joined = Replicate() if cut.joins is None else Partial(cut.joins)
    found = tuple([joined if dim is None else Shard(dim) for dim in cut.results])
    return Plan(tuple(operands), found, cut)


def _is_formed(joins: str | None, results: Sequence[TensorMeta]) -> bool:
    """Whether there is such a reduction over ranks for the results' dtypes."""
    return joins is None or all(is_formed(joins, meta.dtype) for meta in results)


def _results(op: Op, args: tuple[object, ...]) -> tuple[TensorMeta, ...]:
    found: Any = op.infer(args)
    return found if type(found) is tuple else (found,)
