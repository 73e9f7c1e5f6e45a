"""`ProgramConvention`: the inputs and outputs of a program that leaves, by name, and what they are.

Names are those of roles. An output that updates an input says which one: a result of that role, or
a closing copy (`copy_`) of the graph. A result that is no tensor is no output of the program, and
stands in the convention with its value. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from aotlite.freezing import FrozenFunction
from aotlite.interchange.arrays.target import Value
from aotlite.interchange.sizes.program_sizes import (
    ProgramSizes,
    sizes_of,
    value_of,
    values_in,
)
from aotlite.ir.arrays import Array
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import RNG_INPUTS, RNG_OUTPUTS, Hidden, MutatedInput, Role
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.symbols.symint import SymInt


@attrs.frozen
class ProgramConvention:
    """The names of a program's values, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str | None, ...]
    """The graph's results; None for one that is no tensor."""
    literals: tuple[object, ...]
    """The values of the results that are no tensors, else None."""
    updates: Mapping[str, str]
    """Output -> the input whose new value it is."""
    copies: tuple[str, ...]
    """The outputs behind the results: new values of inputs which the graph writes itself."""
    parameters: Mapping[str, str]
    """Input -> the qualified name of a parameter or buffer of an exported Module, the path in the
    state of a program, or the place where a compiled function found a tensor."""
    gradients: Mapping[str, str]
    """Output -> the qualified name, or the input, whose gradient it is."""
    types: Mapping[str, tuple[str, tuple[int | str, ...]]]
    """Input -> its dtype, by NumPy's name, and its shape; a size that is a symbol is a text."""
    sizes: ProgramSizes
    """The symbols, and the conditions on them."""

    @property
    def names(self) -> list[str]:
        """The program's outputs."""
        return [name for name in self.outputs if name is not None] + list(self.copies)

    def values(self, graph: Graph, found: Mapping[Node, Any]) -> list[tuple[str, Value]]:
        """(name, array) of each output of the program."""
        pairs = zip(self.outputs, graph.outputs, strict=True)
        made = [(name, found[value]) for name, value in pairs if name is not None]
        closing = [node for node in graph.calls if node.target is COPY_]
        return made + [(n, found[node]) for n, node in zip(self.copies, closing, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """The convention in the types of JSON."""
        made = attrs.asdict(self)
        made["literals"] = [_literal(value) for value in self.literals]
        return made


def _literal(value: object) -> object:
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def input_name(role: object) -> str:
    """The name of an input."""
    return str(role)


class HasForward(Protocol):
    """A compiled function that has run, or a captured program."""

    @property
    def forward_graph(self) -> Graph: ...


def graph_of(source: Graph | HasForward) -> Graph:
    """The graph itself, or the forward of what has one. Raises ArgumentError for what has none."""
    if isinstance(source, Graph):
        return source
    editable: Any = getattr(source, "graph", source)
    if hasattr(type(editable), "ir_graph"):  # an fx.Graph, or the one of an fx.GraphModule
        made: Graph = editable.ir_graph()
        return made
    if isinstance(source, FrozenFunction):
        raise noted(
            ArgumentError(
                f"interchange: the program is {source!r}, whose graphs have folded values, "
                "expected those of an export, of a compiled function, or of a captured program"
            ),
            "Give the program of it, aotlite.export.program(frozen, *args): fixed tensors are its "
            "state.",
        )
    if not hasattr(type(source), "forward_graph"):
        raise noted(
            ArgumentError(
                f"interchange: the program is {source!r}, expected the graph of an export, a "
                "compiled function that has run, a captured program, or an fx.GraphModule"
            ),
            "Call compile(fn) once, or export a Module by aot_export_module.",
        )
    return source.forward_graph


def guards_of(source: object) -> Sequence[Any] | None:
    """The guards of a captured program; None for what has those of its trace."""
    guards: Sequence[Any] | None = getattr(getattr(source, "records", None), "guards", None)
    return guards


def convention_of(source: Graph | HasForward, signature: Any = None) -> ProgramConvention:
    """The convention of a pure graph. `signature` is that of an exported Module.

    Raises UnsupportedError for a graph with effects.
    """
    graph = graph_of(source)
    for node in graph.placeholders:
        if not hasattr(node.meta, "dtype"):
            raise UnsupportedError(
                f"interchange: input {node.role} of graph {graph.name} is {node.meta}, expected a "
                "tensor"
            )
    roles: tuple[Role, ...] = graph.output_roles
    is_value = [type(value) is Node for value in graph.outputs]
    outputs = tuple([str(r) if yes else None for r, yes in zip(roles, is_value, strict=True)])
    literals = [None if yes else v for v, yes in zip(graph.outputs, is_value, strict=True)]
    updates = {str(r): str(r.of) for r in roles if isinstance(r, MutatedInput)}
    closing = [str(n.args[0].role) for n in graph.calls if n.target is COPY_]
    updates |= {f"updated_{name}": name for name in closing}
    inputs = tuple([input_name(node.role) for node in graph.placeholders])
    updates |= _states(graph)
    hidden = [n.role for n in graph.placeholders if isinstance(n.role, Hidden)]
    named = {str(role): role.place for role in hidden if role.place}
    named |= getattr(source, "state_names", {})
    gradients: dict[str, str] = {}
    if signature is not None:
        named |= {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        backward = signature.backward_signature
        if backward is not None:
            gradients = {**backward.gradients_to_parameters, **backward.gradients_to_user_inputs}
    copies = tuple([f"updated_{name}" for name in closing])
    metas: list[tuple[str, Any]] = [(str(node.role), node.meta) for node in graph.placeholders]
    types = {name: (meta.dtype.numpy.name, _shown(meta.shape)) for name, meta in metas}
    results = inputs, outputs, tuple(literals), updates, copies
    sizes = sizes_of(graph, guards_of(source))
    return ProgramConvention(*results, named, gradients, types, sizes)


def _shown(shape: Sequence[Any]) -> tuple[int | str, ...]:
    return tuple([str(size) if type(size) is SymInt else size for size in shape])


def _states(graph: Graph) -> dict[str, str]:
    """The outputs that are the generator's state after the draws -> the inputs before them."""
    before: dict[type, str] = {type(node.role): str(node.role) for node in graph.placeholders}
    pairs: dict[type, Any] = dict(zip(RNG_OUTPUTS, RNG_INPUTS, strict=True))
    after = [role for role in graph.output_roles if isinstance(role, RNG_OUTPUTS)]
    return {str(role): before[pairs[type(role)]] for role in after if pairs[type(role)] in before}


# ------------------------------------------------------------------------------------------ calls
def checked(what: str, convention: Mapping[str, Any], inputs: Mapping[str, object]) -> list[str]:
    """The names of the inputs in order; raises ArgumentError for inputs of other names, dtypes or
    shapes."""
    wanted: list[str] = convention["inputs"]
    if set(inputs) != set(wanted):
        raise ArgumentError(f"{what}: the inputs are {', '.join(inputs)}, expected {wanted}")
    symbols = values_in(what, convention, inputs)
    for name, (dtype, texts) in convention["types"].items():
        value: Any = inputs[name]
        shape = [value_of(n, symbols) if type(n) is str else n for n in texts]
        found = str(getattr(value, "dtype", type(value).__name__)), np.shape(value)
        if found != (dtype, tuple(shape)):
            got = f"{found[0]}{list(found[1])}"
            label = convention["parameters"].get(name, "")
            label = f" ({label})" if label else ""
            raise ArgumentError(
                f"{what}: input {name}{label} is {got}, expected {dtype}{list(shape)}"
            )
    return wanted


def called(
    program: Callable[[Mapping[str, Array]], dict[str, Array]],
    convention: Mapping[str, Any],
    arrays: list[Any],
) -> list[Any]:
    """The results of a program for a graph's inputs in order; written inputs are written."""
    inputs = dict(zip(convention["inputs"], arrays, strict=True))
    arrays.clear()
    outputs = program(inputs)
    for name in convention["copies"]:
        inputs[convention["updates"][name]][...] = outputs[name]
    pairs = zip(convention["outputs"], convention["literals"], strict=True)
    return [literal if name is None else outputs[name] for name, literal in pairs]
