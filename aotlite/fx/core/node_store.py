"""`NodeStore`: the nodes of an FX graph over a `LinkedEdit`: who owns them, where new ones go.

`aotlite.fx.Graph` adds FX's words to it. Mistakes of a pass are refused here, where they are made.
Rules: FXG-3, FXG-4. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aotlite.fx.core.calls import bound_call, shown_target
from aotlite.fx.core.linked_edit import LinkedEdit
from aotlite.fx.core.places import Root
from aotlite.fx.core.replaced import WithReplacedNames
from aotlite.fx.core.structure import Template, flattened, numbered, rebuilt
from aotlite.fx.core.words import Args, Argument, Kwargs, Named, Target, Value
from aotlite.fx.node import FxNode, refuse_argument
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph as IrGraph
from aotlite.ir.graph import Node as IrNode
from aotlite.ir.graph import map_nodes, output_node
from aotlite.ir.graph.node_text import RESERVED, identifier
from aotlite.ir.graph.role import Output

__all__ = ["NodeNames", "NodeStore"]

_NUMBERED = re.compile(r"(.*)_(\d+)$")
_SYMBOL = re.compile(r"[su]\d+")
_OWN = frozenset(("self", "al"))
"""Names that generated code uses."""


class NodeNames:
    """The names in use; none of them is given twice, not even after its node is erased."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def new(self, candidate: str) -> str:
        """The candidate as an identifier, with a number where it is in use."""
        name = identifier(candidate)
        if self._is_free(name):
            self._taken.add(name)
            return name
        numbered = _NUMBERED.fullmatch(name)
        base = name if numbered is None else numbered[1]
        count = self._counts.get(base, 0 if numbered is None else int(numbered[2]))
        while not self._is_free(name):
            count += 1
            name = f"{base}_{count}"
        self._counts[base] = count
        self._taken.add(name)
        return name

    def renamed(self, name: str, candidate: str) -> str:
        """A new name for the node of a name, which is free then."""
        if identifier(candidate) == name:
            return name
        self._taken.discard(name)
        return self.new(candidate)

    def forget(self, name: str) -> None:
        """A name may be given again."""
        self._taken.discard(name)

    def _is_free(self, name: str) -> bool:
        return not (
            name in self._taken or name in RESERVED or name in _OWN or _SYMBOL.fullmatch(name)
        )


