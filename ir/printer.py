"""Graphs as text: runnable Python, and a table.

Ground floor. `readable` and `code` print a function whose body calls `ops.<name>`; running the text
gives an equal graph (`ir/source.py`), or computes on tensors: `aotlite.ops` is all that it needs.
The text holds what decides the result: ops, arguments, phases, metas and roles of inputs and
outputs; places are comments.
Spec: `specs/graph.md`.
"""

from __future__ import annotations

import builtins
import json
import keyword
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from aotlite.ir import dtypes, layout
from aotlite.ir.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.graph import Constant, Graph, Node, Phase
from aotlite.ir.host_function import HostFunction
from aotlite.ir.location import Places
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.role import Output, Role, parse_role

__all__ = [
    "code",
    "dtype_text",
    "excerpt",
    "literal",
    "meta_text",
    "node_line",
    "node_names",
    "readable",
    "role_text",
    "tabular",
]

WIDTH = 100
_WORD = re.compile("inf|nan")

Names = Mapping[Node, str]


# ----------------------------------------------------------------------------------------- parts
def dtype_text(dtype: DType) -> str:
    """The name of a dtype in printed text: PyTorch's, but `bool_`, so that nothing is shadowed."""
    return "bool_" if dtype is dtypes.bool_ else dtype.name


RESERVED = frozenset(
    {"ops", "complex"}
    | set(keyword.kwlist)
    | {name for name in dir(builtins) if name.startswith("_") or name[:1].isupper()}
)
"""Words that the text itself uses, or that Python does: no value has such a name."""


def literal(value: Any, names: Names) -> str:
    """An argument as Python text that evaluates to exactly it (nan, -0.0, dtypes, devices too).

    What Python has no literal for is an attribute of `ops`: `ops.inf`, `ops.float32`.
    """
    match value:
        case Node():
            return names.get(value) or f"<{value!r} of another graph>"
        case tuple():
            items = [literal(item, names) for item in value]
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        case float():
            return repr(value) if math.isfinite(value) else _WORD.sub("ops.\\g<0>", repr(value))
        case complex():  # its own repr loses the sign of a zero
            return f"complex({literal(value.real, names)}, {literal(value.imag, names)})"
        case DType():
            return f"ops.{dtype_text(value)}"
        case Device():
            return f"ops.device({_quoted(value.name)})"
        case HostFunction():
            return f"ops.host_function({_quoted(value.name)})"
        case int() if value.bit_length() > _DIGITS:
            return hex(value)
    return repr(value)


_DIGITS = 10_000
"""Bits of the longest int that is printed in digits: of much longer ones Python makes no text."""


def meta_text(meta: Any) -> str:
    """`f32[4, 3]`, with strides unless they are exactly those of row-major order, and the device.

    >>> from aotlite.ir.meta import tensor_meta
    >>> meta_text(tensor_meta((2, 3), (1, 2)))
    'f32[2, 3][1, 2]'
    """
    if type(meta) is tuple:
        return f"({', '.join(map(meta_text, meta))})"
    if type(meta) is not TensorMeta:
        return repr(meta)
    text = f"{meta.dtype.short}[{', '.join(map(str, meta.shape))}]"
    if meta.stride != layout.contiguous_strides(meta.shape):
        text += f"[{', '.join(map(str, meta.stride))}]"
    return text if meta.device is CPU else f"{text}@{meta.device.name}"


def role_text(role: Role) -> str:
    """The text that `source.role_from_text` reads: `str(role)`, or its constructor."""
    text = str(role)
    return text if repr(parse_role(text)) == repr(role) else repr(role)


def node_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """A name for each node: its role, constant or op, numbered from the second on."""
    taken = set(RESERVED)
    counts: dict[str, int] = {}
    names: dict[Node, str] = {}
    for node in nodes:
        if node in names:  # only in a broken graph, which must print all the same
            continue
        base = name = _base_name(node)
        while name in taken:
            counts[base] = counts.get(base, 0) + 1
            name = f"{base}_{counts[base]}"
        taken.add(name)
        names[node] = name
    return names


