"""The sites of a file, where code can be mutated: by parso's tree and the operators.

Left out by rule: docstrings and other strings, f-strings, annotations, imports, decorators,
assertions (they tell the type checker what holds), what stands within a `raise` (texts of errors;
that a raise is left out is a mutant), `strict=` of `zip` (an assertion, too), fields of classes,
and `__repr__` and its like.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import parso
from cosmic_ray.mutating import mutate_code

from tests.mutation.operators import all_operators, family_of, kinds_of
from tests.mutation.targets import ROOT, stratum_of

OPERATORS = all_operators()
_KINDS = kinds_of(OPERATORS)
_PRINTERS = {"__repr__", "__str__", "__format__", "__rich__"}
_TEXTS = {"import_name", "import_from", "decorator", "assert_stmt", "fstring"}


@attrs.frozen
class Mutant:
    """One change of one file."""

    file: str
    function: str
    """Its qualified name; "" at the level of the module."""
    operator: str
    ordinal: int
    """Its number among the function's positions of this operator."""
    text: str
    """The line of source, by which an outdated key is noticed."""
    line: int
    first: int
    """The first and the last line of the statement."""
    last: int
    occurrence: int
    """Its number among the file's positions of this operator, as in cosmic-ray."""

    @property
    def key(self) -> str:
        """Its name, which is stable as long as its function does not change."""
        return f"{self.file}::{self.function}::{self.operator}::{self.ordinal}"

    @property
    def stratum(self) -> str:
        """The stratum of its file."""
        return stratum_of(self.file)

    def source(self) -> str | None:
        """The mutated file; None if it is the same program."""
        before = source_of(self.file)
        after = mutate_code(before, OPERATORS[self.operator], self.occurrence)
        return after if after is not None and _is_other(before, after) else None


@cache
def source_of(file: str) -> str:
    """The original file."""
    return (ROOT / file).read_text(encoding="utf-8")


def _is_other(before: str, after: str) -> bool:
    try:
        return ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))
    except SyntaxError:
        return False


def sites_of(file: str) -> list[list[Mutant]]:
    """The sites of a file: the mutants of one family at one position are one."""
    return list(_sites_of(file))


@cache
def _sites_of(file: str) -> list[list[Mutant]]:
    return sites_in(file, source_of(file))


def sites_in(file: str, source: str) -> list[list[Mutant]]:
    """The sites of a source."""
    lines = source.splitlines()
    found: dict[Any, list[Mutant]] = defaultdict(list)
    in_file: Counter[str] = Counter()
    in_function: Counter[tuple[str, str]] = Counter()
    for node, name, position in _positions(parso.parse(source)):
        occurrence = in_file[name]
        in_file[name] += 1
        if _is_left_out(node, position):
            continue
        function = _function_of(node)
        ordinal = in_function[function, name]
        in_function[function, name] += 1
        line = position[0][0]
        text = lines[line - 1].strip()
        mutant = Mutant(file, function, name, ordinal, text, line, *_span(node), occurrence)
        found[family_of(name), position].append(mutant)
    return list(found.values())


def _positions(tree: Any) -> Iterator[tuple[Any, str, Any]]:
    """Each node with each operator that can change it, in the order in which cosmic-ray counts."""
    stack = [tree]
    while stack:
        node = stack.pop()
        children = getattr(node, "children", None)
        names = _KINDS.get(node.type, []) if children is None else _KINDS["inner"]
        for name in names:
            for position in OPERATORS[name].mutation_positions(node):
                yield node, name, position
        stack.extend(reversed(children or ()))


def _ancestors(node: Any) -> Iterator[tuple[Any, Any]]:
    """(child, parent) from a node to the root."""
    while node.parent is not None:
        yield node, node.parent
        node = node.parent


def _is_left_out(node: Any, position: Any) -> bool:
    for child, parent in _ancestors(node):
        kind = parent.type
        if kind in _TEXTS or kind == "raise_stmt":
            return True
        if kind == "argument" and parent.children[0].get_code().strip() == "strict":
            return True
        if kind in ("tfpdef", "annassign") and child is not parent.children[-1]:
            return True
        if kind in ("tfpdef", "annassign") and "=" not in parent.children:
            return True
        if kind == "funcdef":
            if child is parent.annotation or parent.name.value in _PRINTERS:
                return True
        if kind == "classdef" and child.type == "suite" and _is_field(node):
            return True
    return node.type == "assert_stmt"


def _is_field(node: Any) -> bool:
    """Whether a node is in the body of a class, outside of functions."""
    return not any(parent.type == "funcdef" for _, parent in _ancestors(node))


def _function_of(node: Any) -> str:
    names = [
        parent.name.value
        for child, parent in _ancestors(node)
        if parent.type in ("funcdef", "classdef") and child is parent.children[-1]
    ]
    return ".".join(reversed(names))


def _span(node: Any) -> tuple[int, int]:
    """The first and last line of the smallest statement around a node, without nested blocks."""
    if node.type in ("if_stmt", "while_stmt", "for_stmt"):
        # The heads: of its branches, whichever the change is in.
        blocks = [child for child in node.children if child.type in ("suite", "simple_stmt")]
        return node.start_pos[0], blocks[-1].start_pos[0]
    for child, parent in [(node, node), *_ancestors(node)]:
        if parent.type == "simple_stmt":
            return parent.start_pos[0], parent.end_pos[0] - (parent.end_pos[1] == 0)
        if child is not parent and parent.type in _BLOCKS and child.type != "suite":
            return child.start_pos[0], child.end_pos[0]
    return node.start_pos[0], node.end_pos[0]


_BLOCKS = {"if_stmt", "while_stmt", "for_stmt", "with_stmt", "try_stmt", "funcdef", "suite"}
