"""Checks of size: lines and files of a package, lines of a stage's own file, fields of a record."""

import ast
import re
from collections.abc import Iterator, Mapping

from tests.house.house import Finding, House, short
from tests.house.imports import module_of
from tests.house.sources import Source

FILES = 12
STAGE_LINES = 150
FIELDS = 14
STAGE = re.compile(r"aotlite\.stages\.s\d+_\w+")
DECORATORS = {"frozen", "define", "mutable", "dataclass", "s"}
MAKERS = {"make_class", "make_dataclass", "namedtuple"}
"""The functions that make a record of a list of names."""


def lines(house: House) -> Iterator[Finding]:
    """The lines of each package, without those of subpackages."""
    for package, sources in house.packages.items():
        for name, source in sources.items():
            yield Finding(short(package), f"{name}: {source.lines}", source.lines, name)


def files(house: House) -> Iterator[Finding]:
    """The files of packages that have too many for a reader."""
    for package, sources in house.packages.items():
        if len(sources) > FILES:
            for name in sources:
                yield Finding(short(package), name, module=name)


def stages(house: House) -> Iterator[Finding]:
    """The lines of stages' own files that tell more than their plot.

    The file of a stage is `__init__` of its package.
    """
    for name, source in house.sources.items():
        if STAGE.fullmatch(name) and source.lines > STAGE_LINES:
            yield Finding(name, f"{name}: {source.lines} lines", source.lines, name)


def fields(house: House) -> Iterator[Finding]:
    """The fields of records that have too many."""
    records = {
        f"{module}:{node.name}": node
        for module, source in house.sources.items()
        for node in source.of(ast.ClassDef)
        if isinstance(node, ast.ClassDef)
    }
    for key, node in records.items():
        if is_record(node):
            found = fields_of(key, records, house.sources)
            if len(found) > FIELDS:
                listed = f"{key}: {len(found)} fields: {', '.join(found)}"
                yield Finding(key, listed, len(found), key.partition(":")[0])
    for module, source in house.sources.items():
        for call in source.of(ast.Call):
            if _name(call.func) in MAKERS:
                key, count = f"{module}:{ast.unparse(call.args[0])}", _made_fields(call)
                if count > FIELDS:
                    yield Finding(key, f"{key}: {count} fields", count, module)


def _made_fields(call: ast.Call) -> int:
    """The fields of a record that a call makes; too many where they are not written there."""
    match call.args[1:]:
        case [ast.List() | ast.Tuple() | ast.Set() as listed, *_]:
            return len(listed.elts)
        case [ast.Dict() as table, *_]:
            return len(table.keys)
        case [ast.Constant(value=str(text)), *_]:
            return len(text.replace(",", " ").split())
    return FIELDS + 1


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is made by attrs or dataclasses, or is a named tuple."""
    named = {
        _name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
    }
    return bool(named & DECORATORS) or "NamedTuple" in map(_name, node.bases)


def fields_of(
    key: str, records: Mapping[str, ast.ClassDef], sources: Mapping[str, Source]
) -> list[str]:
    """The names of a record's fields, those of its bases first."""
    module, node = key.partition(":")[0], records[key]
    found: list[str] = []
    for base in node.bases:
        origin = _origin(module, _name(base), sources)
        if origin != key and origin in records and is_record(records[origin]):
            found += fields_of(origin, records, sources)
    return [*found, *(name for name in _own_fields(node) if name not in found)]


def _own_fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if "ClassVar" not in ast.unparse(annotation):
                    yield name


def _origin(module: str, name: str, sources: Mapping[str, Source]) -> str:
    """`module:Name` of a class that a module uses."""
    for node in sources[module].of(ast.ImportFrom):
        if any(name == (alias.asname or alias.name) for alias in node.names):
            return f"{module_of(node.module or '', sources)}:{name}"
    return f"{module}:{name}"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
