"""The function that a user's line calls: flatten for `x.flatten(1)`, add for `x + y`.

Ground floor. A location is a bytecode instruction. Python knows the source range of each
instruction; that text is parsed, on demand, and costs nothing before. Spec: `specs/rules/seq.md`.
"""

from __future__ import annotations

import ast
import dis
import linecache
from itertools import islice

from aotlite.ir.provenance.location import Location, Place

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
    ast.USub: "neg",
    ast.UAdd: "positive",
    ast.Invert: "bitwise_not",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}

_STORES = {"STORE_SUBSCR", "STORE_SLICE"}
"""The instructions of `x[i] = y`, whose source range is only `x[i]`."""


def source_name(location: Location) -> str:
    """The name of the function, method or operator that is called at a location.

    Where the source does not tell, the name of the user's function that contains it.

    >>> import aotlite as al
    >>> from aotlite.inspect import stages_of
    >>> graph = stages_of(lambda x: (x + 1).t(), al.ones(2, 2))["capture"]
    >>> [source_name(node.location) for node in graph.calls]
    ['add', 't']
    """
    if isinstance(location, Place):
        return location.function
    code, instruction = location
    if dis.opname[code.co_code[instruction]] in _STORES:
        return "setitem"
    return name_in(_text(location)) or code.co_name


def name_in(text: str) -> str | None:
    """The name of the function that an expression calls; None if it calls none by name."""
    return _name(_parsed(text))


def _text(location: Location) -> str:
    """The source range of an instruction; empty where it is unknown."""
    code, instruction = location  # type: ignore[misc]
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or None in position:
        return ""
    first, last, start, end = position
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    if not all(lines):
        return ""
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode("utf-8", "replace")


def _parsed(text: str) -> ast.AST | None:
    for source in (f"({text}\n)", text):  # an expression over several lines; a statement
        try:
            (found,) = ast.parse(source).body
        except (SyntaxError, ValueError):
            continue
        return found.value if isinstance(found, ast.Expr) else found
    return None


def _name(found: ast.AST | None) -> str | None:
    match found:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript():
            return "getitem"
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            return _OPERATORS.get(type(op))
        case ast.Compare(ops=[op, *_]):
            return _OPERATORS.get(type(op))
        case ast.AugAssign(op=op):
            return f"{_OPERATORS[type(op)]}_"
    return None
