"""`aotlite.descriptors`: what each input and output of a graph is, in the user's own words.

`descriptors_of(fn, *args)` compiles for these arguments without running, and describes the graphs
of the entry. Rules: TRC-8. Spec: `specs/descriptors.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.api import CompiledFunction
from aotlite.descriptors.gradients import (
    arguments_with_gradients,
    buffers,
    inputs_of,
    outputs_of,
    parameters,
    parameters_with_gradients,
    results_with_tangents,
)
from aotlite.descriptors.kinds import (
    AnyDescriptor,
    ArrivedInput,
    BufferInput,
    ComputedSizeOutput,
    CurrentInput,
    Descriptor,
    GradOutput,
    GradWriteOutput,
    InputDescriptor,
    InputMutationOutput,
    IntermediateBaseOutput,
    NumberedInput,
    OutputDescriptor,
    ParamInput,
    PlainInput,
    PlainOutput,
    RandomStateInput,
    RandomStateOutput,
    ReachedInput,
    RewrittenOutput,
    SavedValueDescriptor,
    SizeInput,
    SubclassPart,
    SyntheticBaseInput,
    TangentInput,
    TokenInput,
    TokenOutput,
    ViewBaseInput,
)
from aotlite.descriptors.names import GraphDescriptors, Names
from aotlite.descriptors.reader import Moment, read
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph
from aotlite.pipeline.arguments import call_of
from aotlite.pipeline.options import make_options
from aotlite.stages.records.guards.access_paths import NOTHING

__all__ = [
    "AnyDescriptor",
    "ArrivedInput",
    "BufferInput",
    "ComputedSizeOutput",
    "CurrentInput",
    "Descriptor",
    "Descriptors",
    "GradOutput",
    "GradWriteOutput",
    "GraphDescriptors",
    "InputDescriptor",
    "InputMutationOutput",
    "IntermediateBaseOutput",
    "Moment",
    "Names",
    "NumberedInput",
    "OutputDescriptor",
    "ParamInput",
    "PlainInput",
    "PlainOutput",
    "RandomStateInput",
    "RandomStateOutput",
    "ReachedInput",
    "RewrittenOutput",
    "SavedValueDescriptor",
    "SizeInput",
    "SubclassPart",
    "SyntheticBaseInput",
    "TangentInput",
    "TokenInput",
    "TokenOutput",
    "ViewBaseInput",
    "arguments_with_gradients",
    "buffers",
    "descriptors_of",
    "inputs_of",
    "outputs_of",
    "parameters",
    "parameters_with_gradients",
    "read",
    "results_with_tangents",
]


@attrs.frozen(eq=False)
class Descriptors:
    """The graphs of one entry, and what each of their inputs and outputs is.

    `joint` has forward and backward in one; it is the forward alone where nothing is
    differentiable. `str()` lists all of them.
    """

    joint_graph: Graph
    forward_graph: Graph
    backward_graph: Graph | None
    names: Names = attrs.field(repr=False)

    @property
    def joint(self) -> GraphDescriptors:
        return self.names.of_graph(self.joint_graph)

    @property
    def forward(self) -> GraphDescriptors:
        return self.names.of_graph(self.forward_graph)

    @property
    def backward(self) -> GraphDescriptors | None:
        graph = self.backward_graph
        return None if graph is None else self.names.of_graph(graph)

    def read(
        self,
        descriptor: AnyDescriptor,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        result: Any = NOTHING,
    ) -> Any:
        """The value that a descriptor speaks of in a call: see `reader.read`."""
        return read(self.names, descriptor, Moment(args, kwargs or {}, result))

    def __str__(self) -> str:
        parts = {"forward": self.forward, "backward": self.backward}
        return "\n".join(f"{name}\n{each}" for name, each in parts.items() if each is not None)


def descriptors_of(fn: Callable[..., object], *args: object, **kwargs: object) -> Descriptors:
    """Compiles `fn` for these arguments without running it; the descriptors of its graphs.

    `fn` may be a compiled function: its options are used, its entries do not change.

    >>> import aotlite as al
    >>> model, batch = al.nn.Linear(2, 1), {"x": al.ones(3, 2)}
    >>> found = descriptors_of(lambda model, batch: model(batch["x"]).sum(), model, batch)
    >>> print(found.forward)
    input 0: argument batch['x']
    input 1: parameter model.weight
    input 2: parameter model.bias
    output 0: result
    output 1: saved value primals_1, checked
    """
    given = fn if isinstance(fn, CompiledFunction) else CompiledFunction(fn, make_options())
    graphs: dict[str, Graph] = {}
    outer = given.options.observer

    def observe(stage: str, made: Any) -> None:
        if isinstance(made, Graph) and stage.startswith(("7", "pass")):
            graphs["joint"] = made
        if outer is not None:
            outer(stage, made)

    options = attrs.evolve(given.options, observer=observe)
    compiled = CompiledFunction(given.function, options)
    compiled.prepare(*args, **kwargs)
    if not compiled.entries:
        raise ArgumentError("descriptors: nothing was compiled, expected a recompile limit above 0")
    entry = compiled.entries[-1]
    names = Names(given.function, call_of(args, kwargs), entry)
    partition = entry.partition
    return Descriptors(graphs["joint"], partition.forward, partition.backward, names)
