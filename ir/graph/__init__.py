"""`Graph` and `Node`: the program that every stage reads and every pass rebuilds.

Ground floor. Import them from here: this module also gives `Graph` the methods that need the other
modules of the package (`ir/graph/methods.py`). Spec: `specs/graph.md`.

    graph         Graph, Node: the classes themselves
    role          why each input and output exists
    builder       Builder: emits nodes; Proxy: a value with operand methods
    edit          GraphEdit: FX's editing methods, on a copy
    verify        the invariants, checked by recomputing
    compare       whether two graphs are the same program
    node_text     one node as text; text/: whole graphs as text, and back
    files/        graphs as JSON files
    storage_roots which node made the memory of a value
    effect_chains the tokens of effects, in order
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
