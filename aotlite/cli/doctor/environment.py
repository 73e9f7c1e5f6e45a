"""What `aotlite doctor` reads of the environment, and whether the four variables of ours are valid.

The one module that looks at variables of others: they are shown, and nothing depends on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

from aotlite.backends.native.cache import trusted_folders
from aotlite.cli.doctor.record import Finding, State
from aotlite.ir.filesystem import trust

SECTION = "Environment variables"
OURS = ("AOTLITE_VERIFY", "AOTLITE_DUMP", "AOTLITE_LOG", "AOTLITE_CACHE")
SPEED = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of NumPy's BLAS that change how fast kernels are."""


def variables() -> list[Finding]:
    """Ours, set or not, and those of the BLAS that are set."""
    ours = [_ours(name, os.environ.get(name)) for name in OURS]
    speed = [
        Finding(SECTION, name, "ok", os.environ[name], "changes the speed of kernels")
        for name in SPEED
        if name in os.environ
    ]
    return ours + speed


def c_compiler() -> str | None:
    """The command in $CC; None where it is not set or empty."""
    return os.environ.get("CC", "").strip() or None


def visible_devices() -> str | None:
    """The devices that CUDA shows to programs, as $CUDA_VISIBLE_DEVICES says; None: all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def without_ours() -> dict[str, str]:
    """The environment for a child: as it is, without our four variables."""
    return {name: value for name, value in os.environ.items() if name not in OURS}


def _ours(name: str, value: str | None) -> Finding:
    if value is None or (not value and name != "AOTLITE_VERIFY"):  # an empty folder counts as none
        return Finding(SECTION, name, "ok", "not set")
    state, text, advice = _CHECKS[name](value)
    return Finding(SECTION, name, state, text, advice)


def _verify(value: str) -> tuple[State, str, str]:
    """The variable is read where compilations read it, so that both always say the same."""
    try:
        import_module("aotlite.pipeline.options").make_options()
    except Exception as error:  # of a required package too, which has a finding of its own
        return "broken", str(error), "set AOTLITE_VERIFY to 0, 1 or 2, or unset it"
    return "ok", value, ""


def _folder(value: str) -> tuple[State, str, str]:
    """A folder that can be written, or made where it does not exist, and is nobody's link."""
    wanted = there = os.path.abspath(value)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    advice = "name another folder, or unset it"
    if not os.path.isdir(there):
        what = "is no folder" if there == wanted else f"is below the file {there}"
        return "broken", f"{value} {what}", advice
    if not os.access(there, os.W_OK | os.X_OK):
        return "broken", f"{there} cannot be written", advice
    planted = _planted(there)
    if planted:
        return "broken", planted, advice
    return "ok", value if there == wanted else f"{value}, made when it is first needed", ""


def _planted(folder: str) -> str:
    """What is wrong with the way to a folder, such as a link of another user; or nothing."""
    try:
        if trust.HAS_DESCRIPTORS:
            os.close(trust.opened(folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _cache(value: str) -> tuple[State, str, str]:
    """A folder as of AOTLITE_DUMP, which nobody else may write: what is in it is run."""
    state, text, advice = _folder(value)
    folder = os.path.abspath(value)
    is_used = os.name == "posix" and not advice  # C is not compiled on Windows
    asked = trusted_folders.refusal if os.path.exists(folder) else trusted_folders.refusal_to_make
    refused = asked(folder) if is_used else ""
    return ("broken", refused, _MEND) if refused else (state, text, advice)


def _log(value: str) -> tuple[State, str, str]:
    return "ok", f"{value}; this version does not read it", ""


_MEND = "name another folder, or unset it; until then nothing is kept for the next process"

_CHECKS: dict[str, Callable[[str], tuple[State, str, str]]] = {
    "AOTLITE_VERIFY": _verify,
    "AOTLITE_DUMP": _folder,
    "AOTLITE_LOG": _log,
    "AOTLITE_CACHE": _cache,
}
