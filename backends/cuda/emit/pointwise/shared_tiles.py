"""Transposition through shared memory, for loads with stride 1 along another axis than the vectors.

A block computes square tiles of the two axes. It loads the operand along its own axis into shared
memory, waits, and goes over the tile along the vector axis, so that all accesses to global memory
are coalesced. Rows of a tile are padded by one word, which puts a column's elements into different
banks. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.c_family.c_types import from_memory, memory_type
from aotlite.backends.c_family.scalar_text import CScope, KernelFacts, LocalElement
from aotlite.backends.cuda.emit.kernel_code import divisor_of
from aotlite.backends.cuda.emit.pointwise.contiguous_runs import (
    BYTES,
    ContiguousRun,
    ThreadMapping,
    run_of,
)
from aotlite.backends.cuda.emit.pointwise.vector_body import Vector, VectorPhase
from aotlite.backends.cuda.emit.pointwise.vector_versions import VectorVersions
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import Store, values_of
from aotlite.ir import dtypes
from aotlite.ir.geometry.sizes import Size, hint_of
from aotlite.ir.scalar.expression import Scalar

THREADS = 256
LEAST = 8
"""Tiles pay if both axes have at least so many points."""
SIDE, SHORT_SIDE = 64, 32
"""The points of a tile along each axis."""
SHARED = 40 << 10
"""The most bytes of the tiles of a block."""
LINE = 8
"""Threads that access 128 neighboring bytes; a warp has four such groups, in different banks."""
HEAVY = 400
"""From so many operations of a vector on, the loop over a thread's vectors is not unrolled."""


@attrs.frozen
class Staged:
    """A load that goes through a tile."""

    load: Scalar
    name: str
    run: ContiguousRun | None
    """The wide access along its own axis; None if it is loaded by elements."""

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        size: int = self.load.dtype.itemsize
        return size


def across(
    stores: Sequence[Store], facts: KernelFacts, vector: int
) -> tuple[int, list[Scalar]] | None:
    """Returns the other axis along which most loads have stride 1, and those loads; None if none
    lies across the vector axis."""
    extents = facts.extents
    if hint_of(extents[vector]) < LEAST:
        return None
    roots = [value for store in stores for value in values_of(store)]
    found: dict[int, list[Scalar]] = {}
    for each in facts.in_order(roots):
        if each.op != "load" or not facts.safe(each):
            continue
        coefficients = each.args[1].coefficients
        ones = [k for k, c in enumerate(coefficients) if c == 1 and is_axis(extents[k])]
        if len(ones) != 1 or hint_of(extents[ones[0]]) < LEAST:
            continue
        if abs(hint_of(coefficients[vector])) >= LEAST:
            found.setdefault(ones[0], []).append(each)
    return max(found.items(), key=lambda item: len(item[1]), default=None)


