"""What docstrings and comments of the product, and pages, name in backticks: it is there.

A file (`graph_cut.py`), a module, a class or a member of it (`Graph.edit`, `s4_joint.joint`), or a
single name that no code says (`Recorder`, if nothing bears it any more). Names of variables, and of
what belongs to other libraries, are not followed.
"""

import ast
import builtins
import functools
import io
import keyword
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

import aotlite as al
from aotlite.pipeline.logs.loggers import NAMES
from tests.house.sources import ROOT, Source, Tree, tree

BACKTICKS = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?!/)[\w./-]+\.(?:py|md|c|h|cu|cpp|toml|json|cfg|txt)")
NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
LOGGERS = {f"aotlite.{name}" for name in ("device_graphs", "compiled_autograd", *NAMES)}
SHOWN = {"a.b", "timeline.py", "0001_loss_4_joint.py"}
"""Examples, not references."""
LIBRARIES = set(
    "al autograd copy cublas cupy functools inspect itertools jax linalg list mpmath networkx nn "
    "model numpy np nvrtc object ops os random shutil slice str sys torch tuple x xp".split()
)
"""Heads of dotted names of other libraries, and of what aotlite names as PyTorch does."""
FOREIGN = set(
    "hosting malloc ziglang cublasGemmAlgo_t cublasComputeType_t computeStride "
    "MulBackward ReluBackward _saved_self _raw_saved_result NaN "
    "replicate reflect circular svd_backward matrix_norm vector_norm detach_copy "
    "p__a p__b f_".split()
)
"""Single names that others give, or that are made of a schema's name."""


class Names:
    """The names that a tree of sources has."""

    def __init__(self, of: Tree, files: frozenset[str]) -> None:
        self.files = files
        self.modules: dict[str, set[str]] = {}
        self.members: dict[str, set[str]] = defaultdict(set)
        """Class -> what its own body and its methods name."""
        self.bases: dict[str, set[str]] = defaultdict(set)
        self.words = {*dir(builtins), *keyword.kwlist}
        for module, source in of.product.items():
            name = module.removesuffix(".__init__")
            self.modules[name] = at_top(source)
            self.words |= set(name.split("."))
            for each in source.of(ast.ClassDef):
                self.members[each.name] |= members(each)
                self.bases[each.name] |= {ast.unparse(base).split(".")[-1] for base in each.bases}
            self.words |= words(source)
        for file in self.files:
            if file.startswith("backends/") and file.endswith((".c", ".h", ".cpp")):
                self.words |= set(WORD.findall((of.root / file).read_text("utf-8")))

    def is_file(self, name: str) -> bool:
        return any(f"/{each}".endswith(f"/{name}") for each in self.files)

    def has(self, name: str, source: Source) -> bool:
        """Whether a name, dotted or not, leads to something."""
        head, *rest = name.split(".")
        if not rest:
            return head in self.words
        if head in self.members:
            return self._is_member(head, rest[0])
        if head in LIBRARIES:
            return True
        return self.has_member(name) or self._is_of_variable(name, source)

    def _is_member(self, name: str, member: str) -> bool:
        """Whether the class, or one that it inherits from, has a member."""
        bases = (self._is_member(base, member) for base in self.bases.get(name, ()))
        return member in self.members.get(name, ()) or any(bases)

    def has_member(self, name: str) -> bool:
        """Whether a dotted name is a module, what one has, or a member of its class."""
        head = name.partition(".")[0]
        name = f"aotlite.{name}" if head in PACKAGES - {"aotlite"} else name
        for module, found in self.modules.items():
            if f".{module}".endswith(f".{name}"):
                return True
            start, _, rest = name.rpartition(".")
            if f".{module}".endswith(f".{start}") and rest in found:
                return True
            outer, _, owner = start.rpartition(".")
            is_there = outer and f".{module}".endswith(f".{outer}") and owner in found
            if is_there and rest in self.members.get(owner, ()):
                return True
        return False

    def _is_of_variable(self, name: str, source: Source) -> bool:
        """A variable, not a package: all parts are words of the file's own code."""
        head = name.partition(".")[0]
        return head not in PACKAGES and set(name.split(".")) <= words(source)


PACKAGES = {"aotlite", "backends", "conformance", "eager", "ir", "pipeline", "stages", "testing"}
"""Names that are never those of variables."""


