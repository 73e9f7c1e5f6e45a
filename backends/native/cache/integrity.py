"""Checks whether a library file is complete. Part of `specs/cpu_toolchain.md`.

The system's loader trusts the offsets in a library: a truncated one, as a killed linker leaves it,
ends the process by SIGBUS or SIGSEGV.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import BinaryIO

_ELF = b"\x7fELF"
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")

_OFFSETS = {1: ("I", 28, "I", (4, 16)), 2: ("Q", 32, "Q", (8, 32))}
"""For 32-bit and 64-bit ELF: struct code and place of the header's offsets of both tables; struct
code and places of offset and size in an entry of the program headers."""


def fault(path: str) -> str:
    """Returns what is wrong with a file, "no library" or "half a library"; empty if nothing.

    Tables and segments of an ELF file must lie within it. Raises OSError if it cannot be opened.
    """
    with open(path, "rb") as file:
        return fault_of(file, os.fstat(file.fileno()).st_size)


def fault_of(file: BinaryIO, size: int) -> str:
    """Returns the same for an open file of `size` bytes."""
    head = file.read(64)
    if sys.platform == "darwin":
        return "" if head[:4] in _MACH_O else "no library"
    if sys.platform != "linux":
        return "" if head else "no library"
    if not head or not head.startswith(_ELF[: len(head)]):
        return "no library"
    return "" if _end(file, head, size) <= size else "half a library"


def _end(file: BinaryIO, head: bytes, size: int) -> int:
    """Returns the least size of an ELF file by its tables; more than `size` if they cannot be
    read."""
    try:
        order = "<" if head[5] == 1 else ">"
        kind, place, of_segment, places = _OFFSETS[head[4]]
        segments, sections = struct.unpack_from(f"{order}2{kind}", head, place)
        sizes = struct.unpack_from(f"{order}4H", head, place + 2 * struct.calcsize(kind) + 6)
        width, count, section_width, section_count = sizes
        ends = [segments + width * count, sections + section_width * section_count]
        if max(ends) > size:
            return size + 1
        file.seek(segments)
        table = file.read(width * count)
        for start in range(0, width * count, width):
            offset, length = (
                struct.unpack_from(order + of_segment, table, start + each)[0] for each in places
            )
            ends.append(offset + length)
        return max(ends)
    except (IndexError, KeyError, ValueError, struct.error):
        return size + 1
