"""Decompositions: replaces ops of a pure graph by simpler ones, by a table `{op: function}`.

Input: a pure graph and a table of functions in operand methods. Output: an equal pure graph without
ops of the table; the ops that the functions call are decomposed in turn. It runs after autograd, so
gradients are those of the original op. Results keep shape, dtype and strides, and alias no operand.
Rules: TRC-2, DEC-1 to DEC-7. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aotlite import ops
from aotlite.eager.base.modes import modes_kept, recording
from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.geometry.sizes import always_same
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import (
    OPS,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    op_named,
)
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.ir.ops.structure import GETITEM

Decomposition = Callable[..., Any]
Table = Mapping[Op, Decomposition]

_EFFECTS: dict[type, str] = {
    InplaceOp: "writes",
    GeometryOp: "changes a geometry",
    RandomOp: "draws",
    EffectOp: "has effects",
    TokenOp: "has effects",
}
_DEPTH = 100
"""The deepest nesting of decompositions; only arguments that grow without end reach it."""


def decompose(graph: Graph, table: Table) -> Graph:
    """The graph with each op of `table` replaced by the ops that its function calls.

    Raises ArgumentError for a function that raises, writes, or returns other metas than the op.
    """
    if not any(node.op == "call" and node.target in table for node in graph.nodes):
        return graph
    return _Decomposer(graph, table).run()


# --------------------------------------------------------------------------------------- the table
def decomposition_table(given: object) -> Table:
    """Validates a table; its keys may be `Op`s, names, or functions of `aotlite.ops`.

    Raises ArgumentError for any other key, and for an op that pure graphs do not have.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"compile: decompositions is {given!r}, expected a mapping of ops to functions"
        )
    table: dict[Op, Decomposition] = {}
    for key, function in given.items():
        op = _op_of(key)
        _check_decomposable(op)
        if op in table:
            raise ArgumentError(f"compile: decompositions has {op.name!r} twice, expected once")
        if not callable(function):
            raise ArgumentError(
                f"compile: the decomposition of {op.name!r} is {function!r}, expected a function"
            )
        table[op] = function
    return table


def _op_of(key: object) -> Op:
    if isinstance(key, Op):
        return key
    if isinstance(key, str):
        return op_named(key)
    name = getattr(key, "__name__", "")
    if name in OPS and getattr(ops, name) is key:
        return OPS[name]
    raise ArgumentError(
        f"compile: decompositions has the key {key!r}, expected an op, its name, or its function "
        "in aotlite.ops"
    )


def _check_decomposable(op: Op) -> None:
    match op:
        case InplaceOp() | RandomOp():
            instead = op.functional.name
        case GeometryOp():
            instead = op.view.name
        case EffectOp() | TokenOp():
            raise noted(
                ArgumentError(
                    f"compile: decompositions has {op.name!r}, expected an op without effects"
                ),
                "An op with effects is never replaced. (TOK-6)",
            )
        case MultiViewOp():
            instead = "the views it consists of"
        case _ if op in (GETITEM, RESTRIDE):
            raise ArgumentError(
                f"compile: decompositions has {op.name!r}, expected another op: decomposed graphs "
                "are made with it"
            )
        case _:
            return
    raise noted(
        ArgumentError(
            f"compile: decompositions has {op.name!r}, which no pure graph has, expected {instead}"
        ),
        "Decompositions are applied after functionalization. (TRC-2)",
    )


# ------------------------------------------------------------------------------------ the rewriting
class _Decomposer:
    """Rebuilds a graph; nodes that stay are shared with it."""

    def __init__(self, graph: Graph, table: Table) -> None:
        self.graph = graph
        self.table = table
        self.build = _Expander(graph.name, table)
        self.env: dict[Node, Any] = {}
        """New nodes; tuples of them for a decomposed op with several results."""

    def run(self) -> Graph:
        for node in self.graph.nodes[:-1]:
            self.build.source = node
            self.env[node] = self._translated(node)
        self.build.source = None
        values = [self.env[v] if type(v) is Node else v for v in self.graph.outputs]
        return self.build.finish(values, self.graph.output_roles)

    def _translated(self, node: Node) -> object:
        if node.op != "call":
            return self.build.add(node)
        args = map_nodes(node.args, self.env.__getitem__)
        if node.target is GETITEM and type(args[0]) is tuple:
            return args[0][args[1]]
        if node.target in self.table:
            found = self.build.expanded(node.target, _proxies(self.build, args))
            if found is not NotImplemented:
                return tuple([f.node for f in found]) if type(found) is tuple else found.node
        return self.build.add(node if args is node.args else node.with_args(args, node.meta))


def _proxies(build: Builder, value: object) -> Any:
    return map_nodes(value, lambda node: Proxy(build, node))


