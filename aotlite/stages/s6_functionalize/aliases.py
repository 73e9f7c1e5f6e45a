"""`Group` and `Alias`, the state of functionalization; `Storages`, which storages are written.

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

import attrs

from aotlite.eager.base.tape.view_chain import ViewChain
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, InplaceOp, MultiViewOp, PureOp, RandomOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import ALIAS, AS_STRIDED, DETACH, HIDDEN_ALIAS

SAME = (ALIAS, DETACH, HIDDEN_ALIAS)
"""Views whose values are those of the operand."""
WINDOWS = (AS_STRIDED, OPS["as_strided_"])


@attrs.define(eq=False, repr=False)
class Group:
    """The values of one storage: the root's newest value and the writes not yet folded into it.
    Storages that nothing writes, and no as_strided reads, have none (`Storages.needs_alias`)."""

    meta: TensorMeta
    """The root's geometry in eager."""
    value: Node
    version: int = 0
    pending: list[tuple[ViewChain, Node, Node]] = attrs.field(factory=list)
    """(chain, value, writing node) of each."""
    last: tuple[ViewChain, Node] | None = None
    """The chain of the newest write, and the value that was written."""


@attrs.define(eq=False, repr=False)
class Alias:
    """A tensor object on a storage: its view chain from the root, and its last known value.
    `value` is the node at version `seen`; it is stale if the group's version is higher."""

    group: Group
    chain: ViewChain
    start: int
    meta: TensorMeta
    value: Node | None = None
    seen: int = -1


@attrs.define(eq=False, repr=False)
class Storages:
    """The storages of a graph that are written, or read by as_strided; each by its first node."""

    graph: Graph
    root: dict[Node, Node] = attrs.field(factory=dict)
    """The node that made the storage of a view or of an in-place result."""
    written: set[Node] = attrs.field(factory=set)
    windowed: set[Node] = attrs.field(factory=set)
    """Storages that as_strided reads."""
    draws: bool = False

    def __attrs_post_init__(self) -> None:
        for node in self.graph.nodes:
            if node.op == "call" and type(node.target) is not PureOp:
                self._note(node, node.target)

    def _note(self, node: Node, op: object) -> None:
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
        """Whether a value needs an `Alias`: its storage is written, or read by as_strided."""
        root = self.root.get(node, node)
        return root in self.written or root in self.windowed
