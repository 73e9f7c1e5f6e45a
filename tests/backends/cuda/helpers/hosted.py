"""Programs printed as CUDA, run on the CPU in a chosen order of threads, each access checked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.backends.cuda.emit.cuda_program import Launch, print_units
from aotlite.backends.loops.program import BufferKind, Kernel, LoopProgram, Step, loads_of, writes
from aotlite.testing.cuda.host_execution import (
    CHECKED,
    FORWARD,
    REVERSED,
    SHUFFLED,
    CheckedRegion,
    HostLibrary,
    compiler,
    host_library,
)
from tests.backends.cpu.helpers.printing import before

__all__ = ["FORWARD", "ORDERS", "REVERSED", "SHUFFLED", "Hosted", "build", "call", "compiler"]
Memory = dict[int, Any]
ORDERS = (FORWARD, REVERSED, SHUFFLED)
FLAGS = ("-O0",)
"""Optimized, a vector is stored in parts, and nobody sees that its address is a wrong one."""
ALIGNMENT = 256
"""The alignment of CUDA's memory, in bytes."""


def build(
    text: str, launches: Iterable[Launch], folder: Path, *flags: str, checked: bool = True
) -> HostLibrary:
    """The library of a CUDA text; `checked`: each access of its kernels is."""
    arguments = {launch.name: len(launch.buffers) for launch in launches}
    # A library is loaded once by its path, whatever the file holds later.
    folder = Path(tempfile.mkdtemp(dir=folder))
    return host_library(text, arguments, folder, *FLAGS, *(CHECKED if checked else ()), *flags)


def placed(array: Any, shift: int = 0) -> Any:
    """A copy of an array that begins so many elements behind an address that CUDA would give."""
    room = np.zeros(array.nbytes + ALIGNMENT + shift * array.itemsize, np.uint8)
    start = -room.ctypes.data % ALIGNMENT + shift * array.itemsize
    copy = room[start : start + array.nbytes].view(array.dtype)
    copy[...] = array
    return copy


class Hosted:
    """Several programs in one library."""

    def __init__(
        self, programs: Mapping[str, LoopProgram], folder: Path, *flags: str, checked: bool = True
    ) -> None:
        self.programs = programs
        self.text, self.launches = print_units(programs)
        every = [launch for found in self.launches.values() for launch in found]
        self.library = build(self.text, every, folder, *flags, checked=checked)

    def run(
        self,
        name: str,
        inputs: Sequence[Any],
        order: int,
        most_blocks: int = 1 << 30,
        shift: int = 0,
    ) -> Memory:
        """The memory of all buffers after a program.

        Inputs begin `shift` elements behind an aligned address, other buffers at one.
        """
        program = self.programs[name]
        numbers = [number for number in program.inputs if number is not None]
        given = [placed(each, shift) for each in inputs]
        memory: Memory = dict(zip(numbers, given, strict=True))
        for buffer in program.buffers:
            if buffer.kind is BufferKind.CONSTANT:
                memory[buffer.number] = placed(np.asarray(buffer.value))
            elif buffer.kind is not BufferKind.INPUT:
                memory[buffer.number] = placed(before(buffer))
        for launch in self.launches[name]:
            arrays = [memory[number] for number in launch.buffers]
            both = in_place(program.steps[launch.step])
            call(self.library, launch, arrays, order, min(launch.blocks, most_blocks), both)
        return memory


def in_place(step: Step) -> set[int]:
    """The buffers that a kernel loads and stores: what a thread loads there it may not use."""
    assert type(step) is Kernel
    return {load.args[0] for load in loads_of(step)} & writes(step)


def call(
    library: HostLibrary,
    launch: Launch,
    arrays: Sequence[Any],
    order: int,
    blocks: int,
    both: Set[int] = frozenset(),
) -> None:
    """Runs a kernel on arrays, the only memory that it may touch; raises what is reported."""
    addresses = [array.ctypes.data for array in arrays]
    memory = [
        CheckedRegion(array.ctypes.data, array.nbytes, array.itemsize, number, number in both)
        for number, array in zip(launch.buffers, arrays, strict=True)
    ]
    shared = getattr(launch, "shared", 0)
    library.launch(
        launch.name, addresses, blocks, launch.threads, shared=shared, order=order, memory=memory
    )
