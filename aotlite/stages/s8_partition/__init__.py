"""Stage 8, partition: cuts a pure joint graph into a forward and a backward.

Input: the simplified joint graph. Output: `Partition`. A partitioner chooses the values that the
forward saves; `cut` of `s8_partition/graph_cut.py` makes the two graphs of its choice, and a
partitioner of one's own ends with it. The default partitioner stands here: it runs forward what was
recorded in the forward, and saves every forward value that the backward uses (PART-10). The
partitioner that saves least is `s8_partition/min_cut.py`.
Rules: PART-1..PART-10, PART-26, PART-31, PART-36, PART-37, SAV-1. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.s8_partition.graph_cut import cut, needed_values
from aotlite.stages.s8_partition.indexed_graph import numbered


def default_partition(graph: Graph) -> Partition:
    """Forward: all that was recorded in the forward; saved: what the backward uses of it."""
    joint = numbered(graph)
    forward = _of_forward(graph)
    needed = needed_values(joint, forward)
    pairs = zip(graph.nodes, forward, needed, strict=True)
    return cut(
        graph,
        {
            node: "the backward uses it"
            for node, was_forward, is_needed in pairs
            if was_forward and is_needed and node.op != "get_attr" and type(node.meta) is not tuple
        },
        joint=joint,
    )


def _of_forward(graph: Graph) -> list[bool]:
    """Which nodes the forward runs: what was recorded in it, and single results of that.

    A call of the backward that equals one of the forward was merged with it; of its several results
    the forward may have asked for others (PART-11).
    """
    found: dict[Node, bool] = {}
    for node in graph.nodes:
        is_single = node.op == "call" and node.target is GETITEM
        found[node] = node.phase is Phase.FORWARD or (is_single and found[node.args[0]])
    return list(found.values())
