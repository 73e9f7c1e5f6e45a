"""CUDA text compiled for the CPU behind `host.h`, and its kernels as launchers take them.

Part of the driver that needs no GPU. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from aotlite.backends.cuda.emit import Launch, Printed
from aotlite.ir.errors import BackendError, MissingExtraError

FLAGS = (
    *("-std=gnu++17", "-O0", "-w", "-shared", "-fPIC", "-pthread"),
    # As the interpreter: products and sums are rounded apart.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)

_ARGUMENTS = """
#include <tuple>
template <class Function> struct cuda_host_arguments;
template <class... Each> struct cuda_host_arguments<void(Each...)> {
    using tuple = std::tuple<Each...>;
};
template <int k, class Function> using cuda_host_argument =
    std::tuple_element_t<k, typename cuda_host_arguments<Function>::tuple>;
"""


@cache
def compiler() -> str:
    """The C++ compiler of this machine. Raises MissingExtraError without one."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise MissingExtraError(
            "cuda: there is no C++ compiler, expected g++ or clang++ to run kernels on the CPU"
        )
    return found


def library_of(printed: Printed, flags: Sequence[str] = ()) -> bytes:
    """The shared library of a text, with an entry for each of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "kernels.cpp"), os.path.join(folder, "kernels.so")
        Path(source).write_text(_source(printed), "utf-8")
        with as_file(files("aotlite.backends.cuda")) as headers:
            command = [compiler(), *FLAGS, *flags, f"-I{headers}", source, "-o", library]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BackendError(
                f"cuda: {compiler()} gives {done.returncode}, expected a text that compiles\n"
                f"{done.stderr}"
            )
        return Path(library).read_bytes()


def _source(printed: Printed) -> str:
    entries = [_entry(launch) for launch in printed.launches]
    return "\n".join(['#include "host.h"', printed.text, _ARGUMENTS, *entries])


def _entry(launch: Launch) -> str:
    """A C function that runs a kernel."""
    arguments = ", ".join(
        f"static_cast<cuda_host_argument<{k}, decltype({launch.name})>>(slots[{k}])"
        for k in range(len(launch.buffers))
    )
    return (
        f'extern "C" const char *host_{launch.name}'
        "(void **slots, unsigned blocks, int order, unsigned seed)\n"
        "{\n"
        f"    return cuda_host::launch(blocks, {launch.threads}, cuda_host::Order(order), seed,\n"
        f"        [&] {{ {launch.name}({arguments}); }});\n"
        "}\n"
    )


class HostLibrary:
    """A library that is loaded; its kernels run when they are launched."""

    def __init__(self, path: str, order: int) -> None:
        self.library = ctypes.CDLL(path)
        self.order = order

    def run(self, launch: Launch, arguments: Sequence[int]) -> None:
        """Runs a kernel on memory at these addresses. Raises what the header reports."""
        function = getattr(self.library, f"host_{launch.name}")
        function.restype = ctypes.c_char_p
        slots = (ctypes.c_void_p * len(arguments))(*arguments)
        error = function(slots, ctypes.c_uint(launch.blocks), self.order, ctypes.c_uint(7))
        if error is not None:
            raise BackendError(f"{launch.name}: {error.decode()}, expected a kernel without faults")
