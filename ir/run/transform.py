"""`Transformer`: a pass written as an interpreter that rebuilds the graph.

Ground floor. A pass takes a valid graph, returns a valid one, and never changes its input
(`specs/graph.md`). A subclass overrides `call` or another hook. The values are proxies of the new
graph, so that a replacement is written in tensor methods.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Constant, Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.op import Op
from aotlite.ir.run.interpreter import Interpreter


class Transformer(Interpreter):
    """Rebuilds a graph, by default an equal one; keeps roles, constants, locations and phases.

    >>> from aotlite.ir.meta import tensor_meta
    >>> class Doubled(Transformer):
    ...     def call(self, target, args):
    ...         return super().call(target, args) * 2.0
    >>> build = Builder("negate")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(Doubled(build.finish([-x])).transform().code)
    def negate(arg_0: "f32[2]"):
        neg = ops.neg(arg_0)
        mul = ops.mul(neg, 2.0)
        return (mul,)
    """

    def __init__(self, graph: Graph) -> None:
        self.builder = Builder(graph.name)
        super().__init__(graph, self.builder.apply)

    def transform(self) -> Graph:
        """The new graph; the old one stays as it is."""
        self.builder = Builder(self.graph.name)
        self._apply = self.builder.apply
        result: Graph = self.run(*self.graph.placeholders)
        return result

    def run_node(self, node: Node) -> Any:
        """The hook's result; nodes that it emits get this node's location, phase and number."""
        self.builder.source = node
        return super().run_node(node)

    # --- hooks
    def placeholder(self, target: object, args: tuple[object, ...]) -> Any:
        """The same input: its node is shared between both graphs."""
        return Proxy(self.builder, self.builder.add(self.node))

    def get_attr(self, target: Constant, args: tuple[object, ...]) -> Any:
        """The same constant: its node is shared between both graphs."""
        return Proxy(self.builder, self.builder.add(self.node))

    def call(self, target: Op, args: tuple[Any, ...]) -> Any:
        """Emits the op; `args` are proxies and literals.

        Returns a proxy, or a sequence of proxies for several results.
        """
        return super().call(target, args)

    def output(self, target: object, args: tuple[Any, ...]) -> Graph:
        """The finished graph."""
        return self.builder.finish(args[0], self.graph.output_roles)
