"""Trials of `aotlite doctor`: imports, the backends, a C compiler.

Each runs in a child process with a time limit, so that a package that exits, hangs or crashes is a
finding like any other. A trial returns an `Outcome`.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from aotlite.backends.native.cache.trusted_folders import scratch
from aotlite.backends.native.compiler.compilers import candidates
from aotlite.cli.doctor import environment

TIMEOUT = 30.0
"""The limit of one trial, in seconds."""


@attrs.frozen
class Outcome:
    """The outcome of a trial: whether it succeeded, and its result or the reason."""

    works: bool
    text: str = ""


def run(command: Sequence[str], **variables: str) -> Outcome:
    """Runs a command. Returns its output, or the line that says why it failed."""
    try:
        done = subprocess.run(
            command,
            env={**environment.without_ours(), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, f"took more than {TIMEOUT:g} s")
    except OSError as error:
        return Outcome(False, f"{command[0]} cannot be run: {error.strerror}")
    if done.returncode < 0:
        return Outcome(False, f"was ended by signal {-done.returncode}")
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        return Outcome(False, said or f"ended with status {done.returncode}")
    return Outcome(True, done.stdout.strip())


def python(code: str, *arguments: str, **variables: str) -> Outcome:
    """Runs Python code in a child with this process's module path. Returns its output."""
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    return run([sys.executable, "-W", "ignore", "-c", path + code, *arguments], **variables)


def is_found(name: str) -> bool:
    """Whether there is a module of this name, without importing it. A mere folder is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


# ------------------------------------------------------------------------------------------ imports
_IMPORTS = """\
import importlib, json
with open(sys.argv[1], "w", encoding="utf-8") as report:
    for name in sys.argv[2:]:
        try:
            module = importlib.import_module(name)
            outcome = [True, str(getattr(module, "__version__", ""))]
        except BaseException as error:
            first = str(error).strip().partition("\\n")[0]
            outcome = [False, f"{type(error).__name__}: {first}"]
        print(json.dumps([name, *outcome]), file=report, flush=True)
"""


def imports(names: Iterable[str]) -> dict[str, Outcome]:
    """Returns, for each module, whether it can be imported, with its version or its error.

    One child imports them one after the other. If it dies, the first module that it did not report
    has crashed it, and another child continues after that one.
    """
    left, found = list(names), dict[str, Outcome]()
    while left:
        child, reported = _imports_in_child(left)
        found |= reported
        left = [name for name in left if name not in reported]
        if left:
            why = "ended the process" if child.works else child.text
            found[left.pop(0)] = Outcome(False, f"the process that imports it {why}")
    return found


def _imports_in_child(names: Sequence[str]) -> tuple[Outcome, dict[str, Outcome]]:
    with TemporaryDirectory() as folder:
        report = Path(folder, "report")
        child = python(_IMPORTS, str(report), *names)
        lines = report.read_text("utf-8").splitlines() if report.exists() else []
    return child, {name: Outcome(works, text) for name, works, text in map(json.loads, lines)}


# ------------------------------------------------------------------------------------- the backends
def backend(name: str) -> Outcome:
    """Returns whether a backend compiles and runs a function as eager does; for `cpu` with its
    compiler.

    The disk cache is not used. A C compiler may take at most half the time.
    """
    code = f"from aotlite.cli.doctor.backend_runs import try_{name} as run; run(float(sys.argv[1]))"
    with TemporaryDirectory() as folder:
        return python(code, str(TIMEOUT / 2), AOTLITE_CACHE=folder)


# ------------------------------------------------------------------------------------- a C compiler
_SOURCE = "int aotlite_doctor(int x) { return x + 1; }\n"
_LOADS = """\
import ctypes
found = ctypes.CDLL(sys.argv[1]).aotlite_doctor(41)
sys.exit(0 if found == 42 else f"a compiled function returned {found}, expected 42")
"""


def compilers() -> Iterator[list[str]]:
    """Yields the commands of the compilers on this machine except $CC, in the backend's order."""
    yield from (list(each.command) for each in candidates() if not each.title.startswith("$CC"))


def compiler(command: Sequence[str]) -> Outcome:
    """Returns whether a compiler makes a library that loads, with its version."""
    with scratch() as folder:
        source, library = Path(folder.path, "doctor.c"), Path(folder.path, "doctor.so")
        source.write_text(_SOURCE, "utf-8")
        made = run([*command, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)])
        if not made.works:
            return made
        if not library.exists():
            return Outcome(False, "makes no library")
        loaded = python(_LOADS, str(library))
    if not loaded.works:
        return loaded
    return Outcome(True, run([*command, "--version"]).text.partition("\n")[0])


def named_compiler(text: str) -> Outcome:
    """Returns the same for a command in the form of $CC, with options."""
    try:
        command = shlex.split(text)
    except ValueError as error:
        return Outcome(False, f"cannot be read: {error}")
    return compiler(command)
