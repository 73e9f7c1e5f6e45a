"""The house keeps its rules, and each rule is shown to reject what breaks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import architecture

ROOT = Path(__file__).parents[1]
PACKAGES = {"aotlite": "aotlite", "ir": "aotlite.ir", "backends": "aotlite.backends"}
TEXT_FOLDERS = (*PACKAGES, "tests", "tools", "specs", "docs", "examples", "benchmarks", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".cfg", ".toml", ".in", ".txt", ".yml", ".sh", ".c", ".cu", ""}


def modules(*folders: str) -> Iterator[tuple[str, str]]:
    """(full name, source) of the Python files of these folders; packages end in `.__init__`."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([PACKAGES.get(folder, folder), *parts]), path.read_text("utf-8")


def texts() -> Iterator[tuple[Path, str]]:
    """(path from the root, text) of everything that people write here."""
    below = (path for folder in TEXT_FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    for path in [*sorted(ROOT.glob("*")), *below]:
        if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT), path.read_text("utf-8")


MODULE_RULES = {
    architecture.imports_upwards: PACKAGES,
    architecture.imports_another_stage: ["aotlite"],
    architecture.imports_by_folder_name: [*PACKAGES, "tests", "tools", "examples", "benchmarks"],
    architecture.imports_torch: PACKAGES,
    architecture.makes_a_lock: PACKAGES,
    architecture.hides_comparisons: ["tests"],
    architecture.reads_another_variable: PACKAGES,
}
TEXT_RULES = [architecture.is_too_long, architecture.is_unfinished, architecture.names_a_registry]


@pytest.mark.parametrize("rule", MODULE_RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_the_rule(rule):
    folders = MODULE_RULES[rule]
    assert [] == [text for name, source in modules(*folders) for text in rule(name, source)]


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_no_text_breaks_the_rule(rule):
    checked = {
        path: text
        for path, text in texts()
        if rule is not architecture.is_too_long or path.suffix == ".py"
    }
    assert [] == [complaint for path, text in checked.items() for complaint in rule(path, text)]


def test_rules_see_all_three_packages():
    """A walk over nothing would keep every rule."""
    names = {name for name, _ in modules(*PACKAGES)}
    assert {"aotlite.__init__", "aotlite.ir.__init__", "aotlite.backends.__init__"} <= names
    paths = {path.as_posix() for path, _ in texts()}
    assert {"README.md", "setup.cfg", "ir/__init__.py", ".ci/run"} <= paths


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aotlite.ir.graph", "import aotlite"),
        ("aotlite.ir.graph", "from aotlite import backends"),
        ("aotlite.ir.graph", "def f():\n    from aotlite.backends.cpu import emit"),
        ("aotlite.ir.ops.views", "from ...eager import tensor"),
        ("aotlite.ir.__init__", "from .. import eager"),
        ("aotlite.ir.graph", "import importlib\nimportlib.import_module('aotlite.eager')"),
        ("aotlite.backends.cpu.emit", "from aotlite.stages.s9_lower import lower"),
        ("aotlite.backends.protocol", "import aotlite.irrelevant"),
    ],
)
def test_upward_import_is_found(module, source):
    assert 1 == len(list(architecture.imports_upwards(module, source)))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aotlite.ir.graph", "from aotlite.ir import op\nfrom . import meta\nimport numpy"),
        ("aotlite.ir.__init__", "from .graph import Graph"),
        ("aotlite.backends.cpu.emit", "from aotlite.ir import op\nfrom ..protocol import Backend"),
        ("aotlite.pipeline", "from aotlite import ir, backends, eager"),
    ],
)
def test_downward_import_is_accepted(module, source):
    assert [] == list(architecture.imports_upwards(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aotlite.stages.s4_joint", "from aotlite.stages import s1_capture"),
        ("aotlite.stages.s4_joint", "from aotlite.stages.s1_capture import capture"),
        ("aotlite.stages.s4_joint", "from .s1_capture import capture"),
        ("aotlite.stages.s6_functionalize.groups", "from ..s1_capture import capture"),
        ("aotlite.stages.s1_capture", "from aotlite.stages.s10_runtime import run"),
        ("aotlite.stages.records.function_meta", "from aotlite.stages.s2_analyze import analyze"),
    ],
)
def test_import_of_another_stage_is_found(module, source):
    assert 1 == len(list(architecture.imports_another_stage(module, source)))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("aotlite.stages.s6_functionalize.groups", "from .chains import replay"),
        ("aotlite.stages.s6_functionalize.groups", "import aotlite.stages.s6_functionalize.chains"),
        ("aotlite.stages.s4_joint", "from aotlite.stages import facts"),
        ("aotlite.pipeline", "from aotlite.stages import s1_capture, s2_analyze"),
    ],
)
def test_import_of_the_own_stage_is_accepted(module, source):
    assert [] == list(architecture.imports_another_stage(module, source))


@pytest.mark.parametrize("source", ["import ir", "import ir.op", "from backends import cpu"])
def test_import_by_folder_name_is_found(source):
    assert 1 == len(list(architecture.imports_by_folder_name("tests.test_x", source)))


