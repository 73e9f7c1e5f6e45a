"""Programs on a CPU, whose inputs begin anywhere and whose texts may be changed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from aotlite.backends.cuda.emit.cuda_program import print_units
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import BufferKind
from aotlite.ir.errors import BackendError
from tests.backends.cpu.helpers.printing import before, interpreted, same_bits
from tests.backends.cuda.helpers.cuda_cases import Cases, written
from tests.backends.cuda.helpers.hosted import FORWARD, REVERSED, SHUFFLED, build, call, placed

SMALL = Target("sm_80", 1, threads=256)
"""A GPU that a few thousand points fill, so that a thread takes several vectors."""


Changes = dict[str, tuple[str, str]]
"""Name of a kernel -> the replacements in its text."""


def _changed(text: str, changes: Changes) -> str:
    head, *kernels = text.split("/* kernel")
    for key, (old, new) in changes.items():
        named = [k for k, each in enumerate(kernels) if f" {key}_" in each]
        (place,) = [k for k in named if old in kernels[k]]
        kernels[place] = kernels[place].replace(old, new)
    return "/* kernel".join([head, *kernels])


class Built:
    """Programs printed for a small GPU, and run with inputs that lie anywhere."""

    def __init__(
        self, cases: Cases, folder: Path, changes: Changes | None = None, functions: str = ""
    ) -> None:
        self.cases = cases
        programs = {key: program for key, (program, _) in cases.items()}
        text, self.launches = print_units(programs, SMALL)
        text = _changed(text, changes or {}).replace("/* kernel", f"{functions}/* kernel", 1)
        every = [launch for found in self.launches.values() for launch in found]
        self.library = build(text, every, folder)

    def memory(self, key: str, order: int, most: int, *, moved: bool) -> dict[int, Any]:
        """The memory of all buffers after a program."""
        program, inputs = self.cases[key]
        numbers = [number for number in program.inputs if number is not None]
        memory = {k: placed(each, moved) for k, each in zip(numbers, inputs, strict=True)}
        for buffer in program.buffers:
            if buffer.kind is not BufferKind.INPUT:
                memory[buffer.number] = placed(before(buffer))
        for launch in self.launches[key]:
            arrays = [memory[number] for number in launch.buffers]
            call(self.library, launch, arrays, order, min(launch.blocks, most))
        return memory

    def differences(self) -> list[str]:
        """The differences from the interpreter's bits, with programs and orders."""
        found = []
        for key, (program, inputs) in self.cases.items():
            expected = interpreted(program, inputs)
            for order, moved in itertools.product((FORWARD, REVERSED, SHUFFLED), (False, True)):
                most = 2 if order == REVERSED else 1 << 30
                try:
                    memory = self.memory(key, order, most, moved=moved)
                    same = all(same_bits(expected[k], memory[k]) for k in written(program))
                    error = "" if same else "other bits"
                except BackendError as raised:
                    error = str(raised)
                found += [f"{key}, order {order}, moved {moved}: {error}"] if error else []
        return found
