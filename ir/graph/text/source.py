"""`graph_from_source`: the graph of a printed text.

Ground floor. It executes the text that `ir/graph/text/printer.py` writes, with an `ops` that emits
nodes. With another `OpNamespace` the same text computes, on tensors for instance. The text is
executed as Python, so read only text that you trust; `aotlite.ir.serialize` reads any file safely.
Spec: `specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import FormatError, noted
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.graph import Graph, Phase
from aotlite.ir.graph.role import ROLES, Role
from aotlite.ir.graph.symbolic.inputs import NO_SIZES
from aotlite.ir.graph.text.roles import parse_role
from aotlite.ir.meta.text import HOST, meta_from_text
from aotlite.ir.op.namespace import NOTHING, OpNamespace

__all__ = ["function_from_source", "graph_from_source", "role_from_text"]


def function_from_source(text: str, ops: object) -> FunctionType:
    """The function that a printed graph defines; its body calls `ops`. Raises FormatError."""
    scope: dict[str, Any] = {"ops": ops}
    try:
        exec(compile(text, "<graph>", "exec", dont_inherit=True), scope)
    except SyntaxError as error:
        raise FormatError(f"source: the text has a syntax error ({error}), expected Python") from (
            error
        )
    found = [v for k, v in scope.items() if k != "ops" and isinstance(v, FunctionType)]
    if len(found) != 1:
        raise FormatError(f"source: the text defines {len(found)} functions, expected one")
    return found[0]


def graph_from_source(
    text: str,
    *,
    constants: Mapping[str, object] = NOTHING,
    devices: Mapping[str, Device] = HOST,
    sizes: Mapping[str, int] = NO_SIZES,
) -> Graph:
    """The graph that a printed text describes: the same ops, arguments, phases, metas and roles.

    `constants` are the arrays of the constants that it names (`graph.constants`), `devices` the
    devices, `sizes` the numbers for its symbols: the text of a graph with symbols gives the graph
    at these sizes. Raises FormatError for other text. Source lines and sequence numbers are not
    read.

    >>> graph = graph_from_source('def double(arg_0: "f32[2]"): return (ops.mul(arg_0, 2.0),)')
    >>> print(graph.code)
    def double(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)
        return (mul,)
    """
    ops = _GraphOps(Builder(), constants, devices, sizes)
    function = function_from_source(text, ops)
    build = ops.builder
    build.name = function.__name__
    annotations = function.__annotations__
    inputs: list[object] = []
    for name in function.__code__.co_varnames[: function.__code__.co_argcount]:
        annotation = annotations.get(name, "")
        if annotation == "int" or annotation.startswith("int = "):
            inputs.append(ops.size(name))
            continue
        meta, _, role = annotation.partition(" = ")
        found = meta_from_text(meta, devices=devices, sizes=sizes)
        inputs.append(build.placeholder(found, role_from_text(role or name)))
    outputs = function(*inputs)
    if not isinstance(outputs, (tuple, list)):
        outputs = (outputs,)
    texts = annotations.get("return")
    roles = None if texts is None else [role_from_text(each) for each in texts]
    return build.finish(outputs, roles)


class _GraphOps(OpNamespace):
    """An `ops` namespace whose calls emit nodes."""

    def __init__(
        self,
        builder: Builder,
        constants: Mapping[str, object],
        devices: Mapping[str, Device],
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(builder.apply, constants, devices)
        self.builder = builder
        self._sizes = sizes

    def size(self, name: str) -> int:
        """The number of a symbol. Raises FormatError if it was not given."""
        if name not in self._sizes:
            raise FormatError(f"source: the size {name} is not given, expected it in sizes=")
        return self._sizes[name]

    def sym_item(self, value: Any, name: str) -> int:
        return self.size(name)

    def constant(self, name: str, meta: str) -> Any:
        value = super().constant(name, meta)
        return self.builder.constant(name, value, meta_from_text(meta, devices=self._devices))

    def phase(self, name: str) -> None:
        super().phase(name)
        self.builder.phase = Phase(name)


# ------------------------------------------------------------------------------------ annotations
def role_from_text(text: str) -> Role:
    """The role that `printer.role_text` prints. Raises FormatError for another text.

    >>> role_from_text("grad_primals_0"), role_from_text("Saved(index=0, name='mul')")
    (Gradient(of=Primal(index=0)), Saved(index=0, name='mul'))
    """
    role = parse_role(text)
    if role is not None:
        return role
    try:
        found = eval(text, {"__builtins__": {}, **{kind.__name__: kind for kind in ROLES}})
    except (NameError, SyntaxError, TypeError):
        found = None
    if not isinstance(found, ROLES):
        note = f"roles: {', '.join(kind.__name__ for kind in ROLES)}"
        error = FormatError(f"source: the role is {text!r}, expected one such as 'primals_0'")
        raise noted(error, note)
    return found  # type: ignore[return-value]
