"""`traced_module`: a trace as an `fx.GraphModule`, called with arguments like those traced.

Rules: FNT-16, FNT-19. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.fx import CodeGen, GraphModule
from aotlite.fx import Graph as FxGraph
from aotlite.fx.core.codegen import InputTemplate
from aotlite.fx.core.structure import Template, flattened, rebuilt
from aotlite.ir.graph import Graph

Arguments = Sequence[tuple[str, object]]
"""(parameter, argument) of each."""


def tensors_of(value: object) -> tuple[Template, list[Tensor]]:
    """How nested containers are made of tensors; the tensors."""
    return flattened(value, lambda each: isinstance(each, Tensor))


def input_names(arguments: Arguments) -> list[str]:
    """A name for each tensor among the arguments: that of its parameter, numbered (FNT-16)."""
    return [
        f"{name}_{number}"
        for name, value in arguments
        for number in range(1, len(tensors_of(value)[1]) + 1)
    ]


def traced_module(
    graph: Graph, arguments: Arguments, results: Template, constants: Mapping[str, Tensor]
) -> GraphModule:
    """The Module of a traced graph, whose inputs are the tensors among the arguments in order."""
    made = FxGraph(graph)
    inputs = made.find_nodes(op="placeholder")
    for node, name in zip(inputs, input_names(arguments), strict=True):
        node.name = name
    output = made.output_node()
    output.args = (rebuilt(results, output.args[0]),)
    templates = [InputTemplate(name, tensors_of(value)[0]) for name, value in arguments]
    made.set_codegen(CodeGen(templates))
    return GraphModule(dict(constants), made)
