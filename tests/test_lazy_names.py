"""The front module: cheap to import, free of extras, and true to its table of names."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aotlite

HEAVY = {"numpy", "networkx", "sympy", "attrs", "ml_dtypes", "optree", "rich"}
EXTRAS = {
    "array_api_strict", "cupy", "hypothesis", "jax", "torch", "ziglang",
}  # fmt: skip

IMPORT_WITHOUT_EXTRAS = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{name} is refused by the test", name=name)

EXTRAS = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Refuse())
for module in sys.argv[2:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        # A module that is nothing without its extra may ask for it.
        if type(error).__name__ != "MissingExtraError":
            raise
"""


def run_python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert 0 == run.returncode, run.stderr
    return run.stdout


def all_modules() -> list[str]:
    """Every module of the three packages, by the files: a walk of `__path__` would leave them."""
    packages = ("aotlite", "aotlite.ir", "aotlite.backends")
    roots = {name: Path(import_module(name).__path__[0]) for name in packages}
    modules = {
        ".".join([name, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        for name, root in roots.items()
        for path in root.rglob("*.py")
    }
    return sorted(module for module in modules if not module.endswith("__main__"))


def test_import_aotlite_loads_no_dependency():
    loaded = run_python("import sys, aotlite; print(*sys.modules)").split()
    assert set() == (HEAVY | EXTRAS) & {name.partition(".")[0] for name in loaded}


def test_every_module_imports_without_any_extra():
    modules = all_modules()
    assert {"aotlite", "aotlite.ir", "aotlite.backends", "aotlite.data"} <= set(modules)
    run_python(IMPORT_WITHOUT_EXTRAS, ",".join(EXTRAS), *modules)


def test_every_public_name_resolves_and_is_listed():
    for name in (*aotlite._LAZY, *aotlite._SUBMODULES):
        assert getattr(aotlite, name) is getattr(aotlite, name)
        assert name in dir(aotlite)


def test_no_public_name_is_a_submodules_name():
    """`import aotlite.nn` binds the module over a lazily exported `nn`."""
    taken = {module.split(".")[1] for module in all_modules() if module.count(".") >= 1}
    assert set() == taken & set(aotlite._LAZY)


def test_public_names_are_known_to_type_checkers():
    """A type checker sees only the block `if TYPE_CHECKING`, users' programs only the table."""
    tree = ast.parse(Path(aotlite.__file__).read_text(encoding="utf-8"))
    conditionals = [node for node in tree.body if isinstance(node, ast.If)]
    blocks = [node for node in conditionals if ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [item for block in blocks for item in block.body if isinstance(item, ast.ImportFrom)]
    shown = {alias.asname: item.module for item in imports for alias in item.names}
    expected = {**aotlite._LAZY, **dict.fromkeys(aotlite._SUBMODULES, "aotlite")}
    assert expected == shown, "run tools/front_types.py"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'aotlite' has no attribute 'compil'"):
        aotlite.compil  # noqa: B018


def test_a_name_that_is_no_op_is_no_attribute_of_the_ops():
    """`pickle` looks into every loaded module for a function that does not say where it is from."""
    assert not hasattr(aotlite.ops, "torch")
    with pytest.raises(aotlite.ArgumentError, match="'truncc' is not an op; did you mean trunc"):
        aotlite.ops.truncc(1.0)
