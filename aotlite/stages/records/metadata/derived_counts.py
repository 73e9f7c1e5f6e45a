"""Numbers and orders that are derived from a `FunctionMeta`, which does not store them (META-19).

Stages use roles; these numbers are for printing, exports and checks. Spec: `specs/rules/meta.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from aotlite.ir.graph.role import IntermediateBase, MutatedInput, Result
from aotlite.stages.records.base import Record
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    Fixed,
    FunctionFacts,
    IsInput,
    Plain,
    Repeated,
)


@attrs.frozen(repr=False)
class DerivedCounts(Record):
    """The positions of inputs and results of each class (META-19)."""

    out_graph: tuple[int, ...]
    """Inputs that the runtime writes after the graph: bytes, geometry or both."""
    in_graph: tuple[int, ...]
    """The inputs that the graph writes itself."""
    in_graph_counted: tuple[int, ...]
    """Those of them whose version counters a call raises."""
    plain: tuple[int, ...]
    """The results that the forward returns."""
    aliases: tuple[int, ...]
    """The results that are rebuilt as views."""
    inputs_again: tuple[int, ...]
    """The results that are an input object."""
    repeated: tuple[int, ...]
    fixed: tuple[int, ...]
    outputs: int
    bases: int
    tangents: int
    forward_returns: tuple[Result, ...]
    """The roles of the results of the forward before the saved values, in order (META-20)."""


def counts_of(meta: FunctionFacts) -> DerivedCounts:
    """The derived numbers of a function's metadata."""

    def places(kind: Any) -> tuple[int, ...]:
        return tuple([i for i, output in enumerate(meta.outputs) if isinstance(output, kind)])

    inside = [i for i, each in enumerate(meta.inputs) if each.in_graph]
    outside = [i for i, each in enumerate(meta.inputs) if each.writes and not each.in_graph]
    return DerivedCounts(
        out_graph=tuple(outside),
        in_graph=tuple(inside),
        in_graph_counted=tuple([i for i in inside if meta.inputs[i].version_bumps]),
        plain=places(Plain),
        aliases=places(Alias),
        inputs_again=places(IsInput),
        repeated=places(Repeated),
        fixed=places(Fixed),
        outputs=len(meta.outputs),
        bases=len(meta.bases),
        tangents=len(meta.tangents) if meta.training else 0,
        forward_returns=tuple(_forward_returns(meta)),
    )


def _forward_returns(meta: FunctionFacts) -> Iterable[Result]:
    """META-20: new values of inputs, results with memory of their own, bases."""
    yield from [MutatedInput(i.role) for i in meta.inputs if i.writes_data and not i.in_graph]
    plain = [i for i, output in enumerate(meta.outputs) if isinstance(output, Plain)]
    yield from [meta.role_of(i) for i in plain]
    yield from [IntermediateBase(i) for i in range(len(meta.bases))]
