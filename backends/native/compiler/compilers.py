"""The C compilers of a machine: who is asked, and which flags they are given.

Nothing here runs anything; whether one works, `probing` finds out. Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator
from typing import NamedTuple

ESSENTIAL = ("-fno-fast-math", "-O3", "-fPIC", "-shared")
"""What every compiler must take. The first undoes what $CC may ask for (CC-5)."""

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
"""Of each group the first that the compiler takes.

Vectors of 64 bytes are 4 to 14 % faster than gcc's own choice. The linker's default divides a
library into four mappings where two do (CC-24).
"""

GCC_OPTIMIZE = (
    *("-O2", "-ftree-loop-vectorize", "-fno-tree-slp-vectorize"),
    *("-fvect-cost-model=dynamic", "-fpeel-loops"),
)
"""Of gcc's -O3 what kernels gain by: as fast, and compiled in three quarters of the time (CC-8).

Not vectors of straight code: gcc 12 forgets to round there, `(double)(float)x` is x.
"""

BARE = ("-nodefaultlibs", "-lgcc")
"""Without looking into the C library, which takes 6 ms; gcc's own comes with every gcc (CC-7)."""

CONTRACTED, UNCONTRACTED = ("-ffp-contract=off", "-DCONTRACT"), ("-ffp-contract=off",)
"""The printer says which products and sums are rounded once: compilers would tell by what stands
around them, and one value would have two forms."""


class Candidate(NamedTuple):
    """A compiler to try: what it is called in messages, and its command."""

    title: str
    command: tuple[str, ...]


class Compiler(NamedTuple):
    """A C compiler that works here."""

    command: tuple[str, ...]
    kind: str
    """gcc, clang, zig or other."""
    version: str
    options: tuple[str, ...]
    """Of OPTIONAL what it takes."""
    identity: str
    """Other for another compiler, or another version of it: part of the keys of the disk cache."""

    def flags(self, contract: bool, sanitize: str, libraries: bool = True) -> tuple[str, ...]:
        """The flags of a compilation, as `toolchain.compile_c` describes them."""
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
    """$CC where it is set, gcc, clang, and the one of the wheel `ziglang`: those that are here."""
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
    """What a user does about a compiler that works and then fails."""
    if os.environ.get("CC", "").strip():
        return "unset or mend CC"
    return "mend it, or name another C compiler in CC"


def _words(text: str) -> tuple[str, ...]:
    """A command as a shell reads it; its program by its path, since it is run in another folder.

    Empty where a shell would not read it.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    return which(words[0]) or words[0], *words[1:]


def _zig() -> tuple[str, ...] | None:
    """The program of the wheel itself: `python -m ziglang` would start a Python before it."""
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
    """The path of a program that a shell would run; None where there is none.

    `shutil.which` is in a module that takes 2 ms to import, of a first call.
    """
    for folder in ("",) if os.sep in word else os.get_exec_path():
        path = os.path.abspath(os.path.join(folder, word))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def fingerprint(command: tuple[str, ...]) -> str:
    """The command with path, size and time of the programs in it: other after an upgrade.

    All words, since the compiler may be the second one, as in `ccache gcc`.
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
