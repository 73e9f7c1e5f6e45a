"""`Graph` and `Node`: the program that every stage reads and every pass rebuilds.

Ground floor. Import them from here: this module also gives `Graph` the methods that need the other
modules of the package (`ir/graph/methods.py`). Spec: `specs/graph.md`.
"""

# All ops first: two threads that import this module at once would deadlock otherwise.
import aotlite.ir.ops  # noqa: F401
from aotlite.ir.graph.graph import (
    Constant,
    Copy,
    Graph,
    Node,
    Phase,
    Result,
    map_nodes,
    name_from,
    output_node,
)
from aotlite.ir.graph.methods import install_methods
from aotlite.ir.graph.node_text import node_names

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
