"""What a user of Windows would run, run where the modules and names of POSIX are hidden.

Nothing here runs on Windows: what is shown is that nothing asks for what Windows does not have.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.hidden_posix import environment

FOLDERS = {"aotlite": "aotlite", "ir": "aotlite.ir", "backends": "aotlite.backends"}
ROOT = Path(__file__).parents[1]
EVERY_MODULE = """
import importlib, sys
sys.modules.update(dict.fromkeys(("torch", "jax")))  # they take ten seconds
missing = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f"{name} needs {(error.__cause__ or error).name}")
print(missing)
"""
EXTRAS = ("torch", "jax", "cupy", "array_api_strict", "hypothesis", "pytest", "mpi4py")
"""What modules may need that not everybody has."""


def modules():
    """The names of all modules of aotlite, but for those that run when they are imported."""
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join([package, *(each for each in parts if each != "__init__")])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python with arguments where POSIX is hidden."""
    folder = tmp_path_factory.mktemp("hidden")
    variables = environment(folder)

    def running(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=variables, cwd=folder, capture_output=True, text=True, timeout=120
        )

    return running


@pytest.mark.parametrize(
    "lines",
    [
        "import fcntl",
        "from os import fork",
        "import os; os.geteuid()",
        "import signal; signal.SIGKILL",
        "import faulthandler; faulthandler.register",
    ],
)
def test_what_is_hidden_is_not_there(run, lines):
    hidden = f"exec({lines!r}, {{'__name__': 'aotlite.planted'}})"
    ended = run("-c", hidden)
    assert (1, True) == (ended.returncode, "Error: " in ended.stderr), ended.stderr
    shown = run("-c", f"exec({lines!r}, {{'__name__': 'other'}})")
    assert (0, "") == (shown.returncode, shown.stderr)


@pytest.mark.slow("imports every module in a process of its own")
def test_every_module_is_imported_without_posix(run):
    names = list(modules())
    assert len(names) > 500
    ended = run("-c", EVERY_MODULE, *names)
    assert 0 == ended.returncode, ended.stderr
    missing = ast.literal_eval(ended.stdout)
    assert [] == [each for each in missing if each.split()[-1].split(".")[0] not in EXTRAS]


def test_a_run_of_programs_keeps_its_ledger_without_posix(run, tmp_path):
    ledger = tmp_path / "ledger"
    ended = run("-m", "aotlite", "fuzz", "--count", "3", "--jobs", "1", "--ledger", str(ledger))
    assert (0, "") == (ended.returncode, ended.stderr.strip()), ended.stderr
    assert "3 programs" in ended.stdout.splitlines()[-1]
    assert 3 == sum(json.loads(line).get("programs", 0) for line in ledger.read_text().splitlines())


def test_a_program_that_crashes_is_a_failure_without_posix(run, tmp_path):
    (tmp_path / "ending.py").write_text(
        "import os\n\ndef compile(function, **options):\n    return lambda *_: os._exit(3)\n"
    )
    function = f"{tmp_path}/ending.py:compile"
    ended = run(
        "-m",
        "aotlite",
        "fuzz",
        "--count",
        "1",
        "--jobs",
        "1",
        "--shrink",
        "0",
        "--function",
        function,
    )
    assert 1 == ended.returncode, ended.stderr
    assert "crash: exit status 3" in ended.stdout


def test_a_library_is_asked_without_posix(run):
    ended = run("-m", "aotlite", "conformance", "numpy", "--rules", "TEN-2a", "TEN-1d")
    assert 0 == ended.returncode, ended.stderr
    assert ended.stdout.endswith("keeps 2, breaks 0, absent 0\n")


@pytest.mark.slow("imports all that the commands need, in processes of their own")
@pytest.mark.parametrize("command", [["cache"], ["doctor", "--json"], ["conformance", "--list"]])
def test_a_command_runs_without_posix(run, command):
    ended = run("-m", "aotlite", *command)
    assert "Traceback" not in ended.stderr
    assert ended.returncode in (0, 1), ended.stderr


def test_a_compiled_function_runs_without_posix(run):
    lines = "import aotlite as al; print(al.compile(lambda x: x * 2)(al.ones(2)).tolist())"
    ended = run("-c", lines)
    assert ((0, "[2.0, 2.0]\n")) == (ended.returncode, ended.stdout), ended.stderr
