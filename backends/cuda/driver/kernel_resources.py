"""Registers, memory and occupancy of compiled kernels, from the log of NVRTC's assembler.

No GPU and no driver is needed. Kernels that spill registers are compiled again with fewer resident
blocks. Input: a CUDA text and an architecture; output: a frozen `Resources` for each kernel. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.target import Target
from aotlite.ir.errors import BackendError

WARP = 32
BLOCKS = 32
"""The most resident blocks of a multiprocessor, of compute capability 8.0 and 9.0."""
REGISTER_UNIT, SHARED_UNIT, RESERVED = 256, 1024, 1024
"""The units in which registers go to warps and shared memory to blocks, and the shared memory that
CUDA reserves for each block."""
MOST_REGISTERS = 255
"""The most registers of a thread."""
_VERBOSE = "--ptxas-options=-v"


@attrs.frozen
class Resources:
    """The resources of one kernel; memory in bytes."""

    name: str
    registers: int
    """The registers of a thread."""
    spill_stores: int
    spill_loads: int
    stack: int
    """The local memory of a thread: spills, and arrays that are not in registers."""
    shared: int
    """The shared memory of a block that the text declares."""
    constants: int
    """The constant memory: arguments and tables."""
    barriers: int

    def blocks(self, threads: int, target: Target, dynamic: int = 0) -> int:
        """Returns the number of resident blocks of a multiprocessor, with `threads` each.

        >>> from aotlite.backends.cuda.target import H100
        >>> kernel = Resources("f", registers=64, spill_stores=0, spill_loads=0, stack=0,
        ...                    shared=0, constants=0, barriers=1)
        >>> kernel.blocks(256, H100)
        4
        >>> kernel.occupancy(256, H100)
        0.5
        """
        warps = -(-threads // WARP)
        of_warp = _up(self.registers * WARP, REGISTER_UNIT)
        by_registers = target.registers // of_warp // warps if of_warp else BLOCKS
        memory = _up(self.shared + dynamic, SHARED_UNIT) + RESERVED
        by_memory = (target.shared + RESERVED) // memory
        return min(target.threads // (warps * WARP), by_registers, by_memory, BLOCKS)

    def occupancy(self, threads: int, target: Target, dynamic: int = 0) -> float:
        """Returns the occupancy: resident threads over the most that a multiprocessor holds."""
        return self.blocks(threads, target, dynamic) * threads / target.threads


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def compile_with_resources(
    text: str, architecture: str, flags: tuple[str, ...] = nvrtc.FLAGS
) -> tuple[bytes, dict[str, Resources]]:
    """Returns a text's cubin, and the resources of its kernels by name. Raises as
    `nvrtc.compile_cubin`."""
    cubin, log = nvrtc.compile_with_log(text, architecture, (*flags, _VERBOSE))
    return cubin, parsed(log)


def compile_without_spills(
    text: str, target: Target, flags: tuple[str, ...] = nvrtc.FLAGS
) -> tuple[bytes, dict[str, Resources]]:
    """As `compile_with_resources`, but compiles again while kernels spill, with launch bounds for
    fewer resident blocks: the assembler then gives threads more registers. By itself it spills a
    few words if that makes room for another block.
    """
    cubin, found = compile_with_resources(text, target.architecture, flags)
    while (more := _with_more_registers(text, found.values(), target)) != text:
        text = more
        cubin, found = compile_with_resources(text, target.architecture, flags)
    return cubin, found


def _with_more_registers(text: str, found: Iterable[Resources], target: Target) -> str:
    """Returns the text with launch bounds for fewer blocks of each kernel that spills."""
    for each in found:
        head = re.search(rf"__launch_bounds__\((\d+)(?:, (\d+))?\) {each.name}\(", text)
        if head is None or not each.spill_stores + each.spill_loads:
            continue
        threads = int(head[1])
        held = target.registers // (-(-threads // WARP) * _up(each.registers * WARP, REGISTER_UNIT))
        held = min(held, int(head[2] or held))
        fewer = min(held - 1, held * 7 // 8)
        if fewer > 0 and each.registers < MOST_REGISTERS:
            bounds = f"__launch_bounds__({threads}, {fewer}) {each.name}("
            text = text.replace(head[0], bounds)
    return text


def parsed(log: str) -> dict[str, Resources]:
    """Returns the resources in a verbose log of ptxas. Raises BackendError for another text.

    >>> found = parsed('''
    ... ptxas info    : Compiling entry function 'f' for 'sm_90'
    ... ptxas info    : Function properties for f
    ... ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
    ... ptxas info    : Used 40 registers, used 1 barriers, 256 bytes smem, 372 bytes cmem[0]
    ... ''')
    >>> found["f"].registers, found["f"].spill_stores, found["f"].shared, found["f"].constants
    (40, 8, 256, 372)
    """
    found = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        each = _kernel(part)
        found[each.name] = each
    return found


def _kernel(part: str) -> Resources:
    name = re.match(r"'(\w+)'", part)
    registers = re.search(r"Used (\d+) registers", part)
    spilled = re.search(r"(\d+) bytes stack frame, (\d+) \D*spill stores, (\d+) \D*spill", part)
    if name is None or registers is None or spilled is None:
        raise BackendError(f"cuda: ptxas says {part[:200]!r}, expected registers and spills")

    def count(pattern: str) -> int:
        return sum([int(number) for number in re.findall(pattern, part)])

    stack, stores, loads = map(int, spilled.groups())
    shared, constants = count(r"(\d+) bytes smem"), count(r"(\d+) bytes cmem")
    barriers = count(r"used (\d+) barriers")
    used = int(registers[1])
    return Resources(name[1], used, stores, loads, stack, shared, constants, barriers)
