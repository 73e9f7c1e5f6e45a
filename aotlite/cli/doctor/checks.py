"""The checks of `aotlite doctor`: `examine` returns a finding for each thing that it checks.

Trials run in child processes, side by side. Packages that take seconds to import (PyTorch, JAX) are
looked up, not imported.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aotlite
from aotlite.cli.doctor import cuda, environment, probes
from aotlite.cli.doctor.probes import Outcome
from aotlite.cli.doctor.record import Finding, State

MACHINE, REQUIRED, BACKENDS = "This machine", "Required packages", "Backends"
PREREQUISITES, OPTIONAL = "What the backends need", "Optional packages"

NEEDED = (
    "numpy",
    "networkx",
    "sympy",
    "attrs",
    "optree",
    "ml_dtypes",
    "rich",
    "filelock",
    "platformdirs",
    "opt_einsum",
)
"""The required modules, whose names are those of their packages."""

OPTIONS: dict[str, tuple[str, str | None]] = {
    "torch": ("torch", "torch"),
    "jax": ("jax", None),
    "hypothesis": ("hypothesis", "test"),
    "z3": ("z3-solver", "verify"),
}
"""Optional module -> (package that installs it, extra of aotlite with it)."""

NEVER_IMPORTED = frozenset({"torch", "jax"})
EQUAL = "compiles, runs and equals eager mode"
INSTALL = "install gcc or clang, or: pip install 'aotlite[cc]'"


def examine() -> list[Finding]:
    """Returns all findings, in the order in which they are printed."""
    with ThreadPoolExecutor() as pool:
        found_cuda = pool.submit(cuda.facts)
        trials = [pool.submit(part) for part in (_required, _backends, _compiler, _optional)]
        required, backends, compiler, optional = (trial.result() for trial in trials)
        facts = found_cuda.result()
    variables = environment.variables()
    on_cuda = cuda.findings(facts)
    backends = [*backends, cuda.backend(facts)]
    return [*_machine(), *required, *backends, *compiler, *on_cuda, *optional, *variables]


def is_sound(findings: Iterable[Finding]) -> bool:
    """Whether no finding is broken."""
    return all(finding.state != "broken" for finding in findings)


# -------------------------------------------------------------------------------------- the machine
def _machine() -> list[Finding]:
    place = Path(aotlite.__file__ or "").parent
    values = {
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "executable": sys.executable,
        "platform": platform.platform(),
        "CPUs": _cpus(),
        "aotlite": f"{aotlite.__version__}, imported from {place}",
    }
    return [Finding(MACHINE, name, "ok", value) for name, value in values.items()]


def _cpus() -> str:
    count = os.cpu_count()
    if not hasattr(os, "sched_getaffinity"):
        return str(count)
    return f"{count}, of which this process may use {len(os.sched_getaffinity(0))}"


# ----------------------------------------------------------------------------------------- packages
def _required() -> list[Finding]:
    outcomes = probes.imports(NEEDED)
    return [_package(REQUIRED, name, name, None, outcomes[name]) for name in NEEDED]


def _optional() -> list[Finding]:
    here = [name for name in OPTIONS if _is_here(name, OPTIONS[name][0])]
    outcomes = probes.imports(name for name in here if name not in NEVER_IMPORTED)
    return [
        _package(OPTIONAL, name, *OPTIONS[name], outcomes.get(name, Outcome(True)))
        if name in here
        else Finding(OPTIONAL, name, "absent", "not installed", _install(*OPTIONS[name]))
        for name in OPTIONS
    ]


def _is_here(module: str, distribution: str) -> bool:
    return probes.is_found(module) or version(distribution) is not None


def _package(
    section: str, module: str, distribution: str, extra: str | None, outcome: Outcome
) -> Finding:
    """Returns the finding of a package, by the outcome of importing it."""
    found = version(distribution)
    if not outcome.works:
        advice = f"reinstall it: pip install --force-reinstall {distribution}"
        if found is None and not probes.is_found(module):
            advice = _install(distribution, extra)
        return Finding(section, module, "broken", outcome.text, advice)
    said = "; looked up, not imported" if module in NEVER_IMPORTED else ""
    return Finding(section, module, "ok", (found or outcome.text or "version unknown") + said)


def version(distribution: str) -> str | None:
    """Returns the installed version of a package; None if it is not installed or has no version."""
    try:
        return importlib.metadata.version(distribution) or None
    except (importlib.metadata.PackageNotFoundError, KeyError, OSError):
        return None


def _install(distribution: str, extra: str | None) -> str:
    return f"pip install {distribution}" if extra is None else f"pip install 'aotlite[{extra}]'"


# ----------------------------------------------------------------------------------------- backends
def _backends() -> list[Finding]:
    with ThreadPoolExecutor() as pool:
        cpu, loops, reference = pool.map(probes.backend, ("cpu", "loops", "reference"))
    found = [_cpu(cpu), _by_numpy("loops", loops), _by_numpy("reference", reference)]
    return [_auto(found[0], found[2]), *found]


def _auto(cpu: Finding, reference: Finding) -> Finding:
    """Returns the finding of the default backend: `cpu`, or `reference` if that does not work."""
    used = cpu if cpu.state == "ok" else reference
    value = f"the default: graphs run as by {used.name}"
    advice = "" if used is cpu else f"for compiled kernels: {cpu.advice}"
    if used.state == "ok":
        return Finding(BACKENDS, "auto", "ok", value, advice)
    return Finding(BACKENDS, "auto", "broken", f"{value}, which is broken", used.advice)


def _cpu(outcome: Outcome) -> Finding:
    if not outcome.works:
        advice = "mend the C compiler, or name another one in CC"
        return Finding(BACKENDS, "cpu", "broken", outcome.text, advice)
    state, _, text = outcome.text.partition(" ")
    if state == "ok":
        return Finding(BACKENDS, "cpu", "ok", f"{EQUAL}; compiled by {text}")
    return Finding(BACKENDS, "cpu", "absent", text, INSTALL)


def _by_numpy(name: str, outcome: Outcome) -> Finding:
    if outcome.works:
        return Finding(BACKENDS, name, "ok", EQUAL)
    return Finding(BACKENDS, name, "broken", outcome.text, "reinstall aotlite")


def _compiler() -> list[Finding]:
    """Returns the findings of C compilers: $CC if it is set, else the first one that works."""
    named = environment.c_compiler()
    if named is not None:
        outcome = probes.named_compiler(named)
        if outcome.works:
            return [_compiler_finding("ok", f"$CC, {named}: {outcome.text}")]
        advice = "name a C compiler that works in CC, or unset it"
        return [_compiler_finding("broken", f"$CC is {named!r}: {outcome.text}", advice)]
    failures = []
    for command in probes.compilers():
        outcome = probes.compiler(command)
        if outcome.works:
            return [_compiler_finding("ok", f"{' '.join(command)}: {outcome.text}")]
        failures.append(f"{' '.join(command)}: {outcome.text}")
    text = "; ".join(failures) or "no gcc or clang on the path, no ziglang installed"
    return [_compiler_finding("absent", text, INSTALL)]


def _compiler_finding(state: State, value: str, advice: str = "") -> Finding:
    return Finding(PREREQUISITES, "C compiler (cpu)", state, value, advice)
