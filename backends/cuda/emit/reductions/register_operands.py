"""What a thread of a team keeps from one pass over its points to the next.

Input: a kernel's statements and its layout; output: how many bytes of each point may stay, and
which loads do. A row is then read once. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotlite.backends.c_family.axis_passes import Pass, Passes
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.cuda.emit.reductions.thread_layout import (
    ACCESS,
    STATIC_SHARED,
    ThreadLayout,
    is_stored_once,
)
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.expr import Scalar
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store, values_of

MOST_KEPT = 64
"""Registers of a thread for what is kept."""
OTHERS, OF_NEIGHBOUR, OTHERS_WIDE = 24, 2, 72
"""Registers of a thread for all else, and more for each of its neighbours; the third is all where
it computes with 64 bits."""
RESERVED = 1 << 10
"""Bytes of shared memory that each block takes beside its own."""
MOST_STEPS = 32
"""Steps that are written out."""


class RegisterOperands:
    """What stays in registers, or in shared memory where there is no room."""

    def __init__(
        self,
        body: Sequence[Statement],
        facts: KernelFacts,
        layout: ThreadLayout,
        geometry: LoopGeometry,
        axis: int,
        target: Target,
    ) -> None:
        self.facts, self.layout, self.axis, self.space = facts, layout, axis, geometry.space
        stride = layout.width if layout.along else 1
        self.points = max(geometry.points, 1)
        self.steps = -(-self.points // (layout.team * stride))
        is_kept = self.steps <= MOST_STEPS and not self._is_looped(body)
        self.budget = self._budget(body, target) if is_kept else 0
        """Bytes of each point that a thread has registers for."""
        self.shared_bytes, self.room = 0, self._room(body, target) if is_kept else 0
        self.sums: list[Store] = []
        """Stores that combine where the thread keeps what it combines, while rows go one after the
        other."""
        self.shared_sums: dict[int, int] = {}
        """Those of them that do so in shared memory, by buffer; where."""
        if geometry.ordered:
            self._keep_sums(body)
        self.loads: set[Scalar] = set()
        """Loads that stay."""
        self.shared: dict[Scalar, int] = {}
        """Those of them that stay in shared memory, each in places of its own thread; where."""
        self.is_any = False

    def _is_looped(self, body: Sequence[Statement]) -> bool:
        """Whether a thread goes over its points in loops that are not written out."""
        lanes = [each.lanes for each in body if type(each) is Reduce]
        width = self.layout.width if self.layout.along else 1
        in_order = any(type(each) is Scan for each in body)
        return in_order or any(each < self.layout.team * width for each in lanes)

    def _budget(self, body: Sequence[Statement], target: Target) -> int:
        others = registers_of_others(body, self.layout.width)
        room = target.registers // self.layout.threads - others
        return 4 * max(min(room, MOST_KEPT), 0) // (self.steps * self.layout.width)

    def _room(self, body: Sequence[Statement], target: Target) -> int:
        """Bytes of shared memory for what is kept: of a multiprocessor's what combining leaves, in
        as many parts as there are blocks whose registers are full."""
        sizes = [v.dtype.itemsize for each in body if type(each) is Reduce for v in each.values]
        used = sum(sizes) * (self.layout.threads + self.layout.pitch) * self.layout.width
        free = target.shared - min(used + RESERVED, STATIC_SHARED)
        others = registers_of_others(body, self.layout.width)
        blocks = target.registers // (others + MOST_KEPT) // self.layout.threads
        return max(free, 0) // max(blocks, 1)

    def _bytes(self, itemsize: int) -> int:
        """Of the neighbours of all threads of a block."""
        count = self.steps * self.layout.threads * self.layout.width
        return -(-count * itemsize // ACCESS) * ACCESS

    def _place(self, itemsize: int) -> int | None:
        """Where in shared memory all threads keep such an element of each point, if it has room."""
        place, after = self.shared_bytes, self.shared_bytes + self._bytes(itemsize)
        if after > self.room:
            return None
        self.shared_bytes = after
        return place

    def _keep_sums(self, body: Sequence[Statement]) -> None:
        """Those that there is room for, in half of the registers or else in shared memory."""
        stores = [
            each for each in body if type(each) is Store and each.combine and not each.each_row
        ]
        left = self.budget // 2
        for each in stores:
            size = each.value.dtype.itemsize
            if not is_stored_once(stores, each.buffer):
                continue
            if size <= left:
                left, self.budget = left - size, self.budget - size
            else:
                place = self._place(size)
                if place is None:
                    continue
                self.shared_sums[each.buffer] = place
            self.sums.append(each)

    def choose(self, found: Passes) -> None:
        """Sets the loads that stay, of those that several passes need: first what rows have of
        their own, and of that what most passes need, while there is room."""
        order = [each for stage in found.stages for each in stage.passes]
        uses, live = self._uses(order, set(found.kept))
        several = [load for load, places in uses.items() if len(places) > 1]
        for load in sorted(several, key=lambda load: (not self._is_own(load), -len(uses[load]))):
            span, size = range(uses[load][0], uses[load][-1]), load.dtype.itemsize
            if all(live[k] + size <= self.budget for k in span):
                self.loads.add(load)
                for k in span:
                    live[k] += size
            elif self._is_own(load):
                place = self._place(size)
                if place is not None:
                    self.loads.add(load)
                    self.shared[load] = place
        self.is_any = bool(self.loads or found.kept or self.sums)

    def _is_own(self, load: Scalar) -> bool:
        """Whether rows load it at addresses of their own; else it is found in a cache."""
        address = load.args[1]
        return bool(address.dynamic) or any(address.coefficients[: self.space])

    def _uses(
        self, order: Sequence[Pass], kept: set[Scalar]
    ) -> tuple[dict[Scalar, list[int]], list[int]]:
        """The passes that need each load; the bytes of computed values that live behind each."""
        uses: dict[Scalar, list[int]] = {}
        places: dict[Scalar, list[int]] = {}
        ready: set[Scalar] = set()
        for k, each in enumerate(order):
            computed = self._computed(each.roots, ready)
            for scalar in computed:
                if self.is_loaded_ahead(scalar):
                    uses.setdefault(scalar, []).append(k)
                elif scalar in kept:
                    places.setdefault(scalar, []).append(k)
            ready |= computed.keys() & kept
        live = [0] * len(order)
        for scalar, found in places.items():
            for k in range(found[0], found[-1]):
                live[k] += scalar.dtype.itemsize
        return uses, live

    def _computed(self, roots: Iterable[Scalar], ready: set[Scalar]) -> dict[Scalar, None]:
        """All that a pass computes, and what it takes from those before it, but not its parts; in
        an order that is always the same."""
        found: dict[Scalar, None] = {}
        todo = list(roots)[::-1]
        while todo:
            scalar = todo.pop()
            if scalar not in found:
                found[scalar] = None
                todo += [] if scalar in ready else self.facts.computed_for(scalar)[::-1]
        return found

    def is_loaded_ahead(self, scalar: Scalar) -> bool:
        """Whether it is loaded for all points of some steps before any of them is computed."""
        if scalar.op != "load" or not self.facts.safe(scalar):
            return False
        address = scalar.args[1]
        own = address.coefficients[self.axis : self.axis + 1]
        moves = any(address.coefficients[self.space :])
        return moves and (self.layout.width == 1 or own != (0,))


def registers_of_others(body: Sequence[Statement], width: int) -> int:
    """Registers of a thread for what is not kept, if it takes so many neighbours at a time."""
    return OTHERS_WIDE if computes_wide(body) else OTHERS + OF_NEIGHBOUR * width


def computes_wide(body: Sequence[Statement]) -> bool:
    """Whether a kernel computes with floats of 64 bits, each of which takes two registers."""
    kinds = {value.dtype for each in body for value in values_of(each)}
    return any(kind.is_floating_point and kind.itemsize > 4 for kind in kinds)


def steps_at_once(sizes: Iterable[int], width: int, lanes: int, room: int) -> int:
    """Steps of a loop's body: so many bytes are under way at once, and a thread's lanes done."""
    wanted = room // max(sum(sizes) * width, 16)
    return lanes * max(1 << max(wanted.bit_length() - 1, 0) >> (lanes.bit_length() - 1), 1)
