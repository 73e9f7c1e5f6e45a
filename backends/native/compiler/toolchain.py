"""The toolchain: one C11 text becomes the path of a shared library, from the cache or a compiler.

It finds the compiler, once a process, and remembers it in the disk cache. Modules that only a
compilation needs are imported at the first one, since that takes 20 ms. Spec:
`specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.cache.disk_cache import key_of, read
from aotlite.backends.native.compiler import compilers, host_cpu
from aotlite.backends.native.compiler.compiler_failure import CompilerFailure
from aotlite.backends.native.compiler.compilers import Candidate, Compiler, candidates, fingerprint
from aotlite.backends.native.single_flight import Once
from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError
from aotlite.ir.logs import looked_up, timed

if TYPE_CHECKING:
    from aotlite.backends.native.compiler import compilation as building
    from aotlite.backends.native.compiler import probe as probing
else:
    building = deferred("aotlite.backends.native.compiler.compilation")
    probing = deferred("aotlite.backends.native.compiler.probe")

__all__ = ["Compiler", "compile_c", "compiler_problem", "find_compiler", "is_known", "key_of_c"]

TIME_LIMIT = 120.0
"""The limit of one compilation, in seconds."""

INSTALL = "install gcc or clang, or: pip install 'aotlite[cc]'"


# ------------------------------------------------------------------------------------- the compiler
Search = tuple[Compiler | None, tuple[str, ...]]
"""(the compiler that was found, or None; why each candidate before it was not taken)."""

_UNTRIED = "cannot be tried"
"""The beginning of reasons that another compiler would not help: they name their own remedy."""

_searches = Once[Search]()
_too_long: dict[str, CompilerFailure] = {}
"""For the key of each text for which the compiler ran out of time, the failure."""


def find_compiler() -> Compiler | None:
    """Returns the first of $CC, gcc, clang and the wheel `ziglang` that works; None if none does.

    It searches at the first call of a process. Nothing is run if the disk cache knows the compiler.
    """
    return _search()[0]


def compiler_problem() -> str | None:
    """Returns why there is no C compiler and what to install; None if there is one.

    A $CC that does not work gives a warning, once, even if another compiler works.
    """
    compiler, failures = _search()
    if compiler is not None:
        return None
    tried = "; ".join(failures) or "no gcc or clang on the path, no ziglang installed"
    advice = "" if f": {_UNTRIED}: " in tried else f"; {INSTALL}"
    return f"no C compiler works here: {tried}{advice}"


def is_known() -> bool:
    """Whether `find_compiler` returns at once, without running a compiler.

    So it is if this process has searched before, or the disk cache knows the first candidate.
    """
    if _searches.known("") is not None or os.name != "posix":
        return True
    first = next(candidates(), None)
    try:
        return first is None or bool(first.command) and _remembered(first) is not None
    except (OSError, BackendError):
        return False


def _search() -> Search:
    return _searches.get("", _searched)


def _searched() -> Search:
    if os.name != "posix":
        return None, (f"C is compiled on Linux and macOS, and not on {os.name}",)
    failures = list[str]()
    for candidate in candidates():
        found = _tried(candidate)
        if isinstance(found, Compiler):
            return found, tuple(failures)
        failures.append(f"{candidate.title}: {found}")
        if candidate.title.startswith("$CC"):
            mend = "" if found.startswith(_UNTRIED) else "; unset or mend CC"
            warn_once(f"aotlite: {failures[-1]}; the next compiler is asked{mend}")
    return None, tuple(failures)


def _key(candidate: Candidate) -> str:
    # With the flags that are tried, which may differ between versions of aotlite.
    asked = json.dumps([compilers.ESSENTIAL, compilers.OPTIONAL])
    return key_of("compiler", fingerprint(candidate.command), host_cpu.identity(), asked)


def _tried(candidate: Candidate) -> Compiler | str:
    if not candidate.command:
        return "cannot be read as a command"
    try:
        return _remembered(candidate) or _probed(candidate)
    except (OSError, BackendError) as error:
        return f"{_UNTRIED}: {error}"


def _remembered(candidate: Candidate) -> Compiler | None:
    """Returns a candidate's compiler from the disk cache; None if there is no readable record."""
    key = _key(candidate)
    path = artifact_cache.found(key)
    if path is None:
        return None
    try:
        known = json.loads(read(path))
        options = known.pop("options")
        texts = [*options, *known.values()]
        if type(options) is not list or not all(type(text) is str for text in texts):
            raise TypeError
        return Compiler(candidate.command, options=tuple(options), **known)
    except OSError:  # removed, or exchanged, since by another process
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        artifact_cache.removed(key)
        return None


def _probed(candidate: Candidate) -> Compiler | str:
    key = _key(candidate)

    def place(library: bytes) -> str:
        return artifact_cache.kept(key_of("probe", key), "probe", ".so", library)

    found = probing.probed(candidate, place)
    if isinstance(found, Compiler):
        known = found._asdict()
        del known["command"]
        artifact_cache.kept(key, "compiler", ".json", json.dumps(known).encode())
    return found


# -------------------------------------------------------------------------------------- compilation
def compile_c(
    text: str,
    name: str,
    *,
    contract: bool = True,
    sanitize: str = "",
    libraries: bool = True,
    time_limit: float = TIME_LIMIT,
    meanwhile: Callable[[], None] | None = None,
) -> str:
    """Returns the path of a C11 text's shared library, compiled if the cache does not have it.

    `name` stands in messages. `contract` allows fma in library functions; without it results are
    NumPy's, bit for bit. `sanitize` is a list for -fsanitize=, such as "address,undefined". With
    `libraries=False` it is linked without the C library, which is faster; functions that the
    compiler itself calls, such as memset, are found nevertheless. A compiler has `time_limit`
    seconds, and `meanwhile` is called while it runs. Raises BackendError if there is no compiler,
    or it fails.
    """
    compiler = _compiler()
    flags = compiler.flags(contract, sanitize, libraries)
    key = _key_of_c(compiler, flags, text)
    found = artifact_cache.found(key)
    looked_up("library", name, found=found is not None)
    if found is not None:
        return found
    with artifact_cache.locked(key):
        found = artifact_cache.found(key)
        if found is None:
            with timed("compiler", name=name, compiler=compiler.kind):
                library = _library(key, compiler, flags, text, name, time_limit, meanwhile)
            found = artifact_cache.kept(key, name, ".so", library)
    return found


def _library(
    key: str,
    compiler: Compiler,
    flags: tuple[str, ...],
    text: str,
    name: str,
    limit: float,
    meanwhile: Callable[[], None] | None,
) -> bytes:
    """Returns the bytes of a text's library. A text for which the compiler ran out of time is not
    compiled again (CC-26)."""
    if key in _too_long:
        raise _too_long[key].again()
    try:
        return building.library_of(compiler, flags, text, name, limit, meanwhile)
    except CompilerFailure as error:
        if error.too_long:
            _too_long[key] = error.again()
        raise


def key_of_c(
    text: str, *, contract: bool = True, sanitize: str = "", libraries: bool = True
) -> str:
    """Returns the key of a library, a hash of text, flags, compiler and processor."""
    compiler = _compiler()
    return _key_of_c(compiler, compiler.flags(contract, sanitize, libraries), text)


def _key_of_c(compiler: Compiler, flags: tuple[str, ...], text: str) -> str:
    return key_of("c", text, " ".join(flags), compiler.identity, host_cpu.identity())


def _compiler() -> Compiler:
    compiler = find_compiler()
    if compiler is None:
        raise BackendError(f"cpu: {compiler_problem()}")
    return compiler
