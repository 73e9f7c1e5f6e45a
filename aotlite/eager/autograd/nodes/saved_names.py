"""The attributes of tape nodes for saved values: `_saved_self`, `_raw_saved_result`.

Rules: TEN-42. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.tape.node import TapeNode
from aotlite.ir.op import Op


class _SavedValue:
    """`_saved_<name>`: the saved value of a parameter of the op, or of its result."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, node: Any, owner: type[TapeNode]) -> object:
        if node is None:
            return self
        kept = node.kept_by_name(self.name)
        if type(kept) is list:
            return tuple([each.unpack(node) for each in kept])
        return kept.unpack(node) if type(kept) is SavedTensor else kept


class _SavedRecord(_SavedValue):
    """`_raw_saved_<name>`: its `SavedTensor`, on which hooks can be registered."""

    def __get__(self, node: Any, owner: type[TapeNode]) -> object:
        return self if node is None else node.kept_by_name(self.name)


def name_saved(nodes: type[TapeNode], op: Op) -> None:
    """Gives a class of nodes the attributes for the saved values of an op.

    A `__getattr__` instead would make every attribute lookup of a node slow.
    """
    for name in ("result", *[parameter.name for parameter in op.schema.parameters]):
        if not hasattr(nodes, f"_saved_{name}"):
            setattr(nodes, f"_saved_{name}", _SavedValue(name))
            setattr(nodes, f"_raw_saved_{name}", _SavedRecord(name))
