"""`verify`: checks the invariants of every graph, by recomputing each meta.

Ground floor. Runs after every stage; costs about half a microsecond a node. The invariants are
numbered VER-1 to VER-8, VER-16 and VER-18 (`specs/verify.md`). Each stage checks its own further
promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import attrs

from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import GraphError, noted
from aotlite.ir.graph.effect_chains import chain_fault
from aotlite.ir.graph.graph import Constant, Graph, Node
from aotlite.ir.graph.node_text import excerpt, literal, node_line
from aotlite.ir.graph.role import Output, SavedSize
from aotlite.ir.graph.symbolic.binding import bindings_in, computed_in, is_number, late_use
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op import Op, PureOp
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.op.schema import SchemaParameter
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.symint import SymInt

__all__ = ["verify"]


def verify(
    graph: Graph,
    *,
    functional: bool = False,
    closing_copies: bool = False,
    stage: str = "graph",
    same_meta: Callable[[object, object], bool] = always_same_meta,
) -> int:
    """Returns the number of impure nodes; raises GraphError where the graph breaks an invariant.

    `functional`: no node may write, change a geometry or draw random numbers (FUN-25).
    `closing_copies`: allows one `copy_` into each input all the same. `stage` begins the message.
    `same_meta` compares a node's meta with that of its rule, in a graph with symbols.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder()
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> verify(build.finish([x.mul_(2.0)]))
    1
    """
    check = _Check(graph, stage, same_meta)
    check.outline()
    check.nodes()
    check.tokens()
    check.symbols()
    if functional:
        check.functional(closing_copies=closing_copies)
    return len(check.impure)


_KINDS = frozenset(("placeholder", "get_attr", "call", "output"))


@attrs.define(eq=False, repr=False)
class _Check:
    """One run of the verifier over one graph."""

    graph: Graph
    stage: str
    same_meta: Callable[[object, object], bool]
    defined: set[Node] = attrs.field(factory=set)
    fitting: dict[object, set[tuple[type, ...]]] = attrs.field(factory=dict)
    """Each op -> the tuples of argument types that were found to fit its schema."""
    single: bool = True
    """Whether each node so far has one result: then what fits an op in any graph fits here."""
    constants: dict[str, Any] = attrs.field(factory=dict)
    impure: list[Node] = attrs.field(factory=list)

    def fail(self, node: Node, rule: str, what: str) -> NoReturn:
        raise self.failure(node, rule, what)

    def failure(self, node: Node, rule: str, what: str) -> GraphError:
        """The error for `node`: its line, the lines around it, the user's line, the rule."""
        graph = self.graph
        place = None if node.location is None else place_of(node.location).note()
        return noted(
            GraphError(f"{self.stage}: {what}"),
            f"node: {node_line(node, graph.names)}",
            f"in graph {graph.name}:\n{excerpt(graph, node)}",
            place,
            f"rule: {rule} (specs/verify.md)",
        )

    def name(self, node: Node) -> str:
        return self.graph.names[node]

    # --- the outline: kinds of nodes, their order, their roles
    def outline(self) -> None:
        nodes = self.graph.nodes
        kinds = [node.op for node in nodes]
        if not _KINDS.issuperset(kinds):
            node = next(node for node in nodes if node.op not in _KINDS)
            expected = "placeholder, get_attr, call or output"
            self.fail(node, "VER-1", f"the kind of a node is {node.op!r}, expected {expected}")
        if kinds.count("output") > 1:
            what = f"the number of output nodes is {kinds.count('output')}, expected one at the end"
            self.fail(nodes[kinds.index("output")], "VER-1", what)
        count = kinds.count("placeholder")
        if kinds[:count].count("placeholder") != count:
            other = next(i for i, kind in enumerate(kinds) if kind != "placeholder")
            node = nodes[kinds.index("placeholder", other)]
            what = f"placeholder {self.name(node)} follows another node, expected all in front"
            self.fail(node, "VER-2", what)
        self._distinct("input", [(node, node.role) for node in nodes[:count]])
        self._output_roles()

    def _output_roles(self) -> None:
        node = self.graph.output_node
        if len(node.args) != 1 or type(node.args[0]) is not tuple or type(node.role) is not tuple:
            self.fail(node, "VER-1", "the output holds no tuple, expected values and their roles")
        if len(node.args[0]) != len(node.role):
            what = f"the number of output roles is {len(node.role)}, expected {len(node.args[0])}"
            self.fail(node, "VER-3", what)
        self._distinct("output", [(node, role) for role in node.role])

    def _distinct(self, kind: str, pairs: Sequence[tuple[Node, object]]) -> None:
        seen = set()
        for node, role in pairs:
            if role is None:
                self.fail(node, "VER-3", f"the role of an {kind} is None, expected a role")
            if role in seen:
                self.fail(node, "VER-3", f"the role {role} is that of two {kind}s, expected one")
            seen.add(role)

    # --- the nodes, in order
    def nodes(self) -> None:
        """One pass in order. Calls, nearly all nodes, are checked inline, for speed."""
        defined, fitting = self.defined, self.fitting
        for node in self.graph.nodes:
            if node in defined:
                self.fail(node, "VER-4", f"node {self.name(node)} is there twice, expected once")
            if node.op == "call":
                op, args = node.target, node.args
                types = tuple(map(type, args))
                known = fitting.get(op)
                if known is None:
                    known = fitting[op] = self._known(op)
                if types not in known or (tuple in types and not _lists_ints(args)):
                    self._fit(node)
                for value in args:
                    if type(value) is Node and value not in defined:
                        self._undefined(node, value)
                try:
                    is_pure = type(op) is PureOp
                    meta = op.results.get(key := op.key(args)) if is_pure else op.infer(args)
                    if meta is None:
                        meta = op.new_result(key)
                except Exception as error:
                    raise self._refused(node, error) from error
                if meta is not node.meta and not self.same_meta(meta, node.meta):
                    self._wrong_meta(node, meta)
                if type(meta) is not TensorMeta and self.single:
                    self.single = False
                    fitting.clear()
                if not op.pure:
                    self.impure.append(node)
            else:
                self._not_a_call(node)
            defined.add(node)

    def _known(self, op: object) -> set[tuple[type, ...]]:
        """The types that fit an op of which this graph has had no node yet."""
        return set(_FITTING.get(op, ())) if self.single and isinstance(op, Op) else set()

    def _refused(self, node: Node, error: Exception) -> GraphError:
        return self.failure(node, "VER-6", f"the meta rule of {node.target.name} refuses: {error}")

    def _wrong_meta(self, node: Node, meta: object) -> NoReturn:
        got, expected = meta_text(node.meta), meta_text(meta)
        self.fail(node, "VER-6", f"the meta of {self.name(node)} is {got}, expected {expected}")

    def _not_a_call(self, node: Node) -> None:
        match node.op:
            case "get_attr":
                self._constant(node)
            case "placeholder":
                self._tensor(node)
            case _:
                self._output(node)

    def _undefined(self, node: Node, value: Node) -> NoReturn:
        name = self.graph.names.get(value)
        what = "a node of another graph" if name is None else f"{name}, which is not defined before"
        me = "the output" if node.op == "output" else self.name(node)
        self.fail(node, "VER-4", f"an operand of {me} is {what}, expected an earlier node")

    def _fit(self, node: Node) -> None:
        """Checks the arguments against the schema; remembers their types where these suffice."""
        op, args = node.target, node.args
        if not isinstance(op, Op):
            self.fail(node, "VER-1", f"the target of a call is {op!r}, expected an op")
        parameters = op.schema.parameters
        if len(args) != len(parameters):
            what = f"the number of arguments of {op.name} is {len(args)}"
            self.fail(node, "VER-5", f"{what}, expected {len(parameters)}: {op.schema}")
        for value, parameter in zip(args, parameters, strict=True):
            if not _fits(value, parameter, takes_results=op is GETITEM):
                what = f"argument '{parameter.name}' of {op.name}"
                got = f"{what} is {literal(value, self.graph.names)}"
                self.fail(node, "VER-5", f"{got}, expected {parameter.type} in canonical form")
        for value in node.inputs():
            if value not in self.defined:
                self._undefined(node, value)
        # A tuple fits or not by its items, a node by whether it has one result or several.
        types = tuple(map(type, args))
        settled = tuple not in types or (not op.lists and _lists_ints(args))
        if settled and all(type(v.meta) is TensorMeta for v in node.inputs()):
            self.fitting[op].add(types)
            if _LASTING.issuperset(types):
                _FITTING.setdefault(op, set()).add(types)

    def _constant(self, node: Node) -> None:
        self._tensor(node)
        target = node.target
        if type(target) is not Constant:
            self.fail(node, "VER-7", f"the target of a get_attr is {target!r}, expected a Constant")
        if self.constants.setdefault(target.name, target.value) is not target.value:
            what = f"the constant {target.name!r} has two values"
            self.fail(node, "VER-7", f"{what}, expected one value a name")

    def _tensor(self, node: Node) -> None:
        if type(node.meta) is not TensorMeta:
            what = f"the meta of {self.name(node)} is {node.meta}"
            self.fail(node, "VER-6", f"{what}, expected a tensor's")
        if node.args:
            what = f"the number of arguments of {self.name(node)} is {len(node.args)}"
            self.fail(node, "VER-5", f"{what}, expected 0")

    def _output(self, node: Node) -> None:
        for value in node.args[0]:
            if type(value) is not Node:
                if value is not None and type(value) not in (*NUMBERS, SymInt):
                    what = f"an output is a {type(value).__name__}"
                    self.fail(node, "VER-5", f"{what}, expected a node, a number or None")
            elif value not in self.defined:
                self._undefined(node, value)
            elif type(value.meta) is not TensorMeta:
                what = f"output {self.name(value)} has several results"
                self.fail(node, "VER-5", f"{what}, expected one of them")

    # --- tokens
    def tokens(self) -> None:
        """VER-16: chains of tokens are linear. Checked only where the graph has effects."""
        if any(type(node.target) is TokenOp for node in self.impure):
            fault = chain_fault(self.graph)
            if fault is not None:
                self.fail(fault[0], "VER-16, TOK-1", fault[1])

    # --- symbols
    def symbols(self) -> None:
        """VER-18: what the outputs say of sizes. Checked only where some do."""
        node = self.graph.output_node
        for role, value in zip(self.graph.output_roles, self.graph.outputs, strict=True):
            if type(role) is SavedSize and type(value) not in (int, SymInt):
                got = literal(value, self.graph.names)
                self.fail(node, "VER-18, PART-4", f"output {role} is {got}, expected a size")
            if type(role) is Output and role.symbol:
                if type(value) is not Node or not is_number(value):
                    got = literal(value, self.graph.names)
                    what = f"output {role}, the value of {role.symbol}, is {got}"
                    self.fail(node, "VER-18", f"{what}, expected a 0-d tensor of int64")
        computed = computed_in(self.graph)
        given = {each.symbol for each in bindings_in(self.graph).given} if computed else ()
        symbols = [each.symbol for each in computed]
        if len(set(symbols)) < len(symbols):
            self.fail(node, "VER-18", "two outputs are the value of one symbol, expected one")
        for each in computed:
            late = None if each.symbol in given else late_use(self.graph, each)
            if late is not None:
                what = f"{node_line(late, self.graph.names)} needs {each.symbol}"
                where = f"a node behind {self.name(each.node)}, which computes it"
                self.fail(late, "VER-18", f"{what}, expected {where}")

    # --- purity
    def functional(self, *, closing_copies: bool) -> None:
        written: set[Node] = set()
        for node in self.impure:
            if type(node.target) is TokenOp:
                continue
            allowed = closing_copies and _is_closing_copy(node) and node.args[0] not in written
            if not allowed:
                what = f"{node_line(node, self.graph.names)} is not pure"
                self.fail(node, "VER-8", f"{what}, expected a functional graph (FUN-25)")
            written.add(node.args[0])