class NodeStore(WithReplacedNames):
    """The nodes of an FX graph."""

    def __init__(self, source: IrGraph | None) -> None:
        self._returns = source is not None
        self._edit = LinkedEdit(source or IrGraph((output_node((), ()),), "forward"))
        self._names = NodeNames()
        self._wrapped: dict[IrNode, FxNode] = {}
        self._constants: Kwargs = {}
        self._point: tuple[FxNode, bool] | None = None
        self._model: IrNode | None = None
        """The node whose records new nodes get; that of the insertion point if there is none."""
        self._root = Root(self)
        self._template: Template = numbered(len(self._edit.output_node.args[0]))
        names = {} if source is None else source.names
        for old, node in zip([] if source is None else source.nodes, self._edit, strict=False):
            self._wrap(node, names[old])
            if node.op == "get_attr":
                self._constants[node.target.name] = node.target.value

    def _wrap(self, node: IrNode, name: str, type_expr: object = None) -> FxNode:
        made = FxNode(self, node, self._names.new(name), type_expr)
        self._wrapped[node] = made
        return made

    def _rename_all(self, names: list[str]) -> None:
        """Gives the nodes these names, in order."""
        self._names = NodeNames()
        for node, name in zip(self._edit, names, strict=False):
            if node in self._wrapped:
                self._wrapped[node]._name = self._names.new(name)

    def _put(self, node: IrNode, name: str, type_expr: object = None) -> FxNode:
        before, _ = self._place(is_input=node.op == "placeholder")
        self._edit.insert(node, before)
        return self._wrap(node, name, type_expr)

    def _live(self) -> IrGraph:
        """The nodes themselves as a graph, under their names here: to be printed."""
        live = IrGraph(self._edit.nodes, self._edit.name)
        live._names = {node: self._label_text(node) for node in live.nodes}
        return live

    def _label_text(self, node: IrNode) -> str:
        return self._wrapped[node].name if node in self._wrapped else "output"

    # --- where
    def _fx_or_root(self, node: IrNode) -> FxNode:
        return self._wrapped.get(node) or FxNode(self, node, "")

    def _place(self, *, is_input: bool) -> tuple[IrNode, IrNode]:
        """(the node before which a new one goes, the node whose records it gets)."""
        edit = self._edit
        node, later = self._point or (None, False)
        while node is not None and node._gone is not None:  # of an erased node, its neighbor
            node, later = node._gone[1], False
        if node is None:
            last = edit.output_node
            return self._allowed(last, is_input=is_input), edit.preceding(last) or last
        before = edit.following(node._node) if later else node._node
        return self._allowed(before or edit.output_node, is_input=is_input), node._node

    def _allowed(self, before: IrNode, *, is_input: bool) -> IrNode:
        """The nearest place for an input, or for another node: all inputs come first."""
        first = self._edit.behind_inputs
        wrong = (before.op != "placeholder") if is_input else before.op == "placeholder"
        return first if wrong else before

    # --- for nodes
    def _fx(self, node: IrNode) -> FxNode:
        return self._wrapped[node]

    def _shown(self, value: Value) -> Any:
        """An argument of the IR in FX's nodes."""
        return map_nodes(value, self._wrapped.__getitem__)

    def _bare(self, value: Value) -> Any:
        """An argument in nodes of the IR. Raises ArgumentError for what no argument is."""
        if isinstance(value, FxNode):
            self._must_own(value, "take as an argument")
            return value._node
        if isinstance(value, (tuple, list)):
            return tuple([self._bare(item) for item in value])
        refuse_argument(value, str(self._edit.name))
        return value

    def _must_own(self, node: Any, what: str) -> None:
        """Raises ArgumentError unless it is a node of this graph that is not erased (FXG-4)."""
        if not isinstance(node, FxNode):
            refuse_argument(node, str(self._edit.name))
            raise ArgumentError(f"fx: to {what}, it is {node!r}, expected a node")
        if node.graph is not self:
            raise noted(
                ArgumentError(f"fx: to {what}: {node} is of another graph, expected one of this"),
                "Copy it into this one: graph.node_copy(node, lambda each: copies[each]).",
            )
        if node._gone is not None:
            raise noted(
                ArgumentError(f"fx: to {what}: {node} was erased, expected a node of the graph"),
                "Make a new node, or erase it later.",
            )

    def _target_of(self, node: FxNode) -> Any:
        of = node._node
        if of.op == "call":
            return shown_target(of.target)
        return {"get_attr": getattr(of.target, "name", ""), "output": "output"}.get(
            of.op, node.name
        )

    def _set_call(self, node: FxNode, target: Target, args: Argument, kwargs: Named) -> None:
        op, bound = bound_call(type(self), target, args, kwargs)
        bare = self._bare(bound)
        self._refuse_cycle(node, bare)
        self._edit.set_call(node._node, op, bare)

    def _refuse_cycle(self, node: FxNode, args: Args) -> None:
        """Raises ArgumentError, before anything changes, if `node` is needed to compute `args`."""
        if self._edit.is_needed(node._node, args):
            raise noted(
                ArgumentError(f"fx: an argument of {node} needs {node} itself, expected no cycle"),
                "To put a node between a value and its users, make it first, then replace the "
                "uses: old.replace_all_uses_with(new) leaves those in new.",
            )

    def _check_order(self) -> None:
        """Raises ArgumentError for a node in front of one of its operands."""
        for node, operand in self._edit.disordered():
            late, user = self._wrapped[operand], self._wrapped[node]
            raise noted(
                ArgumentError(f"fx: {user} takes {late}, which stands behind it, expected before"),
                f"Move one of them: {user}.prepend({late}), or {late}.append({user}).",
            )

    def _results(self) -> Any:
        return rebuilt(self._template, self._shown(self._edit.output_node.args[0]))

    def _set_results(self, args: Args) -> None:
        """Makes the graph return `args[0]`; roles stay where their number does."""
        if len(args) != 1:
            raise ArgumentError(f"output: there are {len(args)} results, expected one: a tuple")
        for_node = isinstance(args[0], (tuple, list, dict))
        template, leaves = flattened(args[0], _is_result)
        values = tuple(self._bare(leaf) for leaf in leaves)
        if not for_node and not leaves:
            refuse_argument(args[0], str(self._edit.name))
            raise ArgumentError(f"output: it is {args[0]!r}, expected a node, or nodes in a tuple")
        roles = self._edit.output_node.role
        if not self._returns or len(roles) != len(values):  # type: ignore[arg-type]
            roles = tuple(map(Output, range(len(values))))
        self._edit.set_results(values, roles)  # type: ignore[arg-type]
        self._template = template

    def _replace_input(self, node: FxNode, old: FxNode, new: FxNode) -> None:
        for each in (node, old, new):
            self._must_own(each, "replace")
        if old is new:
            return
        of = node._node
        args = map_nodes(of.args, lambda value: new._node if value is old._node else value)
        if args is of.args:
            return
        if of.op == "call":
            self._refuse_cycle(node, args)
            self._edit.set_call(of, of.target, args)
        else:
            self._edit.set_results(args[0], of.role)  # type: ignore[arg-type]

    def _replace_uses(
        self,
        old: FxNode,
        new: FxNode,
        chosen: Callable[[FxNode], bool] | None,
        propagate_meta: bool,
    ) -> list[FxNode]:
        for each in (old, new):
            self._must_own(each, "replace")
        users = [user for user in old.users if user is not new]
        users = [user for user in users if chosen is None or chosen(user)]
        for user in users:
            self._refuse_cycle(user, (new._node,))
        if propagate_meta:
            if new._free:
                raise ArgumentError(f"replace_all_uses_with: {new} has a meta, expected none")
            new.meta = old._free
            for record in ("sequence", "location", "scope", "phase", "recompute"):
                setattr(new._node, record, getattr(old._node, record))
        for user in users:
            self._replace_input(user, old, new)
        return users

    def _move(self, node: FxNode, beside: FxNode, *, later: bool) -> None:
        self._must_own(node, "move")
        self._must_own(beside, "move beside")
        if node.op == "output" or (beside.op == "output" and later):
            raise ArgumentError("fx: the output would not be last, expected it at the end")
        if node is beside:
            return
        before = self._edit.following(beside._node) if later else beside._node
        is_input = node.op == "placeholder"
        before = self._allowed(before or self._edit.output_node, is_input=is_input)
        self._edit.move(node._node, before)

    def _label(self, node: FxNode) -> int:
        self._must_own(node, "compare")
        return self._edit.label(node._node)

    def _end(self, *, later: bool) -> FxNode | None:
        """The first node, or the last one."""
        if later:
            return self._wrapped.get(self._edit.first)
        last = self._edit.output_node
        if not self._returns:
            before = self._edit.preceding(last)
            return None if before is None else self._wrapped[before]
        return self._wrapped[last]

    def _beside(self, node: FxNode, *, later: bool) -> FxNode | None:
        """The next node, or the one before; of an erased node, those of the time when it was."""
        if node._gone is not None:
            return node._gone[later]
        edit = self._edit
        found = edit.following(node._node) if later else edit.preceding(node._node)
        return None if found is None else self._wrapped.get(found)

    def _neighbor(self, node: FxNode, *, later: bool) -> Any:
        found = self._beside(node, later=later)
        while found is not None and found._gone is not None:
            found = self._beside(found, later=later)
        return self._root if found is None else found


def _is_result(value: object) -> bool:
    """Whether an output of a graph can be it: a node, a number or None."""
    if isinstance(value, FxNode) or value is None:
        return True
    if isinstance(value, (tuple, list, dict, str)):
        return False
    return True
