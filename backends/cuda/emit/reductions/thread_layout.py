"""Which threads compute which points of a kernel of rows, told by the kernel and the target alone.

A *team* of threads computes a row, or some neighbouring rows where those lie side by side in
memory; each thread takes `width` neighbours at a time. Lanes of reductions are spread over a team:
thread t of W has the lanes t*width ... t*width + width-1 of every W*width, which is the order of
the IR. Read by the schedule, which sets lanes, and by the printer, which finds the team in them.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.cuda.emit.kernel_code import apart
from aotlite.backends.loops.analysis.expression_facts import varies_along
from aotlite.backends.loops.expr import Affine
from aotlite.backends.loops.program import (
    Kernel,
    Reduce,
    Scan,
    Store,
    in_order,
    loads_of,
    names_used,
    stores_of,
)

WARP = 32
MOST_THREADS = 1024
"""Of a block."""
ACCESS = 16
"""Bytes of the widest access to memory."""
MOST_WIDTH = 8
"""Neighbours of a thread: those of 16-bit elements in one access."""
BLOCK = 256
"""Threads of a block of several teams."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may have without asking."""


@attrs.frozen
class ThreadLayout:
    """How many threads compute a row together, and how they go over its points."""

    team: int
    """Threads of a row, or of `width` neighbouring ones: a power of two."""
    width: int
    """Neighbours that a thread takes at a time."""
    teams: int
    """Teams of a block; 1 where a team along its row has more threads than a warp."""
    along: bool = True
    """Whether the neighbours are points of one row; else they are rows side by side, and so are the
    teams of a block."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.team * self.teams

    @property
    def side(self) -> int:
        """How far a team's next thread is in the block."""
        return 1 if self.along else self.teams

    @property
    def pitch(self) -> int:
        """Threads side by side, whose partial results are combined last, or not at all."""
        return WARP if self.along else self.teams


