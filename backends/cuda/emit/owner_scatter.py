"""Stores at positions that are read, in parallel and in order: a thread owns stripes of addresses.

Every thread of a row goes over all inner points in ascending order and computes where they store,
but values only of what lies in its own stripes. So what is stored at one address is combined by one
thread, in the order of the IR (K-7), without atomics. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aotlite.backends.c_family.integer_bounds import IntegerBounds
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts, KernelFacts
from aotlite.backends.cuda.emit.kernel_code import IndexTypes, KernelCode
from aotlite.backends.cuda.emit.memory_accesses import swept
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.analysis.expression_facts import facts as facts_of
from aotlite.backends.loops.program import ProgramBuffer, Statement, Store, values_of

THREADS = 128
UPDATE = 1000
"""Cycles that one update takes, which waits for memory."""
LOOK = 10
"""Cycles of a warp for looking where one point stores."""
ISSUED = 4
"""Warps that a multiprocessor lets go on in one cycle."""


def is_by_stripes(body: Sequence[Statement], geometry: LoopGeometry) -> bool:
    """Whether a kernel does nothing but store at positions that are read, along inner axes."""
    if len(body) != 1 or geometry.ordered or not geometry.points or geometry.points == 1:
        return False
    (store,) = body
    if type(store) is not Store or store.each_row or not store.address.dynamic:
        return False
    loaded = {load.args[0] for value in values_of(store) for load in facts_of(value).loads}
    return store.buffer not in loaded


class OwnerScatter:
    """The loop of a thread over the points of a row, of which some are its own."""

    def __init__(
        self,
        geometry: LoopGeometry,
        facts: KernelFacts,
        store: Store,
        buffers: Mapping[int, ProgramBuffer],
        library: FunctionTexts,
    ) -> None:
        self.geometry, self.facts, self.store = geometry, facts, store
        self.size = buffers[store.buffer].size
        self.index = IndexTypes.of(facts.extents, [store])
        self.constants = CScope(None)
        kinds = {number: buffer.dtype for number, buffer in buffers.items()}
        self.body = Body(geometry, facts, kinds, library, self.constants)
        self.body.writer.special = IntegerBounds().text
        self.rows = math.prod(geometry.extents[: geometry.space])

    def printed(self, target: Target) -> KernelCode:
        """The body of the kernel: threads side by side have rows side by side."""
        stripes = self._stripes(target)
        units, kind = self.rows * stripes, self.index.item
        head = (
            f"for ({kind} unit = ({kind})blockIdx.x * {THREADS} + threadIdx.x; unit < {units}; "
            f"unit += ({kind})gridDim.x * {THREADS}) {{"
        )
        space = range(self.geometry.space)
        names = ["stripe", *[f"i{k}" for k in space]]
        extents = [stripes, *[self.geometry.extents[k] for k in space]]
        places = self.index.digits(names, extents, "unit")
        row = CScope(self.constants, (1 << self.geometry.space) - 1)
        points = self._points(row, stripes)
        lines = [*self.constants.lines, head, *places, *row.lines, *points, "}"]
        fast = self.geometry.space - 1 if self.geometry.space else None
        sweep = swept((), [self.store], self.facts, fast)
        return KernelCode(lines, -(-units // THREADS), THREADS, sweeps=(sweep,))

    def _points(self, row: CScope, stripes: int) -> list[str]:
        inner = self.geometry.inner
        axes = sum(1 << k for k in inner)
        # Beside each other: in a scope around it the value would be computed for all stripes.
        scope, own = CScope(row, axes), CScope(row, axes, branch=True)
        address = self.body.writer.address(self.store.address, scope)
        self.body.stores([self.store], own)
        extents = [self.geometry.extents[k] for k in inner]
        kind = self.index.item
        return [
            "#pragma unroll 4",
            f"for ({kind} point = 0; point < {self.geometry.points}; ++point) {{",
            *self.index.digits([f"i{k}" for k in inner], extents, "point"),
            *scope.lines,
            f"const {kind} place = ({kind})({address});",
            f"if (place / {self._grain()} % {stripes} == stripe) {{",
            *own.lines,
            *("}", "}"),
        ]

    def _grain(self) -> int:
        """Neighbouring addresses that are of one stripe: those of neighbouring rows."""
        return _grain(self.store)

    def _stripes(self, target: Target) -> int:
        return _stripes(self.rows, self.geometry.points, -(-self.size // self._grain()), target)


def cycles(rows: int, points: int, store: Store, size: int, target: Target) -> int:
    """What the loops of all threads take, roughly: looking at all points, updating their own."""
    stripes = _stripes(rows, points, -(-size // _grain(store)), target)
    waves = -(-rows * stripes // (target.multiprocessors * ISSUED * 32))
    return points * LOOK * waves + points * UPDATE // stripes


def _grain(store: Store) -> int:
    return max(min(abs(step) for _, step in store.address.dynamic), 1)


def _stripes(rows: int, points: int, places: int, target: Target) -> int:
    """As many as make looking and updating take the same time; no more than there are."""
    ready = target.multiprocessors * ISSUED * 32
    wanted = math.isqrt(UPDATE * ready // (LOOK * max(rows, 1)))
    return max(1, min(wanted, places, points))
