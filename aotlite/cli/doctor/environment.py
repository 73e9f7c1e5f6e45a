"""The environment variables that `aotlite doctor` shows, and the validity of aotlite's own five.

The one module that reads variables of other programs: they are shown, and nothing depends on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pkgutil import resolve_name

from aotlite.backends.native.cache import trusted_folders
from aotlite.cli.doctor.record import Finding, State
from aotlite.ir.filesystem import trust

SECTION = "Environment variables"
OURS = ("AOTLITE_VERIFY", "AOTLITE_DUMP", "AOTLITE_LOG", "AOTLITE_TRACE", "AOTLITE_CACHE")
SPEED = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of NumPy's BLAS that change the speed of kernels."""


def variables() -> list[Finding]:
    """Returns the findings on aotlite's variables, and on the BLAS's variables that are set."""
    ours = [_ours(name, os.environ.get(name)) for name in OURS]
    speed = [
        Finding(SECTION, name, "ok", os.environ[name], "changes the speed of kernels")
        for name in SPEED
        if name in os.environ
    ]
    return ours + speed


def c_compiler() -> str | None:
    """Returns the command in $CC; None if it is unset or empty."""
    return os.environ.get("CC", "").strip() or None


def visible_devices() -> str | None:
    """Returns $CUDA_VISIBLE_DEVICES; None if it is unset: all devices."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def without_ours() -> dict[str, str]:
    """Returns the environment for a child, without aotlite's five variables."""
    return {name: value for name, value in os.environ.items() if name not in OURS}


def _ours(name: str, value: str | None) -> Finding:
    if value is None or (not value and name != "AOTLITE_VERIFY"):  # an empty folder counts as none
        return Finding(SECTION, name, "ok", "not set")
    state, text, advice = _CHECKS[name](value)
    return Finding(SECTION, name, state, text, advice)


def _verify(value: str) -> tuple[State, str, str]:
    of = "options:verify_level"
    return _as_compiled(of, value, "set AOTLITE_VERIFY to 0, 1 or 2, or unset it")


def _log(value: str) -> tuple[State, str, str]:
    of = "logs.log_options:parsed"
    return _as_compiled(of, value, "name loggers, such as graphs,guards, or unset it")


def _as_compiled(of: str, value: str, advice: str) -> tuple[State, str, str]:
    """Checks a variable by the function of `aotlite.pipeline` that compilations use."""
    try:
        resolve_name(f"aotlite.pipeline.{of}")(value)
    except Exception as error:  # of a required package too, which has a finding of its own
        return "broken", str(error), advice
    return "ok", value, ""


def _folder(value: str) -> tuple[State, str, str]:
    """Checks a folder: it can be written or made, and no other user's link leads to it."""
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


def _trace(value: str) -> tuple[State, str, str]:
    """Checks a file that lines are appended to: it can be written, or made in its folder."""
    file, advice = os.path.abspath(value.strip()), "name another file, or unset it"
    state, text, _ = _folder(os.path.dirname(file))
    if state != "ok":
        return state, text, advice
    if os.path.isdir(file):
        return "broken", f"{value} is a folder", advice
    if os.path.exists(file) and not os.access(file, os.W_OK):
        return "broken", f"{value} cannot be written", advice
    return "ok", value if os.path.exists(file) else f"{value}, made when it is first needed", ""


def _planted(folder: str) -> str:
    """Returns what is wrong with the path to a folder, such as another user's link; else empty."""
    try:
        if trust.HAS_DESCRIPTORS:
            os.close(trust.opened(folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _cache(value: str) -> tuple[State, str, str]:
    """Checks a folder as `_folder`, and that nobody else can write it: its libraries are run."""
    state, text, advice = _folder(value)
    folder = os.path.abspath(value)
    is_used = os.name == "posix" and not advice  # C is not compiled on Windows
    asked = trusted_folders.refusal if os.path.exists(folder) else trusted_folders.refusal_to_make
    refused = asked(folder) if is_used else ""
    return ("broken", refused, _MEND) if refused else (state, text, advice)


_MEND = "name another folder, or unset it; until then nothing is kept for the next process"

_CHECKS: dict[str, Callable[[str], tuple[State, str, str]]] = {
    "AOTLITE_VERIFY": _verify,
    "AOTLITE_DUMP": _folder,
    "AOTLITE_LOG": _log,
    "AOTLITE_TRACE": _trace,
    "AOTLITE_CACHE": _cache,
}
