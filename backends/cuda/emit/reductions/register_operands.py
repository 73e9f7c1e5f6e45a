"""Register allocation of kernels of rows: values that a thread keeps from one pass to the next.

A softmax loads its row once: a thread holds its share in registers, or in shared memory if those do
not suffice. Input: a kernel's statements and its layout; output: the bytes of each point that may
stay, and the loads that do. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotlite.backends.c_family.axis_passes import Pass, Passes
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import KernelFacts
from aotlite.backends.cuda.emit.reductions.thread_layout import (
    ACCESS,
    MOST_STEPS,
    STATIC_SHARED,
    ThreadLayout,
    is_stored_once,
)
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import Reduce, Scan, Statement, Store, values_of
from aotlite.ir.scalar.expression import Scalar

MOST_KEPT = 64
"""The most registers of a thread for kept values."""
OTHERS, OF_NEIGHBOR, OTHERS_WIDE = 24, 2, 72
"""The registers of a thread for everything else, and more for each of its neighbors; the third
stands for both if it computes with 64-bit floats."""
RESERVED = 1 << 10
"""The bytes of shared memory that CUDA reserves for each block."""


class RegisterOperands:
    """The values that stay in registers, or in shared memory if registers do not suffice."""

    def __init__(
        self,
        body: Sequence[Statement],
        facts: KernelFacts,
        layout: ThreadLayout,
        geometry: LoopGeometry,
        axis: int,
        target: Target,
        most: int | None = None,
    ) -> None:
        """`most`: the most points of a row of symbolic length; None: any number."""
        self.facts, self.layout, self.axis, self.space = facts, layout, axis, geometry.space
        stride = layout.width if layout.along else 1
        self.points = geometry.points if geometry.points else 1
        self.is_bounded = type(self.points) is int or most is not None
        """Whether the steps have a number; a row of any length does not fit into registers."""
        self.steps = -(-(self.points if most is None else most) // (layout.team * stride))
        is_few = self.is_bounded and self.steps <= MOST_STEPS
        is_kept = is_few and not self._is_looped(body)
        self.budget = self._budget(body, target) if is_kept else 0
        """The bytes of each point for which a thread has registers."""
        self.shared_bytes, self.room = 0, self._room(body, target) if is_kept else 0
        self.sums: list[Store] = []
        """Combining stores whose sums a thread keeps while rows come one after the other."""
        self.shared_sums: dict[int, int] = {}
        """For the sums that are kept in shared memory, by buffer, their place there."""
        if geometry.ordered and self.is_bounded:
            self._keep_sums(body)
        self.loads: set[Scalar] = set()
        """The loads that stay."""
        self.shared: dict[Scalar, int] = {}
        """For the loads that stay in shared memory, their place there."""
        self.is_any = False

    def _is_looped(self, body: Sequence[Statement]) -> bool:
        """Whether a thread's loops over its points are not unrolled."""
        lanes = [each.lanes for each in body if type(each) is Reduce]
        width = self.layout.width if self.layout.along else 1
        in_order = any(type(each) is Scan for each in body)
        return in_order or any(each < self.layout.team * width for each in lanes)

    def _budget(self, body: Sequence[Statement], target: Target) -> int:
        others = registers_of_others(body, self.layout.width)
        room = target.registers // self.layout.threads - others
        return 4 * max(min(room, MOST_KEPT), 0) // (self.steps * self.layout.width)

    def _room(self, body: Sequence[Statement], target: Target) -> int:
        """Returns the bytes of shared memory for kept values: the share of one block, with as many
        resident blocks as full registers allow, after the arrays of reductions."""
        sizes = [v.dtype.itemsize for each in body if type(each) is Reduce for v in each.values]
        used = sum(sizes) * (self.layout.threads + self.layout.pitch) * self.layout.width
        free = target.shared - min(used + RESERVED, STATIC_SHARED)
        others = registers_of_others(body, self.layout.width)
        blocks = target.registers // (others + MOST_KEPT) // self.layout.threads
        return max(free, 0) // max(blocks, 1)

    def _bytes(self, itemsize: int) -> int:
        """Returns the bytes of one value of all points of a block."""
        count = self.steps * self.layout.threads * self.layout.width
        return -(-count * itemsize // ACCESS) * ACCESS

    def _place(self, itemsize: int) -> int | None:
        """Reserves shared memory for one value of each point. Returns its place; None if full."""
        if not self.room:
            return None
        place, after = self.shared_bytes, self.shared_bytes + self._bytes(itemsize)
        if after > self.room:
            return None
        self.shared_bytes = after
        return place

    def _keep_sums(self, body: Sequence[Statement]) -> None:
        """Chooses the sums that are kept: in half of the registers, or else in shared memory."""
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
        """Chooses the loads that stay, of those that several passes need. First come loads of the
        row's own elements, and of those the ones that most passes need, while there is room."""
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
        """Whether rows load it at different addresses. Others share it, and find it in a cache."""
        address = load.args[1]
        return bool(address.dynamic) or any(address.coefficients[: self.space])

    def _uses(
        self, order: Sequence[Pass], kept: set[Scalar]
    ) -> tuple[dict[Scalar, list[int]], list[int]]:
        """Returns the passes that need each load, and the bytes of kept values alive after each
        pass."""
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
        """Returns all that a pass computes, without the operands of values that are `ready`; as a
        dict, whose order is deterministic."""
        found: dict[Scalar, None] = {}
        todo = list(roots)[::-1]
        while todo:
            scalar = todo.pop()
            if scalar not in found:
                found[scalar] = None
                todo += [] if scalar in ready else self.facts.computed_for(scalar)[::-1]
        return found

    def is_loaded_ahead(self, scalar: Scalar) -> bool:
        """Whether a scalar is a load that is issued for several steps before they compute."""
        if scalar.op != "load" or not self.facts.safe(scalar):
            return False
        address = scalar.args[1]
        own = address.coefficients[self.axis : self.axis + 1]
        moves = any(address.coefficients[self.space :])
        return moves and (self.layout.width == 1 or own != (0,))


def registers_of_others(body: Sequence[Statement], width: int) -> int:
    """Returns the registers of a thread for everything but kept values."""
    return OTHERS_WIDE if computes_wide(body) else OTHERS + OF_NEIGHBOR * width


def computes_wide(body: Sequence[Statement]) -> bool:
    """Whether a kernel computes with float64, each of which takes two registers."""
    kinds = {value.dtype for each in body for value in values_of(each)}
    return any(kind.is_floating_point and kind.itemsize > 4 for kind in kinds)


def steps_at_once(sizes: Iterable[int], width: int, lanes: int, room: int) -> int:
    """Returns the steps of a loop's body: enough loads in flight, whole sets of lanes."""
    wanted = room // max(sum(sizes) * width, 16)
    return lanes * max(1 << max(wanted.bit_length() - 1, 0) >> (lanes.bit_length() - 1), 1)
