"""Old names of modules: an import of one says the new one, for one release, and costs no other."""

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aotlite
from aotlite.ir.errors import FormatError
from aotlite.moved_modules import moved

ROOT = Path(__file__).parents[1]
LAST_RELEASE = (0, 1)
"""The table, `aotlite/moved_modules.py` and the finder in `aotlite/__init__.py` go in the next."""


BEFORE = "3471cb5a"
"""The last commit with the modules of before."""


def is_overdue(version: str, table: object) -> bool:
    """Whether old names are still known in a release after the last one that is to know them."""
    return bool(table) and tuple(map(int, version.split(".")[:2])) > LAST_RELEASE


def child(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a folder of it is gone, too
        return False


def is_there(name: str) -> bool:
    """Whether there is a module of this name, or what a module has under it."""
    package, _, last = name.rpartition(".")
    if is_module(name):
        return True
    return is_module(package) and hasattr(importlib.import_module(package), last)


def test_the_table_of_moved_modules_ends_with_the_release() -> None:
    assert not is_overdue(aotlite.__version__, moved()), (
        "remove the table, its module, the finder, and names marked 'in the release before'"
    )
    assert is_overdue("0.2.0", moved()) and is_overdue("1.0.0rc1", moved())
    assert not is_overdue("0.1.9", moved()) and not is_overdue("0.2.0", {})


def test_every_old_name_leads_to_one_that_there_is() -> None:
    assert len(moved()) > 700
    assert [] == [new for new, *_ in moved().values() if not is_there(new)]
    assert {(), ("pickled",)} == {tuple(marks) for _, *marks in moved().values()}


RENAMED = """
aotlite.backends.loops.program.Kind BufferKind
aotlite.backends.loops.program.Buffer ProgramBuffer
aotlite.backends.loops.program.Window MatrixWindow
aotlite.backends.loops.program.Check ValueCheck
aotlite.backends.loops.program.Program LoopProgram
aotlite.backends.loops.lowering.writer.Operand LoopOperand
aotlite.backends.loops.lowering.writer.Writer LoopWriter
"""
"""Documented names that have others in their module, and stay for this release."""


def test_names_that_changed_within_their_module_are_still_there() -> None:
    for old, new in map(str.split, RENAMED.split("\n")[1:-1]):
        module, _, name = old.rpartition(".")
        found = importlib.import_module(module)
        assert getattr(found, name) is getattr(found, new)


def test_attributes_of_the_release_before_are_still_there() -> None:
    compiled = aotlite.compile(lambda x: (x * x).sum(), backend="reference")
    compiled(aotlite.ones(3).requires_grad_())
    entry = compiled.entries[0]
    assert entry.entry is entry.guarded
    assert [each.hidden for each in entry.meta.inputs] == [False]
    saved = entry.partition.saved[0]
    assert (saved.lent, saved.guarded) == (saved.copied_on_write, saved.byte_checked)
    stages = aotlite.inspect.stages_of(lambda x: (x * x).sum(), aotlite.ones(3).requires_grad_())
    found = aotlite.partition.min_cut(stages["simplify"])
    assert found.joint is found.indexed


def test_every_module_of_the_release_before_is_there_or_has_a_new_name() -> None:
    listing = f"git ls-tree -r --name-only {BEFORE} aotlite ir backends".split()
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"needs the commit {BEFORE}")
    files = [Path(line) for line in listed.stdout.splitlines() if line.endswith(".py")]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    old = [name if name.startswith("aotlite") else f"aotlite.{name}" for name in names]
    assert [] == [name for name in old if name not in moved() and not is_module(name)]


def test_no_name_of_today_counts_as_moved() -> None:
    assert [] == [old for old in moved() if is_module(old)]
    assert [] == [new for new, *_ in moved().values() if new in moved()]


@pytest.mark.parametrize("by", ["import", "from"])
def test_an_import_of_any_old_name_says_the_new_one(by: str) -> None:
    for old, (new, *_) in moved().items():
        package, _, last = old.rpartition(".")
        if by == "from" and (package in moved() or is_there(old)):
            continue  # the error is that of the package; a function of a module has its old name
        statement = f"import {old}" if by == "import" else f"from {package} import {last}"
        with pytest.raises(ModuleNotFoundError) as caught:
            exec(statement, {})
        assert str(caught.value).split(";")[0] == f"{old} is now {new}"


def test_import_module_says_the_new_name() -> None:
    with pytest.raises(ImportError, match="^aotlite.ir.compare is now aotlite.ir.graph.compare$"):
        importlib.import_module("aotlite.ir.compare")
    with pytest.raises(ImportError, match="^aotlite.trees is now aotlite.pipeline.arguments"):
        importlib.import_module(".trees", "aotlite")


def test_names_that_went_elsewhere_than_their_module_are_notes() -> None:
    with pytest.raises(FormatError) as caught:
        importlib.import_module("aotlite.stages.facts")
    assert isinstance(caught.value, ModuleNotFoundError)
    captured = "aotlite.stages.facts.Captured is now aotlite.stages.records.capture.Captured"
    assert captured in caught.value.__notes__


def test_whether_an_old_module_exists_is_answered_with_no() -> None:
    assert importlib.util.find_spec("aotlite.stages.facts") is None
    assert not hasattr(importlib.import_module("aotlite.stages"), "facts")
    with pytest.raises(pytest.skip.Exception):
        pytest.importorskip("aotlite.ir.role")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from aotlite.ir.graph import role, nothing", {})
    with pytest.raises(ModuleNotFoundError, match="No module named 'aotlite.nothing'") as caught:
        importlib.import_module("aotlite.nothing")
    assert caught.value.name == "aotlite.nothing"


def test_the_table_is_read_after_an_import_of_aotlite_failed_and_not_before() -> None:
    program = """
import sys, importlib
import aotlite
finders = list(sys.meta_path)
loaded = lambda: "aotlite.moved_modules" in sys.modules
try: import no_such_module_of_any_name
except ImportError: pass
aotlite.ones(2).sum()
print(loaded())
try: import aotlite.stages.facts
except ImportError: pass
print(loaded(), [each.__name__ for each in finders if each.__module__ == "aotlite"])
del sys.modules["aotlite"]
import aotlite
print(len(sys.meta_path) - len(finders))
"""
    assert child(program).splitlines() == ["False", "True ['_MovedModules']", "0"]


def test_threads_that_import_old_and_new_names_at_once_all_end() -> None:
    program = """
import threading, importlib, aotlite
old = ["stages.facts", "ir.role", "trees", "eager.tensor", "testing.conformance.model", "nothing"]
new = ["api", "pipeline", "stages.records.base", "ir.graph", "eager", "ir.errors"]
found, gate = [], threading.Barrier(24)
def work(name):
    gate.wait()
    try: importlib.import_module("aotlite." + name)
    except ImportError as error: found.append(str(error).split(";")[0])
    else: found.append("")
threads = [threading.Thread(target=work, args=(name,)) for name in (old + new) * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), found.count(""), sum("is now" in text for text in found))
"""
    assert child(program).split() == ["24", "12", "10"]


def test_a_longer_name_is_looked_up_before_that_of_its_package() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=re.escape("aotlite.conformance.rules.memory.views")
    ):
        importlib.import_module("aotlite.testing.conformance.rules_views")
    with pytest.raises(ModuleNotFoundError, match="conformance.rules is now aotlite.conf"):
        importlib.import_module("aotlite.testing.conformance.rules.nothing")
