"""The project's Python files, each read and parsed once a process."""

import ast
import functools
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {"aotlite": "aotlite", "ir": "aotlite.ir", "backends": "aotlite.backends"}
"""Folder -> the package that it is installed as."""


class Scope(Enum):
    """The place of a statement, which decides when it runs."""

    TOP = "at the top"
    TYPING = "for type checkers"
    FUNCTION = "in a function"


_SCOPED = {ast.Import, ast.ImportFrom, ast.Call, ast.Subscript}
_FUNCTIONS = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda}
_FIELDS = {
    kind: tuple(field for field in kind._fields if field not in ("ctx", "op", "ops"))
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
"""The fields of a node that are searched; contexts and operators have no children."""


class Source:
    """One Python file: its module's name, its text, and its syntax tree, sorted by kind of node."""

    def __init__(self, module: str, text: str, path: Path | None = None) -> None:
        """`module` ends in `.__init__` if the file is a package's own."""
        self.is_package = module.endswith(".__init__")
        self.module = module.removesuffix(".__init__")
        self.text = text
        self.path = path or Path(*module.split(".")).with_suffix(".py")

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @functools.cached_property
    def nodes(self) -> dict[type[ast.AST], list[Any]]:
        """All nodes of each type but contexts and operators, in no useful order."""
        return self._walked[0]

    @property
    def scopes(self) -> dict[ast.AST, Scope]:
        """Where imports, calls and subscripts stand."""
        return self._walked[1]

    @functools.cached_property
    def _walked(self) -> tuple[dict[type[ast.AST], list[Any]], dict[ast.AST, Scope]]:
        return _sorted_nodes(self.tree)

    def of(self, *types: type[ast.AST]) -> Iterator[Any]:
        """The nodes of these types, in the order of the lines."""
        found = [node for each in types for node in self.nodes.get(each, ())]
        return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))

    @property
    def lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n") and self.text != "")

    @property
    def folder(self) -> str:
        """The package that this module is in; a package's own module is in itself."""
        return self.module if self.is_package else self.module.rpartition(".")[0]


def _sorted_nodes(
    tree: ast.Module,
) -> tuple[dict[type[ast.AST], list[Any]], dict[ast.AST, Scope]]:
    found: dict[type[ast.AST], list[Any]] = {}
    scopes: dict[ast.AST, Scope] = {}
    waiting: dict[Scope, list[Any]] = {scope: [] for scope in Scope}
    waiting[Scope.TOP].append(tree)
    for scope in Scope:  # a node of one scope may contain a later one
        here = waiting[scope]
        while here:
            node = here.pop()
            kind = type(node)
            found.setdefault(kind, []).append(node)
            if kind in _SCOPED:
                scopes[node] = scope
            elif kind is ast.If and scope is Scope.TOP and _asks_for_type_checking(node.test):
                waiting[Scope.TYPING] += node.body
                here += node.orelse
                continue
            inside = waiting[Scope.FUNCTION] if kind in _FUNCTIONS else here
            for field in _FIELDS[kind]:
                value = getattr(node, field)
                if isinstance(value, list):
                    inside += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST):
                    inside.append(value)
    return found, scopes


def _asks_for_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


class Tree:
    """The files below a root, by module. Another root is another checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, dict[str, Source]] = {}

    def folder(self, folder: str) -> dict[str, Source]:
        """The Python files of one top-level folder, by module name."""
        if folder not in self._files:
            sources = [self._source(folder, path) for path in python_files(self.root / folder)]
            self._files[folder] = {source.module: source for source in sources}
        return self._files[folder]

    def folders(self, *folders: str) -> dict[str, Source]:
        return {name: each for folder in folders for name, each in self.folder(folder).items()}

    @functools.cached_property
    def product(self) -> dict[str, Source]:
        """All installed files, parsed."""
        found = self.folders(*PRODUCT)
        with no_garbage_collection():
            for source in found.values():
                _ = source.nodes
        return found

    def _source(self, folder: str, path: Path) -> Source:
        parts = path.relative_to(self.root / folder).with_suffix("").parts
        module = ".".join([PRODUCT.get(folder, folder), *parts])
        return Source(module, path.read_text("utf-8"), path.relative_to(self.root))


def python_files(folder: Path) -> Iterable[Path]:
    found = folder.rglob("*.py")
    return sorted(path for path in found if "__pycache__" not in path.parts)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A block without garbage collection, as syntax trees have many nodes and no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@functools.cache
def tree(root: Path = ROOT) -> Tree:
    """The tree of a checkout, read once a process."""
    return Tree(root)
