"""Rules for every module, whatever its floor: functions from a source file to complaints."""

import ast
import functools
import re
from collections.abc import Iterator

from tests.house.imports import imports, is_within
from tests.house.sources import Scope, Source

ENVIRONMENT_VARIABLES = {
    *("AOTLITE_LOG", "AOTLITE_TRACE", "AOTLITE_DUMP", "AOTLITE_VERIFY", "AOTLITE_CACHE")
}
STANDARD_VARIABLES = {
    "aotlite.backends.native.compiler.compilers": {"CC"},
    "aotlite.backends.native.cache.trusted_folders": {"XDG_CACHE_HOME"},
}
"""Module -> the standard environment variables that it alone may read."""
SHOWS_THE_ENVIRONMENT = "aotlite.cli.doctor.environment"  # shows what others read
WATCHES_THE_ENVIRONMENT = (  # which users' functions read and write
    "aotlite.artifacts.reads.watched_names",
    "aotlite.stages.s1_capture.environment.process_settings",
)
FOLDER_NAMES = ("ir", "backends")
HOLD_LOCKS_OF_THEIR_OWN = (
    "aotlite.ir.forks",
    "aotlite.backends.native.compiler.compiler_process",
    "aotlite.testing",
)
"""Modules that make a plain lock, which a fork waits for, or which no child inherits."""


def imports_by_folder_name(source: Source) -> Iterator[str]:
    """Imports of `ir` and `backends` by the folders' names, which load every class twice."""
    for folder in FOLDER_NAMES:
        if imports_of(folder, source):
            yield f"{source.module}: imports {folder}, expected aotlite.{folder}"


IMPORTS_TORCH = ("aotlite.testing", "aotlite.interchange.torch_fx")
"""The rooms whose functions may import PyTorch."""


def imports_torch(source: Source) -> Iterator[str]:
    """Imports of PyTorch by the product, which only tests compare with.

    `aotlite.testing` may import it inside functions that compare, `aotlite.interchange.torch_fx`
    inside functions that read and write its graphs.
    """
    crosses = any(is_within(source.module, room) for room in IMPORTS_TORCH)
    accepted = {Scope.FUNCTION} if crosses else set()
    if set(imports_of("torch", source)) - accepted:
        rule = f"in tests, or in functions of {' and '.join(IMPORTS_TORCH)}"
        yield f"{source.module}: imports torch, expected {rule}"


def imports_of(package: str, source: Source) -> list[Scope]:
    """The imports of a package in a module."""
    if not _mentions(package).search(source.text):
        return []
    return [each.scope for each in imports(source) if is_within(each.name, package)]


@functools.cache
def _mentions(package: str) -> re.Pattern[str]:
    """A pattern of texts that may import a package, so that few files are parsed."""
    return re.compile(
        rf"^\s*(?:import|from)\s+(?:[\w.]+(?: as \w+)?,\s*)*{package}\b"
        rf"|(?:import_module|importorskip|__import__)\(\s*[\"']{package}\b",
        re.MULTILINE,
    )


def makes_a_lock(source: Source) -> Iterator[str]:
    """Locks that a forked child would find held by threads that it does not have."""
    module = source.module
    if any(is_within(module, each) for each in HOLD_LOCKS_OF_THEIR_OWN):
        return
    for node in source.of(ast.Call, ast.keyword, ast.ImportFrom):
        match node:
            case (
                ast.Call(func=ast.Attribute(attr="Lock" | "RLock" | "Condition"))
                | ast.keyword(value=ast.Attribute(attr="Lock" | "RLock" | "Condition"))
            ):
                yield f"{module}:{node.lineno}: makes a lock, expected aotlite.ir.forks.lock()"
            case ast.ImportFrom(module="functools", names=names):
                if any(alias.name == "cached_property" for alias in names):
                    yield f"{module}:{node.lineno}: expected aotlite.ir.forks.cached_property"


def hides_comparisons(source: Source) -> Iterator[str]:
    """Imports of PyTorch at the top of a test module, which hide its tests without PyTorch."""
    name = source.module.rpartition(".")[2]
    if name.startswith("test_") and Scope.TOP in imports_of("torch", source):
        yield f"{source.module}: imports torch at its top, expected the fixture `torch`"


def reads_another_variable(source: Source) -> Iterator[str]:
    """Uses of the environment other than reads of one of the four variables by literal name.

    Reads of STANDARD_VARIABLES in their modules are allowed. A child may get the environment with
    additions, as `env={**os.environ, "NAME": value}`.
    """
    module = source.module
    if module in (SHOWS_THE_ENVIRONMENT, *WATCHES_THE_ENVIRONMENT) or "env" not in source.text:
        return
    constants = module_constants(source.tree)
    names = ENVIRONMENT_VARIABLES | STANDARD_VARIABLES.get(module, set())
    permitted = set(permitted_reads(source, constants, names))
    for node in source.of(ast.Attribute, ast.ImportFrom):
        if names_environment(node) and node not in permitted:
            rule = "one of the four variables, by name"
            line = getattr(node, "lineno", 0)
            yield f"{module}:{line}: reads the environment, expected {rule}"


def permitted_reads(
    source: Source, constants: dict[str, str], names: set[str]
) -> Iterator[ast.AST]:
    """The `os.environ` and `os.getenv` nodes in reads of one of these variables."""
    for node in source.of(ast.Subscript, ast.Call, ast.Compare, ast.keyword):
        match node:
            case (
                ast.Subscript(value=environment, slice=key, ctx=ast.Load())
                | ast.Call(func=ast.Attribute(value=environment, attr="get"), args=[key, *_])
                | ast.Call(func=ast.Attribute(attr="getenv") as environment, args=[key, *_])
                | ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[environment])
            ) if literal(key, constants) in names:
                yield environment
            case ast.keyword(
                arg="env", value=ast.Dict(keys=[None, _, *_], values=[environment, *_])
            ):
                yield environment


def names_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="environ" | "environb" | "getenv" | "getenvb" | "putenv"):
            return True
        case ast.ImportFrom(module="os", names=names):
            return any("env" in alias.name for alias in names)
    return False


def module_constants(tree: ast.Module) -> dict[str, str]:
    """Strings bound to a name at the top of a module."""
    return {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def literal(node: ast.expr, constants: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name)
    return None
