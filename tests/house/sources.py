"""The project's Python files, each read and parsed once a process."""

import ast
import functools
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {"aotlite": "aotlite", "ir": "aotlite.ir", "backends": "aotlite.backends"}
"""Folders and the packages that they install as."""


class Scope(Enum):
    """Where a statement stands: when it runs."""

    TOP = "at the top"
    FUNCTION = "in a function"
    TYPING = "for type checkers"


class Source:
    """One Python file: its module's name, its text, and its syntax tree, sorted by kind of node."""

    def __init__(self, module: str, text: str, path: Path | None = None) -> None:
        """`module` ends in `.__init__` where the file is a package's own."""
        self.is_package = module.endswith(".__init__")
        self.module = module.removesuffix(".__init__")
        self.text = text
        self.path = path or Path(*module.split(".")).with_suffix(".py")

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @functools.cached_property
    def nodes(self) -> dict[type[ast.AST], list[tuple[ast.AST, Scope]]]:
        """All nodes of each type, with their scopes, in no useful order."""
        return _sorted_nodes(self.tree)

    def of(self, *types: type[ast.AST]) -> Iterator[ast.AST]:
        """The nodes of these types, in the order of the lines."""
        found = [node for each in types for node, _ in self.nodes.get(each, ())]
        return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))

    def scoped(self, *types: type[ast.AST]) -> Iterator[tuple[ast.AST, Scope]]:
        return (pair for each in types for pair in self.nodes.get(each, ()))

    @property
    def lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n") and self.text != "")

    @property
    def folder(self) -> str:
        """The package that this module is in; a package's own module is in itself."""
        return self.module if self.is_package else self.module.rpartition(".")[0]


def _sorted_nodes(tree: ast.Module) -> dict[type[ast.AST], list[tuple[ast.AST, Scope]]]:
    found: dict[type[ast.AST], list[tuple[ast.AST, Scope]]] = {}
    waiting: list[tuple[ast.AST, Scope]] = [(tree, Scope.TOP)]
    while waiting:
        node, scope = waiting.pop()
        kind = type(node)
        found.setdefault(kind, []).append((node, scope))
        if kind is ast.If and scope is Scope.TOP and _asks_for_type_checking(node.test):
            waiting += [(each, Scope.TYPING) for each in node.body]
            waiting += [(each, scope) for each in node.orelse]
            continue
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            scope = Scope.FUNCTION
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                waiting += [(each, scope) for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append((value, scope))
    return found


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
        """All that is installed, parsed."""
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
    """Syntax trees have no circles: collections would look through a million nodes for nothing."""
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
