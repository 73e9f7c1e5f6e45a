"""`to_python`: an exported graph with its signature as one Python file that needs NumPy alone.

The file's function takes the user's arguments and `state`, a dict of arrays by qualified name. It
writes new values into these arrays, and returns the results; of a graph with gradients it returns
(results, gradients by name). Input: what `aot_export_module` returns. Rules: PYX-11. Spec:
`specs/to_python.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.export.signature import GraphSignature
from aotlite.ir.arrays import host_array
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Gradient, Output
from aotlite.python_export import check_array_module, file_text, functions_of, save
from aotlite.python_export.entry_text import local
from aotlite.python_export.file_parts import FileParts, entry_name
from aotlite.python_export.graph_text import FunctionText, Leaving
from aotlite.python_export.kernels.argument_text import literal
from aotlite.python_export.line_layout import names_in
from aotlite.python_export.program_facts import leaf_texts, parameters_in
from aotlite.python_export.symbolic_sizes import symbols_in
from aotlite.python_export.values.containers import container_text
from aotlite.python_export.values.state_arrays import state_text


def to_python(
    graph: Graph,
    signature: GraphSignature,
    path: str | None = None,
    *,
    state: Mapping[str, Tensor] | None = None,
    ml_dtypes: bool = False,
    array_module: str = "numpy",
) -> str:
    """The text of a file that computes an exported graph; it is written to `path`.

    `state` are tensors by qualified name whose values the file holds, as `STATE`; without it the
    caller of the file passes all of them. `array_module` is that of `python_text`. Raises
    UnsupportedError for what NumPy cannot do, such as effects.

    >>> import aotlite as al
    >>> from aotlite.export import aot_export_module
    >>> class Twice(al.nn.Module):
    ...     def forward(self, x):
    ...         return (x * 2,)
    >>> text = to_python(*aot_export_module(Twice(), (al.ones(3),)))
    >>> "def Twice(arg_0, *, state=None):" in text
    True
    """
    check_array_module(array_module, ml_dtypes=ml_dtypes)
    symbols = sorted(symbols_in(graph))
    if symbols:
        raise noted(
            UnsupportedError(
                f"to_python: sizes of the exported graph are symbols, {', '.join(symbols)}, "
                "expected numbers"
            ),
            "Export it without dynamic_shapes. (PYX-12)",
        )
    writer = _ExportedText(graph, signature, FileParts(ml_dtypes=ml_dtypes), array_module)
    text = writer.text({name: host_array(each._data) for name, each in (state or {}).items()})
    save(text, path)
    return text


class _ExportedText:
    """Writes the file of one graph."""

    def __init__(
        self, graph: Graph, signature: GraphSignature, parts: FileParts, array_module: str
    ) -> None:
        self.graph, self.signature, self.parts = graph, signature, parts
        self.array_module = array_module
        self.forward = FunctionText(graph, "forward", parts, laid_out=True)
        texts = leaf_texts(None, signature.in_spec)
        lifted = {*signature.lifted}
        first = sum(str(node.role) in lifted for node in graph.placeholders)
        self.users = {
            name: texts[int(name.split("_")[1]) - first] for name in signature.user_inputs
        }
        self.lines: list[str] = []

    def text(self, values: Mapping[str, np.ndarray]) -> str:
        """The file, with these values of the state."""
        self.forward.body()
        leaving = Leaving(self.forward, self.graph.placeholders)
        returned = [
            leaving.own(value) if isinstance(role, (Output, Gradient)) else leaving.kept(value)
            for role, value in zip(self.graph.output_roles, self.graph.outputs, strict=True)
        ]
        function = self.forward.text(returned, "New values, results and gradients of the inputs.")
        self._inputs()
        self._run()
        self._new_values()
        self.lines.append(f"return {self._results()}")
        name = entry_name(self.graph.name)
        given = parameters_in(self.users.values())
        about = '"""Returns the results; writes the arrays of the state that change."""'
        entry = functions_of(name, given, [about, *self.lines], has_state=True)
        held = state_text(values, self.parts)
        described = f'"""The exported graph of `{name}`, as a function of NumPy arrays.'
        return file_text(described, self.parts, [function, *entry], held, self.array_module)

    def _inputs(self) -> None:
        self.lines.append("state = STATE if state is None else state")
        for node in self.graph.placeholders:
            name, meta = str(node.role), node.meta
            key = self.users.get(name) or self.signature.lifted.get(name, f"generator.{name}")
            text = (
                local(key)
                if name in self.users
                else f"{self.parts.use('_key')}(state, {literal(key)})"
            )
            facts: Any = meta
            shape, strides = literal(tuple(facts.shape)), literal(tuple(facts.stride))
            call = f"{literal(key)}, {text}, {shape}, {literal(facts.dtype.numpy)}, {strides}"
            self.lines.append(f"{name} = {self.parts.use('_array')}({call})")

    def _run(self) -> None:
        names = [str(role) for role in self.graph.output_roles]
        given = ", ".join([str(node.role) for node in self.graph.placeholders])
        self.lines.append(f"({', '.join(names)}{',' * (len(names) == 1)}) = forward({given})")

    def _new_values(self) -> None:
        inputs = {target: name for name, target in self.signature.lifted.items()}
        for name, target in self.signature.mutations.items():
            self.lines.append(f"{inputs.get(target, target)}[...] = {name}")
        for name in self.signature.random_outputs:
            self.lines.append(f'state["generator.{name.removeprefix("next_")}"] = {name}')

    def _results(self) -> str:
        outputs = dict(zip(map(str, self.graph.output_roles), self.graph.outputs, strict=True))
        names = [str(Output(k)) for k in range(len(self.signature.user_outputs))]
        assert all(name in outputs for name in names)
        taken = {self.graph.name, *names_in("\n".join(self.lines))}
        results = container_text(self.signature.out_spec, names, self.parts, taken)
        backward = self.signature.backward_signature
        if backward is None:
            return results
        found = {**backward.gradients_to_parameters, **backward.gradients_to_user_inputs}
        items = [f"{literal(self.users.get(of, of))}: {name}" for name, of in found.items()]
        return f"{results}, {{{', '.join(items)}}}"
