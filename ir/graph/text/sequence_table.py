"""The table of sequence numbers: the user's op that each node of a graph belongs to (SEQ-2).

Ground floor. Input: a graph of any stage. Output: text. Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.provenance.call_names import source_name

HEADER = "SeqNr|OrigAten|SrcFn"


def sequence_table(graph: Graph) -> str:
    """One line a call: its sequence number, its op, and in the forward the user's call or Module.

    >>> import aotlite as al
    >>> from aotlite.inspect import stages_of
    >>> graph = stages_of(lambda w: w.exp().sum(), al.ones(2, requires_grad=True))["simplify"]
    >>> print(sequence_table(graph))
    SeqNr|OrigAten|SrcFn
    0|exp|exp
    1|sum|sum
    1|view|
    1|expand|
    0|mul|
    """
    return "\n".join([HEADER, *map(_row, graph.calls)])


def _row(node: Node) -> str:
    number = "" if node.sequence < 0 else node.sequence
    return f"{number}|{node.target.name}|{user_name(node)}"


def user_name(node: Node) -> str:
    """The path of the Module in which a forward op ran, else the function that the user's line
    calls; empty for a node of the backward."""
    if node.is_backward:
        return ""
    return node.module or ("" if node.location is None else source_name(node.location))
