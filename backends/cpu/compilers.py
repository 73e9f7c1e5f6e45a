"""The C compilers of a machine: who is asked, whether it works, which flags it takes.

Nothing here runs at import. Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from aotlite.backends.cpu.processes import Ended, run

PROBE_LIMIT = 60.0
"""Seconds; the first run ever of a compiler that comes as a wheel takes several."""

ESSENTIAL = ("-fno-fast-math", "-O3", "-fPIC", "-shared")
"""What every compiler must take. The first undoes what $CC may ask for (CPUTC-4)."""

OPTIONAL: tuple[tuple[str, ...], ...] = (
    ("-std=gnu11", "-std=c11"),
    ("-march=native", "-mcpu=native"),
    ("-fno-math-errno",),
    ("-fno-trapping-math",),
    ("-nostartfiles",),
    ("-fno-stack-protector",),
    ("-pipe",),
)
"""Of each group the first that the compiler takes."""

LIBRARY = "library.so"
CONTRACTED, UNCONTRACTED = "-ffp-contract=fast", "-ffp-contract=off"


@attrs.frozen
class Candidate:
    """A compiler to try: what it is called in messages, and its command."""

    title: str
    command: tuple[str, ...]


@attrs.frozen
class Compiler:
    """A C compiler that works here."""

    command: tuple[str, ...]
    kind: str
    """gcc, clang, zig or other."""
    version: str
    options: tuple[str, ...]
    """Of OPTIONAL what it takes."""
    identity: str
    """Other for another compiler, or another version of it: part of the keys of the disk cache."""

    def flags(self, contract: bool, sanitize: str) -> tuple[str, ...]:
        """The flags of a compilation; `sanitize` is a list for -fsanitize=, or empty."""
        contraction = CONTRACTED if contract else UNCONTRACTED
        if not sanitize:
            return (*ESSENTIAL, *self.options, contraction)
        options = [option for option in self.options if option != "-nostartfiles"]
        checks = (f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-O1", "-g")
        return (*ESSENTIAL, *options, contraction, *checks, "-fno-omit-frame-pointer")

    def __str__(self) -> str:
        return f"{shlex.join(self.command)} ({self.version})"


# ------------------------------------------------------------------------------------- who is asked
def candidates() -> Iterator[Candidate]:
    """$CC where it is set, gcc, clang, and the one of the wheel `ziglang`: those that are here."""
    named = os.environ.get("CC", "").strip()
    if named:
        yield Candidate(f"$CC ({named})", _words(named))
    for name in ("gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            yield Candidate(name, (os.path.abspath(found),))
    zig = _zig()
    if zig is not None:
        yield Candidate("ziglang", zig)


def _words(text: str) -> tuple[str, ...]:
    """A command as a shell reads it; its program by its path, since it is run in another folder."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    found = shutil.which(words[0])
    return os.path.abspath(found) if found else words[0], *words[1:]


def _zig() -> tuple[str, ...] | None:
    """The program of the wheel itself: `python -m ziglang` would start a Python before it."""
    try:
        spec = importlib.util.find_spec("ziglang")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).with_name("zig")
    if program.is_file():
        return str(program), "cc"
    return sys.executable, "-m", "ziglang", "cc"


def fingerprint(command: tuple[str, ...]) -> str:
    """The command with path, size and time of the programs in it: other after an upgrade.

    All words, since the compiler may be the second one, as in `ccache gcc`.
    """
    facts = []
    for word in command:
        path = shutil.which(word)
        if path is None:
            facts.append(word)
            continue
        status = os.stat(path)
        facts += [word, os.path.realpath(path), f"{status.st_size} {status.st_mtime_ns}"]
    return "\n".join(facts)


# --------------------------------------------------------------------------------- whether it works
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


def probed(candidate: Candidate, place: Callable[[bytes], Path]) -> Compiler | str:
    """The compiler, tried out; where it does not work the reason.

    `place` puts the library that it makes where libraries are loaded from: programs may not be
    run from every folder for temporary files.
    """
    with TemporaryDirectory(prefix="aotlite-") as name:
        probe = _Probe(candidate.command, Path(name))
        options = probe.options()
        if isinstance(options, Ended):
            return options.reason()
        library = place(probe.library.read_bytes())
    version = _version(library)
    if version is None:
        return "makes a library that cannot be loaded or computes something wrong"
    kind = "zig" if candidate.title == "ziglang" else version.partition(" ")[0]
    identity = f"{fingerprint(candidate.command)}\n{version}"
    return Compiler(candidate.command, kind, version, options, identity)


class _Probe:
    """Compiles a small text with this and that flag."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self.command = command
        self.folder = folder
        self.library = folder / LIBRARY
        (folder / "probe.c").write_text(_SOURCE, "utf-8")

    def options(self) -> tuple[str, ...] | Ended:
        """Of OPTIONAL what the compiler takes; where it does not work how it ended.

        All at once first: what knows them all is asked once.
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

    def ended(self, options: tuple[str, ...]) -> Ended:
        """How the compiler ends with these flags."""
        self.library.unlink(missing_ok=True)
        words = (*self.command, *ESSENTIAL, *options, UNCONTRACTED)
        return built(words, self.folder, "probe.c", PROBE_LIMIT)


def built(words: Sequence[str], folder: Path, source: str, limit: float) -> Ended:
    """How a compiler ends that is to make LIBRARY of a file in a folder."""
    ended = run([*words, "-o", LIBRARY, source], folder, limit)
    if not ended.problem and not (folder / LIBRARY).is_file():
        return Ended("makes no library", ended.said)
    return ended


def _version(path: Path) -> str | None:
    """What a library says of its compiler; None where it does not load or work."""
    try:
        library = ctypes.CDLL(str(path))
        works = library.aotlite_probe(41) == 42
        text = ctypes.addressof(ctypes.c_char.in_dll(library, "aotlite_version"))
    except (OSError, AttributeError, ValueError):
        return None
    return ctypes.string_at(text).decode("utf-8", "replace").strip() if works else None
