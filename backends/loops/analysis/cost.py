"""The cost model of fusion: the cost of a kernel in bytes of memory traffic.

Computing is counted in bytes, too: `FLOP` bytes an operation. All constants of the model stand
here. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.primitives import PRIMITIVES

FLOP = 0.4
"""Bytes that memory moves in the time of one simple operation."""
DEAR = {"div": 4.0, "sqrt": 5.0, "idiv": 10.0, "irem": 10.0, "cast": 1.0}
FUNCTION = 15.0
"""Operations of a library function, such as exp."""
FREE = frozenset(("const", "load", "axis", "name", "parameter", "bits"))
MOST_BUFFERS = 24
"""The most buffers that one kernel loads and stores."""
MOST_OPERATIONS = 512
"""The most operations of one kernel at a point. The time of C compilers grows faster than this."""
FEW_ROWS = 8
"""Fewer rows than this do not keep the threads busy."""
LONG_ROW = 1 << 14
"""A row of more inner points is worth several threads."""
ABREAST = 256
"""Columns that a kernel of several passes reduces together."""
SUMS_BYTES = 1 << 14
"""Bytes of the partial results of columns that a kernel of one pass reduces together: half of a
first-level cache. Many columns together read whole cache lines, and long runs of each page."""
KEPT_BYTES = 1 << 20
"""Bytes that a row, or columns together, may load for a second pass to find them in a cache."""


def operations(kernel: Kernel) -> float:
    """Returns the number of simple operations of a kernel at each point."""
    roots = [value for statement in kernel.body for value in values_of(statement)]
    return sum([_own(each) for each in walk(roots)])


def _own(value: Scalar) -> float:
    if value.op in FREE or _widens(value):
        return 0.0
    if value.op not in PRIMITIVES:
        return FUNCTION
    return DEAR.get(value.op, 1.0)


def _widens(value: Scalar) -> bool:
    """Whether a cast widens a 16-bit float to float32: its cost is paid by the smaller load. A size
    is cast before the loops."""
    short = (float16, bfloat16)
    if value.op == "cast" and value.args[0].op == "const":
        return True
    return value.op == "cast" and value.dtype is float32 and value.args[0].dtype in short


def points(kernel: Kernel) -> int:
    """Returns the number of points of all axes. Here all numbers of points are those of hints."""
    return hint_of(math.prod(kernel.extents))


def rows(kernel: Kernel) -> int:
    """Returns the number of points of the space axes."""
    return hint_of(math.prod(kernel.extents[: kernel.space]))


def inner_points(kernel: Kernel) -> int:
    """Returns the number of points of the inner axes."""
    return hint_of(math.prod(kernel.extents[kernel.space :]))


def row_bytes(kernel: Kernel) -> int:
    """Returns the bytes that one row loads and stores at element level."""
    space, count = kernel.space, inner_points(kernel)
    sizes = {
        value.args[0]: value.dtype.itemsize
        for value in loads_of(kernel)
        if any(value.args[1].coefficients[space:])
    }
    sizes |= {s.buffer: s.value.dtype.itemsize for s in stores_of(kernel) if not s.each_row}
    return count * sum(sizes.values())


def bytes_of(loads: Iterable[Scalar], extents: Sequence[int]) -> dict[int, int]:
    """Returns the bytes that loads at points of these extents read of each buffer, each element
    counted once."""
    found: dict[int, int] = {}
    for value in loads:
        number, address = value.args
        steps = zip(address.coefficients, extents, strict=False)
        moving = [n for c, n in steps if c or address.dynamic]
        nbytes = hint_of(math.prod(moving)) * value.dtype.itemsize
        found[number] = max(found.get(number, 0), nbytes)
    return found


def has_one_pass(kernel: Kernel) -> bool:
    """Whether one pass over the inner points is enough: no statement of element level uses a
    reduction's result."""
    return not any(
        names_used(statement)
        for statement in kernel.body
        if not (type(statement) is Store and statement.each_row)
    )


def columns_abreast(kernel: Kernel) -> int:
    """Returns how many columns a unit of work reduces together in one pass."""
    reduces = [statement for statement in kernel.body if type(statement) is Reduce]
    sizes = sum([value.dtype.itemsize * each.lanes for each in reduces for value in each.values])
    return max(SUMS_BYTES // max(sizes, 4), 16)


def is_too_big(kernel: Kernel) -> bool:
    """Whether a kernel exceeds `MOST_BUFFERS`, the streams that a core prefetches, or
    `MOST_OPERATIONS`."""
    buffers = {value.args[0] for value in loads_of(kernel)}
    buffers |= {store.buffer for store in stores_of(kernel)}
    return len(buffers) > MOST_BUFFERS or operations(kernel) > MOST_OPERATIONS
