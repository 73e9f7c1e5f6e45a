"""CUDA text as a library for the CPU, and launches of its kernels on fibers.

Input: the text that `cuda_program.py` prints, unchanged; output: `HostLibrary`. `host.h` gives
CUDA's names, `host.cpp` and `host_checks.cpp` its execution model; both are compiled once in a
process. Spec: `specs/cuda_host.md`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import attrs

from aotlite.backends.native.cache.trusted_folders import private
from aotlite.ir.errors import BackendError, MissingExtraError

FORWARD, REVERSED, SHUFFLED = range(3)
"""The orders in which the threads of a block, and (forward or reversed) blocks, run."""
FLAGS = (
    *("-std=gnu++17", "-w", "-fPIC", "-fno-exceptions", "-fno-rtti"),
    # As in the interpreter, products and sums are rounded separately.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
CHECKED = ("-fsanitize=thread,bounds",)
"""Flags of a text whose accesses are checked: for races, bounds and alignment (CUDA-4)."""
_SOURCES = ("host.h", "host_engine.h", "host.cpp", "host_checks.cpp")
_SHARED = re.compile(r"extern\s+__shared__\s[^;]*?(\w+)\s*\[\s*\]\s*;")


@attrs.frozen
class CheckedRegion:
    """Memory that a kernel may touch."""

    address: int
    nbytes: int
    itemsize: int
    number: int
    """The number of the buffer, for messages."""
    in_place: bool = False
    """Whether a thread may load, without use, an element that another thread stores (CUDA-7)."""


class _Region(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("unit", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("in_place", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )


class _Launch(ctypes.Structure):
    """`cuda_host::Launch`."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("order", ctypes.c_int32),
        ("seed", ctypes.c_uint32),
        ("regions", ctypes.c_uint32),
        ("memory", ctypes.POINTER(_Region)),
        ("message", ctypes.c_char * 256),
    )


class HostLibrary:
    """Kernels of one text, compiled for the CPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._run = self._library.cuda_host_launch
        self._run.restype = ctypes.c_char_p

    def launch(
        self,
        name: str,
        addresses: Sequence[int],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *,
        shared: int = 0,
        order: int = FORWARD,
        seed: int = 7,
        memory: Sequence[CheckedRegion] = (),
    ) -> None:
        """Runs a kernel on memory at these addresses, and waits for it.

        `memory`: the memory that a text compiled with `CHECKED` may access; if empty, nothing is
        checked. Raises BackendError for a hang, a fault or undefined behavior of a GPU.
        """
        slots = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        parts = [_Region(*attrs.astuple(each)) for each in memory]
        regions = (_Region * max(len(parts), 1))(*parts)
        how = _Launch(_three(grid), _three(block), shared, order, seed, len(parts), regions)
        body = ctypes.cast(getattr(self._library, f"cuda_host_{name}"), ctypes.c_void_p)
        error = self._run(ctypes.byref(how), body, slots)
        if error is not None:
            raise BackendError(f"kernel {name}: {error.decode()}")


def _three(extents: int | Sequence[int]) -> ctypes.Array[ctypes.c_uint32]:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    return (ctypes.c_uint32 * 3)(*given, *(1,) * (3 - len(given)))


def compiler() -> str | None:
    """A C++ compiler of this machine."""
    return shutil.which("g++") or shutil.which("clang++")


def host_library(text: str, arguments: Mapping[str, int], folder: Path, *flags: str) -> HostLibrary:
    """Returns the library of a CUDA text. `arguments`: the number of arguments of each kernel.

    Raises MissingExtraError without a C++ compiler, and BackendError, with the messages of the
    compiler, if it refuses the text.
    """
    return HostLibrary(ctypes.CDLL(str(compiled(text, arguments, folder, *flags))))


def compiled(text: str, arguments: Mapping[str, int], folder: Path, *flags: str) -> Path:
    """The file of `host_library`, in a folder."""
    source, object_, library = [folder / f"kernels.{kind}" for kind in ("cpp", "o", "so")]
    source.write_text(host_text(text, arguments), "utf-8")
    with as_file(files(__package__)) as headers:
        _compile(folder, "-c", f"-I{headers}", *flags, str(source), "-o", str(object_))
    # Linked without the flags, as `host_checks.cpp` replaces the library of the sanitizer.
    _compile(folder, "-shared", "-pthread", str(object_), *_runtime(), "-o", str(library))
    return library


def model_version() -> str:
    """Returns the digest of the execution model's text, a part of libraries' keys."""
    folder = files(__package__)
    texts = [folder.joinpath(name).read_bytes() for name in _SOURCES]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def host_text(text: str, arguments: Mapping[str, int]) -> str:
    """C++ of a CUDA text, of its dynamic shared memory, and of a function for each kernel."""
    entries = [_entry(name, count) for name, count in arguments.items()]
    return "\n".join(['#include "host.h"', text, *_dynamic(text), *entries])


def _entry(name: str, count: int) -> str:
    given = ", ".join([f"cuda_host::Any{{slots[{k}]}}" for k in range(count)])
    return f"CUDA_HOST_EXPORT void cuda_host_{name}(void **slots) {{ {name}({given}); }}"


def _dynamic(text: str) -> list[str]:
    """The memory of all `extern __shared__` arrays, which have one start."""
    names = sorted(set(_SHARED.findall(text)))
    if not names:
        return []
    labels = "".join([f".globl {name}\\n.type {name},@tls_object\\n{name}:\\n" for name in names])
    section = '.section .tbss,\\"awT\\",@nobits\\n.p2align 10\\n'
    return [
        f'asm("{section}{labels}.zero {227 << 10}\\n.text\\n");',
        f'extern thread_local char cuda_host_dynamic[] __asm__("{names[0]}");',
        "char *cuda_host::dynamic_memory() { return cuda_host_dynamic; }",
    ]


def _compile(folder: Path, *arguments: str) -> None:
    """Runs the compiler, whose own temporary files are in the folder."""
    found = compiler()
    if found is None:
        raise MissingExtraError(
            "cuda on a CPU: there is no C++ compiler, expected g++ or clang++ on the PATH"
        )
    done = subprocess.run(
        [found, *FLAGS, *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackendError(
            f"cuda on a CPU: {found} gives {done.returncode}, expected a text that compiles\n"
            f"{done.stderr}"
        )


@cache
def _runtime() -> tuple[str, ...]:
    """The objects of the execution model, in a folder that is removed with the process."""
    folder = Path(private("aotlite-host-"))
    objects = []
    with as_file(files(__package__)) as headers:
        for name in ("host", "host_checks"):
            text, object_ = str(headers / f"{name}.cpp"), str(folder / f"{name}.o")
            _compile(folder, "-O1", "-c", "-pthread", text, "-o", object_)
            objects.append(object_)
    return tuple(objects)
