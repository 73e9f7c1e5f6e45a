"""`split_module`: a GraphModule as several, which a module above them calls in order.

The module above is a GraphModule, too: its graph is the whole one, and its code calls the parts.
Rules: FXG-26 to FXG-28. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Hashable
from typing import Any

import attrs

from aotlite.fx.core.codegen import PythonCode
from aotlite.fx.core.input_checks import InputChecks
from aotlite.fx.graph import FxGraph
from aotlite.fx.graph_module import GraphModule, from_text, function_of_code
from aotlite.fx.node import FxNode
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.meta import TensorMeta

__all__ = ["ModulePart", "SplitModule", "split_module"]

_KEY = "partition"
"""The key of `node.meta` that has the part of a node."""


@attrs.define(eq=False)
class ModulePart:
    """One part: the nodes that run in it, what it takes and what it gives."""

    name: str
    nodes: list[FxNode] = attrs.field(factory=list)
    inputs: dict[FxNode, None] = attrs.field(factory=dict)
    outputs: dict[FxNode, None] = attrs.field(factory=dict)


def split_module(
    m: GraphModule,
    root_m: Any,
    split_callback: Callable[[FxNode], Hashable],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> SplitModule:
    """The module of the parts to which `split_callback(node)` assigns the calls of a graph.

    The parts are GraphModules, its attributes submod_0 and so on. They run in an order in which
    each has what it needs, as near to that of the graph as can be; with `keep_original_order` in
    the order in which they first occur. `qualname_map` gets the old name of each attribute of a
    part. With `tuple_return` a part returns a tuple even of one value. Raises ArgumentError where
    parts need each other, or a write would be moved.

    >>> from aotlite import fx
    >>> module = fx.symbolic_trace(lambda x: (x.exp() + 1).sin(), "f32[2]")
    >>> split = split_module(module, None, lambda node: int(node.target is fx.ops.sin))
    >>> print(split.code)
    def forward(self, x: "f32[2]"):
        submod_0 = self.submod_0(x)
        submod_1 = self.submod_1(submod_0)
        return submod_1
    >>> print(split.submod_0.code)
    def forward(self, x: "f32[2]"):
        exp = ops.exp(x);  x = None
        add = ops.add(exp, 1);  exp = None
        return add
    """
    if not isinstance(m, GraphModule):
        raise ArgumentError(f"split_module: it is {m!r}, expected a GraphModule")
    graph = FxGraph()
    copies: dict[FxNode, FxNode] = {}
    m.graph.lint()
    graph.output(graph.graph_copy(m.graph, copies))
    graph.set_codegen(m.graph._codegen)
    graph._edit.name = m.graph._edit.name
    back = {copy: node for node, copy in copies.items()}
    for node in graph.find_nodes(op="call_function"):
        part = split_callback(back[node])
        if type(part) not in (int, str):
            raise ArgumentError(
                f"split_module: the part of {node} is {part!r}, expected an int or a str"
            )
        node.meta[_KEY] = part
    made = SplitModule(m, graph, partition_affix, tuple_return, bool(keep_original_order))
    for part in made.parts:
        for node in part.nodes:
            for each in node.all_input_nodes:
                if each.op == "get_attr" and qualname_map is not None:
                    qualname_map[f"{part.name}.{each.target}"] = each.target
    return made


class SplitModule(GraphModule):
    """A GraphModule whose code calls GraphModules of parts of its graph, in order.

    `graph` is the whole graph; `node.meta["partition"]` is the part of a call. `recompile()` splits
    it anew: a node without a part is in that of its last operand, or of its first user.
    """

    parts: list[ModulePart]
    _of_graph = (*GraphModule._of_graph, "parts", "_of_root")

    def __init__(
        self,
        root: GraphModule,
        graph: FxGraph,
        affix: str | None = None,
        tuple_return: bool = False,
        in_order: bool = False,
    ) -> None:
        self._affix, self._tuple_return, self._in_order = affix, tuple_return, in_order
        self._of_root: GraphModule | None = root
        super().__init__({}, graph, root._class_name)
        self._of_root = None
        self.train(root.training)

    def _take(self, root: Any, graph: FxGraph, name: str, meta: TensorMeta) -> None:
        """Nothing: the parts have the attributes."""

    def recompile(self) -> PythonCode:
        """Splits the graph as it is now, and makes the parts and the code that calls them."""
        self.graph.lint()
        parts = _Parts(self.graph, self._affix, in_order=self._in_order).found()
        modules = {part.name: self._module(part) for part in parts}
        for name, _ in list(self.named_children()):
            delattr(self, name)
        for name, module in modules.items():
            setattr(self, name, module)
        made = PythonCode("\n".join(self._lines(parts)), {})
        self.parts = parts
        self._run, self._code = function_of_code(made), made.src
        self._checks = InputChecks(self.graph._live())
        return made

    def _module(self, part: ModulePart) -> GraphModule:
        graph = FxGraph()
        copies: dict[FxNode, FxNode] = {}
        for each in part.inputs:
            copies[each] = graph.placeholder(each.name, each.meta["val"])
        for node in part.nodes:
            for each in node.all_input_nodes:
                if each.op == "get_attr" and each not in copies:
                    copies[each] = graph.node_copy(each)
            copies[node] = graph.node_copy(node, copies.__getitem__)
        results = tuple([copies[each] for each in part.outputs])
        single = len(results) == 1 and not self._tuple_return
        graph.output(results[0] if single else results)
        root: Any = {} if self._of_root is None else self._of_root
        return GraphModule(root, graph, part.name)

    def _lines(self, parts: list[ModulePart]) -> list[str]:
        texts: dict[FxNode, str] = {}
        inputs = self.graph.find_nodes(op="placeholder")
        given = [f'{each.name}: "{each.meta["val"]}"' for each in inputs]
        lines = [f"def forward({', '.join(['self', *given])}):"]
        for each in inputs:
            texts[each] = each.name
        for node in self.graph.find_nodes(op="get_attr"):
            owners = [part for part in parts if any(node in n.all_input_nodes for n in part.nodes)]
            texts[node] = f"self.{owners[0].name}.{node.target}" if owners else "None"
        for part in parts:
            args = ", ".join(texts[each] for each in part.inputs)
            lines.append(f"    {part.name} = self.{part.name}({args})")
            single = len(part.outputs) == 1 and not self._tuple_return
            for place, each in enumerate(part.outputs):
                texts[each] = part.name if single else f"{part.name}[{place}]"
        result = _text(self.graph.output_node().args[0], texts)
        return [*lines, f"    return {result}"]

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        graph = copy.deepcopy(self.graph, memo)
        made = SplitModule(self, graph, self._affix, self._tuple_return, self._in_order)
        memo[id(self)] = made
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        ids = [node.meta.get(_KEY) for node in self.graph.nodes]
        state = (self._affix, self._tuple_return, self._in_order)
        return from_parts, (self.to_text(), ids, state)


def from_parts(text: str, ids: list[Any], state: tuple[Any, ...]) -> SplitModule:
    """The SplitModule of a pickle: the text of its whole graph, and the part of each node."""
    whole = from_text(text)
    for node, part in zip(whole.graph.nodes, ids, strict=True):
        if part is not None:
            node.meta[_KEY] = part
    return SplitModule(whole, whole.graph, *state)


def _text(value: Any, texts: dict[FxNode, str]) -> str:
    if isinstance(value, FxNode):
        return texts[value]
    if isinstance(value, tuple):
        items = [_text(each, texts) for each in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, list):
        return f"[{', '.join(_text(each, texts) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(each, texts)}' for key, each in value.items())}}}"
    return repr(value)


class _Parts:
    """Which part each call is in, and in which order the parts run."""

    def __init__(self, graph: FxGraph, affix: str | None, *, in_order: bool) -> None:
        self._calls = graph.find_nodes(op="call_function")
        self._graph = graph
        self._affix = f"{affix}_" if affix else ""
        self._in_order = in_order
        self._of: dict[FxNode, Any] = {}
        for node in self._calls:
            self._of[node] = self._part_of(node)

    def _part_of(self, node: FxNode) -> Any:
        if node.target is operator.getitem:  # a part gives tensors, not tuples of them
            return self._of[node.args[0]]
        part = node.meta.get(_KEY)
        if part is None:
            before = [self._of[each] for each in node.all_input_nodes if each in self._of]
            after = [user.meta.get(_KEY) for user in node.users]
            part = next((each for each in [*reversed(before), *after] if each is not None), 0)
        return part

    def found(self) -> list[ModulePart]:
        """The parts, in the order in which they run."""
        parts: dict[Any, ModulePart] = {}
        for part in self._sorted():
            name = f"submod_{self._affix}{part}"
            if not name.isidentifier():
                raise ArgumentError(f"split_module: the part {part!r} is no part of an identifier")
            parts[part] = ModulePart(name)
        for node in self._calls:
            mine = parts[self._of[node]]
            mine.nodes.append(node)
            for each in node.all_input_nodes:
                if each.op == "placeholder":
                    mine.inputs[each] = None
                elif each.op == "call_function" and self._of[each] != self._of[node]:
                    mine.inputs[each] = None
                    parts[self._of[each]].outputs[each] = None
        for each in self._graph.output_node().all_input_nodes:
            if each in self._of:
                parts[self._of[each]].outputs[each] = None
        self._fetch(parts)
        return list(parts.values())

    def _fetch(self, parts: dict[Any, ModulePart]) -> None:
        """A constant that only the output needs would be nowhere."""
        for each in self._graph.output_node().all_input_nodes:
            if each.op == "get_attr" and not any(user.op != "output" for user in each.users):
                raise noted(
                    ArgumentError(f"split_module: the constant {each} is a result of no part"),
                    "Return it beside the module, or let an op of a part make a copy: x.clone().",
                )

    def _needs(self) -> dict[Any, dict[Any, str]]:
        """Each part -> the parts that have to run before, with the reason."""
        needs: dict[Any, dict[Any, str]] = {part: {} for part in self._of.values()}
        writes = [node for node in self._calls if node.is_impure()]
        for node in self._calls:
            mine = self._of[node]
            for each in node.all_input_nodes:
                if each in self._of and self._of[each] != mine:
                    needs[mine].setdefault(self._of[each], f"{node} takes {each}")
            for write in writes:
                other = self._of[write]
                if other != mine and write < node:
                    needs[mine].setdefault(other, f"{write}, which writes, is before {node}")
                elif other != mine and node < write:
                    needs[other].setdefault(mine, f"{write}, which writes, is behind {node}")
        return needs

    def _sorted(self) -> list[Any]:
        needs = self._needs()
        waiting, done = list(needs), []
        while waiting:
            ready = [part for part in waiting if not set(needs[part]) & set(waiting)]
            if self._in_order and ready and ready[0] is not waiting[0]:
                ready = []
            if not ready:
                raise noted(
                    ArgumentError(
                        f"split_module: parts {', '.join(map(str, waiting))} need each other, "
                        "expected an order"
                    ),
                    *[
                        f"part {part} needs {other}: {why}"
                        for part in waiting
                        for other, why in needs[part].items()
                        if other in waiting
                    ][:6],
                )
            waiting.remove(ready[0])
            done.append(ready[0])
        return done
