"""The arguments of launches: one table of addresses and sizes for all kernels of a program.

CUDA takes an array of pointers to arguments. Each kernel's array points into the table, and is made
once, so that a call writes the table by one `struct.pack_into`. Spec: `specs/cuda_backend.md`.

    table:  [ address b0 | address b1 | address b2 | 40 ]  kernel_0(b0, b2, size0):
                                                           [&table[0], &table[2], &table[3]]
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aotlite.backends.cuda.emit.cuda_program import Launch

Table = tuple[Any, ...]
"""(function that writes all addresses, for each launch the address of its array of pointers, and
the owner of the memory)."""


def maker(slots: Sequence[int], launches: Sequence[Launch]) -> Callable[[], Table]:
    """Returns a maker of tables with the addresses of `slots`, in order, for these launches. Their
    sizes come after the addresses, and stay.

    A table serves one call at a time.
    """
    places = {number: k for k, number in enumerate(slots)}
    words = struct.Struct(f"{len(slots)}Q")
    return partial(_made, places, words, launches)


def _made(places: Mapping[int, int], words: struct.Struct, launches: Sequence[Launch]) -> Table:
    sizes = dict.fromkeys([size for launch in launches for size in launch.sizes])
    at = {size: len(places) + k for k, size in enumerate(sizes)}
    values = (ctypes.c_uint64 * max(len(places) + len(at), 1))()
    for size, place in at.items():
        values[place] = size & (1 << 64) - 1
    first = ctypes.addressof(values)
    arguments = [
        (ctypes.c_void_p * max(len(launch.buffers) + len(launch.sizes), 1))(
            *[first + 8 * places[number] for number in launch.buffers],
            *[first + 8 * at[size] for size in launch.sizes],
        )
        for launch in launches
    ]
    write = partial(words.pack_into, values, 0)
    # The last part owns the memory of the others' addresses.
    return write, *map(ctypes.addressof, arguments), (values, arguments)
