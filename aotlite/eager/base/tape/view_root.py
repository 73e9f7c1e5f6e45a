"""`ViewRoot`: the common history of a base and its views; `CreationKind`: how a view was made.

`differentiable_views` explains the scheme. Rules: TEN-3, TEN-15..TEN-21. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import enum
from typing import Any

from aotlite.eager.base.tape.node import Edge, TapeNode


class CreationKind(enum.Enum):
    """How a view was made, if that restricts in-place writes to it (TEN-19)."""

    MULTI_OUTPUT = "an output of an op that returns several views"
    CUSTOM = "a view made in a custom function, or an input that it returned"
    NO_GRAD = "a view made under no_grad or in inference_mode"
    LEAF_VIEW = "a view of a leaf that requires grad"
    """Used for captured inputs only, whose base is not part of the capture."""


RESTRICTED = (CreationKind.NO_GRAD, CreationKind.MULTI_OUTPUT, CreationKind.CUSTOM)
"""Kinds of views whose history must not be read after a write (TEN-19, TEN-20)."""


class ViewRoot:
    """The tape edge of a base, and the geometry that it had at its first view."""

    __slots__ = ("index", "leaf", "left", "meta", "node", "offset")

    def __init__(self, base: Any) -> None:
        self.meta = base.meta
        self.offset = base.offset
        self.leaf = False
        self.left = False
        """Whether the base lost a history that its views may still have."""
        self.node: Any = base._node
        self.index = base._index

    def become_leaf(self, node: TapeNode) -> None:
        """The base begins to require grad; `node` accumulates gradients in the root's geometry."""
        self.leaf = True
        self.node, self.index = node, 0

    def forget(self) -> None:
        """The base ceases to require grad."""
        self.left = self.left or self.node is not None
        self.leaf = False
        self.node, self.index = None, 0

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    def edge(self) -> Edge | None:
        return None if self.node is None else (self.node, self.index)


def twin_root(root: ViewRoot, node: TapeNode | None) -> ViewRoot:
    """A root with the same geometry whose history is `node`: for fakes of the family's tensors."""
    twin = object.__new__(ViewRoot)
    twin.meta, twin.offset = root.meta, root.offset
    twin.leaf, twin.left = root.leaf, root.left
    twin.node, twin.index = node, 0
    return twin
