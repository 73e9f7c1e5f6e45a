"""What computing, loading and storing cost, in bytes of memory traffic.

The model by which fusion decides; all of its numbers are here. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from aotlite.backends.loops.expr import PRIMITIVES, Scalar, walk
from aotlite.backends.loops.program import (
    Kernel,
    Reduce,
    Store,
    loads_of,
    names_used,
    stores_of,
    values_of,
)
from aotlite.ir.dtypes import bfloat16, float16, float32

FLOP = 0.4
"""Bytes that memory moves while one simple operation is computed."""
DEAR = {"div": 4.0, "sqrt": 5.0, "idiv": 10.0, "irem": 10.0, "cast": 1.0}
FUNCTION = 15.0
"""Operations of a function of the library."""
FREE = frozenset(("const", "load", "axis", "name", "parameter", "bits"))
MOST_BUFFERS = 24
"""Buffers that one kernel may load and store."""
MOST_OPERATIONS = 512
"""Simple operations of one kernel at each point: what C compilers need grows faster than these."""
FEW_ROWS = 8
"""Fewer rows than these cannot keep the threads busy."""
LONG_ROW = 1 << 14
"""More inner points than these are worth several threads."""
ABREAST = 256
"""Columns that are gone down at once."""
SUMS_BYTES = 1 << 14
"""Of the partial results of columns that one pass goes down at once: half of a first-level cache.
Lines of memory are then read from end to end, or for some pages at least."""
KEPT_BYTES = 1 << 20
"""What a row, or columns abreast, may load so that a second pass finds it in a cache."""


def operations(kernel: Kernel) -> float:
    """The simple operations of a kernel at each point."""
    roots = [value for statement in kernel.body for value in values_of(statement)]
    return sum([_own(each) for each in walk(roots)])


def _own(value: Scalar) -> float:
    if value.op in FREE or _widens(value):
        return 0.0
    if value.op not in PRIMITIVES:
        return FUNCTION
    return DEAR.get(value.op, 1.0)


def _widens(value: Scalar) -> bool:
    """Whether a float of 16 bits becomes one of 32: less is loaded for it, which is as good."""
    short = (float16, bfloat16)
    return value.op == "cast" and value.dtype is float32 and value.args[0].dtype in short


def points(kernel: Kernel) -> int:
    """The points of all axes."""
    return math.prod(kernel.extents)


def rows(kernel: Kernel) -> int:
    """The points of the space axes."""
    return math.prod(kernel.extents[: kernel.space])


def inner_points(kernel: Kernel) -> int:
    """The points of the inner axes."""
    return math.prod(kernel.extents[kernel.space :])


def row_bytes(kernel: Kernel) -> int:
    """What one row loads and stores at element level."""
    space, count = kernel.space, inner_points(kernel)
    sizes = {
        value.args[0]: value.dtype.itemsize
        for value in loads_of(kernel)
        if any(value.args[1].coefficients[space:])
    }
    sizes |= {s.buffer: s.value.dtype.itemsize for s in stores_of(kernel) if not s.each_row}
    return count * sum(sizes.values())


def bytes_of(loads: Iterable[Scalar], extents: Sequence[int]) -> dict[int, int]:
    """The bytes of each buffer that are loaded at points of these extents, each element once."""
    found: dict[int, int] = {}
    for value in loads:
        number, address = value.args
        steps = zip(address.coefficients, extents, strict=False)
        moving = [n for c, n in steps if c or address.dynamic]
        nbytes = math.prod(moving) * value.dtype.itemsize
        found[number] = max(found.get(number, 0), nbytes)
    return found


def has_one_pass(kernel: Kernel) -> bool:
    """Whether nothing of element level waits for a reduction."""
    return not any(
        names_used(statement)
        for statement in kernel.body
        if not (type(statement) is Store and statement.each_row)
    )


def columns_abreast(kernel: Kernel) -> int:
    """How many columns a unit of work reduces at once in one pass."""
    reduces = [statement for statement in kernel.body if type(statement) is Reduce]
    sizes = sum([value.dtype.itemsize * each.lanes for each in reduces for value in each.values])
    return max(SUMS_BYTES // max(sizes, 4), 16)


def is_too_big(kernel: Kernel) -> bool:
    """Whether a kernel has more buffers than a core has streams, or very much to compute."""
    buffers = {value.args[0] for value in loads_of(kernel)}
    buffers |= {store.buffer for store in stores_of(kernel)}
    return len(buffers) > MOST_BUFFERS or operations(kernel) > MOST_OPERATIONS