class _Expander(Builder):
    """A builder whose proxies decompose the ops that are called on them."""

    def __init__(self, name: str, table: Table) -> None:
        super().__init__(name)
        self.table = table
        self.open: list[tuple[Op, object]] = []
        """The decompositions that are running, outermost first, with their arguments."""

    def call(self, op: Op, args: tuple[object, ...]) -> Any:
        """Handles an op that a decomposition calls: emits it, or decomposes it in turn (DEC-2)."""
        self._check_call(op, args)
        if isinstance(op, MultiViewOp):
            return tuple([self.call(view, (args[0], *rest)) for view, rest in op.parts(args)])
        found = self.expanded(op, args) if op in self.table else NotImplemented
        return super().call(op, args) if found is NotImplemented else found

    def expanded(self, op: Op, args: object) -> Any:
        """The results of the decomposition of `op`; NotImplemented if it returns that, which keeps
        the op (DEC-3).
        """
        self._check_depth(op, args)
        start = len(self.nodes)
        self.open.append((op, args))
        try:
            result = _run(self.table[op], op, args)
            if result is NotImplemented:
                del self.nodes[start:]
                return result
            return self._fitted(op, args, result, start)
        finally:
            self.open.pop()

    # --- results
    def _fitted(self, op: Op, args: Any, result: object, start: int) -> object:
        """The results, checked; copied if strides differ or memory is shared (DEC-4, DEC-5)."""
        expected = op.infer(args)
        metas = expected if type(expected) is tuple else (expected,)
        results = tuple(result) if type(result) is list else result
        if type(expected) is not tuple:
            results = (result,)
        if type(results) is not tuple or len(results) != len(metas):
            raise _wrong(op, f"it returned {_text(result)}", f"{len(metas)} results")
        made = set(self.nodes[start:])
        _check_origin(op, args, self.nodes[start:], made)
        found = []
        for value, meta in zip(results, metas, strict=True):
            if type(value) is not Proxy or value.builder is not self:
                raise _wrong(op, f"it returned {_text(value)}", "a value made of its arguments")
            found.append(self._result(op, value, meta, made))
        return tuple(found) if type(expected) is tuple else found[0]

    def _result(self, op: Op, value: Proxy, meta: Any, made: set[Node]) -> Proxy:
        got = value.meta
        if (got.shape, got.dtype, got.device) != (meta.shape, meta.dtype, meta.device):
            raise _wrong(op, f"it returned {got}", f"{meta}")
        root = storage_root(value.node)
        own = root in made and root.op == "call" or not isinstance(op, PureOp)
        made.discard(root)  # a second result on this memory gets a copy
        if own and always_same(got.stride, meta.stride):
            return value
        return super().call(RESTRIDE, (value, meta.stride))

    # --- refusals
    def _check_call(self, op: Op, args: tuple[object, ...]) -> None:
        effect = _EFFECTS.get(type(op))
        if effect is not None:
            raise self._inside(f"it calls {op.name}, which {effect}", "ops without effects (TRC-2)")
        for value in op.operands(args):
            if type(value) is not Proxy or value.builder is not self:
                raise self._inside(
                    f"it calls {op.name} on {_text(value)} from outside", "values of its arguments"
                )

    def _inside(self, got: str, expected: str) -> ArgumentError:
        name = self.open[-1][0].name if self.open else "an op"
        return ArgumentError(f"decomposition of {name!r}: {got}, expected {expected}")

    def _check_depth(self, op: Op, args: object) -> None:
        path = [*[each.name for each, _ in self.open], op.name]
        for index, (other, given) in enumerate(self.open):
            if other is op and _seen(given) == _seen(args):
                way = " -> ".join(path[index:])
                raise _wrong(op, f"it leads back to itself ({way})", "an end in other ops (DEC-2)")
        if len(self.open) >= _DEPTH:
            way = " -> ".join(path[-4:])
            raise _wrong(
                op, f"it is {_DEPTH} deep in others ({way})", "an end in other ops (DEC-2)"
            )


def _run(function: Decomposition, op: Op, args: Any) -> Any:
    """Calls a decomposition with the op's arguments, without trailing Nones and defaults."""
    positional: list[object] = []
    named: dict[str, Any] = {}
    for parameter, value in zip(op.schema.parameters, args, strict=True):
        if not parameter.keyword_only:
            positional.append(value)
        elif value is not parameter.default and _seen(value) != _seen(parameter.default):
            named[parameter.name] = value
    while positional and positional[-1] is None:
        positional.pop()
    try:
        with modes_kept(), recording(_Outside(op)):
            return function(*positional, **named)
    except AotliteError as error:
        if not str(error).startswith(f"decomposition of {op.name!r}: "):
            error.add_note(f"in the decomposition of {op.name!r}")
        raise
    except Exception as error:
        raise noted(
            _wrong(op, f"it raised {type(error).__name__}", "a result"), str(error)
        ) from error


class _Outside:
    """A recorder that refuses all: a decomposition may compute on its arguments only."""

    def __init__(self, op: Op) -> None:
        self._op = op

    def __getattr__(self, name: str) -> Any:
        raise noted(
            _wrong(self._op, "it calls on a tensor from outside", "values of its arguments"),
            "It may neither read nor write other tensors, draw, nor run a backward. (TRC-2)",
        )


def _check_origin(op: Op, args: Any, nodes: list[Node], made: set[Node]) -> None:
    """Raises if a decomposition uses a value that it kept from another call (DEC-6)."""
    given = {proxy.node for proxy in op.operands(args)}
    for node in nodes:
        for value in node.inputs():
            if value not in made and value not in given:
                raise _wrong(
                    op,
                    f"it calls {node.target.name} on {value} from outside",
                    "values of its arguments",
                )


def _seen(args: object) -> object:
    """A key of all that a decomposition can see: metas, and literals with their types."""
    if type(args) is tuple:
        return tuple([_seen(item) for item in args])
    if type(args) is Proxy:
        return args.meta
    return type(args), repr(args)


def _wrong(op: Op, got: str, expected: str) -> ArgumentError:
    return ArgumentError(f"decomposition of {op.name!r}: {got}, expected {expected}")


def _text(value: Any) -> str:
    meta = getattr(value, "meta", None)
    if type(meta) is TensorMeta:
        return f"a {type(value).__name__} {meta}"
    if type(value) in (tuple, list):
        return f"{len(value)} results"
    return repr(value)
