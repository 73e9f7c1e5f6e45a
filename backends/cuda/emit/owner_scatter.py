"""Deterministic scatter: each thread owns stripes of addresses, and needs no atomics.

    for (point = 0; point < n; ++point) {              // each thread looks at all points, in order
        place = index[point];
        if (place / grain % stripes == stripe) b1[place] += value;       // only in its own stripes
    }

Values of one address are combined by one thread, in the order of the IR (K-7), so that the bits are
the same at each call. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.c_family.integer_bounds import IntegerBounds
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts, KernelFacts
from aotlite.backends.cuda.emit.kernel_code import IndexTypes, KernelCode, is_sized
from aotlite.backends.cuda.emit.memory_accesses import swept
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.analysis.expression_facts import facts as facts_of
from aotlite.backends.loops.program import ProgramBuffer, Statement, Store, values_of
from aotlite.ir.geometry.sizes import Size, hint_of, maximum

THREADS = 128
UPDATE = 1000
"""Cycles of one update, which waits for memory."""
LOOK = 10
"""Cycles of a warp for reading the address of one point."""
ISSUED = 4
"""Warps of a multiprocessor that issue an instruction in one cycle."""


def is_by_stripes(body: Sequence[Statement], geometry: LoopGeometry) -> bool:
    """Whether a kernel is a single store at loaded positions along inner axes."""
    if len(body) != 1 or geometry.ordered or not geometry.points or geometry.points == 1:
        return False
    (store,) = body
    if type(store) is not Store or store.each_row or not store.address.dynamic:
        return False
    loaded = {load.args[0] for value in values_of(store) for load in facts_of(value).loads}
    return store.buffer not in loaded


class OwnerScatter:
    """Prints the loop of a thread over all points of a row, of which it stores its own."""

    def __init__(
        self,
        geometry: LoopGeometry,
        facts: KernelFacts,
        store: Store,
        buffers: Mapping[int, ProgramBuffer],
        library: FunctionTexts,
        index: IndexTypes,
    ) -> None:
        self.geometry, self.facts, self.store, self.index = geometry, facts, store, index
        self.size = buffers[store.buffer].size
        self.constants = CScope(None)
        kinds = {number: buffer.dtype for number, buffer in buffers.items()}
        self.body = Body(geometry, facts, kinds, library, self.constants)
        self.body.writer.special = IntegerBounds().text
        self.rows = math.prod(geometry.extents[: geometry.space])

    def printed(self, target: Target) -> KernelCode:
        """Returns the body of the kernel, in which neighboring threads have neighboring rows."""
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
        code = KernelCode(lines, -(-units // THREADS), THREADS, units=units)
        if is_sized(self.geometry.extents, [self.store]):
            return code
        fast = self.geometry.space - 1 if self.geometry.space else None
        return attrs.evolve(code, sweeps=(swept((), [self.store], self.facts, fast),))

    def _points(self, row: CScope, stripes: int) -> list[str]:
        inner = self.geometry.inner
        axes = sum(1 << k for k in inner)
        # Two scopes side by side: nested, the value would be computed for all stripes.
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

    def _grain(self) -> Size:
        """Returns how many neighboring addresses are one stripe: those of neighboring rows."""
        return _grain(self.store)

    def _stripes(self, target: Target) -> int:
        """Returns the number of stripes, by the hints: any number is right."""
        sizes = map(hint_of, (self.rows, self.geometry.points, self.size, self._grain()))
        rows, points, size, grain = sizes
        return _stripes(rows, points, -(-size // grain), target)


def cycles(rows: int, points: int, store: Store, size: int, target: Target) -> int:
    """Returns the estimated cycles of the loops: reading all points, updating their own. The
    numbers are those of hints."""
    stripes = _stripes(rows, points, -(-size // hint_of(_grain(store))), target)
    waves = -(-rows * stripes // (target.multiprocessors * ISSUED * 32))
    return points * LOOK * waves + points * UPDATE // stripes


def _grain(store: Store) -> Size:
    """Returns the least distance of addresses that loaded positions lead to."""
    steps = [abs(step) for _, step in store.address.dynamic]
    return maximum(min(steps, key=hint_of), 1)


def _stripes(rows: int, points: int, places: int, target: Target) -> int:
    """Returns the number of stripes with which reading and updating take about the same time."""
    ready = target.multiprocessors * ISSUED * 32
    wanted = math.isqrt(UPDATE * ready // (LOOK * max(rows, 1)))
    return max(1, min(wanted, places, points))
