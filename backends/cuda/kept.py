"""What a thread of a team keeps from one pass over its points to the next.

Input: a kernel's statements and its layout; output: how many bytes of each point may stay, and
which loads do. A row is then read once. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotlite.backends.c_family.emit_geometry import Geometry
from aotlite.backends.c_family.emit_passes import Pass, Passes
from aotlite.backends.c_family.emit_scalar import Facts
from aotlite.backends.cuda.layout import (
    ACCESS,
    MOST_THREADS,
    STATIC_SHARED,
    Layout,
    is_stored_once,
)
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.expr import Scalar
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store

MOST_KEPT = 64
"""Registers of a thread for what is kept."""
OTHERS = 32
"""Registers of a thread for all else."""
MOST_STEPS = 32
"""Steps that are written out."""


class Keeping:
    """What stays in registers, or in shared memory where there is no room."""

    def __init__(
        self,
        body: Sequence[Statement],
        facts: Facts,
        layout: Layout,
        geometry: Geometry,
        axis: int,
        target: Target,
    ) -> None:
        self.facts, self.layout, self.axis, self.space = facts, layout, axis, geometry.space
        stride = layout.width if layout.along else 1
        self.points = max(geometry.points, 1)
        self.steps = -(-self.points // (layout.team * stride))
        self.budget = self._budget(body, target) if self.steps <= MOST_STEPS else 0
        self.sums = self._sums(body, geometry)
        """Stores that combine in registers, while rows go one after the other."""
        self.budget -= sum([each.value.dtype.itemsize for each in self.sums])
        self.loads: set[Scalar] = set()
        """Loads that stay."""
        self.shared: dict[Scalar, int] = {}
        """Those of them that stay in shared memory, each in places of its own thread; where."""
        self.shared_bytes, self.room = 0, self._room(target) if self.budget else 0
        self.is_any = False

    def _budget(self, body: Sequence[Statement], target: Target) -> int:
        """Bytes of each point that a thread has registers for."""
        lanes = [each.lanes for each in body if type(each) is Reduce]
        width = self.layout.width if self.layout.along else 1
        in_order = any(type(each) is Scan for each in body)
        if in_order or any(each < self.layout.team * width for each in lanes):
            return 0
        room = min(target.registers // self.layout.threads - OTHERS, MOST_KEPT)
        return 4 * max(room, 0) // (self.steps * self.layout.width)

    def _room(self, target: Target) -> int:
        """Bytes of shared memory for what is kept: of a multiprocessor's, as much as of threads."""
        free = max(target.shared - STATIC_SHARED, 0)
        return free * min(self.layout.threads, MOST_THREADS) // MOST_THREADS

    def _bytes(self, load: Scalar) -> int:
        """Of the neighbours that all threads of a block load."""
        count = self.steps * self.layout.threads * self.layout.width
        return -(-count * load.dtype.itemsize // ACCESS) * ACCESS

    def _sums(self, body: Sequence[Statement], geometry: Geometry) -> list[Store]:
        """Those whose partial results a thread has room for; rows in order store where they do."""
        stores = [
            each for each in body if type(each) is Store and each.combine and not each.each_row
        ]
        plain = [each for each in stores if is_stored_once(stores, each.buffer)]
        size = sum([each.value.dtype.itemsize for each in plain])
        return plain if geometry.ordered and 2 * size <= self.budget else []

    def choose(self, found: Passes) -> None:
        """Sets the loads that stay: those that several passes need, while there is room."""
        order = [each for stage in found.stages for each in stage.passes]
        uses, live = self._uses(order, set(found.kept))
        several = {load: places for load, places in uses.items() if len(places) > 1}
        for load, places in sorted(several.items(), key=lambda item: item[1][0]):
            span = range(places[0], places[-1])
            if all(live[k] + load.dtype.itemsize <= self.budget for k in span):
                self.loads.add(load)
                for k in span:
                    live[k] += load.dtype.itemsize
            elif self.shared_bytes + self._bytes(load) <= self.room:
                self.loads.add(load)
                self.shared[load] = self.shared_bytes
                self.shared_bytes += self._bytes(load)
        self.is_any = bool(self.loads or found.kept or self.sums)

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
            ready |= computed & kept
        live = [0] * len(order)
        for scalar, found in places.items():
            for k in range(found[0], found[-1]):
                live[k] += scalar.dtype.itemsize
        return uses, live

    def _computed(self, roots: Iterable[Scalar], ready: set[Scalar]) -> set[Scalar]:
        """All that a pass computes, and what it takes from those before it, but not its parts."""
        found: set[Scalar] = set()
        todo = list(roots)
        while todo:
            scalar = todo.pop()
            if scalar not in found:
                found.add(scalar)
                todo += [] if scalar in ready else self.facts.computed_for(scalar)
        return found

    def is_loaded_ahead(self, scalar: Scalar) -> bool:
        """Whether it is loaded for all points of some steps before any of them is computed."""
        if scalar.op != "load" or not self.facts.safe(scalar):
            return False
        address = scalar.args[1]
        own = address.coefficients[self.axis : self.axis + 1]
        moves = any(address.coefficients[self.space :])
        return moves and (self.layout.width == 1 or own != (0,))


def steps_at_once(sizes: Iterable[int], width: int, lanes: int, room: int) -> int:
    """Steps of a loop's body: so many bytes are under way at once, and a thread's lanes done."""
    wanted = room // max(sum(sizes) * width, 16)
    return lanes * max(1 << max(wanted.bit_length() - 1, 0) >> (lanes.bit_length() - 1), 1)
