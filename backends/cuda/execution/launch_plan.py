"""The launch plan of a program: its launches, the layout of its memory, and where it waits.

    arena:  | flags of checks, 16 bytes each | values of the host | temporaries, 256-byte lines |

Input: a program after its passes; output: a frozen `LaunchPlan`, which `launch_code.py` writes as
Python. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.backends.cuda.driver.driver_protocol import MOST_PUT
from aotlite.backends.cuda.emit.cuda_program import Launch, PrintedKernels, print_program
from aotlite.backends.cuda.passes.host_checks import HostCheck
from aotlite.backends.cuda.passes.merge_checks import with_checks_together
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.arena import planned
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Gemm,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Step,
    ValueCheck,
)
from aotlite.ir.arrays.device import CPU
from aotlite.ir.graph import Graph

LINE = 256
"""The alignment of temporaries in bytes."""
SLOT = 16
"""The bytes of the arena's head for each flag and each value of the host."""


@attrs.frozen
class Checks:
    """Checks whose flags are read together: `count` slots of the head from `first` on."""

    first: int
    count: int


Action = Launch | Gemm | Extern | Checks


@attrs.frozen
class LaunchPlan:
    """A program as launches."""

    program: LoopProgram
    """The program, with its checks together."""
    kernels: LoopProgram
    """The program of its kernels alone, as printed."""
    printed: PrintedKernels
    actions: tuple[Action, ...]
    offsets: Mapping[int, int]
    """The offsets in the arena, in bytes, of temporaries and of values of the host."""
    arena: int
    """The bytes of the arena."""
    hosted: tuple[int, ...]
    """The inputs of one element on the host, in the order of their slots."""
    hosted_at: int
    """The offset of the first of these slots."""
    copied: tuple[int, ...] = ()
    """The inputs on the host that are copied to the device at each call."""
    refuses: tuple[HostCheck, ...] = ()
    """The checks of host values that run before any launch."""

    @property
    def waits(self) -> int:
        """The number of times that a call waits for the device."""
        return sum([type(action) is Checks for action in self.actions])


def plan_of(
    program: LoopProgram, graph: Graph, target: Target, refuses: tuple[HostCheck, ...] = ()
) -> LaunchPlan:
    """Returns the plan of a graph's program. Raises BackendError if it cannot run on a GPU."""
    program = with_checks_together(program)
    alone = kernels_alone(program)
    return launches_of(program, graph, alone, print_program(alone, target=target), refuses)


def kernels_alone(program: LoopProgram) -> LoopProgram:
    """Returns the program of its kernels."""
    kernels = [step for step in program.steps if type(step) is Kernel]
    return attrs.evolve(program, steps=tuple(kernels))


def launches_of(
    program: LoopProgram,
    graph: Graph,
    alone: LoopProgram,
    printed: PrintedKernels,
    refuses: tuple[HostCheck, ...],
) -> LaunchPlan:
    """Returns the plan of a program whose checks are together, and whose kernels are printed."""
    checks = [step for step in program.steps if type(step) is ValueCheck]
    flags = list(dict.fromkeys([check.buffer for check in checks]))
    hosted, copied = _hosted(program, graph)
    head = -(-SLOT * (len(flags) + len(hosted)) // LINE) * LINE
    apart = {*flags, *hosted}
    rest = planned(_without(program, apart), LINE, in_place=False)
    offsets = {number: SLOT * k for k, number in enumerate([*flags, *hosted])}
    offsets |= {number: head + at for number, at in rest.offsets.items()}
    size = max(head + rest.size, LINE) if offsets else 0  # of temporaries without elements, too
    actions = _actions(program.steps, printed, flags)
    at = SLOT * len(flags)
    return LaunchPlan(
        program, alone, printed, actions, offsets, size, tuple(hosted), at, tuple(copied), refuses
    )


def _hosted(program: LoopProgram, graph: Graph) -> tuple[list[int], list[int]]:
    """Returns the inputs on the host: those of one element, and those that are copied."""
    found, copied = list[int](), list[int]()
    for node, number in zip(graph.placeholders, program.inputs, strict=True):
        meta: Any = node.meta
        if number is not None and meta.device is CPU:
            is_small = meta.numel == 1 and SLOT * len(found) < MOST_PUT
            (found if is_small else copied).append(number)
    return found, copied


def _without(program: LoopProgram, numbers: set[int]) -> LoopProgram:
    """Returns the program with these buffers marked as outputs, so that no arena is planned for
    them."""
    buffers = [
        attrs.evolve(b, kind=BufferKind.OUTPUT) if b.number in numbers else b
        for b in program.buffers
    ]
    return attrs.evolve(program, buffers=tuple(buffers))


def _actions(
    steps: Sequence[Step], printed: PrintedKernels, flags: Sequence[int]
) -> tuple[Action, ...]:
    """Returns the steps as actions. Neighboring checks are merged; kernels without points are
    dropped."""
    launches = {launch.step: launch for launch in printed.launches}
    found: list[Action] = []
    kernels = 0
    for step in steps:
        if type(step) is Kernel:
            if kernels in launches:
                found.append(launches[kernels])
            kernels += 1
        elif type(step) is ValueCheck:
            place = flags.index(step.buffer)
            last = found[-1] if found else None
            if type(last) is Checks and place == last.first + last.count:
                found[-1] = Checks(last.first, last.count + 1)
            else:
                found.append(Checks(place, 1))
        else:
            assert isinstance(step, (Gemm, Extern))
            found.append(step)
    return tuple(found)


def buffers_of(program: LoopProgram) -> dict[int, ProgramBuffer]:
    """Returns the buffers by number."""
    return {buffer.number: buffer for buffer in program.buffers}
