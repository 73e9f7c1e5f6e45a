"""The path of one tensor: its length, and the counts of the command."""

import os
import subprocess
import sys

import pytest

from tests.house import one_tensor
from tests.house.sources import ROOT


def printed(*arguments):
    """The output of the command in a fresh process."""
    command = [sys.executable, "-m", "tests.house.one_tensor", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AOTLITE_")}
    found = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


@pytest.mark.slow("imports aotlite afresh and compiles under a tracer")
def test_path_of_the_readme_example_has_few_lines():
    *files, last = printed()
    counts = {file: int(count) for count, file in (line.split() for line in files)}
    total = int(last.split()[0])
    assert sum(counts.values()) == total <= one_tensor.LINES
    assert total > one_tensor.LINES - 100, "lower LINES to what there is"
    order = [
        "aotlite/api.py",
        "aotlite/pipeline/journey.py",
        "aotlite/stages/s1_capture/__init__.py",
        "aotlite/stages/s4_joint/__init__.py",
        "aotlite/stages/s6_functionalize/__init__.py",
        "aotlite/stages/s8_partition/graph_cut.py",
        "backends/reference.py",
        "aotlite/stages/s10_runtime/forward/writer.py",
        "aotlite/stages/s10_runtime/backward/writer.py",
    ]
    assert order == [file for file in counts if file in order]


@pytest.mark.slow("imports aotlite afresh and compiles under a tracer")
def test_path_of_a_write_goes_through_dispatch_stages_and_backend():
    found = dict(line.split(": ") for line in printed("--write"))
    assert "_inplace" in found["aotlite/eager/dispatch/__init__.py"].split(", ")
    assert "add_write" in found["aotlite/stages/s6_functionalize/writes.py"].split(", ")
    # The reference backend interprets the first calls.
    assert "Interpreter.run_node" in found["ir/run/interpreter.py"].split(", ")
    assert "aotlite/eager/autograd/engine.py" not in found


def test_statement_of_several_lines_is_one_line():
    starts = one_tensor.statement_starts("def f(x):\n    y = [\n        x,\n    ]\n    return y\n")
    assert {1: 1, 2: 2, 3: 2, 4: 2, 5: 5} == starts


def test_lines_that_an_import_runs_are_not_counted(tmp_path, monkeypatch):
    planted = "__name__ = 'aotlite.planted'\ndef f():\n    return 1\nf()\n"
    (tmp_path / "planted.py").write_text(planted)
    monkeypatch.syspath_prepend(tmp_path)
    scope = {"__name__": "aotlite.caller"}
    calls = "def imports():\n    import planted\n    return planted\n"
    exec(compile(calls, "caller.py", "exec"), scope)
    lines = one_tensor.Lines()
    with one_tensor.tracing(lines):
        planted = scope["imports"]()
    assert {"aotlite.caller": [2, 3]} == {name: list(each) for name, each in lines.found.items()}
    with one_tensor.tracing(lines):
        planted.f()
    assert [3] == list(lines.found["aotlite.planted"])


def test_lines_of_other_libraries_are_not_counted():
    lines = one_tensor.Lines()
    with one_tensor.tracing(lines):
        one_tensor.statement_starts("x = 1")
    assert {} == lines.found