def _is_closing_copy(node: Node) -> bool:
    """Whether the node writes the final value of an input: `copy_` into a placeholder."""
    return node.target.name == "copy_" and node.args[0].op == "placeholder"


def _lists_ints(args: tuple[object, ...]) -> bool:
    """Whether every tuple among the arguments holds ints only: then its type shows that it fits."""
    return all(_INT.issuperset(map(type, value)) for value in args if type(value) is tuple)


_INT = frozenset((int, SymInt))
_FITTING: WeakKeyDictionary[Op, set[tuple[type, ...]]] = WeakKeyDictionary()
"""Each op -> the tuples of argument types that were found to fit its schema in some graph."""
_LASTING = frozenset((Node, *NUMBERS, type(None), tuple))
"""Types by which arguments fit an op or do not, whatever their values are."""


def _fits(value: object, parameter: SchemaParameter, *, takes_results: bool) -> bool:
    """Whether `value` is a canonical argument for `parameter`."""
    kind = parameter.type
    if type(value) is Node:
        single = type(value.meta) is TensorMeta
        return kind.holds_tensor and not kind.is_tensor_list and single is not takes_results
    if kind.is_tensor_list and type(value) is tuple:
        return all(type(item) is Node or (item is None and "?" in kind.text) for item in value)
    if hasattr(value, "meta"):
        return False
    canonical = kind.canonical(value)
    return canonical is value or _same_items(canonical, value)


def _same_items(a: object, b: object) -> bool:
    if type(a) is not tuple or type(b) is not tuple or len(a) != len(b):
        return False
    return all(x is y for x, y in zip(a, b, strict=True))
