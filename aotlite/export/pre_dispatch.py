"""The graph of a pre-dispatch export, which can be differentiated afterwards (EXP-4).

A functional graph says nothing of `detach()`, which is a view like any other there. Here stage 5
puts a clone under no_grad in its place, and stage 7 merges nothing, so each node can run in the
grad mode in which it was recorded:

    d = x.detach(); y = x * d        clone (grad mode off); mul (on)

`with_gradients` runs such a graph on tensors. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.eager.base.modes import set_grad_enabled
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor as tensor_of
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import ArgumentError, ExportError, noted
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.op import MultiViewOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import DETACH, HIDDEN_ALIAS
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.capture import Captured
from aotlite.stages.s5_desugar import desugar

__all__ = ["PRE_DISPATCH_STAGES", "with_gradients"]

_STOPS = (DETACH, HIDDEN_ALIAS)


def _desugared(captured: Captured, both: Joint) -> Joint:
    """Stage 5, with a clone under no_grad in the place of each `detach`. Raises ExportError for
    what a functional graph cannot say of gradients."""
    if captured.recorder.unrecorded:
        raise noted(
            ExportError(
                "export: forward runs a custom Function, or sets requires_grad or .grad, which no "
                "op of a pre-dispatch graph says, expected ops alone"
            ),
            "Export with pre_dispatch=False: gradients are then computed before the export. "
            "(EXP-4)",
        )
    both = desugar(captured, both)
    inputs = {each.role for each in captured.inputs if each.requires_grad}
    return attrs.evolve(both, graph=_with_stops(both.graph, inputs.__contains__))


def _with_stops(graph: Graph, requires_grad: Callable[[Any], bool]) -> Graph:
    live, last_write = _differentiable_roots(graph, requires_grad)
    edit = graph.edit()
    for place, node in enumerate(graph.calls):
        if node.phase is not Phase.FORWARD or storage_root(node) not in live:
            continue
        stops = node.target in _STOPS
        if node.target.writes:
            if not node.grad_mode or _is_detached(node.args[0]):
                raise _write_refused(node)
        elif stops or (isinstance(node.target, (ViewOp, MultiViewOp)) and not node.grad_mode):
            if last_write.get(storage_root(node), -1) > place:
                raise _write_refused(node)
        if stops:
            old = edit.find(node)
            with edit.inserting_before(old):
                new = edit.call(CLONE, (old.args[0],))
            new.grad_mode = False
            edit.replace_all_uses_with(old, new)
    return edit.graph()


def _differentiable_roots(
    graph: Graph, requires_grad: Callable[[Any], bool]
) -> tuple[set[Node], dict[Node, int]]:
    """The nodes whose memory may hold a value with a gradient; the last write of each memory."""
    live = {node for node in graph.placeholders if requires_grad(node.role)}
    last_write: dict[Node, int] = {}
    for place, node in enumerate(graph.calls):
        if node.target.writes:
            last_write[storage_root(node)] = place
        reads = [storage_root(each) for each in node.inputs() if not _is_detached(each)]
        if node.grad_mode and not live.isdisjoint(reads):
            live.add(storage_root(node))
    return live, last_write


def _is_detached(node: Node) -> bool:
    """Whether a value is a view through `detach`, or one made under no_grad."""
    while node.op == "call" and (isinstance(node.target, ViewOp) or node.target in (GETITEM,)):
        if node.target in _STOPS or not node.grad_mode:
            return True
        node = node.args[0]
    return False


def _write_refused(node: Node) -> Exception:
    return noted(
        ExportError(
            f"export: forward writes memory that has a gradient where gradients stop "
            f"({node.target.name}), which no pre-dispatch graph says, expected no such write"
        ),
        "Write before the value is used, or export with pre_dispatch=False. (EXP-4)",
    )


def _unsimplified(graph: Graph) -> Graph:
    """Stage 7 that leaves the graph alone: values of different grad modes are never merged."""
    return graph


PRE_DISPATCH_STAGES = {"desugar": _desugared, "simplify": _unsimplified}
"""The stages that a pre-dispatch export replaces."""


def with_gradients(graph: Graph) -> Callable[..., list[Any]]:
    """A function of tensors that runs a pre-dispatch graph, each op in its own grad mode.

    It takes a tensor for each input of the graph and returns the list of its outputs, with the
    histories that the Module's own ops would have made. Raises ArgumentError for another number of
    inputs.

    >>> import aotlite as al
    >>> from aotlite.export import aot_export_module, with_gradients
    >>> class Scale(al.nn.Module):
    ...     def __init__(self):
    ...         self.weight = al.nn.Parameter(al.full((2,), 3.0))
    ...     def forward(self, x):
    ...         return (self.weight * self.weight.detach() * x,)
    >>> graph, signature = aot_export_module(Scale(), (al.ones(2),), pre_dispatch=True)
    >>> weight = al.full((2,), 3.0).requires_grad_()
    >>> with_gradients(graph)(weight, al.ones(2))[0].sum().backward()
    >>> weight.grad
    tensor([3., 3.])
    """

    def call(*tensors: Tensor) -> list[Any]:
        if len(tensors) != len(graph.placeholders):
            raise ArgumentError(
                f"with_gradients: {len(tensors)} inputs, expected {len(graph.placeholders)}, one "
                "for each input of the graph"
            )
        values: dict[Node, Any] = dict(zip(graph.placeholders, tensors, strict=True))

        def value(argument: Any) -> Any:
            if isinstance(argument, tuple):
                return tuple(map(value, argument))
            return values[argument] if isinstance(argument, Node) else argument

        for node in graph.nodes[len(graph.placeholders) : -1]:
            if node.op == "get_attr":
                values[node] = tensor_of(node.target.value)
            elif node.target is GETITEM:
                values[node] = value(node.args[0])[node.args[1]]
            else:
                with set_grad_enabled(node.grad_mode):
                    values[node] = dispatch(node.target, value(node.args))
        return [value(each) for each in graph.outputs]

    return call
