"""The imports between modules: at the top, inside a function, or for type checkers."""

import ast
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tests.house.sources import Scope, Source

FUNCTIONS = {"import_module", "importorskip", "__import__", "deferred"}


@dataclass(frozen=True)
class Import:
    """One imported name, as written: `from a import b` is `a.b`."""

    source: str
    name: str
    scope: Scope
    line: int

    @property
    def is_literal(self) -> bool:
        """Whether the name is a literal; else the module is known at run time."""
        return self.name != ""


@dataclass(frozen=True)
class Edge:
    """One module of the tree imports another."""

    source: str
    target: str
    scope: Scope
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} -> {self.target} ({self.scope.value})"


def imports(source: Source) -> Iterator[Import]:
    """All imports of a module.

    Arguments of `import_module`, `importorskip`, `__import__` and `aotlite.ir.deferred` count.
    """
    calls = [ast.Call] if any(name in source.text for name in FUNCTIONS) else []
    for node in source.of(ast.Import, ast.ImportFrom, *calls):
        for name in _names(node, source):
            yield Import(source.module, name, source.scopes[node], node.lineno)


def _names(node: ast.AST, source: Source) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=base, names=names, level=level):
            start = _absolute(base, level, source)
            yield from (f"{start}.{alias.name}" for alias in names)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[first, *_]):
            if name in FUNCTIONS:
                yield str(first.value) if isinstance(first, ast.Constant) else ""


def _absolute(base: str | None, level: int, source: Source) -> str:
    own = source.module.split(".")
    steps_up = level - source.is_package
    package = own[: len(own) - steps_up] if level else []
    return ".".join([*package, *([base] if base else [])])


def edges(sources: Mapping[str, Source], tables: Container[str] = ()) -> list[Edge]:
    """The imports between these modules, each once.

    A parent package of an imported module does not count. `tables` are packages that import their
    names on first use; these imports, and those for type checkers, do not count.
    """
    found: dict[tuple[str, str, Scope], Edge] = {}
    for source in sources.values():
        for each in imports(source):
            target = module_of(each.name, sources)
            is_table = source.module in tables and each.scope is not Scope.TOP
            if target is not None and target != source.module and not is_table:
                edge = Edge(source.module, target, each.scope, each.line)
                key = source.module, target, each.scope
                found[key] = min(found.get(key, edge), edge, key=lambda edge: edge.line)
    return list(found.values())


def module_of(name: str, modules: Container[str]) -> str | None:
    """The module of an imported name: its longest prefix that is a module."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")
