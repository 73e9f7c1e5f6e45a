"""The rules of the house: functions from a source file to complaints, for test_architecture.py."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ENVIRONMENT_VARIABLES = {"AOTLITE_LOG", "AOTLITE_DUMP", "AOTLITE_VERIFY", "AOTLITE_CACHE"}
STANDARD_VARIABLES = {
    "aotlite.backends.cpu.compilers": {"CC"},
    "aotlite.backends.cpu.folders": {"XDG_CACHE_HOME"},
}
"""Variables of everybody, by the one module that reads them."""
SHOWS_THE_ENVIRONMENT = "aotlite.cli.doctor_environment"  # shows what others read
MAY_IMPORT = {
    "aotlite.ir": ("aotlite.ir",),
    "aotlite.backends": ("aotlite.ir", "aotlite.backends"),
}
FOLDER_NAMES = ("ir", "backends")
HOLD_LOCKS_OF_THEIR_OWN = ("aotlite.ir.forks", "aotlite.backends.cpu.processes", "aotlite.testing")
"""Where a lock of Python's own is made: one that a fork waits for, or that no child takes over."""
STAGE = re.compile(r"aotlite\.stages\.s\d+_")
# In two parts, so that this file does not contain what it looks for.
UNFINISHED = re.compile("TO" + r"DO\b|\bFIX" + "ME")
REGISTRIES = re.compile("index" + "-url|" + "pypi" + r"\.|python" + "hosted|download.py" + "torch")


def imports_upwards(module: str, source: str) -> Iterator[str]:
    """Imports of aotlite's own modules that this module's layer may not make."""
    layer = next((layer for layer in MAY_IMPORT if is_within(module, layer)), None)
    if layer is None:
        return
    for name in imported_modules(module, source):
        allowed = any(is_within(name, package) for package in MAY_IMPORT[layer])
        if is_within(name, "aotlite") and not allowed:
            yield f"{module}: imports {name}, expected {' or '.join(MAY_IMPORT[layer])} only"


def imports_another_stage(module: str, source: str) -> Iterator[str]:
    """Imports of a stage by another stage (s10_guards is stage 10), or by what stages share."""
    if not module.startswith("aotlite.stages."):
        return
    own = STAGE.match(module)
    for name in imported_modules(module, source):
        other = STAGE.match(name)
        if other and (own is None or other[0] != own[0]):
            yield f"{module}: imports {name}, expected no stage but its own"


def imports_by_folder_name(module: str, source: str) -> Iterator[str]:
    """Imports of `ir` and `backends` by the folders' names, which load every class twice."""
    for name in imported_modules(module, source):
        if any(is_within(name, folder) for folder in FOLDER_NAMES):
            yield f"{module}: imports {name}, expected aotlite.{name}"


def imports_torch(module: str, source: str) -> Iterator[str]:
    """Imports of PyTorch by what is installed: it is a thing to compare with.

    `aotlite.testing` may import it where a comparison is asked for: inside functions.
    """
    if is_within(module, "aotlite.testing"):
        source = outside_functions(source)
    if any(is_within(name, "torch") for name in imported_modules(module, source)):
        yield f"{module}: imports torch, expected in tests, or in functions of aotlite.testing"


def outside_functions(source: str) -> str:
    """A module without its functions and classes."""
    kept = [
        statement
        for statement in ast.parse(source).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
    ]
    return "\n".join(map(ast.unparse, kept))


def makes_a_lock(module: str, source: str) -> Iterator[str]:
    """Locks that a forked child would find held by threads that it does not have."""
    if any(is_within(module, each) for each in HOLD_LOCKS_OF_THEIR_OWN):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Call(func=ast.Attribute(attr="Lock" | "RLock" | "Condition"))
                | ast.keyword(value=ast.Attribute(attr="Lock" | "RLock" | "Condition"))
            ):
                yield f"{module}:{node.lineno}: makes a lock, expected aotlite.ir.forks.lock()"
            case ast.ImportFrom(module="functools", names=names):
                if any(alias.name == "cached_property" for alias in names):
                    yield f"{module}:{node.lineno}: expected aotlite.ir.forks.cached_property"


def hides_comparisons(module: str, source: str) -> Iterator[str]:
    """Imports of PyTorch at the top of a test module: without it, its tests would go uncounted."""
    if not module.rpartition(".")[2].startswith("test_"):
        return
    names = imported_modules(module, outside_functions(source))
    if any(is_within(name, "torch") for name in names):
        yield f"{module}: imports torch at its top, expected the fixture `torch`"


def reads_another_variable(module: str, source: str) -> Iterator[str]:
    """Uses of the environment other than reading a variable by its literal name: one of the four.

    Or one of STANDARD_VARIABLES, in its module. A child may be given the whole with more in it, as
    `env={**os.environ, "NAME": value}`: it has it anyway.
    """
    if module == SHOWS_THE_ENVIRONMENT:
        return
    tree = ast.parse(source)
    constants = module_constants(tree)
    names = ENVIRONMENT_VARIABLES | STANDARD_VARIABLES.get(module, set())
    permitted = set(permitted_reads(tree, constants, names))
    for node in ast.walk(tree):
        if names_environment(node) and node not in permitted:
            rule = "one of the four variables, by name"
            line = getattr(node, "lineno", 0)
            yield f"{module}:{line}: reads the environment, expected {rule}"


def permitted_reads(
    tree: ast.Module, constants: dict[str, str], names: set[str]
) -> Iterator[ast.AST]:
    """The `os.environ` and `os.getenv` nodes in reads of one of these variables."""
    for node in ast.walk(tree):
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


def is_too_long(path: Path, source: str) -> Iterator[str]:
    limit = 700 if path.parts[0] == "tests" else 500
    lines = len(source.splitlines())
    if lines > limit:
        yield f"{path}: has {lines} lines, expected at most {limit}"


def is_unfinished(path: Path, source: str) -> Iterator[str]:
    for number, line in enumerate(source.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: is marked unfinished"


def names_a_registry(path: Path, source: str) -> Iterator[str]:
    """Where packages come from is the business of the machine that installs them."""
    for number, line in enumerate(source.splitlines(), 1):
        if REGISTRIES.search(line):
            yield f"{path}:{number}: names a package registry"


def imported_modules(module: str, source: str) -> Iterator[str]:
    """Full names of what is imported anywhere in a module; `from a import b` gives a.b.

    Literal arguments of `import_module`, `importorskip` and `__import__` count. A package's own
    name ends in `.__init__`, so that relative imports resolve alike for packages and modules.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                package = module.split(".")[:-level] if level else []
                start = ".".join([*package, *([base] if base else [])])
                yield from (f"{start}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "importorskip")
                | ast.Name(id="import_module" | "importorskip" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")
