"""`lower`: one walk over a pure graph, which gives each value an array of a target's program.

An op is lowered in the first of these ways that it has: a lowering of its own (`registry`), the
expression of a pointwise op, loops, simpler ops (`expand`). An op that has none is refused, by its
name, with the user's line. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aotlite.backends.loops.lowering.expansion import expand
from aotlite.interchange.arrays import geometry, reduction  # noqa: F401  (fill the table)
from aotlite.interchange.arrays.expression import pointwise
from aotlite.interchange.arrays.geometry import in_window, window_replaced
from aotlite.interchange.arrays.kernel import by_loops
from aotlite.interchange.arrays.registry import LOWERINGS
from aotlite.interchange.arrays.target import ArrayTarget, NotPrinted, Value
from aotlite.interchange.sizes.program_sizes import has_symbols, limit_in
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.graph import map_nodes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import MultiViewOp, PureOp, ViewOp
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.scatters import AS_STRIDED_SCATTER
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.proving import Demands, Unproved

INSTEAD = (
    "Instead: keep this op out of what is exported, pass a decomposition for it "
    "(`decompositions={...}`), or run the program by a backend of aotlite's."
)


def lower(
    graph: Graph, t: ArrayTarget, inputs: Mapping[Node, Value], demands: Demands | None = None
) -> dict[Node, Any]:
    """The array of each value of a graph, and of each closing copy that of the written input.

    `inputs` has the placeholders; `demands` gets what lowerings ask of sizes that are symbols.
    Raises UnsupportedError for an op that the target lacks, or has for few sizes alone.
    """
    values: dict[Node, Any] = dict(inputs)
    for node in graph.nodes:
        if node.op == "get_attr":
            array = np.asarray(node.target.value)
            values[node] = t.constant(array, node.dtype)
        elif node.op == "call":
            values[node] = _lowered(graph, node, t, values)
            limit = None if demands is None else limit_in(demands)
            if limit is not None:
                text = f"has another form where not {' '.join(limit)}"
                raise _refusal(node, t, text)
    return values


def expanded(graph: Graph, *, symbols: bool = False) -> Graph:
    """The graph in ops that have an expression, loops or a lowering. Raises UnsupportedError for
    sizes that are symbols, where the target has none."""
    for node in graph.nodes if not symbols else ():
        for meta in node.meta if type(node.meta) is tuple else (node.meta,):
            if type(meta) is TensorMeta and is_symbolic((*meta.shape, *meta.stride)):
                raise UnsupportedError(
                    f"interchange: graph {graph.name} has a value {meta}, whose sizes are symbols, "
                    "expected numbers: export without dynamic_shapes, for the sizes of the call"
                )
    return expand(graph)


def _lowered(graph: Graph, node: Node, t: ArrayTarget, values: dict[Node, Any]) -> Any:
    args = map_nodes(node.args, values.__getitem__)
    layouts = map_nodes(node.args, lambda each: each.meta)
    t.begin(graph.names[node], node)
    try:
        _require_real(node)
        made = _called(t, node, args, layouts)
        _check(node, made)
    except NotPrinted as reason:
        raise _refusal(node, t, str(reason)) from None
    except Unproved as reason:
        text = f"asks for {reason}, which is another number in each call"
        raise _refusal(node, t, text) from None
    return made


def _require_real(node: Node) -> None:
    results = node.meta if type(node.meta) is tuple else (node.meta,)
    metas = [*results, *[each.meta for each in node.inputs() if type(each.meta) is TensorMeta]]
    if any(meta.dtype.is_complex for meta in metas) or complex in map(type, node.args):
        raise NotPrinted("computes with complex numbers, which are not printed")


def _called(t: ArrayTarget, node: Node, args: Any, layouts: Any) -> Any:
    op = node.target
    if op is GETITEM:
        return args[0][args[1]]
    if op is COPY_:
        return LOWERINGS[op.functional](t, node.meta, *args)
    if isinstance(op, MultiViewOp):
        return tuple(
            [
                _viewed(t, view, layouts[0], args[0], rest)
                for view, rest in op.parts((node.args[0], *args[1:]))
            ]
        )
    if isinstance(op, ViewOp):
        return _viewed(t, op, layouts[0], args[0], args[1:])
    if op is AS_STRIDED_SCATTER:
        return window_replaced(t, op, args[0], args[1], layouts[0], args[2:])
    found = LOWERINGS.get(op)
    made = NotImplemented if found is None else found(t, node.meta, *args)
    if made is not NotImplemented:
        return made
    if isinstance(op, PureOp) and op.scalar is not None:
        return pointwise(t, op, node.meta, args)  # type: ignore[arg-type]
    if isinstance(op, PureOp) and op.loops is not None:
        return by_loops(t, op, node.meta, args, layouts)
    raise NotPrinted("has no form in array operations")


def _viewed(t: ArrayTarget, op: ViewOp, layout: TensorMeta, x: Value, args: Any) -> Value:
    found = LOWERINGS.get(op)
    if found is None:
        return in_window(t, op, x, layout, args)
    made: Value = found(t, op.rule(layout, *args)[0], x, *args)
    return made


def _check(node: Node, made: Any) -> None:
    """Asserts the shapes and dtypes of the op's rule."""
    pairs = zip(made, node.meta, strict=True) if type(made) is tuple else [(made, node.meta)]  # type: ignore[arg-type]
    for value, meta in pairs:
        if isinstance(meta, TensorMeta):
            got, expected = (value.dtype, value.shape), (meta.dtype, meta.shape)
            if got != expected and has_symbols(meta.shape):
                raise NotPrinted(f"has the shape {meta.shape} of symbols, got {value.shape}")
            assert got == expected, f"{node.target.name}: {got}, expected {expected}"


def _refusal(node: Node, t: ArrayTarget, reason: str) -> UnsupportedError:
    kinds = [str(each.meta) for each in node.inputs()]
    of = f" of {', '.join(kinds)}" if kinds else ""
    error = UnsupportedError(
        f"{t.name}: {node.target.name}{of} {reason}, expected an op that {t.name} expresses"
    )
    if node.location is not None:
        error.add_note(place_of(node.location).note())
    error.add_note(INSTEAD)
    return error
