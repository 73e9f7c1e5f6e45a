"""One node as text: its name, and its statement in a printed graph.

Ground floor. Error notes quote these lines, and `ir/graph/text/printer.py` prints whole graphs of
them. Spec: `specs/graph.md`.
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

from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.graph.graph import Constant, Graph, Node
from aotlite.ir.graph.role import Role
from aotlite.ir.graph.text.roles import parse_role
from aotlite.ir.meta.text import dtype_text, meta_text
from aotlite.ir.op import Op
from aotlite.ir.op.host_function import HostFunction
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

__all__ = [
    "RESERVED",
    "Names",
    "comment",
    "excerpt",
    "identifier",
    "literal",
    "node_line",
    "node_names",
    "quoted",
    "role_text",
]

_WORD = re.compile("inf|nan")
_CALL = re.compile(r"(?<![.\w])(max|min|abs|round|int|float)(?=\()")
_MATH = re.compile(r"(?<![.\w])math\.")

Names = Mapping[Node, str]


# ------------------------------------------------------------------------------------- arguments
def literal(value: object, names: Names) -> str:
    """An argument as Python text that evaluates to exactly it (nan, -0.0, dtypes, devices too).

    What Python has no literal for is an attribute of `ops`: `ops.inf`, `ops.float32`. A symbolic
    size is its expression: `2*s0`, `ops.sym_max(s0, 1)`; so is a float made of sizes, `s0 / 3`.
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
            return f"ops.device({quoted(value.name)})"
        case HostFunction():
            return f"ops.host_function({quoted(value.name)})"
        case SymInt():
            return _of_ops(str(value))
        case SizeFloat():
            return _of_ops(value.text)
        case int() if value.bit_length() > _DIGITS:
            return hex(value)
    return repr(value)


def _of_ops(text: str) -> str:
    """An expression of sizes, with attributes of `ops` for Python's functions."""
    return _MATH.sub("ops.math.", _CALL.sub("ops.sym_\\g<0>", text))


_DIGITS = 10_000
"""Longer ints, in bits, are printed in hexadecimal: Python refuses to print much longer ones."""


def role_text(role: Role) -> str:
    """The text that `source.role_from_text` reads: `str(role)`, or the constructor where that
    leaves a field out."""
    text = str(role)
    return text if repr(parse_role(text)) == repr(role) else repr(role)


def quoted(text: str) -> str:
    """A Python string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


# ----------------------------------------------------------------------------------------- names
RESERVED = frozenset(
    {"ops", "complex"}
    | set(keyword.kwlist)
    | {name for name in dir(builtins) if name.startswith("_") or name[:1].isupper()}
)
"""Names that a printed graph or Python needs itself: no value has such a name."""
_SYMBOL = re.compile(r"[su]\d+")
"""Nor the name of a symbol (`ir/symbols`)."""


def node_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """A name for each node: its role, constant or op, numbered from the second on."""
    taken = set(RESERVED)
    counts: dict[str, int] = {}
    names: dict[Node, str] = {}
    for node in nodes:
        if node in names:  # only in a broken graph, which must print all the same
            continue
        base = name = _base_name(node)
        while name in taken or _SYMBOL.fullmatch(name):
            counts[base] = counts.get(base, 0) + 1
            name = f"{base}_{counts[base]}"
        taken.add(name)
        names[node] = name
    return names


def _base_name(node: Node) -> str:
    if node.op == "placeholder":
        return identifier(str(node.role))
    if node.op == "output":
        return "output"
    return identifier(str(getattr(node.target, "name", node.op)))


@lru_cache(maxsize=4096)
def identifier(text: str) -> str:
    """The text as a Python identifier."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text) or "_"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


# ----------------------------------------------------------------------------------------- lines
def node_line(node: Node, names: Names) -> str:
    """The statement of a node, without comment or indentation."""
    if node.op == "output":
        return f"return {literal(node.args[0] if node.args else None, names)}"
    name = names[node]
    if node.op == "placeholder":
        return f"{name}: {quoted(_annotation(name, node))}"
    return f"{name} = {_expression(node, names)}"


def _expression(node: Node, names: Names) -> str:
    target = node.target
    if type(target) is Constant:
        return f"ops.constant({quoted(target.name)}, {quoted(meta_text(node.meta))})"
    if target is GETITEM and len(node.args) == 2:
        return f"{literal(node.args[0], names)}[{literal(node.args[1], names)}]"
    if not isinstance(target, Op):
        return f"<{target!r}>{literal(node.args, names)}"
    return f"ops.{target.name}({', '.join(_arguments(target, node.args, names))})"


def _arguments(op: Op, args: Sequence[object], names: Names) -> Iterator[str]:
    """All positional arguments, and the keyword-only ones that differ from their default."""
    parameters = op.schema.parameters
    for index, value in enumerate(args):
        text = literal(value, names)
        if index >= len(parameters) or not parameters[index].keyword_only:
            yield text
        elif text != literal(parameters[index].default, names):
            yield f"{parameters[index].name}={text}"


def _annotation(name: str, node: Node) -> str:
    """The meta of a placeholder, and its role where the name does not give it."""
    text = meta_text(node.meta)
    role: Any = node.role
    return text if repr(parse_role(name)) == repr(role) else f"{text} = {role_text(role)}"


def comment(node: Node) -> str:
    """The comment after the statement of a node: its meta."""
    return f"  # {meta_text(node.meta)}"


def excerpt(graph: Graph, node: Node, *, context: int = 2) -> str:
    """The lines of `node` (marked `>`) and of `context` nodes before and after it."""
    at = next((i for i, each in enumerate(graph.nodes) if each is node), len(graph.nodes) - 1)
    lines = []
    for each in graph.nodes[max(at - context, 0) : at + context + 1]:
        mark = ">" if each is node else " "
        line = node_line(each, graph.names)
        lines.append(f"{mark} {line}{comment(each) if each.op == 'call' else ''}")
    return "\n".join(lines)
