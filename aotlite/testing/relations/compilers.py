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
    "The first steps are one function, the rest another, which is given the arguments and all"
    " values that the first one made. All is equal: what is handed over keeps its memory, its"
    " history and its count. But its base is hidden where the first function gives nothing else on"
    " that memory, and stays so (META-10).",
    ("GEN-1", "META-7", "META-9", "META-10", "RT-1"),
    _split,
    Same(of_made=("base", "offset")),
)


# --------------------------------------------------------------------------------- the partitions
def save_all(graph: Graph) -> Partition:
    """Every value of the forward is saved that the backward could use."""
    return cut(graph, [node for node in graph.nodes if _is_value(node)])


def recompute_all(graph: Graph) -> Partition:
    """Nothing is saved but what the forward is given: the backward computes the rest again."""
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
    "The function is compiled with the partition that saves every value of the forward, and with"
    " the one that saves none. All is equal.",
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
    "All calls are made once more on the same function, with arguments made anew. The second"
    " worlds are equal to the first.",
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
    "The calls are made in the opposite order on one function. Each world is equal.",
    ("GEN-13", "GRD-1"),
    _reversed,
)