def _base_name(node: Node) -> str:
    if node.op == "placeholder":
        return _identifier(str(node.role))
    if node.op == "output":
        return "output"
    return _identifier(str(getattr(node.target, "name", node.op)))


@lru_cache(maxsize=4096)
def _identifier(text: str) -> str:
    name = re.sub(r"[^0-9A-Za-z_]", "_", text) or "_"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def _quoted(text: str) -> str:
    """A Python string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


# ----------------------------------------------------------------------------------------- lines
def node_line(node: Node, names: Names) -> str:
    """The statement of a node, without comment or indentation."""
    if node.op == "output":
        return f"return {literal(node.args[0] if node.args else None, names)}"
    name = names[node]
    if node.op == "placeholder":
        return f"{name}: {_quoted(_annotation(name, node))}"
    return f"{name} = {_expression(node, names)}"


def _expression(node: Node, names: Names) -> str:
    target = node.target
    if type(target) is Constant:
        return f"ops.constant({_quoted(target.name)}, {_quoted(meta_text(node.meta))})"
    if target is GETITEM and len(node.args) == 2:
        return f"{literal(node.args[0], names)}[{literal(node.args[1], names)}]"
    if not isinstance(target, Op):
        return f"<{target!r}>{literal(node.args, names)}"
    return f"ops.{target.name}({', '.join(_arguments(target, node.args, names))})"


def _arguments(op: Op, args: Sequence[Any], names: Names) -> Iterator[str]:
    """Positional arguments all, keyword-only ones where they differ from their default."""
    parameters = op.schema.parameters
    for index, value in enumerate(args):
        text = literal(value, names)
        if index >= len(parameters) or not parameters[index].keyword_only:
            yield text
        elif text != literal(parameters[index].default, names):
            yield f"{parameters[index].name}={text}"


def _annotation(name: str, node: Node) -> str:
    """The meta of a placeholder, and its role where the name does not tell."""
    text = meta_text(node.meta)
    role: Any = node.role
    return text if repr(parse_role(name)) == repr(role) else f"{text} = {role_text(role)}"


def _comment(node: Node) -> str:
    return f"  # {meta_text(node.meta)}"


# ------------------------------------------------------------------------------------- functions
def readable(graph: Graph, *, frees: bool = False) -> str:
    """The graph as runnable Python with metas, phases, output roles and the user's source lines.

    `frees`: also statements that drop each value after its last use.

    >>> from aotlite.ir.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(readable(build.finish([x * 2.0])))
    def double(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)  # f32[2]
        return (mul,)  # output_0
    """
    names = graph.names
    lines = [_signature(graph)]
    remarks = _Remarks()
    phases = _Phases()
    for node in graph.nodes[:-1]:
        if node.op != "placeholder":
            lines += phases.before(node)
            lines += remarks.before(node)
            lines.append(f"    {_statement(graph, node, frees)}{_comment(node)}")
    roles = list(map(str, graph.output_roles))
    lines += _return_lines([literal(value, names) for value in graph.outputs], roles)
    return "\n".join(lines)


def code(graph: Graph, *, frees: bool = False) -> str:
    """The graph as runnable Python without comments."""
    lines = [_signature(graph)]
    phases = _Phases()
    for node in graph.nodes:
        if node.op != "placeholder":
            lines += phases.before(node)
            lines.append(f"    {_statement(graph, node, frees and node.op != 'output')}")
    return "\n".join(lines)


def _statement(graph: Graph, node: Node, frees: bool) -> str:
    line = node_line(node, graph.names)
    dead = [graph.names[value] for value in graph.last_uses[node]] if frees else []
    return f"{line}; {' = '.join(dead)} = None" if dead else line


def _signature(graph: Graph) -> str:
    names = graph.names
    inputs = [node_line(node, names) for node in graph.nodes if node.op == "placeholder"]
    title = _identifier(graph.name)
    head, tail = f"def {title}{'_1' * (title in RESERVED)}(", f"){_return_annotation(graph)}:"
    line = f"{head}{', '.join(inputs)}{tail}"
    if len(line) <= WIDTH or not inputs:
        return line
    return "\n".join([head, *(f"    {text}," for text in inputs), tail])


def _return_annotation(graph: Graph) -> str:
    """The roles of the outputs, unless they are simply the results in order."""
    roles = graph.output_roles
    if roles == tuple(map(Output, range(len(roles)))):
        return ""
    texts = [_quoted(role_text(role)) for role in roles]
    return f" -> ({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _return_lines(values: list[str], roles: list[str]) -> list[str]:
    if not values:
        return ["    return ()"]
    text = ", ".join(values) + ("," if len(values) == 1 else "")
    line = f"    return ({text})  # {', '.join(roles)}"
    if len(line) <= WIDTH:
        return [line]
    rows = [f"        {v},  # {r}" for v, r in zip(values, roles, strict=True)]
    return ["    return (", *rows, "    )"]


class _Phases:
    """The statements that say in which half the calls after them are, from the forward on."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.FORWARD

    def before(self, node: Node) -> Iterator[str]:
        if node.phase is not self.phase and node.op == "call":
            self.phase = node.phase
            yield f"    ops.phase({_quoted(node.phase.value)})"