@pytest.mark.parametrize(
    "source",
    [
        "_lock = threading.Lock()",
        "x = attrs.field(factory=threading.RLock)",
        "from functools import cached_property, partial",
    ],
)
def test_lock_that_a_forked_child_would_find_held_is_found(source):
    assert 1 == len(list(architecture.makes_a_lock("aotlite.ir.x", source)))
    assert [] == list(architecture.makes_a_lock("aotlite.ir.forks", source))


@pytest.mark.parametrize(
    "source", ["import aotlite.ir", "from aotlite import ir", "import irrational"]
)
def test_import_by_full_name_is_accepted(source):
    assert [] == list(architecture.imports_by_folder_name("tests.test_x", source))


def test_import_of_torch_is_found():
    source = "def f():\n    from torch import fx"
    assert 1 == len(list(architecture.imports_torch("aotlite.x", source)))
    assert [] == list(architecture.imports_torch("aotlite.x", "import torchless"))


@pytest.mark.parametrize("module, found", [("aotlite.testing.x", 0), ("aotlite.x", 1)])
def test_import_of_torch_inside_a_function_of_testing_is_accepted(module, found):
    source = "def f():\n    import torch"
    assert found == len(list(architecture.imports_torch(module, source)))
    assert 1 == len(list(architecture.imports_torch(module, "import torch")))


@pytest.mark.parametrize(
    "source",
    ["import torch", "t = pytest.importorskip('torch')", "try:\n    import torch\nfinally: pass"],
)
def test_import_of_torch_at_the_top_of_a_test_module_is_found(source):
    assert 1 == len(list(architecture.hides_comparisons("tests.ir.test_x", source)))
    assert [] == list(architecture.hides_comparisons("tests.helpers", source))


def test_import_of_torch_inside_a_test_is_accepted():
    source = "def test_x(torch):\n    import torch.fx"
    assert [] == list(architecture.hides_comparisons("tests.ir.test_x", source))


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['HOME']",
        "os.environ.get('AOTLITE_DEBUG')",
        "os.getenv('CC', 'cc')",
        "os.getenv(name)",
        "from os import environ",
        "import os as system\nsystem.environ['HOME']",
        "run(env={**os.environ})",
        "os.environ['AOTLITE_LOG'] = '1'",
        "NAME = 'CC'\nos.environ.get(NAME)",
    ],
)
def test_use_of_another_environment_variable_is_found(source):
    assert 1 == len(list(architecture.reads_another_variable("aotlite.x", source)))


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['AOTLITE_LOG']",
        "os.environ.get('AOTLITE_DUMP', '')",
        "os.getenv('AOTLITE_VERIFY')",
        "'AOTLITE_CACHE' in os.environ",
        "NAME = 'AOTLITE_CACHE'\nos.environ.get(NAME)",
    ],
)
def test_reading_one_of_the_four_variables_is_accepted(source):
    assert [] == list(architecture.reads_another_variable("aotlite.x", source))


def test_the_environment_is_given_on_to_children_alone():
    rule = architecture.reads_another_variable
    assert [] == list(rule("aotlite.x", "run(env={**os.environ, 'TMPDIR': folder})"))
    for source in ("found = {**os.environ}", "run(env={**os.environ, 'A': os.environ['B']})"):
        assert 1 == len(list(rule("aotlite.x", source)))


def test_a_standard_variable_is_read_by_its_module_alone():
    rule, source = architecture.reads_another_variable, "os.environ.get('CC')"
    assert [] == list(rule("aotlite.backends.cpu.compilers", source))
    assert 1 == len(list(rule("aotlite.backends.cpu.folders", source)))


def test_only_the_doctor_shows_variables_of_others():
    rule, source = architecture.reads_another_variable, "os.environ.get('CC')"
    assert [] == list(rule(architecture.SHOWS_THE_ENVIRONMENT, source))
    assert 1 == len(list(rule("aotlite.cli.doctor", source)))


@pytest.mark.parametrize(("folder", "limit"), [("ir", 500), ("aotlite", 500), ("tests", 700)])
def test_file_past_the_limit_is_found(folder, limit):
    path = Path(folder, "x.py")
    assert [] == list(architecture.is_too_long(path, "\n" * limit))
    assert 1 == len(list(architecture.is_too_long(path, "\n" * (limit + 1))))


def test_mark_of_unfinished_work_is_found():
    for mark in ("TO" + "DO", "FIX" + "ME"):
        assert 1 == len(list(architecture.is_unfinished(Path("x.py"), f"x = 1\n# {mark}: y")))
    assert [] == list(architecture.is_unfinished(Path("x.md"), "nothing is left to do"))


def test_name_of_a_registry_is_found():
    for line in ("--extra-index" + "-url=x", "https://py" + "pi.org/simple"):
        assert 1 == len(list(architecture.names_a_registry(Path("x.cfg"), line)))
    assert [] == list(architecture.names_a_registry(Path("x.cfg"), "https://doi.org/1"))
