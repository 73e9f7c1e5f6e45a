"""No table of op names outside the table of ops: declarations have all facts (OPS-1)."""

import ast
import functools
import re
from collections.abc import Iterator, Set
from pathlib import Path

from tests.house.house import Finding, House
from tests.house.plan import plan
from tests.house.sources import Source

LEAST = 4
TABLE = Path("specs", "ops.md")
SCHEMA = re.compile(r"^\| `(\w+)\(", re.MULTILINE)


def tables(house: House) -> Iterator[Finding]:
    """Literals of four or more op names, by module."""
    declared = ops(house.tree.root)
    for module, source in house.sources.items():
        if module in plan()["vocabularies"]:
            continue
        for line, names in literals(source, declared):
            text = f"{module}:{line}: {' '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
            yield Finding(module, text, module=module)


def idle(house: House) -> list[str]:
    """The vocabularies of the plan without such a literal."""
    declared = ops(house.tree.root)
    sources = {each: house.sources.get(each) for each in plan()["vocabularies"]}
    return [
        module
        for module, source in sources.items()
        if source is None or not any(literals(source, declared))
    ]


@functools.cache
def ops(root: Path) -> set[str]:
    """The names of all ops and composites, as their page lists them, with in-place forms."""
    declared = set(SCHEMA.findall((root / TABLE).read_text("utf-8")))
    return declared | {f"{name}_" for name in declared}


def literals(source: Source, declared: Set[str]) -> Iterator[tuple[int, list[str]]]:
    """(line, op names) of the literals with at least four ops, which are most of the items."""
    for node in source.of(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Call):
        items = _texts(node)
        found = [each for each in items if each in declared]
        if len(found) >= LEAST and 2 * len(found) > len(items):
            yield node.lineno, found


def _texts(node: ast.AST) -> list[str]:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            pass
        case ast.Dict(keys=items):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return text.split()
        case _:
            return []
    return [
        each.value
        for each in items
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
