"""Stage 8, partition: cuts a pure joint graph into a forward, a backward, and the saved values.

    joint      (primals, tangents)     -> (results, gradients)
    forward    (primals)               -> (results, saved)
    backward   (saved, tangents)       -> (gradients)

Input: the simplified joint graph. Output: `Partition`. A partitioner chooses the saved values;
`cut` (`graph_cut.py`) makes the two graphs. A user's partitioner ends with `cut` too. The default
partitioner, here, saves every forward value that the backward uses (PART-10); `min_cut.py` saves
the fewest bytes and recomputes the rest.
Rules: PART-1..PART-10, PART-26, PART-31, PART-36, PART-37, SAV-1. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.s8_partition.graph_cut import cut, needed_values
from aotlite.stages.s8_partition.indexed_graph import numbered


def default_partition(graph: Graph) -> Partition:
    """The partition whose forward has all forward nodes, and saves those that the backward uses."""
    indexed = numbered(graph)
    forward = _of_forward(graph)
    needed = needed_values(indexed, forward)
    pairs = zip(graph.nodes, forward, needed, strict=True)
    return cut(
        graph,
        {
            node: "the backward uses it"
            for node, was_forward, is_needed in pairs
            if was_forward and is_needed and node.op != "get_attr" and type(node.meta) is not tuple
        },
        indexed=indexed,
    )


def _of_forward(graph: Graph) -> list[bool]:
    """For each node whether the forward runs it: nodes of phase FORWARD, and `getitem`s of them.
    A backward call with several results may have been merged with an equal one of the forward,
    which used other results of it (PART-11)."""
    found: dict[Node, bool] = {}
    for node in graph.nodes:
        is_single = node.op == "call" and node.target is GETITEM
        found[node] = node.phase is Phase.FORWARD or (is_single and found[node.args[0]])
    return list(found.values())
