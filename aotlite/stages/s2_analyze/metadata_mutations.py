"""Inputs that `set_` moves to another storage, or whose autograd state changes.

Used by stage 2 alone, after the results: the other storage may be that of an intermediate base,
which then takes over the input's history. Rules: FUN-18, FUN-36. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.ir.graph import Node
from aotlite.stages.records.base import where_it_leads
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    InputMeta,
    MemoryStep,
    OutputMeta,
    ViewFacts,
)
from aotlite.stages.s2_analyze.inputs import InputAnalysis
from aotlite.stages.s2_analyze.mutation_order import refuse_grown
from aotlite.stages.s2_analyze.outputs import OutputAnalysis
from aotlite.stages.s2_analyze.unsupported import refuse_history, refuse_moved_leaf
from aotlite.stages.shared.memory.view_analysis import ViewOf, is_through_hidden_alias


def with_changes(
    inputs: InputAnalysis,
    metas: tuple[InputMeta, ...],
    results: OutputAnalysis,
    outputs: Sequence[OutputMeta],
) -> Iterator[InputMeta]:
    """The input records, with their changes of storage and autograd state (FUN-18, FUN-36)."""
    shown = {o.role for o in outputs if isinstance(o, AliasOfInput)}
    for given, meta in zip(inputs.captured.inputs, metas, strict=True):
        steps = results.timeline.steps(given, shown=given.role in shown)
        if steps:
            meta = attrs.evolve(
                meta,
                changes=tuple([_step(results, s) if isinstance(s, Node) else s for s in steps]),
            )
        last = next((step for step in reversed(steps) if isinstance(step, Node)), None)
        if meta.resizes_storage:  # its history, if any, belongs to the storage it grew into
            meta = attrs.evolve(meta, changes_history=False)
        yield (
            meta
            if last is None
            else _with_replaced_memory(given, meta, inputs.final(last), results, last)
        )


def _with_replaced_memory(
    given: CapturedInput, meta: InputMeta, final: ViewOf, results: OutputAnalysis, put: Node
) -> InputMeta:
    """The record of an input that `set_` moved, with its geometry on the new storage."""
    fake = given.fake
    has_history = fake.requires_grad_outside() and not (fake._leaf and fake._node is None)
    kept = not has_history or edge_of(fake) == given.entry
    handed = kept or _hand_over(results, given.role, meta, put)
    puts = [each for each in results.timeline.puts.values() if each.role == given.role]
    if not handed or any(each.is_left_behind() for each in puts):
        refuse_history(given)
    if given.requires_grad or fake.requires_grad_outside():
        for each in puts:
            moves = EMPTY_CHAIN if each.before is None else results.seen[each.before].moves
            if where_it_leads(moves) is not None:
                refuse_moved_leaf(given, moves[-1].op.name)
    moved = final.moves
    return attrs.evolve(meta, writes_metadata=True, final_start=0, geometry_steps=moved)


def _step(results: OutputAnalysis, value: Node) -> MemoryStep:
    """The change of storage after which the input has this value (FUN-18)."""
    return MemoryStep(_window(results, value), results.timeline.puts[value].grows)


def _hand_over(results: OutputAnalysis, role: InputRole, meta: InputMeta, put: Node) -> bool:
    """Marks the base that an input now spans as the holder of its history; whether it can be."""
    last = meta.changes[-1]
    window = last.window if isinstance(last, MemoryStep) else None
    whole = all(step.op.cuts_history for step in results.seen[put].chain)
    if not isinstance(window, AliasOfBase) or not whole:
        return False
    base = results.bases[window.base]
    if base.requires_grad or base.holder is not None:
        return False
    results.bases[window.base] = attrs.evolve(base, requires_grad=True, holder=role)
    return True


def _window(results: OutputAnalysis, value: Node) -> Alias:
    """The alias that an input is after `set_`: of another input, a base or a result."""
    sight = results.seen[value]
    if not results.timeline.puts[value].grows:
        refuse_grown(results.timeline, value)
    counted = results.timeline.puts[value].storage.version
    version = counted if is_through_hidden_alias(sight.chain) else None
    view = ViewFacts(chain=sight.chain, kind=None, requires_grad=False, version=version)
    if sight.root in results.inputs:
        return AliasOfInput(results.inputs[sight.root].role, view)
    return results.alias(sight, view)