class SharedTiles:
    """Prints the loop of a block over tiles."""

    def __init__(
        self,
        spread: ThreadMapping,
        other: tuple[int, list[Scalar]],
        vector: Vector,
        versions: VectorVersions,
        stores: Sequence[Store],
    ) -> None:
        self.spread, self.vector, self.versions, self.stores = spread, vector, versions, stores
        self.axis, loads = other
        self.index, self.body = vector.index, vector.body
        self.sizes: Mapping[int, int] = self.body.facts.sizes
        self.staged = [
            Staged(load, f"tile{number}", self._run(load)) for number, load in enumerate(loads)
        ]
        self.side = self._side()
        vector.staged = {each.load: self._place(each) for each in self.staged}

    @property
    def tiles(self) -> Size:
        """The number of tiles."""
        extents = [self.spread.extents[k] for k in self._outer()]
        count = self._parts(self.axis) * self._parts(self.spread.vector)
        for extent in extents:
            count *= extent
        return count

    def declared(self) -> list[str]:
        """Returns the declarations of the tiles in shared memory."""
        return [
            f"__shared__ {memory_type(each.load.dtype)} "
            f"{each.name}[{self.side * self._pitch(each)}];"
            for each in self.staged
        ]

    def loop(self, *, wide: bool) -> list[str]:
        """Returns the loop. `wide`: with accesses of 16 bytes where strides allow them."""
        inside: list[str] = []
        for each in self.staged:
            inside += self._wide_stage(each) if wide and each.run else self._stage(each)
        if wide and self.vector.has_runs(self.stores):
            compute = self._vectors()
        else:
            compute = self._ones()
        kind = self.index.item
        head = f"for ({kind} tile = blockIdx.x; tile < {self.tiles}; tile += gridDim.x) {{"
        barrier = "__syncthreads();"
        return [head, *self._places(), *inside, barrier, *compute, barrier, "}"]

    # --- geometry
    def _outer(self) -> list[int]:
        return [k for k in self.spread.order if k not in (self.axis, self.spread.vector)]

    def _parts(self, axis: int) -> Size:
        return -(-self.spread.extents[axis] // self.side)

    def _side(self) -> int:
        """Returns the points along a side: 64 if they fit and both axes are long enough."""
        nbytes = sum(each.itemsize for each in self.staged) * SIDE * (SIDE + 4)
        sides = [hint_of(self.spread.extents[k]) for k in (self.axis, self.spread.vector)]
        short = min(sides) <= SHORT_SIDE
        return SHORT_SIDE if short or nbytes > SHARED else SIDE

    def _pitch(self, each: Staged) -> int:
        """Returns the elements from one row of a tile to the next, padding included."""
        return self.side + max(4 // each.itemsize, 1)

    def _run(self, load: Scalar) -> ContiguousRun | None:
        """Returns the access of 16 bytes along a load's own axis; None if strides forbid it."""
        number, address = load.args
        width = BYTES // load.dtype.itemsize
        order = [*[k for k in self.spread.order if k != self.axis], self.axis]
        along = attrs.evolve(self.spread, order=tuple(order), width=width, patch=None)
        run = run_of(number, address, along, self.sizes[number], exact=True)
        even = divisor_of(self.spread.extents[self.axis], width) == width
        return run if run is not None and run.width == width and even else None

    def _places(self) -> list[str]:
        """Returns the declarations of a tile's position."""
        u, k = self.axis, self.spread.vector
        names = [*[f"i{axis}" for axis in self._outer()], f"part{u}", f"part{k}"]
        extents = [*[self.spread.extents[axis] for axis in self._outer()]]
        found = self.index.digits(names, [*extents, self._parts(u), self._parts(k)], "tile")
        kind = self.index.position
        return [*found, *[f"const {kind} base{x} = part{x} * {self.side};" for x in (u, k)]]

    def _place(self, each: Staged) -> LocalElement:
        """Returns the place in a tile of the element at a point."""
        u, k = self.axis, self.spread.vector
        text = f"{each.name}[(i{k} - base{k}) * {self._pitch(each)} + i{u} - base{u}]"
        dtype = each.load.dtype
        found = text if dtype is dtypes.bool_ else from_memory(dtype, text)
        return LocalElement(1 << k | 1 << u, lambda scope: found, dtype)

    # --- loading
    def _stage(self, each: Staged) -> list[str]:
        """Prints the loading of a tile by elements; neighboring threads load neighbors."""
        u, k = self.axis, self.spread.vector
        place = self._address(each, each.load.args[1].start)
        own = f"(i{k} - base{k}) * {self._pitch(each)} + i{u} - base{u}"
        return [
            *self._turns(self.side**2, "#pragma unroll 4"),
            *self._positions(k, f"p / {self.side}", u, f"p % {self.side}"),
            f"if ({self._inside(k)} && {self._inside(u)}) {each.name}[{own}] = *({place});",
            "}",
        ]

    def _wide_stage(self, each: Staged) -> list[str]:
        """Prints the loading of a tile by 16 bytes: all loads of a thread come first, then its
        stores to the tile."""
        u, k, run = self.axis, self.spread.vector, each.run
        assert run is not None
        width, vectors = run.width, self.side**2 // run.width
        turns = -(-vectors // THREADS)
        kind = f"many<{memory_type(each.load.dtype)}, {width}>"
        self.vector.masks[run.buffer] = BYTES - 1
        guard = [f"{self._inside(k)} && {self._inside(u)}"]
        if vectors < THREADS:
            guard.insert(0, f"p < {vectors}")
        row, column = self._vector_places(width)
        places = self._positions(k, row, u, column)
        loop = self._turns(vectors, "#pragma unroll")
        test = f"if ({' && '.join(guard)})"
        own = f"(i{k} - base{k}) * {self._pitch(each)} + i{u} - base{u}"
        name = f"w_{each.name}"
        return [
            f"{kind} {name}[{turns}];",
            *(*loop, *places),
            f"{test} {name}[n] = fetched<{width}>({self._address(each, run.address.start)});",
            *("}", *loop, *places, f"{test} {{"),
            "#pragma unroll",
            f"for (i32 e = 0; e < {width}; ++e) {each.name}[{own} + e] = {name}[n].at[e];",
            *("}", "}"),
        ]

    def _address(self, each: Staged, start: Size) -> str:
        number, address = each.load.args
        scope = CScope(None, (1 << len(self.spread.extents)) - 1)
        moved = attrs.evolve(address, start=start)
        return f"b{number} + ({self.body.writer.address(moved, scope)})"

    def _vector_places(self, width: int) -> tuple[str, str]:
        """Returns the row and first column of a thread's vector in a tile: eight threads take
        neighbors, the next eight the next row."""
        line = min(LINE, self.side // width)
        rest = f" + p / {line * self.side} * {line}" if self.side > line * width else ""
        return f"p / {line} % {self.side}", f"(p % {line}{rest}) * {width}"

    def _positions(self, first: int, row: str, second: int, column: str) -> list[str]:
        kind = self.index.position
        return [
            f"const {kind} i{first} = base{first} + {row};",
            f"const {kind} i{second} = base{second} + {column};",
        ]

    def _inside(self, axis: int) -> str:
        return f"i{axis} < {self.spread.extents[axis]}"

    # --- computing
    def _vectors(self) -> list[str]:
        """Prints the vectors of a tile along the vector axis."""
        u, k, width = self.axis, self.spread.vector, self.spread.width
        vectors = self.side**2 // width
        scope = CScope(self.body.row, self._known() & ~(1 << k))
        self.versions.print(self.stores, scope, VectorPhase.BOTH)
        kind = self.index.position
        row, column = self._vector_places(width)
        light = width * self.vector.operations <= HEAVY
        guard = f"p < {vectors} && " if vectors < THREADS else ""
        return [
            *self._turns(vectors, "#pragma unroll" if light else "#pragma unroll 1"),
            f"const {kind} i{u} = base{u} + {row};",
            f"const {kind} v{k} = base{k} + {column};",
            f"if ({guard}{self._inside(u)} && v{k} < {self.spread.extents[k]}) {{",
            *scope.lines,
            *("}", "}"),
        ]

    def _ones(self) -> list[str]:
        """Prints the points of a tile one by one; neighboring threads take neighbors."""
        u, k = self.axis, self.spread.vector
        scope = CScope(self.body.row, self._known())
        self.vector.one(self.stores, scope)
        few = "#pragma unroll 4" if self.vector.operations <= HEAVY // 4 else "#pragma unroll 1"
        return [
            *self._turns(self.side**2, few),
            *self._positions(u, f"p / {self.side}", k, f"p % {self.side}"),
            f"if ({self._inside(u)} && {self._inside(k)}) {{",
            *scope.lines,
            *("}", "}"),
        ]

    def _turns(self, count: int, unrolled: str) -> list[str]:
        """Returns the head of a thread's loop over its share of `count` items."""
        turns = -(-count // THREADS)
        point = f"const u32 p = threadIdx.x + n * {THREADS};"
        return [unrolled, f"for (u32 n = 0; n < {turns}; ++n) {{", point]

    def _known(self) -> int:
        return (1 << len(self.spread.extents)) - 1
