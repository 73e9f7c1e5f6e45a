"""The probe of a C compiler: whether it works, and which flags it accepts. Part of
`specs/cpu_toolchain.md`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from aotlite.backends.native.cache import trusted_folders
from aotlite.backends.native.compiler.compilation import LIBRARY, built, temporary, write
from aotlite.backends.native.compiler.compiler_process import CommandResult
from aotlite.backends.native.compiler.compilers import (
    ESSENTIAL,
    OPTIONAL,
    UNCONTRACTED,
    Candidate,
    Compiler,
    fingerprint,
)
from aotlite.backends.native.libraries.shared_library import opened
from aotlite.ir.errors import BackendError

PROBE_LIMIT = 60.0
"""Seconds. The very first run of a compiler from a wheel takes several."""

_SOURCE = """\
#if defined __FAST_MATH__ || defined __ASSOCIATIVE_MATH__ || (__FINITE_MATH_ONLY__ + 0)
#error makes fast-math code, which has no NaN and flushes denormals
#endif
#if defined __clang__
const char aotlite_version[] = "clang " __clang_version__;
#elif defined __GNUC__ && !defined __INTEL_COMPILER
const char aotlite_version[] = "gcc " __VERSION__;
#else
const char aotlite_version[] = "other";
#endif
int aotlite_probe(int x) { return x + 1; }
"""


def probed(candidate: Candidate, place: Callable[[bytes], str]) -> Compiler | str:
    """Tries a candidate. Returns the compiler, or the reason why it does not work.

    Raises BackendError for a fault of the machine: no room, or a cache folder from which nothing
    can be loaded. `place` moves the probe's library to the cache, since a folder for temporary
    files may be mounted noexec.
    """
    try:
        with trusted_folders.scratch() as folder:
            options = _Probe(candidate.command, folder.path).options()
            if isinstance(options, CommandResult):
                return options.reason()
            made = folder.read(LIBRARY)
    except OSError as error:
        raise BackendError(
            f"there is no room to compile in ({error}); make some in {temporary()}, or name "
            "another one in TMPDIR"
        ) from error
    library = place(made)
    try:
        version = _version(library)
    except OSError as error:
        kept = os.path.dirname(os.path.dirname(library))
        if "failed to map" in str(error) or trusted_folders.runs_nothing(kept):
            raise BackendError(
                f"its library cannot be loaded from {kept}, mounted noexec? ({error}); set "
                "AOTLITE_CACHE to a folder from which programs may be run"
            ) from error
        return f"makes a library that cannot be loaded ({error})"
    if version is None:
        return "makes a library that computes something wrong"
    kind = "zig" if candidate.title == "ziglang" else version.partition(" ")[0]
    identity = f"{fingerprint(candidate.command)}\n{version}"
    return Compiler(candidate.command, kind, version, options, identity)


class _Probe:
    """Compiles a small text with various flags."""

    def __init__(self, command: tuple[str, ...], folder: str) -> None:
        self.command = command
        self.folder = folder
        write(folder, "probe.c", _SOURCE)

    def options(self) -> tuple[str, ...] | CommandResult:
        """Returns the flags of `OPTIONAL` that the compiler accepts, or how it failed.

        All are tried together first, so that a usual compiler is run once.
        """
        wanted = tuple(group[0] for group in OPTIONAL)
        ended = self.ended(wanted)
        if not ended.is_refusal:
            return ended if ended.problem else wanted
        ended = self.ended(())
        if ended.problem:
            return ended
        wanted = tuple(flag for group in OPTIONAL for flag in self._first_taken(group))
        ended = self.ended(wanted)
        return ended if ended.problem else wanted

    def _first_taken(self, group: tuple[str, ...]) -> list[str]:
        return next(([flag] for flag in group if not self.ended((flag,)).problem), [])

    def ended(self, options: tuple[str, ...]) -> CommandResult:
        """Returns how the compiler ends with these flags."""
        words = (*self.command, *ESSENTIAL, *options, *UNCONTRACTED)
        return built(words, self.folder, "probe.c", PROBE_LIMIT)


def _version(path: str) -> str | None:
    """Returns the compiler's version from the probe's library; None if that computes wrongly.
    Raises OSError if it does not load."""
    library = opened(path)
    try:
        works = library["aotlite_probe"](41) == 42
        text = ctypes.addressof(ctypes.c_char.in_dll(library, "aotlite_version"))
    except (AttributeError, ValueError):
        return None
    return ctypes.string_at(text).decode("utf-8", "replace").strip() if works else None