class _Remarks:
    """The comment lines between nodes: where the user's line changes, and where the phase does."""

    __slots__ = ("line", "phase", "places")

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self.line: tuple[str, int] | None = None
        self.places = Places()

    def before(self, node: Node) -> Iterator[str]:
        if node.phase is not self.phase and node.op == "call":
            self.phase, self.line = node.phase, None
        if node.location is None:
            return
        place = self.places(node.location)
        if (place.file, place.line) != self.line:
            self.line = (place.file, place.line)
            yield f"    # {place}"


# ---------------------------------------------------------------------------- excerpts and tables
def excerpt(graph: Graph, node: Node, *, context: int = 2) -> str:
    """The lines of `node` (marked `>`) and of `context` nodes before and after it."""
    at = next((i for i, each in enumerate(graph.nodes) if each is node), len(graph.nodes) - 1)
    lines = []
    for each in graph.nodes[max(at - context, 0) : at + context + 1]:
        mark = ">" if each is node else " "
        line = node_line(each, graph.names)
        lines.append(f"{mark} {line}{_comment(each) if each.op == 'call' else ''}")
    return "\n".join(lines)


def tabular(graph: Graph) -> str:
    """The graph as aligned columns, a row a node; roles stand beside inputs and outputs.

    >>> from aotlite.ir.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(tabular(build.finish([x * 2.0])))
    opcode       name    target  args        meta    seq  role
    placeholder  arg_0                       f32[2]       arg_0
    call         mul     mul     arg_0, 2.0  f32[2]
    output       output          mul                      output_0
    """
    header = ("opcode", "name", "target", "args", "meta", "seq", "role")
    rows = [header, *(_row(node, graph.names) for node in graph.nodes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(node: Node, names: Names) -> tuple[str, ...]:
    is_output = node.op == "output"
    target = "" if is_output or node.op == "placeholder" else str(getattr(node.target, "name", ""))
    args = node.args[0] if is_output else node.args
    return (
        node.op,
        names[node],
        target,
        ", ".join(literal(value, names) for value in args),
        "" if is_output else meta_text(node.meta),
        "" if node.sequence < 0 else str(node.sequence),
        _roles_text(node.role),
    )


def _roles_text(role: Role | tuple[Role, ...] | None) -> str:
    if role is None:
        return ""
    return ", ".join(map(str, role)) if type(role) is tuple else str(role)
