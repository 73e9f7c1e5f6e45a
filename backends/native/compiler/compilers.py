"""The candidates for a C compiler, and the flags for each kind.

Nothing here runs a command; `probe` finds out whether a candidate works. Spec:
`specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator
from typing import NamedTuple

ESSENTIAL = ("-fno-fast-math", "-O3", "-fPIC", "-shared")
"""Flags that a compiler must accept. The first one overrides a -ffast-math in $CC (CC-5)."""

OPTIONAL: tuple[tuple[str, ...], ...] = (
    ("-std=gnu11", "-std=c11"),
    ("-march=native", "-mcpu=native"),
    ("-mprefer-vector-width=512",),
    ("-fno-math-errno",),
    ("-fno-trapping-math",),
    ("-nostartfiles",),
    ("-fno-stack-protector",),
    ("-pipe",),
    *((("-Wl,-z,noseparate-code",),) if sys.platform == "linux" else ()),
)
"""Groups of alternatives: the first flag of each that the compiler accepts is used.

Vectors of 64 bytes are 4 to 14 % faster than gcc's own choice. The linker's default divides a
library into four mappings where two would do (CC-24).
"""

GCC_OPTIMIZE = (
    *("-O2", "-ftree-loop-vectorize", "-fno-tree-slp-vectorize"),
    *("-fvect-cost-model=dynamic", "-fpeel-loops"),
)
"""The parts of gcc's -O3 that kernels gain by: as fast, compiled in less time (CC-8).

No SLP vectorization: with it gcc 12 drops roundings, `(double)(float)x` becomes x.
"""

BARE = ("-nodefaultlibs", "-lgcc")
"""Flags that link without the C library, which saves 6 ms. libgcc comes with every gcc (CC-7)."""

CONTRACTED, UNCONTRACTED = ("-ffp-contract=off", "-DCONTRACT"), ("-ffp-contract=off",)
"""Contraction is off in both: the printer writes fma where it is wanted. A compiler would decide by
the surrounding code, and one value would get two results (Note [contraction])."""


class Candidate(NamedTuple):
    """A compiler to try: its name in messages, and its command."""

    title: str
    command: tuple[str, ...]


class Compiler(NamedTuple):
    """A C compiler that works here."""

    command: tuple[str, ...]
    kind: str
    """gcc, clang, zig or other."""
    version: str
    options: tuple[str, ...]
    """The flags of `OPTIONAL` that it accepts."""
    identity: str
    """A text that differs between compilers and versions: part of the keys of the disk cache."""

    def flags(self, contract: bool, sanitize: str, libraries: bool = True) -> tuple[str, ...]:
        """Returns the flags of a compilation, whose options `toolchain.compile_c` describes."""
        contraction = CONTRACTED if contract else UNCONTRACTED
        if not sanitize:
            optimize = GCC_OPTIMIZE if self.kind == "gcc" else ()
            can_do_without = self.kind == "gcc" and sys.platform == "linux"
            bare = BARE if can_do_without and not libraries else ()
            return (*ESSENTIAL, *self.options, *optimize, *contraction, *bare)
        options = [option for option in self.options if option != "-nostartfiles"]
        checks = (f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-O1", "-g")
        return (*ESSENTIAL, *options, *contraction, *checks, "-fno-omit-frame-pointer")

    def __str__(self) -> str:
        return f"{' '.join(self.command)} ({self.version})"


# ------------------------------------------------------------------------------------- who is asked
def candidates() -> Iterator[Candidate]:
    """Yields the compilers to try: $CC if it is set, gcc, clang, that of the wheel `ziglang`."""
    named = os.environ.get("CC", "").strip()
    if named:
        yield Candidate(f"$CC ({named})", _words(named))
    for name in ("gcc", "clang"):
        found = which(name)
        if found is not None:
            yield Candidate(name, (found,))
    zig = _zig()
    if zig is not None:
        yield Candidate("ziglang", zig)


def advice() -> str:
    """Returns the advice for a compiler that worked when it was tried and fails later."""
    if os.environ.get("CC", "").strip():
        return "unset or mend CC"
    return "mend it, or name another C compiler in CC"


def _words(text: str) -> tuple[str, ...]:
    """Returns a command split as a shell does; the program as a path, since it runs in another
    folder. Empty if a shell could not parse it."""
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    return which(words[0]) or words[0], *words[1:]


def _zig() -> tuple[str, ...] | None:
    """Returns the command of the wheel's compiler; None without the wheel. It is the program
    itself, since `python -m ziglang` would start another Python first."""
    try:
        spec = importlib.util.find_spec("ziglang")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    program = os.path.join(os.path.dirname(spec.origin), "zig")
    if os.path.isfile(program):
        return program, "cc"
    return sys.executable, "-m", "ziglang", "cc"


def which(word: str) -> str | None:
    """Returns the path of the program that a shell would run; None if there is none.

    Importing `shutil` for its function of this name would take 2 ms of a first call.
    """
    for folder in ("",) if os.sep in word else os.get_exec_path():
        path = os.path.abspath(os.path.join(folder, word))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def fingerprint(command: tuple[str, ...]) -> str:
    """Returns the command with path, size and time of its programs, which change at an upgrade.

    Each word is looked up, since the compiler may be the second one, as in `ccache gcc`.
    """
    facts = []
    for word in command:
        path = which(word)
        if path is None:
            facts.append(word)
            continue
        status = os.stat(path)
        facts += [word, os.path.realpath(path), f"{status.st_size} {status.st_mtime_ns}"]
    return "\n".join(facts)