def at_top(source: Source) -> set[str]:
    """The names that a module defines or imports at its top."""
    found = set()
    for statement in source.tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found.add(statement.name)
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Expr)):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(WORD.findall(node.value))  # tables of lazy names
    return found


def members(of: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(of):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # __slots__
    return found


@functools.cache
def words(source: Source) -> frozenset[str]:
    """All words of a module's code, texts included, docstrings and comments not."""
    docs = {id(node.value) for node in source.of(ast.Expr)}
    found: set[str] = set()
    for kind, field in ((ast.Name, "id"), (ast.Attribute, "attr"), (ast.arg, "arg")):
        found |= {getattr(node, field) for node in source.of(kind)}
    for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        found.add(node.name)
    for node in source.of(ast.alias):
        found |= set(WORD.findall(f"{node.name} {node.asname}"))
    for node in source.of(ast.keyword):
        found.add(node.arg)
    for node in source.of(ast.Constant):
        if isinstance(node.value, str) and id(node) not in docs:
            found |= set(WORD.findall(node.value))
    return frozenset(found)


def texts(source: Source):
    """(line, text) of each docstring, of attributes too, and of each comment."""
    for node in source.of(ast.Expr):
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    if re.search("#.*`", source.text):
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def missing(source: Source, names: Names):
    """What a module names and is not there, with the line."""
    for line, text in texts(source):
        for name in BACKTICKS.findall(text):
            if name in SHOWN | FOREIGN:
                continue
            dotted = NAME.fullmatch(name)
            is_found = names.is_file(name) if FILE.fullmatch(name) else not dotted
            if not is_found and not (dotted and names.has(dotted[1], source)):
                yield f"{source.path}:{line}: {name}"


def is_public(name: str) -> bool:
    """Whether `aotlite` itself has the name, as it has each op's, or logs under it."""
    package, _, member = name.partition(".")
    return package == "aotlite" and hasattr(al, member) or name in LOGGERS


def missing_in_page(text: str, names: Names, tests: str):
    """Modules of the product, their members, and tests that a page names and that are not there."""
    for name in BACKTICKS.findall(FENCE.sub("", text)):
        if name.partition(".")[0] in PACKAGES and "." in name:
            dotted = NAME.fullmatch(name)
            if dotted and not names.has_member(dotted[1]) and not is_public(dotted[1]):
                yield name
        elif name.startswith("test_") and WORD.fullmatch(name) and f"def {name}(" not in tests:
            yield name


@pytest.fixture(scope="module")
def names():
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*.*") if ".git" not in path.parts)
    return Names(tree(), frozenset([path.as_posix() for path in paths]))


def test_docstrings_and_comments_name_what_is_there(names):
    assert [] == [each for source in tree().product.values() for each in missing(source, names)]


def test_pages_name_modules_and_tests_that_are_there(names):
    tests = "".join(source.text for source in tree().folder("tests").values())
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("specs/**/*.md")]
    assert {} == {
        page.name: found
        for page in pages
        if (found := list(missing_in_page(page.read_text("utf-8"), names, tests)))
    }


def test_a_page_that_names_what_is_gone_is_found(names):
    text = "`eager.dispatch`, `eager.gone.Recorder`, `test_kept`, `test_gone`, `test_x.py`"
    found = list(missing_in_page(text, names, "def test_kept():"))
    assert ["eager.gone.Recorder", "test_gone"] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`graph_cut.py`, `s8_partition/graph_cut.py` and `gone.py`", ["gone.py"]),
        ("`Graph.edit`, `s4_joint.joint`, `Graph.backward`", ["Graph.backward"]),
        ("`eager.dispatch`, `eager.recording.Recorder`", ["eager.recording.Recorder"]),
        (
            "`backends.values`, `stages.facts`, `backends.protocol`",
            ["backends.values", "stages.facts"],
        ),
        ("`CompiledBackward` and `Recorder_of_old`", ["Recorder_of_old"]),
        ("`numpy.take`, `x.y` of a variable, `1 + 1`", []),
    ],
)
@pytest.mark.parametrize("form", ['"""{}"""', "# {}", 'class A:\n    b: int\n    """{}"""'])
def test_a_name_that_nothing_bears_is_found(text, found, form, names):
    source = Source("m", f"x, y = 1, 2\nx.y\n{form.format(text)}\n", Path("m.py"))
    assert found == [each.split(": ")[1] for each in missing(source, names)]
