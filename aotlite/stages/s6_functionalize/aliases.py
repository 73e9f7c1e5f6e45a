"""Storages of a graph and the objects on them: what functionalization knows of written memory.

Used by the whole of stage 6. Rules: FUN-2, FUN-6. Spec: `specs/s6_functionalize.md`.

Note [Group and alias]
    y = x.view(6)[2:]; y.add_(1); z = x * 2
`x` and `y` are two aliases of one group. The write emits only `add(y)`, and leaves
(chain of `y`, value) pending in the group, whose version goes up. `x` has seen an older version: it
is stale. Only when `x * 2` reads it is the pending value scattered into the root's, and `x`
replayed from that. So two writes through `y` before that read cost one scatter, and a write that
no one reads costs none. An alias keeps the value of the version that it has seen.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, InplaceOp, MultiViewOp, PureOp, RandomOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import ALIAS, AS_STRIDED, DETACH, HIDDEN_ALIAS

SAME = (ALIAS, DETACH, HIDDEN_ALIAS)
"""Views that show all of their operand as it is."""
WINDOWS = (AS_STRIDED, OPS["as_strided_"])


@attrs.define(eq=False)
class Group:
    """The values of one storage: the root's newest value and the writes not yet folded into it."""

    meta: TensorMeta
    """Eager geometry of the root."""
    value: Node
    version: int = 0
    pending: list[tuple[ViewChain, Node, Node]] = attrs.field(factory=list)
    """(chain, value, writing node) of each."""
    last: tuple[ViewChain, Node] | None = None
    """The views through which the newest write went, and what they show."""


@attrs.define(eq=False)
class Alias:
    """An object on a storage: how it is seen from the root, and its value if it is up to date."""

    group: Group
    chain: ViewChain
    start: int
    meta: TensorMeta
    value: Node | None = None
    seen: int = -1


class Storages:
    """What a graph does to the storages of its values, each named by the node that made it."""

    def __init__(self, graph: Graph) -> None:
        self.root: dict[Node, Node] = {}
        """For values that share another's storage."""
        self.written: set[Node] = set()
        self.windowed: set[Node] = set()
        """Those of which as_strided shows a window."""
        self.draws = False
        for node in graph.nodes:
            if node.op == "call" and type(node.target) is not PureOp:
                self._note(node, node.target)

    def _note(self, node: Node, op: Any) -> None:
        if type(op) is RandomOp:
            self.draws = True
            return
        if type(op) is EffectOp or type(op) is TokenOp:
            return
        if op is GETITEM and not isinstance(node.args[0].target, MultiViewOp):
            return
        operand = node.args[0]
        root = self.root[node] = self.root.get(operand, operand)
        if type(op) is InplaceOp:
            self.written.add(root)
        if op in WINDOWS:
            self.windowed.add(root)

    def is_written(self, node: Node) -> bool:
        """Whether the storage of this value is written anywhere."""
        return self.root.get(node, node) in self.written

    def needs_alias(self, node: Node) -> bool:
        """Whether more must be known of this value than the node that stands for it."""
        root = self.root.get(node, node)
        return root in self.written or root in self.windowed
