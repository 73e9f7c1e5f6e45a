"""`FreezeReport`: what a frozen function has folded, what it has not, and why.

Rules: FRZ-1, FRZ-3. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from aotlite.freezing.frozen_tensors import FrozenTensors, KeptFold
from aotlite.ir.graph.role import Primal


@attrs.frozen
class FoldedReport:
    """One folded value."""

    op: str
    """The op that makes it."""
    meta: str
    depends_on: tuple[str, ...]
    """The places of the frozen tensors that it is made of."""
    bytes: int


@attrs.frozen
class FreezeReport:
    """What a frozen function has folded, what it has not, and why. `print` shows it."""

    folded: tuple[FoldedReport, ...]
    not_folded: Mapping[str, str]
    """Why a frozen tensor is in no folded value, by place."""
    refused: tuple[tuple[str, str], ...]
    """The ops on frozen values alone that run at each call, with the reason."""
    ops_run: int
    """Ops on frozen tensors alone that all calls have run."""
    values_shared: int
    """Values that another entry or function had made."""
    digests_made: int
    """How often the bytes of a frozen tensor were read."""
    discarded: tuple[str, ...]

    def __str__(self) -> str:
        lines = []
        for each in self.folded:
            of = ", ".join(each.depends_on) or "constants"
            lines.append(f"folded: {each.op} {each.meta} of {of}")
        lines += [f"not folded: {place}: {reason}" for place, reason in self.not_folded.items()]
        lines += [f"runs at each call: {op}: {reason}" for op, reason in self.refused]
        lines += [f"discarded: {place}" for place in self.discarded]
        return "\n".join(lines)


def report_of(frozen: FrozenTensors) -> FreezeReport:
    """The report on the frozen tensors of a function."""
    values = [value for fold in frozen.folds for value in _values(fold, frozen)]
    folded = dict.fromkeys(values)  # graphs of several entries fold the same
    used = {place for each in folded for place in each.depends_on}
    reasons = {frozen.places[n]: reason for n, reason in frozen.reasons.items()}
    for number in frozen.numbers:
        if frozen.places[number] not in used:
            reasons.setdefault(frozen.places[number], "no op reads it and frozen tensors alone")
    refused = {
        (node.target.name, reason): None
        for fold in frozen.folds
        for node, reason in fold.fold.refused
    }
    return FreezeReport(
        folded=tuple(folded),
        not_folded=reasons,
        refused=tuple(refused),
        ops_run=frozen.counts.run,
        values_shared=frozen.counts.shared,
        digests_made=frozen.contents.digests_made,
        discarded=tuple([frozen.places[number] for number in frozen.discarded]),
    )


def _values(fold: KeptFold, frozen: FrozenTensors) -> list[FoldedReport]:
    roles: dict[Any, set[Any]] = {}
    for node in fold.fold.graph.nodes[:-1]:
        own = {node.role} if node.op == "placeholder" else set()
        roles[node] = own.union(*[roles[each] for each in node.inputs()])
    return [
        FoldedReport(
            node.target.name,
            str(node.meta),
            tuple([frozen.places[role.index] for role in sorted(roles[node], key=_number)]),
            node.meta.span * node.meta.dtype.itemsize,
        )
        for node in fold.fold.graph.outputs
    ]


def _number(role: Primal) -> int:
    return role.index
