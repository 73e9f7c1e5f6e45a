"""`Graph`: FX's editable graph, laid over a `LinkedEdit` of a graph of the IR.

It is the explicit copy on which passes work: `Graph(graph)` copies, `ir_graph()` gives a verified
graph back. Every node has a type; metas follow each change. Rules: FXG-1 to FXG-8.
Spec: `specs/fx.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.fx.core.calls import bound_call, shown_target
from aotlite.fx.core.codegen import CodeGen, PythonCode, Transform, on_generated
from aotlite.fx.core.linked_edit import LinkedEdit
from aotlite.fx.core.node_store import NodeStore
from aotlite.fx.core.places import InsertPoint, NodeList
from aotlite.fx.core.replaced import refuse_name
from aotlite.fx.core.values import constant_array, meta_of_input, meta_of_value, value_at
from aotlite.fx.core.words import Args, Argument, Named, Target, Value
from aotlite.fx.node import FxNode, map_arg
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Constant
from aotlite.ir.graph import Graph as IrGraph
from aotlite.ir.graph import Node as IrNode
from aotlite.ir.graph.edit import call_beside
from aotlite.ir.graph.role import Argument as ArgumentRole
from aotlite.ir.graph.text.printer import tabular

__all__ = ["FxGraph"]


class FxGraph(NodeStore):
    """FX's graph: nodes that are made, moved, changed and erased.

    `Graph()` is empty; `Graph(graph)` is a copy of a graph of `aotlite.ir`, which stays as it was.
    New nodes go before the output, or where `inserting_before` and `inserting_after` say.

    >>> from aotlite import fx, ops
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x", "f32[2]")
    >>> half = graph.call_function(ops.mul, (x, 0.5))
    >>> _ = graph.output(half)
    >>> with graph.inserting_after(half):
    ...     shifted = graph.call_function(ops.add, (half, 1.0))
    >>> half.replace_all_uses_with(shifted)
    [output]
    >>> graph.lint()
    >>> print(graph.python_code("self").src)
    def forward(self, x: "f32[2]"):
        mul = ops.mul(x, 0.5);  x = None
        add = ops.add(mul, 1.0);  mul = None
        return add
    """

    _called = "Graph"

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type | None = None,
        tracer_extras: Named | None = None,
    ) -> None:
        source = owning_module if isinstance(owning_module, IrGraph) else None
        super().__init__(source)
        self.owning_module = None if source is not None else owning_module
        """The GraphModule of this graph; constants are looked up in it."""
        self._tracer_cls = tracer_cls
        self._codegen = CodeGen()

    # --- looking
    @property
    def nodes(self) -> NodeList:
        """The nodes in order, as they are now; `reversed(graph.nodes)` begins with the output."""
        return NodeList(self)

    def output_node(self) -> FxNode:
        """The output. Raises ArgumentError while there is none."""
        if not self._returns:
            raise ArgumentError("output_node: the graph has no output yet, expected graph.output()")
        return self._wrapped[self._edit.output_node]

    def find_nodes(self, *, op: str, target: Target = None, sort: bool = True) -> list[FxNode]:
        """The nodes of this kind, and of this target if one is given, in order."""
        found = [node for node in self.nodes if node.op == op]
        if target is None:
            return found
        wanted = shown_target(target)
        return [node for node in found if node.target is wanted or node.target == wanted]

    # --- making nodes
    def create_node(
        self,
        op: str,
        target: Target,
        args: Args | None = None,
        kwargs: Named | None = None,
        name: str | None = None,
        type_expr: object = None,
    ) -> FxNode:
        """A new node of one of FX's kinds, at the insertion point."""
        args, kwargs = args or (), kwargs or {}
        match op:
            case "placeholder":
                return self.placeholder(name or target, type_expr, *args)
            case "get_attr":
                return self.get_attr(target, type_expr, name=name)
            case "call_function" | "call_method":
                return self._call(target, args, kwargs, name, type_expr)
            case "output":
                if len(args) != 1:
                    raise ArgumentError(f"output: there are {len(args)} results, expected one")
                return self.output(args[0], type_expr)
            case "call_module":
                refuse_name("Graph", "call_module")
        kinds = "placeholder, get_attr, call_function or output"
        raise ArgumentError(f"create_node: the kind is {op!r}, expected {kinds}")

    def placeholder(self, name: str, type_expr: object = None, *default_value: object) -> FxNode:
        """A new input: its type is a text such as "f32[4, 3]", a meta, or an example.

        It goes to the insertion point if that is among the inputs, else behind them.
        """
        if default_value:
            raise noted(
                ArgumentError(f"placeholder {name}: it has a default, expected none"),
                "Calls of a GraphModule give every input; a number that never changes is a "
                "literal of its users.",
            )
        meta = meta_of_input(type_expr, name)
        taken = {node.role for node in self._edit if node.op == "placeholder"}
        role = next(ArgumentRole(i) for i in range(len(taken) + 1) if ArgumentRole(i) not in taken)
        node = IrNode("placeholder", role, meta=meta, role=role)
        shown = type_expr if type(type_expr) is str else None
        return self._put(node, name, shown)

    def get_attr(
        self, qualified_name: str, type_expr: object = None, *, name: str | None = None
    ) -> FxNode:
        """A constant of the program, or a parameter: an attribute of the owning module.

        A value that is no attribute yet, a tensor or an array, is given as `type_expr`.
        """
        given = None if isinstance(type_expr, (str, type)) else type_expr
        value = value_at(self.owning_module, qualified_name)
        value = self._constants.get(qualified_name) if value is None else value
        if given is not None and value is not None and given is not value:
            raise noted(
                ArgumentError(f"get_attr: {qualified_name!r} has another value, expected that one"),
                "Give the new value another name.",
            )
        value = given if value is None else value
        if value is None:
            raise noted(
                ArgumentError(f"get_attr: {qualified_name!r} has no value, expected one"),
                f'Give it: graph.get_attr("{qualified_name}", tensor), or set the attribute of '
                "the owning module first.",
            )
        meta = meta_of_value(value, qualified_name)
        value = self._constants.setdefault(qualified_name, value)
        node = IrNode("get_attr", Constant(qualified_name, value), meta=meta)
        return self._put(node, name or qualified_name)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Args | None = None,
        kwargs: Named | None = None,
        type_expr: object = None,
        name: str | None = None,
    ) -> FxNode:
        """A call of a function of `aotlite.ops`, or of another one that is one op for these
        arguments (Python's `add`, `relu` of aotlite). Raises what the op's meta rule raises."""
        return self._call(the_function, args or (), kwargs or {}, name, type_expr)

    def call_method(
        self,
        method_name: str,
        args: Args | None = None,
        kwargs: Named | None = None,
        type_expr: object = None,
    ) -> FxNode:
        """A call of the op that is the tensor method of this name; the node is a call_function."""
        return self._call(method_name, args or (), kwargs or {}, None, type_expr)

    def output(self, result: Argument, type_expr: object = None) -> FxNode:
        """Ends the graph: it returns this node, or tuples, lists and dicts of nodes and numbers."""
        if self._returns:
            raise noted(
                ArgumentError("output: the graph has an output, expected one alone"),
                "Change it: graph.output_node().args = (result,).",
            )
        self._set_results((result,))
        self._returns = True
        return self._wrap(self._edit.output_node, "output", type_expr)

    def _call(
        self,
        target: Target,
        args: Args,
        kwargs: Named,
        name: str | None,
        type_expr: Any,
    ) -> FxNode:
        op, bound = bound_call(type(self), target, args, kwargs)
        bare = self._bare(bound)
        self._edit.refresh()
        model = self._model or self._place(is_input=False)[1]
        node = call_beside(op, bare, model)
        node.recompute = model.recompute
        return self._put(node, name or op.name, type_expr)

    # --- copying
    def node_copy(
        self, node: FxNode, arg_transform: Callable[[FxNode], Any] = lambda node: node
    ) -> FxNode:
        """A copy of a node of another graph, with its records; `arg_transform(argument)` gives the
        node of this graph for each node among its arguments."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        source = node._node
        if source.op == "output":
            made = self.output(args[0])
            if len(source.role) == len(made._node.role):  # type: ignore[arg-type]
                made._node.role = source.role
        elif source.op == "placeholder":
            taken = {each.role for each in self._edit if each.op == "placeholder"}
            made = self.placeholder(node.name, source.meta)
            if source.role not in taken:
                made._node.target = made._node.role = source.role
        elif source.op == "get_attr":
            made = self.get_attr(self._name_for(node), node.graph._constants[node.target])
        else:
            made = self._copied_call(node, args, kwargs)
        for record in ("phase", "location", "scope"):
            setattr(made._node, record, getattr(source, record))
        made._node.origin = source.origin or source
        made.meta, made.type = node._free, node.type
        return made

    def _copied_call(self, node: FxNode, args: Argument, kwargs: Any) -> FxNode:
        before, self._model = self._model, node._node
        try:
            return self._call(node.target, args, kwargs, node.name, node.type)
        finally:
            self._model = before

    def _name_for(self, node: FxNode) -> str:
        """The name of a constant of another graph here: another one where it is another value."""
        name: str = node.target
        value = node.graph._constants[name]
        count = 0
        while self._constants.get(name, value) is not value:
            count += 1
            name = f"{node.target}_{count}"
        return name

    def graph_copy(
        self, g: FxGraph, val_map: dict[FxNode, FxNode], return_output_node: bool = False
    ) -> Any:
        """Copies the nodes of `g` that `val_map` does not have yet to the insertion point, and adds
        them to it. Returns what `g` returns, in nodes of this graph; with `return_output_node` also
        the output of `g`; None if `g` has no output."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], val_map.__getitem__)
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> FxGraph:
        made = type(self)(tracer_cls=self._tracer_cls)
        made._edit = LinkedEdit(self._edit.snapshot())
        made._returns, made._codegen = self._returns, self._codegen
        made._template = self._template
        made._constants = {  # arrays are never written
            name: copy.deepcopy(value, memo) if isinstance(value, Tensor) else value
            for name, value in self._constants.items()
        }
        for old, node in zip(self._edit, made._edit, strict=True):
            if old in self._wrapped and (old.op != "output" or self._returns):
                mine = self._wrapped[old]
                twin = made._wrap(node, mine.name, mine.type)
                twin.meta = mine._free
                memo[id(mine)] = twin
        memo[id(self)] = made
        return made

    # --- where
    def inserting_before(self, n: FxNode | None = None) -> InsertPoint:
        """New nodes go before `n`, in the order in which they are made; before all calls if it is
        None."""
        if n is None:
            return InsertPoint(self, (self._fx_or_root(self._edit.behind_inputs), False))
        self._must_own(n, "insert before")
        return InsertPoint(self, (n, False))

    def inserting_after(self, n: FxNode | None = None) -> InsertPoint:
        """New nodes go directly behind `n`, so that one made later stands before one made earlier;
        before the output if it is None."""
        if n is None:
            return InsertPoint(self, None)
        self._must_own(n, "insert after")
        return InsertPoint(self, (n, True))

    # --- erasing
    def erase_node(self, to_erase: FxNode) -> None:
        """Removes a node. Raises ArgumentError if it has users."""
        self._must_own(to_erase, "erase")
        if to_erase.users:
            raise noted(
                ArgumentError(
                    f"erase_node: {to_erase} has users {', '.join(map(str, to_erase.users))}, "
                    "expected none"
                ),
                f"First replace its uses: {to_erase}.replace_all_uses_with(other).",
            )
        if to_erase.op == "output":
            del self._wrapped[to_erase._node]
            self._names.forget("output")
            self._returns = False
            to_erase._gone = (None, None)
            self._edit.set_results((), ())
            return
        to_erase._gone = (
            self._beside(to_erase, later=False),
            self._beside(to_erase, later=True),
        )
        self._edit.drop(to_erase._node)
        del self._wrapped[to_erase._node]

    def eliminate_dead_code(self, is_impure_node: Callable[[FxNode], bool] | None = None) -> bool:
        """Erases the nodes that no output and no impure node needs; returns whether there were any.

        `is_impure_node(node)` decides instead of `node.is_impure()`, which keeps inputs, writes,
        draws and effects (GRA-13).
        """
        self.lint()
        is_impure = is_impure_node or FxNode.is_impure
        before = len(self.nodes)
        for node in reversed(self.nodes):
            if not node.users and not is_impure(node):
                self.erase_node(node)
        return len(self.nodes) < before

    # --- finishing
    def lint(self) -> None:
        """Raises GraphError where the graph breaks an invariant (`specs/verify.md`), and what a
        meta rule raises where operands do not fit."""
        self._checked()

    def ir_graph(self) -> IrGraph:
        """A verified graph of `aotlite.ir`, for compilers and files; this one goes on.

        Constants and parameters are copied into it. Names of nodes, free keys of `meta` and the
        nesting of results stay behind.
        """
        if not self._returns:
            raise ArgumentError("ir_graph: the graph has no output yet, expected graph.output()")
        made, arrays = self._checked(), {}
        for node in made.nodes:
            if node.op == "get_attr":
                name = node.target.name
                if self.value_of(name) is node.target.value and not isinstance(
                    node.target.value, Tensor
                ):
                    continue  # an array of the graph that it is a copy of
                meta: Any = node.meta
                if name not in arrays:
                    arrays[name] = Constant(name, constant_array(self.value_of(name), meta))
                node.target = arrays[name]
        return made

    def _checked(self) -> IrGraph:
        self._check_order()
        made = self._edit.checked()
        for node in made.nodes:
            if node.op == "get_attr":
                value = self.value_of(node.target.name)
                meta = meta_of_value(value, node.target.name)
                if meta is not node.meta:
                    raise ArgumentError(
                        f"fx: attribute {node.target.name!r} is {meta}, expected {node.meta}, as "
                        "when its node was made"
                    )
        return made

    def value_of(self, name: str) -> Any:
        """The value of a constant: the attribute of the owning module, or what it was made with."""
        found = value_at(self.owning_module, name)
        return self._constants[name] if found is None else found

    # --- code
    def python_code(
        self, root_module: str = "self", *, verbose: bool = False, **_: object
    ) -> PythonCode:
        """The graph as the Python of a method `forward`. `verbose` adds metas and user's lines."""
        return self._codegen.python_code(self, root_module, verbose=verbose)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Makes another `CodeGen` write the code, read the inputs and give out the results."""
        if not isinstance(codegen, CodeGen):
            raise ArgumentError(f"set_codegen: it is {codegen!r}, expected a CodeGen")
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Transform | None], Transform]) -> Any:
        """Changes the lines of generated code from now on: `make_transformer(earlier)` returns a
        function of the list of lines. As a block, only until its end."""
        return on_generated(self._codegen, make_transformer)

    def process_inputs(self, *args: Argument, **kwargs: Any) -> Any:
        """The inputs of the graph for the arguments of a call."""
        return self._codegen.process_inputs(*args, **kwargs)

    def process_outputs(self, out: Value) -> Any:
        """The result of a call, for what the code returned."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> str:
        """Prints the graph as a table, one row a node; returns the text."""
        text = tabular(self._live())
        print(text)
        return text

    def __str__(self) -> str:
        lines = [f"    {node.format_node()}" for node in self.nodes]
        return "\n".join(["graph():", *lines])

    def __repr__(self) -> str:
        return f"<fx.Graph {self._edit.name}: {len(self.nodes)} nodes>"
