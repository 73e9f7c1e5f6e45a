"""The imports between modules: at the top, inside a function, or for type checkers."""

import ast
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tests.house.sources import Scope, Source

FUNCTIONS = {"import_module", "importorskip", "__import__", "deferred", "resolve_name"}
"""What imports a module that its first argument names."""
PROGRAMS = {"exec", "eval", "compile"}
"""What takes the text of a program."""
COMPUTED = ""
"""The name of an import whose module is known at run time."""


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
        return self.name != COMPUTED


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

    Arguments of `import_module`, `importorskip`, `__import__`, `pkgutil.resolve_name` and
    `aotlite.ir.deferred` count, under any name of these functions, and so do modules read from
    `sys.modules` and the imports of a program's literal text. A use of such a function that is no
    call counts as an import of a computed name.
    """
    functions = FUNCTIONS | set(_other_names(source))
    called: set[ast.expr] = set()
    kinds: list[type[ast.AST]] = [ast.Import, ast.ImportFrom]
    if any(name in source.text for name in FUNCTIONS | PROGRAMS | {"modules"}):
        kinds += [ast.Call, ast.Subscript, ast.Name, ast.Attribute]
    for node in source.of(*kinds):
        if isinstance(node, ast.Call):
            called.add(node.func)
        for name in _names(node, source, functions):
            yield Import(source.module, name, source.scopes[node], node.lineno)
    for node in source.of(*kinds[2:]):
        if isinstance(node, ast.Name | ast.Attribute) and node not in called:
            if _name(node) in functions and isinstance(node.ctx, ast.Load):
                yield Import(source.module, COMPUTED, Scope.FUNCTION, node.lineno)


def _other_names(source: Source) -> Iterator[str]:
    """The names under which a module imports functions that import."""
    for node in source.of(ast.ImportFrom):
        yield from (each.asname for each in node.names if each.asname and each.name in FUNCTIONS)


def _names(node: ast.AST, source: Source, functions: Container[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=base, names=names, level=level):
            start = _absolute(base, level, source)
            yield from (f"{start}.{alias.name}" for alias in names)
        case ast.Subscript(value=value, slice=key, ctx=ast.Load()) if _name(value) == "modules":
            if isinstance(value, ast.Attribute) or "import modules" in source.text:
                yield _literal(key)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="modules"), attr="get" | "pop")):
            yield _literal(node.args[0])
        case ast.Call(func=function, args=args, keywords=words) if _name(function) in functions:
            name = _literal([*args, *(each.value for each in words), function][0])
            yield f"aotlite{name}" if name.startswith(".") else name
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(text)), *_]):
            if name in PROGRAMS and "import" in text:
                yield from (each.name for each in imports(Source(source.module, text)))


def _literal(node: ast.expr) -> str:
    """The module that a literal names; the object of `resolve_name("a.b:c")` counts as a name."""
    text = node.value if isinstance(node, ast.Constant) else COMPUTED
    return str(text).replace(":", ".")


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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
