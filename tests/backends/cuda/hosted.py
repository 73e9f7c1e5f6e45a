"""CUDA text compiled for the CPU behind `host.h`, and run in a chosen order of threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.backends.cuda.emit import Launch, print_units
from aotlite.backends.loops.program import Kind, Program

Memory = dict[int, Any]
FORWARD, REVERSED, SHUFFLED = range(3)
FLAGS = (
    *("-std=gnu++17", "-O0", "-w", "-shared", "-fPIC", "-pthread"),
    # As the interpreter: products and sums are rounded apart.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)


def compiler() -> str | None:
    """A C++ compiler of this machine."""
    return shutil.which("g++") or shutil.which("clang++")


def entry(launch: Launch, count: int) -> str:
    """A C function that launches a kernel on the CPU."""
    arguments = ", ".join(
        f"static_cast<cuda_host_argument<{k}, decltype({launch.name})>>(slots[{k}])"
        for k in range(count)
    )
    return (
        f'extern "C" const char *host_{launch.name}'
        "(void **slots, unsigned blocks, int order, unsigned seed)\n"
        "{\n"
        f"    return cuda_host::launch(blocks, {launch.threads}, cuda_host::Order(order), seed,\n"
        f"        [&] {{ {launch.name}({arguments}); }});\n"
        "}\n"
    )


ARGUMENTS = """
#include <tuple>
template <class Function> struct cuda_host_arguments;
template <class... Each> struct cuda_host_arguments<void(Each...)> {
    using tuple = std::tuple<Each...>;
};
template <int k, class Function> using cuda_host_argument =
    std::tuple_element_t<k, typename cuda_host_arguments<Function>::tuple>;
"""


def build(text: str, launches: Iterable[Launch], folder: Path, *flags: str) -> ctypes.CDLL:
    """The library of a CUDA text and an entry for each of its kernels."""
    entries = [entry(launch, len(launch.buffers)) for launch in launches]
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join(['#include "host.h"', text, ARGUMENTS, *entries]), "utf-8")
    with as_file(files("aotlite.backends.cuda")) as headers:
        command = [str(compiler()), *FLAGS, *flags, f"-I{headers}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class Hosted:
    """Several programs in one library."""

    def __init__(self, programs: Mapping[str, Program], folder: Path, *flags: str) -> None:
        self.programs = programs
        self.text, self.launches = print_units(programs)
        every = [launch for found in self.launches.values() for launch in found]
        self.library = build(self.text, every, folder, *flags)

    def run(
        self, name: str, inputs: Sequence[Any], order: int, most_blocks: int = 1 << 30
    ) -> Memory:
        """The memory of all buffers after a program; zeros where nothing is stored."""
        program = self.programs[name]
        numbers = [number for number in program.inputs if number is not None]
        memory: Memory = dict(zip(numbers, [each.copy() for each in inputs], strict=True))
        for buffer in program.buffers:
            if buffer.kind is Kind.CONSTANT:
                memory[buffer.number] = buffer.value
            elif buffer.kind is not Kind.INPUT:
                memory[buffer.number] = np.zeros(buffer.size, buffer.dtype.numpy)
        for launch in self.launches[name]:
            arrays = [memory[number] for number in launch.buffers]
            call(self.library, launch, arrays, order, min(launch.blocks, most_blocks))
        return memory


def call(
    library: ctypes.CDLL, launch: Launch, arrays: Sequence[Any], order: int, blocks: int
) -> None:
    """Runs a kernel on arrays; raises what the header reports."""
    function = getattr(library, f"host_{launch.name}")
    function.restype = ctypes.c_char_p
    slots = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    error = function(slots, ctypes.c_uint(blocks), order, ctypes.c_uint(7))
    if error is not None:
        raise RuntimeError(error.decode())
