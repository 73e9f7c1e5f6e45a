"""The thread layout of kernels of rows: which threads compute which points.

A *team* of threads computes a row, or `width` neighboring rows if those lie side by side in
memory. A thread takes `width` neighbors at a time. With team 4, width 2, `along` a row of 24:

    point   0 1 | 2 3 | 4 5 | 6 7 | 8 9 | ...            step 0: points 0 to 7, step 1: 8 to 15
    thread   0  |  1  |  2  |  3  |  0  | ...            lanes of thread 0: 0 and 1 of 8

So the lanes of the IR are spread over the team. The schedule sets lanes by this layout, and the
printer finds the team in them. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.cuda.emit.kernel_code import apart, divisor_of
from aotlite.backends.loops.analysis.expression_facts import varies_along
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
from aotlite.ir.geometry.sizes import Size, hint_of
from aotlite.ir.scalar.expression import Affine

WARP = 32
MOST_THREADS = 1024
"""The most threads of a block."""
ACCESS = 16
"""The bytes of the widest access to memory."""
MOST_WIDTH = 8
"""The most neighbors of a thread: the 16-bit elements of one access."""
BLOCK = 256
"""The threads of a block of several teams."""
MOST_STEPS, FEW_STEPS = 32, 8
"""The most steps that are unrolled. Arrays stay in registers only in unrolled loops. So many are
unrolled of a row of symbolic length, at least."""
STATIC_SHARED = 48 << 10
"""The bytes of shared memory that a kernel may declare statically."""


@attrs.frozen
class ThreadLayout:
    """The layout of a kernel's threads: teams, and the points that a thread takes at a time."""

    team: int
    """The threads of a row, or of `width` neighboring rows: a power of two."""
    width: int
    """The neighbors that a thread takes at a time."""
    teams: int
    """The teams of a block; 1 if a team along its row has more threads than a warp."""
    along: bool = True
    """Whether the neighbors are points of one row. Else they are neighboring rows, and the teams
    of a block lie side by side."""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.team * self.teams

    @property
    def side(self) -> int:
        """The distance in the block between neighboring threads of a team."""
        return 1 if self.along else self.teams

    @property
    def pitch(self) -> int:
        """The neighboring threads that shared memory does not combine: those of a warp, or teams
        side by side."""
        return WARP if self.along else self.teams

    def most_points(self, points: Size) -> int | None:
        """Returns the most points of a row of symbolic length whose values may stay in registers:
        those of the hint, with some more; None where that are too many."""
        pace = self.team * (self.width if self.along else 1)
        steps = max(power_above(-(-hint_of(points) // pace)), FEW_STEPS)
        return steps * pace if steps <= MOST_STEPS else None


def width_along(kernel: Kernel, axis: int, *, by_hint: bool = False) -> int:
    """Returns how many neighbors along an axis a thread takes, so that accesses are wide. By the
    hint these are those of the text for sizes that they divide, as the hint's."""
    if axis < 0:  # a kernel of one point
        return 1
    extent = kernel.extents[axis]
    return divisor_of(hint_of(extent) if by_hint else extent, most_width(kernel, axis))


def most_width(kernel: Kernel, axis: int) -> int:
    """Returns the neighbors along an axis that an access of the widest kind has."""
    sizes = [
        item
        for address, item in accesses(kernel)
        if _step(address, axis) == 1 and not _is_read(address, axis)
    ]
    return min(ACCESS // min(sizes, default=ACCESS), MOST_WIDTH)


def accesses(kernel: Kernel) -> list[tuple[Affine, int]]:
    """Returns (address, bytes of an element) of a kernel's loads and stores."""
    loads = [(value.args[1], value.dtype.itemsize) for value in loads_of(kernel)]
    return loads + [(store.address, store.value.dtype.itemsize) for store in stores_of(kernel)]


def is_vector(address: Affine, axis: int, width: int) -> bool:
    """Whether aligned groups of `width` neighbors along an axis are aligned in memory."""
    if _step(address, axis) != 1:
        return False
    others = [c for k, c in enumerate(address.coefficients) if k != axis]
    others += [address.start, *[step for _, step in address.dynamic]]
    return all(divisor_of(c, width) == width for c in others) and not _is_read(address, axis)


def _step(address: Affine, axis: int) -> int:
    return address.coefficients[axis] if axis < len(address.coefficients) else 0


def _is_read(address: Affine, axis: int) -> bool:
    """Whether a loaded position may differ between neighbors along the axis."""
    return any(varies_along(value, axis) for value, _ in address.dynamic)


# ---------------------------------------------------------------------------------------- layouts
def layout_of(kernel: Kernel, multiprocessors: int) -> tuple[ThreadLayout, int]:
    """Returns the layout of a kernel whose lanes are set, and the axis of a thread's neighbors."""
    last, rows = len(kernel.extents) - 1, hint_of(math.prod(kernel.extents[: kernel.space]))
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
    """Whether neighboring threads have neighboring rows."""
    k = kernel.vector
    return k is not None and k < kernel.space and not in_order(kernel) and not is_in_order(kernel)


def _of_columns(kernel: Kernel, axis: int, lanes: int) -> ThreadLayout:
    width = width_along(kernel, axis)
    most = BLOCK if lanes == 1 else WARP
    beside = threads_beside(hint_of(kernel.extents[axis]), width, most)
    return ThreadLayout(min(lanes, BLOCK // beside), width, beside, along=False)


def hands_over(kernel: Kernel, layout: ThreadLayout) -> bool:
    """Whether threads may access memory that other threads of the row, or of the next row, wrote:
    then barriers are needed.

    A buffer that is accessed at one element-level address only is private to threads, since all
    passes give a point to the same thread. So is a row's store, which one thread does.
    """
    lanes = {each.lanes for each in kernel.body if type(each) is Reduce}
    width = layout.width if layout.along else 1
    if len(lanes) > 1 or min(lanes, default=MOST_THREADS * width) < layout.team * width:
        return any(map(_is_shared, _accessed(kernel).values()))
    return any(len(set(found)) > 1 for found in _accessed(kernel).values())


def _is_shared(found: list[_Access]) -> bool:
    return len(found) > 1


_Access = tuple[Affine, bool | None]
"""(address, who accesses it: True, one thread of a row; False, the thread of each point; None, all
threads of a row)."""


def _accessed(kernel: Kernel) -> dict[int, list[_Access]]:
    """Returns the accesses of a kernel to the buffers that it writes."""
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
    """Returns the number of threads side by side that have `width` neighboring rows each."""
    return min(power_above(extent // width), most)


def power_above(number: int) -> int:
    """Returns the least power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def is_in_order(kernel: Kernel) -> bool:
    """Whether the points of a row must come one after the other: in a scan, or if several store at
    one address."""
    inner = range(kernel.space, len(kernel.extents))
    stores = [each for each in stores_of(kernel) if not each.each_row]
    scans = any(type(each) is Scan for each in kernel.body)
    return scans or not apart(stores, kernel.extents, inner)


def most_team(kernel: Kernel, width: int) -> int:
    """Returns the most threads whose partial results of one pass fit into shared memory."""
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
    """Returns the teams of a block: enough threads, but at least one block a multiprocessor."""
    if team > WARP:
        return 1
    teams = BLOCK // team
    while teams * team > WARP and units < teams * multiprocessors:
        teams //= 2
    return teams


def is_stored_once(stores: Sequence[Store], buffer: int) -> bool:
    """Whether exactly one store goes to the buffer."""
    return sum([each.buffer == buffer for each in stores]) == 1
