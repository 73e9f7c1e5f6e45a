"""Slow tests are few, and each has a reason."""

import ast
from collections.abc import Iterator

from tests.house.house import Finding
from tests.house.sources import Source, Tree

MOST = 61
"""Tests that may take more than a second: what all others find has to be found sooner."""


def markers(tree: Tree) -> Iterator[tuple[Source, int, str]]:
    """(file, line, reason) of each marker `slow`; the reason is empty if none is given."""
    for source in tree.folder("tests").values():
        if "mark.slow" in source.text:
            yield from ((source, line, reason) for line, reason in markers_of(source))


def markers_of(source: Source) -> Iterator[tuple[int, str]]:
    called = {}
    for node in source.of(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute() as function) if is_slow(function):
                called[id(function)] = _reason(node)
    for node in source.of(ast.Attribute):
        if is_slow(node):
            yield node.lineno, called.get(id(node), "")


def is_slow(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Attribute(attr="mark"), attr="slow"):
            return True
    return False


def _reason(call: ast.Call) -> str:
    values = [*call.args, *(each.value for each in call.keywords if each.arg == "reason")]
    match values[:1]:
        case [ast.Constant(value=str(text))]:
            return text.strip()
        case [ast.JoinedStr()]:
            return "computed"
    return ""


def without_reason(tree: Tree) -> Iterator[Finding]:
    for source, line, reason in markers(tree):
        if len(reason.split()) < 2:
            text = f"{source.path}:{line}: is slow, expected a reason of a few words"
            yield Finding("slow", text, module=source.module)
