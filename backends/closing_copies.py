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

from aotlite.backends.protocol import Run, Window
from aotlite.ir.graph import Graph, Node, output_node
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import COPY_

Copy = tuple[int, TensorMeta, TensorMeta]
"""(index of the input that is written, its meta, meta of its new value)."""


def has_copies(graph: Graph) -> bool:
    """Whether the graph ends with a `copy_`, which stands last where there is one (FUN-22)."""
    last = graph.nodes[-2] if len(graph.nodes) > 1 else graph.nodes[-1]
    return last.target is COPY_


def compiled_with_copies(graph: Graph, compile_pure: Callable[[Graph], Run]) -> Run:
    """Returns the callable of a graph with closing copies; `compile_pure` compiles the rest."""
    nodes = [node for node in graph.nodes[:-1] if node.target is not COPY_]
    copies = [node for node in graph.nodes if node.target is COPY_]
    values = [node.args[1] for node in copies]
    roles = [MutatedInput(node.args[0].role) for node in copies]
    closing = output_node([*graph.outputs, *values], [*graph.output_roles, *roles])
    run = compile_pure(Graph((*nodes, closing), graph.name))
    places = {node: index for index, node in enumerate(graph.placeholders)}
    return _closing(run, len(graph.outputs), [_copy(node, places) for node in copies])


def _copy(node: Node, places: dict[Node, int]) -> Copy:
    target, value = node.args
    return places[target], target.meta, value.meta


def _closing(run: Run, count: int, copies: list[Copy]) -> Run:
    def call(windows: list[Window]) -> list[Window | None]:
        targets = [windows[index] for index, _, _ in copies]
        results = run(windows)
        for target, value, (_, meta, value_meta) in zip(
            targets, results[count:], copies, strict=True
        ):
            write(target, meta, value, value_meta)
        return results[:count]

    return call


def write(target: Window, meta: TensorMeta, value: Window | None, value_meta: TensorMeta) -> None:
    """Copies the window `value` into the window `target`."""
    assert value is not None
    arrays = meta.device.arrays
    into = arrays.strided(target[0], meta.dtype, meta.shape, meta.stride, target[1])
    arrays.copy(
        into,
        arrays.strided(value[0], value_meta.dtype, value_meta.shape, value_meta.stride, value[1]),
    )
