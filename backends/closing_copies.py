"""Graphs that end with `copy_` into inputs, for backends that compile pure graphs only.

The copies are split off, and the values that they copy become further results of the pure rest:

    def f(x):                     def f_pure(x):            then, in Python:
        y = x * 2                     y = x * 2                 z, y = f_pure(x)
        z = y + 1                     z = y + 1                 copy y into x
        x.copy_(y)                    return z, y               return z
        return z

Spec: `specs/s9_lower.md`. Rule: FUN-22.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

from aotlite.backends.calling_convention import Run, Value, array_of
from aotlite.ir.graph import Graph, Node, output_node
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import COPY_


def has_copies(graph: Graph) -> bool:
    """Whether the graph ends with a `copy_`, which stands last where there is one (FUN-22)."""
    last = graph.nodes[-2] if len(graph.nodes) > 1 else graph.nodes[-1]
    return last.target is COPY_


def compiled_with_copies(graph: Graph, compile_pure: Callable[[Graph], Run]) -> Run:
    """Returns the run of a graph with closing copies; `compile_pure` compiles the rest."""
    nodes = [node for node in graph.nodes[:-1] if node.target is not COPY_]
    copies = [node for node in graph.nodes if node.target is COPY_]
    values = [node.args[1] for node in copies]
    roles = [MutatedInput(node.args[0].role) for node in copies]
    closing = output_node([*graph.outputs, *values], [*graph.output_roles, *roles])
    return CopyingRun(graph, compile_pure(Graph((*nodes, closing), graph.name)), copies)


class CopyingRun(Run):
    """Runs the pure rest of a graph, and then its copies."""

    def __init__(self, graph: Graph, pure: Run, copies: list[Node]) -> None:
        super().__init__(graph)
        self.pure = pure
        places = {node: place for place, node in enumerate(self.read_among(graph.placeholders))}
        self._copies = [(places[node.args[0]], *_metas(node)) for node in copies]
        """(place among the inputs that are read, its meta, meta of its new value)."""
        self._read_by_pure = self.read_among(pure.reads)
        self._count = len(graph.outputs)

    def call(self, values: list[Value]) -> list[Value]:
        targets = [values[place] for place, _, _ in self._copies]
        given = list(compress(values, self._read_by_pure))
        values.clear()
        results = self.pure.call(given)
        news = results[self._count :]
        for target, new, (_, meta, new_meta) in zip(targets, news, self._copies, strict=True):
            write(target, meta, new, new_meta)
        return results[: self._count]


def _metas(node: Node) -> tuple[TensorMeta, TensorMeta]:
    target, value = node.args
    return target.meta, value.meta


def write(target: Value, meta: TensorMeta, value: Value, value_meta: TensorMeta) -> None:
    """Copies a value into another one."""
    meta.device.arrays.copy(array_of(target, meta), array_of(value, value_meta))
