"""Compilation of CUDA C++ text to a cubin by NVRTC, which needs no GPU and no driver.

The library comes with the wheel nvidia-cuda-nvrtc and is called by ctypes. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from aotlite.ir.errors import BackendError, MissingExtraError

FLAGS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
"""Flags with which each operation rounds once, as IEEE 754 and the interpreter have it."""
_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")


def compile_cubin(text: str, architecture: str, flags: tuple[str, ...] = FLAGS) -> bytes:
    """Returns the cubin of a CUDA C++ text for an architecture ("sm_90").

    Raises MissingExtraError if NVRTC is not installed, and BackendError with the compiler's log if
    it refuses the text.
    """
    return compile_with_log(text, architecture, flags)[0]


def compile_with_log(text: str, architecture: str, flags: tuple[str, ...]) -> tuple[bytes, str]:
    """Returns the cubin, as `compile_cubin` does, and the compiler's log."""
    library = _library()
    program = ctypes.c_void_p()
    source = text.encode()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *map(str.encode, flags)]
        array = (ctypes.c_char_p * len(options))(*options)
        code = library.nvrtcCompileProgram(program, len(options), array)
        log = _fetched(library, program, "ProgramLog")
        _check(code, log)
        return _fetched(library, program, "CUBIN"), log.rstrip(b"\0\n").decode(errors="replace")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def is_installed() -> bool:
    """Whether NVRTC can be loaded."""
    try:
        _library()
    except MissingExtraError:
        return False
    return True


def version() -> str:
    """Returns NVRTC's version, such as "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _fetched(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Returns an output of NVRTC for a program: its log, or the cubin."""
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, room))
    return room.raw


def _check(code: int, log: bytes = b"") -> None:
    if code:
        name = _library().nvrtcGetErrorString(code).decode()
        text = log.rstrip(b"\0\n").decode(errors="replace")
        raise BackendError(f"cuda: NVRTC gives {name}, expected a text that compiles\n{text}")


@cache
def _library() -> ctypes.CDLL:
    for folder in [Path(entry) / part for entry in sys.path for part in _FOLDERS]:
        found = [*folder.glob("libnvrtc.so.*")]
        if found:
            # NVRTC finds its library of built-in functions if that is loaded already.
            for builtins in folder.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(str(found[0]))
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            return library
    raise MissingExtraError(
        "cuda: NVRTC is not installed, expected the nvidia-cuda-nvrtc wheel; "
        "pip install 'aotlite[cuda13]'"
    )
