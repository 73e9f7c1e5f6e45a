"""`ViewRoot`: the hidden history of a base and its views; and how views were made.

Tensors know their root, so this stands below them. Rules: TEN-3, TEN-15..TEN-21.
Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import enum
from typing import Any

from aotlite.eager.base.tape.node import Edge, TapeNode


class CreationKind(enum.Enum):
    """How a view was made, where that restricts writing it (TEN-19)."""

    MULTI_OUTPUT = "an output of an op that returns several views"
    CUSTOM = "a view made in a custom function, or an input that it returned"
    NO_GRAD = "a view made under no_grad or in inference_mode"
    LEAF_VIEW = "a view of a leaf that requires grad"
    """Only of captured inputs: their base is not part of the capture."""


RESTRICTED = (CreationKind.NO_GRAD, CreationKind.MULTI_OUTPUT, CreationKind.CUSTOM)
"""Kinds of views whose history may not be asked for after a write (TEN-19, TEN-20)."""


class ViewRoot:
    """The history and first geometry of a base."""

    __slots__ = ("index", "leaf", "left", "meta", "node", "offset")

    def __init__(self, base: Any) -> None:
        self.meta = base.meta
        self.offset = base.offset
        self.leaf = False
        self.left = False
        """The base had a history, which its views may have, and has it no longer."""
        self.node: Any = base._node
        self.index = base._index

    def become_leaf(self, node: TapeNode) -> None:
        """The base requires grad from now on, and `node` collects in the root's geometry."""
        self.leaf = True
        self.node, self.index = node, 0

    def forget(self) -> None:
        """The base requires grad no longer."""
        self.left = self.left or self.node is not None
        self.leaf = False
        self.node, self.index = None, 0

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    def edge(self) -> Edge | None:
        return None if self.node is None else (self.node, self.index)


def twin_root(root: ViewRoot, node: TapeNode | None) -> ViewRoot:
    """A root of the same form whose history is `node`: for fakes of the family's tensors."""
    twin = object.__new__(ViewRoot)
    twin.meta, twin.offset = root.meta, root.offset
    twin.leaf, twin.left = root.leaf, root.left
    twin.node, twin.index = node, 0
    return twin
