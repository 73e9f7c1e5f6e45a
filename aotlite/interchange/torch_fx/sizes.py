"""Sizes that are symbols, in a module of torch.fx: nodes that compute them, and checks.

    view(x, (s0*s1,))     size = sym_size.int(x, 0); size_1 = sym_size.int(x, 1)
                          mul = operator.mul(size, size_1); view = aten.view.default(x, [mul])

A symbol is computed from the size of an input that gives it. What the graph and its writing take
for granted of sizes is asserted at the start. Spec: `specs/torch_fx.md`. Rule: XFX-6.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aotlite.interchange.sizes.program_sizes import demands_of, sizes_of, table_in, with_demands
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.size_texts import size_tree
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.proving import proving
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt

OPERATORS: Mapping[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


class SizedModule(Protocol):
    """A `ModuleWriter`."""

    torch: Any
    fx: Any
    aten: Any

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds a call."""


class SizeWriter:
    """The sizes of one module."""

    def __init__(self, graph: Graph, writer: SizedModule) -> None:
        self._writer = writer
        self._table = table_in(graph)
        self._sizes = sizes_of(graph)
        self._demands = demands_of(self._table)
        if self._table is not None and self._demands is None:
            raise UnsupportedError(
                f"to_fx: graph {graph.name} has symbols without sizes of a trace, expected a graph "
                "that was traced in this process"
            )
        self._hints = {} if self._demands is None else dict(self._demands.sizes)
        self._bindings = {binding[0]: binding[1:] for binding in self._sizes.bindings}
        self._made: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        """By the text of a role: the node of the input."""

    @property
    def has_symbols(self) -> bool:
        """Whether there is anything to compute."""
        return self._table is not None

    def proving(self) -> AbstractContextManager[object]:
        """A block in which what is asked of sizes becomes a condition."""
        return proving(self._table, demands=self._demands)

    def at_hints(self, value: Any) -> Any:
        """A meta, or sizes, with the numbers of the trace."""
        return concrete(value, self._hints) if self.has_symbols else value

    def nodes_in(self, value: Any) -> Any:
        """A value with a node in the place of each size that is a symbol."""
        if isinstance(value, SymInt):
            return self._of(str(value))
        if isinstance(value, (SizeFloat, SymBool)):
            raise noted(
                UnsupportedError(
                    f"to_fx: a call has the argument {value}, which is computed from a size, "
                    "expected whole numbers"
                ),
                "Instead: put numbers in the place of sizes, by export without dynamic_shapes. "
                "(XFX-6)",
            )
        if type(value) in (tuple, list):
            return type(value)([self.nodes_in(each) for each in value])
        return value

    def _of(self, text: str) -> Any:
        if text not in self._made:
            tree = size_tree(text)
            if tree is None:
                raise UnsupportedError(
                    f"to_fx: the size {text} is no arithmetic of ints, expected one that is"
                )
            self._made[text] = self._computed(tree)
        return self._made[text]

    def _computed(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Constant(value=number):
                return number
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.UnaryOp(operand=operand):
                return self._writer.call(operator.neg, self._part(operand))
            case ast.Call(func=ast.Name(id=name), args=[left, right]):
                function = max if name == "max" else min
                return self._writer.call(function, self._part(left), self._part(right))
            case ast.BinOp(left=left, op=op, right=right):
                parts = self._part(left), self._part(right)
                return self._writer.call(OPERATORS[type(op)], *parts)
        raise AssertionError(f"the text of a size has {ast.dump(tree)}")

    def _part(self, tree: ast.expr) -> Any:
        return self._of(ast.unparse(tree))

    def _symbol(self, name: str) -> Any:
        given, dim, times, rest = self._bindings[name]
        call = self._writer.call
        size = call(self._writer.aten.sym_size.int, self.inputs[given], dim)
        if rest != "0":
            size = call(operator.sub, size, self._of(rest))
        return size if times == 1 else call(operator.floordiv, size, times)

    def check(self) -> None:
        """Adds the assertions, behind the inputs."""
        conditions = with_demands(self._sizes, self._demands).conditions
        nodes = list(self._writer.fx.nodes)
        first = next(node for node in nodes if node.op != "placeholder")
        self._made = {}
        with self._writer.fx.inserting_before(first):
            for left, relation, right in conditions:
                values = [self._of(left), self._of(right)]
                if not any(isinstance(each, self._writer.torch.fx.Node) for each in values):
                    continue
                truth = self._writer.call(RELATIONS[relation], *values)
                told = f"the graph is for sizes with {left} {relation} {right}"
                self._writer.call(self._writer.torch._assert, truth, told)
