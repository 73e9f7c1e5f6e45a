"""`TracedModule`: a traced graph as a function of the arguments that it was traced with.

Rules: FNT-16, FNT-19. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import optree

from aotlite.eager.base.modes import set_grad_enabled
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import as_tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.ops.structure import GETITEM
from aotlite.pipeline.arguments import flattened


class TracedModule:
    """A graph that `make_fx` traced. Calling it runs its ops, in order, on tensors."""

    def __init__(
        self, graph: Graph, names: list[str], spec: Any, results: Any, *, keeps_grad_modes: bool
    ) -> None:
        self.graph = graph
        self.input_names = names
        self._spec = spec
        self._results = results
        self._keeps_grad_modes = keeps_grad_modes

    @property
    def code(self) -> str:
        """The graph as text, with the names of the parameters."""
        found: str = self.graph.code
        return re.sub(r"\barg_(\d+)\b", lambda match: self.input_names[int(match[1])], found)

    def print_readable(self) -> str:
        """Prints the graph, and returns the text."""
        print(self.code)
        return self.code

    def __repr__(self) -> str:
        return f"TracedModule({self.graph.name})"

    def __call__(self, *args: Any) -> Any:
        leaves, spec = flattened(args, "the arguments")
        if spec != self._spec:
            raise ArgumentError(
                f"{self.graph.name}: the arguments are {spec}, expected {self._spec}, as traced"
            )
        tensors = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}.values())
        if len(tensors) != len(self.graph.placeholders):
            raise ArgumentError(
                f"{self.graph.name}: {len(tensors)} different tensors, expected "
                f"{len(self.graph.placeholders)}, as traced"
            )
        return optree.tree_unflatten(self._results, self._run(tensors))

    def _run(self, tensors: list[Tensor]) -> list[Any]:
        values: dict[Node, Any] = dict(zip(self.graph.placeholders, tensors, strict=True))

        def value(argument: Any) -> Any:
            if type(argument) is tuple:
                return tuple(map(value, argument))
            return values[argument] if isinstance(argument, Node) else argument

        for node in self.graph.nodes[len(tensors) : -1]:
            if node.op == "get_attr":
                values[node] = as_tensor(node.target.value)
            elif node.target is GETITEM:
                values[node] = value(node.args[0])[node.args[1]]
            else:
                mode = set_grad_enabled(node.grad_mode) if self._keeps_grad_modes else nullcontext()
                with mode:
                    values[node] = dispatch(node.target, value(node.args))
        return [value(each) for each in self.graph.outputs]
