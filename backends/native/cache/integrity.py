"""Whether a file is a whole library. Part of `specs/cpu_toolchain.md`.

The system's loader believes what is written in a library: of one that ends too soon it reads what
is not there, which ends the process (SIGBUS, SIGSEGV). A linker that is killed leaves such files.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import BinaryIO

_ELF = b"\x7fELF"
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")

_OFFSETS = {1: ("I", 28, "I", (4, 16)), 2: ("Q", 32, "Q", (8, 32))}
"""By class, 32 or 64 bits: of the header the kind and place of the offsets of both tables; of an
entry of the program headers the kind and places of offset and size."""


def fault(path: str) -> str:
    """What the file of a library is instead of a whole one; empty where it is one.

    Of ELF the tables and segments must lie within the file. Raises OSError as opening it does.
    """
    with open(path, "rb") as file:
        return fault_of(file, os.fstat(file.fileno()).st_size)


def fault_of(file: BinaryIO, size: int) -> str:
    """The same of an open file of so many bytes."""
    head = file.read(64)
    if sys.platform == "darwin":
        return "" if head[:4] in _MACH_O else "no library"
    if sys.platform != "linux":
        return "" if head else "no library"
    if not head or not head.startswith(_ELF[: len(head)]):
        return "no library"
    return "" if _end(file, head, size) <= size else "half a library"


def _end(file: BinaryIO, head: bytes, size: int) -> int:
    """Where an ELF file ends at least; more than its size where that cannot be read."""
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