def width_along(kernel: Kernel, axis: int) -> int:
    """How many neighbours along an axis a thread takes, so that accesses are wide."""
    if axis < 0:  # a kernel of one point
        return 1
    sizes = [
        item
        for address, item in accesses(kernel)
        if _step(address, axis) == 1 and not _is_read(address, axis)
    ]
    most = min(ACCESS // min(sizes, default=ACCESS), MOST_WIDTH)
    return math.gcd(most, kernel.extents[axis])


def accesses(kernel: Kernel) -> list[tuple[Affine, int]]:
    """The addresses that a kernel loads and stores, with the bytes of an element."""
    loads = [(value.args[1], value.dtype.itemsize) for value in loads_of(kernel)]
    return loads + [(store.address, store.value.dtype.itemsize) for store in stores_of(kernel)]


def is_vector(address: Affine, axis: int, width: int) -> bool:
    """Whether `width` neighbours along an axis, from a multiple of it on, are neighbours in memory
    from a multiple of it on."""
    if _step(address, axis) != 1 or address.start % width:
        return False
    others = [c for k, c in enumerate(address.coefficients) if k != axis]
    others += [step for _, step in address.dynamic]
    return all(c % width == 0 for c in others) and not _is_read(address, axis)


def _step(address: Affine, axis: int) -> int:
    return address.coefficients[axis] if axis < len(address.coefficients) else 0


def _is_read(address: Affine, axis: int) -> bool:
    """Whether a position that is read may differ between neighbours along the axis."""
    return any(varies_along(value, axis) for value, _ in address.dynamic)


# ---------------------------------------------------------------------------------------- layouts
def layout_of(kernel: Kernel, multiprocessors: int) -> tuple[ThreadLayout, int]:
    """The layout of a kernel whose reductions have their lanes, and the axis of neighbours."""
    last, rows = len(kernel.extents) - 1, math.prod(kernel.extents[: kernel.space])
    lanes = [each.lanes for each in kernel.body if type(each) is Reduce]
    if 0 in kernel.extents:
        return ThreadLayout(1, 1, teams_of(1, rows, multiprocessors)), last
    if is_in_order(kernel):
        width = math.gcd(width_along(kernel, last), *lanes)
        return ThreadLayout(1, width, teams_of(1, rows, multiprocessors)), last
    if is_of_columns(kernel):
        assert kernel.vector is not None
        return _of_columns(kernel, kernel.vector, max(lanes, default=1)), kernel.vector
    width = math.gcd(width_along(kernel, last), *lanes)
    team = min(max(lanes, default=BLOCK) // width, MOST_THREADS, most_team(kernel, width))
    return ThreadLayout(team, width, teams_of(team, rows, multiprocessors)), last


def is_of_columns(kernel: Kernel) -> bool:
    """Whether threads side by side have rows side by side."""
    k = kernel.vector
    return k is not None and k < kernel.space and not in_order(kernel) and not is_in_order(kernel)


def _of_columns(kernel: Kernel, axis: int, lanes: int) -> ThreadLayout:
    width = width_along(kernel, axis)
    beside = threads_beside(kernel.extents[axis], width, BLOCK if lanes == 1 else WARP)
    return ThreadLayout(min(lanes, BLOCK // beside), width, beside, along=False)


def hands_over(kernel: Kernel, layout: ThreadLayout) -> bool:
    """Whether threads may touch memory that others of a row, or of the next one, have written.

    A buffer whose accesses all are stores and loads at one address of element level is a thread's
    own, since all passes give a point to the same thread; so is what one thread stores for a row.
    """
    lanes = {each.lanes for each in kernel.body if type(each) is Reduce}
    width = layout.width if layout.along else 1
    if len(lanes) > 1 or min(lanes, default=MOST_THREADS * width) < layout.team * width:
        return any(map(_is_shared, _accessed(kernel).values()))
    return any(len(set(found)) > 1 for found in _accessed(kernel).values())


def _is_shared(found: list[_Access]) -> bool:
    return len(found) > 1


_Access = tuple[Affine, bool | None]
"""An address, and whether it is one thread's, each point's thread's, or None: all threads' of a
row."""


def _accessed(kernel: Kernel) -> dict[int, list[_Access]]:
    """Where a kernel stores, and loads, in the buffers that it writes."""
    found: dict[int, list[_Access]] = {}
    for store in stores_of(kernel):
        found.setdefault(store.buffer, []).append((store.address, store.each_row))
        if store.combine is not None:
            found[store.buffer].append((store.address, store.each_row))
    for value in loads_of(kernel):
        if value.args[0] in found:
            of_row = not any(value.args[1].coefficients[kernel.space :])
            found[value.args[0]].append((value.args[1], None if of_row else False))
    return found


def threads_beside(extent: int, width: int, most: int) -> int:
    """Threads that have neighbouring rows, `width` each."""
    return min(power_above(extent // width), most)


def power_above(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def is_in_order(kernel: Kernel) -> bool:
    """Whether the points of a row go one after the other: a scan, or stores to one address."""
    inner = range(kernel.space, len(kernel.extents))
    stores = [each for each in stores_of(kernel) if not each.each_row]
    scans = any(type(each) is Scan for each in kernel.body)
    return scans or not apart(stores, kernel.extents, inner)


def most_team(kernel: Kernel, width: int) -> int:
    """The most threads whose partial results fit into shared memory, those of one pass at once."""
    depth: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for each in kernel.body:
        if isinstance(each, (Reduce, Scan)):
            own = 1 + max([depth[k] for k in names_used(each)], default=0)
            depth.update(dict.fromkeys(each.names, own))
            size = sum([value.dtype.itemsize for value in each.values])
            sizes[own] = sizes.get(own, 0) + size * (type(each) is Reduce)
    room = STATIC_SHARED // max(max(sizes.values(), default=1) * width, 1) * 3 // 4
    return 1 << max(room.bit_length() - 1, 0)


def teams_of(team: int, units: int, multiprocessors: int) -> int:
    """Teams of a block: enough threads, but no fewer blocks than multiprocessors for that."""
    if team > WARP:
        return 1
    teams = BLOCK // team
    while teams * team > WARP and units < teams * multiprocessors:
        teams //= 2
    return teams


def is_stored_once(stores: Sequence[Store], buffer: int) -> bool:
    """Whether one store alone goes to the buffer."""
    return sum([each.buffer == buffer for each in stores]) == 1
