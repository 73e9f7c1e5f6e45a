"""What an entry's guards are made from: the caller's tensors, and what the capture read of them.

Used by the pipeline. Rules: GRD-1 to GRD-4. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir.graph import Graph
from aotlite.ir.role import Gradient, Hidden, Part, Primal
from aotlite.stages.records.function_meta import Captured, FunctionMeta
from aotlite.stages.records.partition import Partition
from aotlite.stages.s10_runtime.guards.writer import World, refuse_foreign_overlap


def world_of(
    leaves: Sequence[Any],
    captured: Captured,
    meta: FunctionMeta,
    calling: Any,
    partition: Partition,
) -> World:
    """What the guards are made from. Raises AliasError for inputs that share foreign memory."""
    recorder = captured.recorder
    reals = {given.role: recorder.real_of(given.fake) for given in captured.inputs}
    refuse_foreign_overlap(reals, meta)
    return World(
        leaves=tuple(leaves),
        arguments={role: real for role, real in reals.items() if isinstance(role, Primal)},
        parts={role: real for role, real in reals.items() if isinstance(role, Part)},
        wrappers={role: each for role, each in meta.wrappers.items() if role in reals},
        hidden=tuple(real for role, real in reals.items() if isinstance(role, Hidden)),
        guards=tuple(recorder.guards),
        fixed_offsets=frozenset(recorder.offset_read),
        fixed_sizes=dict(recorder.changes.sizes),
        fixed_views={role: reals[role]._base is not None for role in recorder.changes.viewed},
        written=frozenset(
            each.role
            for each in meta.inputs
            if each.writes or each.version_bumps or each.written_late
        ),
        needed={
            each.role: (reals[each.role].offset + each.extent[1]) * each.meta.dtype.itemsize
            for each in meta.inputs
            if each.extent is not None
        },
        kin=_kin(meta, calling, partition.backward),
        hooks=tuple([function for _, function in captured.hooks]),
    )


def _kin(meta: FunctionMeta, calling: Any, backward: Graph | None) -> tuple[Any, ...]:
    """Inputs of which gradients depend on how they are views of one base."""
    if backward is None:
        return ()
    merged = [member.role for base in calling.bases for member in base.members]
    reached = {role.of for role, value in backward.outputs_with(Gradient) if value is not None}
    for family in meta.families:
        if family.changes_history or family.role in reached:
            merged += family.members
    return tuple(dict.fromkeys(merged))
