"""Relations about the compiled function, and the number of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from aotlite.ir.graph import Graph, Phase
from aotlite.partition import Partition, cut
from aotlite.testing.relations.relation import Relation, Same, Traced, Variant


# ------------------------------------------------------------------------------------- the halves
def _split(traced: Traced) -> Iterator[Variant]:
    for count in range(1, len(traced.program.body)):
        yield Variant(traced.program, cut=count)


SPLIT = Relation(
    "split in two",
    "The first steps are one function, the rest another, whose arguments are those of the first and"
    " its results. All is equal: values between the two keep memory, history and version. But the"
    " base of such a value is hidden if the first function returns nothing else on its memory"
    " (META-10).",
    ("GEN-1", "META-7", "META-9", "META-10", "RT-1"),
    _split,
    Same(of_made=("base", "offset")),
)


# --------------------------------------------------------------------------------- the partitions
def save_all(graph: Graph) -> Partition:
    """The partition that saves every value of the forward that the backward could use."""
    return cut(graph, [node for node in graph.nodes if _is_value(node)])


def recompute_all(graph: Graph) -> Partition:
    """The partition that saves inputs alone, so that the backward recomputes the forward."""
    return cut(graph, [node for node in graph.nodes if _is_value(node) and node.op != "call"])


def _is_value(node: Any) -> bool:
    return (
        node.phase is Phase.FORWARD
        and node.op in ("placeholder", "call")
        and type(node.meta) is not tuple
    )


def _partitioned(traced: Traced) -> Iterator[Variant]:
    if any(any(fact.is_tracked for fact in seen.facts) for seen in traced.traces):
        yield Variant(
            traced.program,
            options={"partition": recompute_all},
            first_options={"partition": save_all},
        )


PARTITIONED = Relation(
    "save all or recompute all",
    "The function is compiled with a partition that saves every value of the forward, and with one"
    " that saves inputs alone. All is equal.",
    ("PART-1", "PART-10", "PART-37", "SAV-1"),
    _partitioned,
    needs_compiler=True,
)


# -------------------------------------------------------------------------------------- the calls
def _twice(traced: Traced) -> Iterator[Variant]:
    calls = traced.program.calls
    again = tuple(range(len(calls), 2 * len(calls)))
    yield Variant(attrs.evolve(traced.program, calls=calls * 2), calls=again)


TWICE = Relation(
    "call twice",
    "All calls run twice on one function, with new arguments. The second observations are equal to"
    " the first.",
    ("GEN-13", "GRD-1"),
    _twice,
)


def _reversed(traced: Traced) -> Iterator[Variant]:
    calls = traced.program.calls
    if len(calls) > 1:
        order = tuple(reversed(range(len(calls))))
        yield Variant(attrs.evolve(traced.program, calls=calls[::-1]), calls=order)


REVERSED = Relation(
    "calls in another order",
    "The calls run in the opposite order on one function. Each observation is equal.",
    ("GEN-13", "GRD-1"),
    _reversed,
)
