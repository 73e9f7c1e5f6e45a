"""`FreezeReport`: what a frozen function has folded, what it has not, and why.

Rules: FRZ-1, FRZ-3. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.freezing.fold_graph import Fold, computes
from aotlite.freezing.frozen_tensors import FrozenTensors
from aotlite.ir.graph import Graph
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

    def __str__(self) -> str:
        return f"{self.op} {self.meta} of {', '.join(self.depends_on) or 'constants'}"


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
        lines = [f"folded: {each}" for each in self.folded]
        lines += [f"not folded: {place}: {reason}" for place, reason in self.not_folded.items()]
        lines += [f"runs at each call: {op}: {reason}" for op, reason in self.refused]
        lines += [f"discarded: {place}" for place in self.discarded]
        return "\n".join(lines)


def report_of(frozen: FrozenTensors) -> FreezeReport:
    """The report on the frozen tensors of a function."""
    values = [value for fold in frozen.folds for value in _values(fold.fold, frozen)]
    folded = dict.fromkeys(values)  # graphs of several entries fold the same
    refused = {
        (node.target.name, reason): None
        for fold in frozen.folds
        for node, reason in fold.fold.refused
    }
    return FreezeReport(
        folded=tuple(folded),
        not_folded=_not_folded(values, frozen),
        refused=tuple(refused),
        ops_run=frozen.counts.run,
        values_shared=frozen.counts.shared,
        digests_made=frozen.contents.digests_made,
        discarded=tuple([frozen.places[number] for number in frozen.discarded]),
    )


def fold_facts(graph: Graph, fold: Fold | None, frozen: FrozenTensors) -> dict[str, object]:
    """The facts of the log event `fold`: what of a graph is folded, what is not, and why."""
    values = [] if fold is None else _values(fold, frozen)
    return {
        "graph": graph.name,
        "ops": 0 if fold is None else len([*filter(computes, fold.graph.calls)]),
        "bytes": sum([each.bytes for each in values]),
        "folded": [str(each) for each in values],
        "not_folded": _not_folded(values, frozen),
        "refused": [f"{node.target.name}: {why}" for node, why in (fold.refused if fold else ())],
    }


def _not_folded(values: Sequence[FoldedReport], frozen: FrozenTensors) -> dict[str, str]:
    """Why frozen tensors are in none of these values, by place."""
    used = {place for each in values for place in each.depends_on}
    reasons = {frozen.places[n]: reason for n, reason in frozen.reasons.items()}
    for number in frozen.numbers:
        if frozen.places[number] not in used:
            reasons.setdefault(frozen.places[number], "no op reads it and frozen tensors alone")
    return reasons


def _values(fold: Fold, frozen: FrozenTensors) -> list[FoldedReport]:
    roles: dict[Any, set[Any]] = {}
    for node in fold.graph.nodes[:-1]:
        own = {node.role} if node.op == "placeholder" else set()
        roles[node] = own.union(*[roles[each] for each in node.inputs()])
    return [
        FoldedReport(
            node.target.name,
            str(node.meta),
            tuple([frozen.places[role.index] for role in sorted(roles[node], key=_number)]),
            node.meta.span * node.meta.dtype.itemsize,
        )
        for node in fold.graph.outputs
    ]


def _number(role: Primal) -> int:
    return role.index
