"""Stage 2, analyze: which inputs are mutated, what the results alias, what requires grad.

Input: `Captured`. Output: the frozen `FunctionMeta` (AOTAutograd's ViewAndMutationMeta). Reads
the imperative graph, and the autograd state of the fakes; changes nothing. In order:

    inputs.py         one `InputMeta` for each input: data and geometry writes, history
    unsupported.py    refusals
    outputs.py        one `OutputMeta` for each result: new memory, or an alias and of what
    here              the tangents: results at which a gradient may arrive

`mutation_order.py`, `metadata_mutations.py` and `storage_resize.py` handle `set_`, `resize_`,
`detach_` and `requires_grad_`. Rules: META-2..META-16, GEN-5. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.ir.graph.role import IntermediateBase, MutatedInput
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    BaseMeta,
    FamilyMeta,
    InputMeta,
    OutputMeta,
    Plain,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s2_analyze.inputs import InputAnalysis
from aotlite.stages.s2_analyze.metadata_mutations import with_changes
from aotlite.stages.s2_analyze.mutation_order import MutationOrder, count_plan
from aotlite.stages.s2_analyze.outputs import OutputAnalysis
from aotlite.stages.s2_analyze.storage_resize import check_growths
from aotlite.stages.s2_analyze.unsupported import (
    refuse_late,
    refuse_overlap_with_history,
    refuse_reach_with_history,
)
from aotlite.stages.shared.memory.sized_views import family_reason
from aotlite.stages.shared.memory.view_analysis import ViewAnalysis
from aotlite.stages.shared.tape_queries import is_written


def analyze(captured: Captured) -> FunctionMeta:
    """The metadata of a captured function.
    Raises AliasError or UnsupportedError, before anything ran, for mutations and aliases that a
    compiled call could not reproduce (`unsupported.py`)."""
    seen = ViewAnalysis(captured.graph)
    inputs = InputAnalysis(captured, seen)
    metas = tuple(inputs.metas())
    refuse_late(captured, metas)
    refuse_reach_with_history(captured, metas)
    families = tuple(_families(captured, metas))
    refuse_overlap_with_history(metas, families)
    changes = captured.recorder.changes
    check_growths(changes.growths, captured.graph.nodes, captured.results, tuple(changes.puts))
    timeline = MutationOrder(captured.recorder.changes, captured.graph.nodes)
    results = OutputAnalysis(captured, seen, timeline)
    outputs = results.all()
    metas = tuple(with_changes(inputs, metas, results, outputs))
    bases = tuple(results.bases)
    tangents = tuple(_tangents(metas, families, captured, outputs, bases))
    any_input = any(each.requires_grad or each.requires_grad_at_exit for each in metas)
    after = captured.grad_mode_after
    return FunctionMeta(
        inputs=metas,
        outputs=outputs,
        bases=bases,
        tangents=tangents,
        training=bool(tangents) and any_input and any(s.entries for s in captured.sources),
        grad_mode_after=after if after != captured.grad_mode_before else None,
        families=families,
        count_plan=count_plan(captured, outputs, metas),
        parts=captured.parts,
        computed_sizes=captured.computed_sizes,
    )


def _tangents(
    inputs: tuple[InputMeta, ...],
    families: tuple[FamilyMeta, ...],
    captured: Captured,
    outputs: tuple[OutputMeta, ...],
    bases: tuple[BaseMeta, ...],
) -> Iterator[ResultRole]:
    """The differentiable results, in order: updated inputs, plain outputs, bases (META-16).
    Each gets a tangent in the joint graph. A family takes the place of its first member (SYN-7)."""
    first = {f.members[0]: f.role for f in families if f.changes_history}
    for each in inputs:
        if each.changes_history:
            yield MutatedInput(each.role)
        if each.role in first:
            yield MutatedInput(first[each.role])
    for index, output in enumerate(outputs):
        if isinstance(output, Plain):
            if output.requires_grad and not output.is_leaf:
                yield captured.role_of(index)
        elif isinstance(output, Alias) and output.view.own_history:
            yield captured.role_of(index)
    for index, base in enumerate(bases):
        if base.requires_grad:
            yield IntermediateBase(index)


def _families(captured: Captured, metas: tuple[InputMeta, ...]) -> Iterator[FamilyMeta]:
    """The view families of inputs, each with the member through which it is written.
    A leaf that requires grad cannot be that member: writes to it have no history."""
    written = [m.role for m in metas if m.writes_data and not (m.is_leaf and m.requires_grad)]
    for family in captured.families:
        root, members = family.root, tuple(family.members)
        changes = is_written(root.node, family.entry)
        through = next((role for role in members if role in written), members[0])
        given = [each for each in captured.inputs if each.role in members]
        why = family_reason(captured, given, changes=changes)
        yield FamilyMeta(family.role, root.meta, members, changes, through, why)
