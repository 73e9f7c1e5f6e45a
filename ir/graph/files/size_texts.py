"""Texts of symbolic sizes in files: their grammar, and estimates at the hints.

Ground floor, for both sides. The text of a size is Python's arithmetic, as sizes are printed. It is
parsed, and never evaluated by Python. Spec: `specs/serialize.md`, SER-15.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Final, TypeVar

from aotlite.ir.graph.files.limits import INTEGER, TEXT
from aotlite.ir.graph.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import table_of

__all__ = [
    "DEPTH",
    "NAME",
    "SIGNS",
    "TABLES",
    "Hinted",
    "product_fault",
    "size_tree",
    "terms_of",
    "unhinted",
]

T = TypeVar("T")

TABLES: Final = ("symbols", "sizes", "guards")
"""The keys of a file with symbols."""
NAME: Final = re.compile(r"[su]\d{1,9}")
"""The name of a symbol."""
DEPTH: Final = 20
"""The deepest nesting of a size's text."""
_MARKS: Final = re.compile(r"[a-z0-9 +\-*/%(),]*")
_TERMS: Final = 1_000
"""The most terms of a product of sizes."""


SIGNS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}


def size_tree(text: str) -> ast.expr | None:
    """The syntax of a size's text; None for a text that no size has."""
    if len(text) > TEXT or not _MARKS.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        return None
    return tree if _is_size(tree) else None


def _is_size(tree: ast.expr) -> bool:
    """Whether it has nothing but names, numbers, signs, `max` and `min`, nested a few times."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEPTH:
            return False
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
                waiting += (left, depth), (right, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                waiting.append((operand, depth + 1))
            case ast.Call(func=ast.Name(id="max" | "min"), args=[left, right], keywords=[]):
                waiting += (left, depth + 1), (right, depth + 1)
            case ast.Constant(value=int() as number) if type(number) is int and number <= INTEGER:
                pass
            case ast.Name():
                pass
            case _:
                return False
    return True


def terms_of(value: object) -> int:
    """The number of terms of a size."""
    return len(value.terms) if type(value) is SymInt else 1


def product_fault(sizes: Iterable[object]) -> tuple[str, str] | None:
    """(got, expected) where the product of these sizes may have too many terms."""
    count = 1
    for size in sizes:
        count *= terms_of(size)
        if count > _TERMS:
            return "sizes whose product has many terms", f"at most {_TERMS}"
    return None


def unhinted(value: T) -> T:
    """The value itself: that of a graph without symbols."""
    return value


class Hinted:
    """Arguments and metas at the hints of their symbols, for what is estimated or compared."""

    def __init__(self) -> None:
        self._nodes: dict[Node, Node] = {}

    def __call__(self, value: T) -> T:
        return self._of(value)  # type: ignore[return-value]

    def _of(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(self._of, value))
        if type(value) is SymInt:
            return value.hint
        if type(value) is TensorMeta:
            table = table_of(value.shape + value.stride)
            return value if table is None else value.concrete(table.hints)
        if type(value) is not Node:
            return value
        if value not in self._nodes:
            self._nodes[value] = Node(value.op, value.target, meta=self(value.meta))
        return self._nodes[value]
