"""Graphs from printed text, and the namespace in which printed text runs.

Ground floor. `graph_from_source` executes the text that `ir/graph/text/printer.py` writes, with
`ops` emitting nodes; `OpNamespace` with another `call` makes the same text compute, on tensors for
instance. The text is executed as Python: it has the rights of the program that reads it. Spec:
`specs/graph.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import ArgumentError, FormatError, noted
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.graph import Graph, Phase
from aotlite.ir.graph.role import ROLES, Role, parse_role
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import HOST, device_from_text, dtype_text, meta_from_text
from aotlite.ir.op import Op, op_named
from aotlite.ir.op.host_function import HostFunction, host_function_named

__all__ = [
    "OpNamespace",
    "function_from_source",
    "graph_from_source",
    "role_from_text",
]

_NOTHING: Mapping[str, Any] = {}
_WORDS: Mapping[str, Any] = {
    "inf": math.inf,
    "nan": math.nan,
    **{dtype_text(dtype): dtype for dtype in dtypes.DTYPES},
}


class OpNamespace:
    """`ops` of a printed graph: each attribute calls the op of that name.

    The arguments are bound to the op's schema, then `call(op, args)` gives the result. `constants`
    are what `ops.constant(name, meta)` looks up, `devices` what `ops.device(name)` does. Also has
    what Python has no literal for: `inf`, `nan`, dtypes. Raises ArgumentError for other names.

    >>> ops = OpNamespace(lambda op, args: (op.name, args))
    >>> ops.full(2, ops.inf)
    ('full', ((2,), inf, None, None))
    """

    def __init__(
        self,
        call: Callable[[Op, tuple[Any, ...]], Any],
        constants: Mapping[str, Any] = _NOTHING,
        devices: Mapping[str, Device] = HOST,
    ) -> None:
        self._call = call
        self._constants = constants
        self._devices = devices

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by Python's own protocols, which expect this error
            raise AttributeError(name)
        if name in _WORDS:
            return _WORDS[name]
        op, call = op_named(name), self._call

        def function(*args: Any, **kwargs: Any) -> Any:
            return call(op, op.bind(args, kwargs))

        function.__name__ = function.__qualname__ = name
        function.__doc__ = str(op.schema)
        function.op = op  # type: ignore[attr-defined]
        setattr(self, name, function)
        return function

    def constant(self, name: str, meta: str) -> Any:
        """The constant of this name. Raises ArgumentError if it was not given."""
        if name not in self._constants:
            known = ", ".join(map(repr, self._constants)) or "none"
            raise ArgumentError(f"constant: name is {name!r}, expected one of those given: {known}")
        return self._constants[name]

    def device(self, name: str) -> Device:
        """The device of this name. Raises ArgumentError if it was not given."""
        return device_from_text(name, self._devices)

    def host_function(self, name: str) -> HostFunction:
        """The function of this name that a graph of this process holds. Raises ArgumentError."""
        return host_function_named(name)

    def phase(self, name: str) -> None:
        """Says that the calls after it are of the half "forward" or "backward": no computation."""
        _phase(name)


def function_from_source(text: str, ops: Any) -> FunctionType:
    """The function that a printed graph defines, calling `ops`; else FormatError."""
    scope: dict[str, Any] = {"ops": ops}
    try:
        exec(compile(text, "<graph>", "exec", dont_inherit=True), scope)
    except SyntaxError as error:
        raise FormatError(f"source: the text is {error}, expected Python") from error
    found = [v for k, v in scope.items() if k != "ops" and isinstance(v, FunctionType)]
    if len(found) != 1:
        raise FormatError(f"source: the text defines {len(found)} functions, expected one")
    return found[0]


def graph_from_source(
    text: str,
    *,
    constants: Mapping[str, Any] = _NOTHING,
    devices: Mapping[str, Device] = HOST,
) -> Graph:
    """The graph that a printed text describes: the same ops, arguments, phases, metas and roles.

    `constants`: the values of the constants it names (`graph.constants`); `devices`: the devices it
    names. Raises FormatError for other text. Source places and sequence numbers are not read.

    >>> graph = graph_from_source('def double(arg_0: "f32[2]"): return (ops.mul(arg_0, 2.0),)')
    >>> print(graph.code)
    def double(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)
        return (mul,)
    """
    ops = _GraphOps(Builder(), constants, devices)
    function = function_from_source(text, ops)
    build = ops.builder
    build.name = function.__name__
    annotations = function.__annotations__
    inputs = []
    for name in function.__code__.co_varnames[: function.__code__.co_argcount]:
        meta, role = _input_from_text(name, annotations.get(name, ""), devices)
        inputs.append(build.placeholder(meta, role))
    outputs = function(*inputs)
    if not isinstance(outputs, (tuple, list)):
        outputs = (outputs,)
    texts = annotations.get("return")
    roles = None if texts is None else [role_from_text(each) for each in texts]
    return build.finish(outputs, roles)


class _GraphOps(OpNamespace):
    """`ops` that emit nodes."""

    def __init__(
        self, builder: Builder, constants: Mapping[str, Any], devices: Mapping[str, Device]
    ) -> None:
        super().__init__(builder.apply, constants, devices)
        self.builder = builder

    def constant(self, name: str, meta: str) -> Any:
        value = super().constant(name, meta)
        return self.builder.constant(name, value, meta_from_text(meta, devices=self._devices))

    def phase(self, name: str) -> None:
        self.builder.phase = _phase(name)


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


def _input_from_text(
    name: str, annotation: str, devices: Mapping[str, Device]
) -> tuple[TensorMeta, Role | None]:
    meta, _, role = annotation.partition(" = ")
    return meta_from_text(meta, devices=devices), role_from_text(role or name)


def _phase(name: str) -> Phase:
    try:
        return Phase(name)
    except ValueError:
        raise ArgumentError(f"phase: name is {name!r}, expected 'forward' or 'backward'") from None
