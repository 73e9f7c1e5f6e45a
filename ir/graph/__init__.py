"""Graphs: the program that every stage reads and every pass rebuilds.

Ground floor. The face of the room: `Graph` with its methods, `Node`, and what they are made of.
The modules of the room itself import `ir/graph/graph.py`, where all of these are defined; the
methods of FX that stand on those modules are put in here. Spec: `specs/graph.md`.
"""

import aotlite.ir.ops  # noqa: F401  (all ops first: threads that import at once would deadlock)
from aotlite.ir.graph.graph import (
    Constant,
    Copy,
    Graph,
    Node,
    Phase,
    Result,
    map_nodes,
    name_from,
    node_names,
    output_node,
)
from aotlite.ir.graph.methods import install_methods

__all__ = [
    "Constant",
    "Copy",
    "Graph",
    "Node",
    "Phase",
    "Result",
    "map_nodes",
    "name_from",
    "node_names",
    "output_node",
]

install_methods()
