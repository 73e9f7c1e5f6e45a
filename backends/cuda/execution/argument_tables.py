"""Arguments of launches: one table of addresses for all kernels of a program.

Each kernel's arguments are pointers into the table, made once, so that a call writes the table and
touches no argument again. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aotlite.backends.cuda.emit.cuda_program import Launch

Table = tuple[Any, ...]
"""What writes all addresses, then for each launch the address of its arguments' pointers."""


def maker(slots: Sequence[int], launches: Sequence[Launch]) -> Callable[[], Table]:
    """What makes tables: of the addresses of these buffers in order, for these launches.

    A table is for one call at a time.
    """
    places = {number: k for k, number in enumerate(slots)}
    words = struct.Struct(f"{len(slots)}Q")
    return partial(_made, places, words, launches)


def _made(places: Mapping[int, int], words: struct.Struct, launches: Sequence[Launch]) -> Table:
    values = (ctypes.c_uint64 * max(len(places), 1))()
    first = ctypes.addressof(values)
    arguments = [
        (ctypes.c_void_p * max(len(launch.buffers), 1))(
            *[first + 8 * places[number] for number in launch.buffers]
        )
        for launch in launches
    ]
    write = partial(words.pack_into, values, 0)
    # The last part owns what the others point to.
    return write, *map(ctypes.addressof, arguments), (values, arguments)
