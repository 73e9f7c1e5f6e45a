"""The pointwise template: a grid-stride loop, in which a thread takes vectors of neighbors.

    for (first = blockIdx.x * 256 + threadIdx.x; first < n / 4; first += gridDim.x * 256) {
        const many<m_f32, 4> w1 = fetched<4>(b0 + point);            // 16 bytes at once
        for (e = 0; e < 4; ++e) o2[0].at[e] = ...;                   // unrolled
        put(b1 + point, o2[0]); }

`thread_mapping` chooses the points of a thread, `contiguous_runs` finds wide accesses,
`vector_versions` splits by conditions, `vector_body` prints a vector. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.c_family.axis_passes import cost, with_values
from aotlite.backends.c_family.integer_bounds import IntegerBounds
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.c_family.loop_segments import with_chosen_addresses
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts, KernelFacts
from aotlite.backends.cuda.emit.atomics import AtomicStores
from aotlite.backends.cuda.emit.kernel_code import (
    IndexTypes,
    KernelCode,
    divisor_of,
    is_sized,
)
from aotlite.backends.cuda.emit.memory_accesses import swept
from aotlite.backends.cuda.emit.pointwise.shared_tiles import SharedTiles, across
from aotlite.backends.cuda.emit.pointwise.thread_mapping import (
    PATCH_ROWS,
    PATCH_VECTORS,
    spread_of,
    vector_axis,
)
from aotlite.backends.cuda.emit.pointwise.vector_body import Vector, VectorPhase
from aotlite.backends.cuda.emit.pointwise.vector_versions import VectorVersions
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import BufferKind, ProgramBuffer, Store, values_of
from aotlite.ir.geometry.sizes import Size, hint_of, maximum, minimum
from aotlite.ir.scalar.expression import Scalar, load, walk

THREADS = 256
"""The threads of a block."""
IN_FLIGHT = 64
"""The bytes that a thread loads before it uses the first of them, roughly, to hide latency."""
WAVES = 4
"""The blocks of a grid over the resident ones: faster multiprocessors take more of them."""
OPERATIONS = 1600
"""The most operations of the points that a thread takes at once."""
LIGHT = 300
"""Up to so many operations 64 registers are enough."""


class PointwiseKernel:
    """Prints the loops of a thread over the points of a kernel."""

    def __init__(
        self,
        geometry: LoopGeometry,
        facts: KernelFacts,
        stores: Sequence[Store],
        buffers: Mapping[int, ProgramBuffer],
        library: FunctionTexts,
        target: Target,
        index: IndexTypes,
    ) -> None:
        self.facts, self.buffers, self.target, self.index = facts, buffers, target, index
        self.stores = prepared(stores, facts)
        itemsizes = {number: buffer.dtype.itemsize for number, buffer in buffers.items()}
        axis = vector_axis(self.stores, facts.extents)
        other = None if axis is None else across(self.stores, facts, axis)
        self.spread = spread_of(self.stores, facts, itemsizes, tiles=other is not None)
        self.constants = CScope(None)
        kinds = {number: buffer.dtype for number, buffer in buffers.items()}
        self.body = Body(geometry, facts, kinds, library, self.constants)
        self.body.writer.special = IntegerBounds().text
        self.vector = Vector(self.spread, self.body, self.index, AtomicStores(self.body, library))
        self.versions = VectorVersions(self.spread, facts, self.body, self.vector)
        roots = [value for store in self.stores for value in values_of(store)]
        self.operations = self.vector.operations = sum(map(cost, walk(roots)))
        self.tiles: SharedTiles | None = None
        if other is not None:
            self.tiles = SharedTiles(self.spread, other, self.vector, self.versions, self.stores)

    def printed(self) -> KernelCode:
        """Returns the body of the kernel."""
        code = self._plain() if self.tiles is None else self._by_tiles(self.tiles)
        code = attrs.evolve(code, units=self.spread.points)
        if is_sized(self.facts.extents, self.stores):
            return code
        fast = self.spread.vector if self.spread.order else None
        turned = self.vector.staged
        sweep = swept((), self.stores, self.facts, fast, turned=turned)
        return attrs.evolve(code, sweeps=(sweep,))

    def _plain(self) -> KernelCode:
        by_runs = self.vector.has_runs(self.stores)
        abreast = self._abreast() if by_runs else 1
        lines = self._by_runs(abreast) if by_runs else self._ones("")
        items = self._items() if by_runs else self.spread.points
        blocks = -(-items // (THREADS * abreast))
        width = self.spread.width if by_runs else 1
        light = width * abreast * self.operations <= LIGHT
        resident = 4 if light else 0
        lines = [*self.constants.lines, *lines]
        return KernelCode(lines, self._grid(blocks), THREADS, resident)

    def _by_tiles(self, tiles: SharedTiles) -> KernelCode:
        """Returns the body with tiles, in accesses of 16 bytes if inputs are aligned, else by
        elements."""
        wide = tiles.loop(wide=True)
        test = self._alignment()
        lines = [*self.constants.lines, *tiles.declared()]
        if test:
            head = [f"const bool aligned = {test};", "if (aligned) {", *wide]
            lines += [*head, "} else {", *tiles.loop(wide=False), "}"]
        else:
            lines += wide
        light = self.spread.width * self.operations <= LIGHT
        return KernelCode(lines, self._grid(tiles.tiles), THREADS, 4 if light else 0)

    def _grid(self, blocks: Size) -> Size:
        """Returns the blocks of the grid. Blocks beyond it are turns of the grid-stride loop."""
        most = self.target.multiprocessors * (self.target.threads // THREADS) * WAVES
        return maximum(minimum(blocks, most), 1)

    # --- vectors
    def _by_runs(self, abreast: int) -> list[str]:
        """Prints vectors, and points one by one for inputs that are not aligned."""
        vectors = self._vectors(abreast)
        test = self._alignment()
        width = self.spread.width
        left = self.spread.flat and divisor_of(self.spread.points, width) < width
        if not test:
            end = self._items() * self.spread.width
            return [*vectors, *(self._ones(f"{end} + ") if left else ())]
        head = [f"const bool aligned = {test};", "if (aligned) {", *vectors]
        if not left:
            return [*head, "} else {", *self._ones(""), "}"]
        done = f"(aligned ? {self._items() * self.spread.width} : 0) + "
        return [*head, "}", *self._ones(done)]

    def _alignment(self) -> str:
        """Returns the test whether inputs are aligned for wide accesses; empty if none is needed.

        Other memory is aligned. Inputs are windows, which may begin at any element.
        """
        needed = [
            (number, mask)
            for number, mask in sorted(self.vector.masks.items())
            if self.buffers[number].kind is BufferKind.INPUT
        ]
        tests = [f"((u64)b{number} & {mask})" for number, mask in needed]
        return f"({' | '.join(tests)}) == 0" if tests else ""

    def _vectors(self, abreast: int) -> list[str]:
        step, kind = THREADS * abreast, self.index.item
        if abreast == 1:
            inside = self._item("first", VectorPhase.BOTH)
        else:
            inside = [
                *self._several(abreast, VectorPhase.LOAD),
                *self._several(abreast, VectorPhase.COMPUTE),
            ]
        head = (
            f"for ({kind} first = ({kind})blockIdx.x * {step} + threadIdx.x; "
            f"first < {self._items()}; first += ({kind})gridDim.x * {step}) {{"
        )
        return [head, *self.vector.take_arrays(abreast), *inside, "}"]

    def _several(self, abreast: int, phase: VectorPhase) -> list[str]:
        """Prints one phase of all vectors that a thread takes at once."""
        inside = self._item("item", phase)
        item = f"const {self.index.item} item = first + u * {THREADS};"
        return [
            *("#pragma unroll", f"for (i32 u = 0; u < {abreast}; ++u) {{", item),
            *(f"if (item < {self._items()}) {{", *inside, "}", "}"),
        ]

    def _item(self, item: str, phase: VectorPhase) -> list[str]:
        """Prints one vector, given its number."""
        spread = self.spread
        if spread.flat:
            scope = CScope(self.constants)
            self.vector.printed(self.stores, scope, phase)
            point = f"const {self.index.item} point = {item} * {spread.width};"
            return [point, *scope.lines]
        scope = CScope(self.constants, sum(1 << k for k in spread.order[:-1]))
        self.versions.print(self.stores, scope, phase)
        places, guard = self._places(item)
        inside = [f"if ({guard}) {{", *scope.lines, "}"] if guard else scope.lines
        return [*places, *inside]

    def _places(self, item: str) -> tuple[list[str], str]:
        """Returns the positions of a vector's first point, and the test whether it exists."""
        spread, kind = self.spread, self.index.position
        k, row = spread.vector, self._row()
        names = [f"i{axis}" for axis in spread.order[:-1]]
        extents = [spread.extents[axis] for axis in spread.order[:-1]]
        if spread.patch is None:
            scale = f" * {spread.width}" if spread.width > 1 else ""
            found = self.index.digits([*names, f"v{k}"], [*extents, row], item)
            return [*found[:-1], found[-1].replace(";", f"{scale};")], ""
        place = spread.order.index(spread.patch)
        extents[place] = -(-extents[place] // PATCH_ROWS)
        names[place] = "rows"
        names += ["columns", "down", "along"]
        extents += [-(-row // PATCH_VECTORS), PATCH_ROWS, PATCH_VECTORS]
        found = self.index.digits(names, extents, item)
        found.append(f"const {kind} i{spread.patch} = rows * {PATCH_ROWS} + down;")
        found.append(f"const {kind} v{k} = (columns * {PATCH_VECTORS} + along) * {spread.width};")
        end = row * spread.width
        return found, f"i{spread.patch} < {spread.extents[spread.patch]} && v{k} < {end}"

    def _row(self) -> Size:
        """Returns the number of vectors of a row; the last one may be incomplete."""
        return -(-self.spread.extents[self.spread.vector] // self.spread.width)

    def _items(self) -> Size:
        """Returns the number of vectors."""
        spread = self.spread
        if spread.flat:
            return spread.points // spread.width
        others = {spread.vector, spread.patch}
        rows = math.prod([n for k, n in enumerate(spread.extents) if k not in others])
        if spread.patch is None:
            return rows * self._row()
        extent = spread.extents[spread.patch]
        rows = rows * -(-extent // PATCH_ROWS) * PATCH_ROWS
        return rows * -(-self._row() // PATCH_VECTORS) * PATCH_VECTORS

    def _abreast(self) -> int:
        """Returns how many vectors a thread takes at once, so that enough loads are in flight."""
        loaded = self.vector.loaded_bytes(self.stores)
        if not loaded or self.spread.patch is not None or self.versions.are_many(self.stores):
            return 1
        count = 1
        while (
            count < 4
            and 2 * count * loaded <= IN_FLIGHT
            and 2 * count * self.spread.width * self.operations <= OPERATIONS
            and hint_of(self._items()) >= 2 * count * THREADS * self.target.multiprocessors * 4
        ):
            count *= 2
        return count

    # --- point by point
    def _ones(self, start: str) -> list[str]:
        """Prints a loop over single points; neighboring threads take neighbors."""
        kind, count = self.index.item, self.spread.points
        scope = CScope(self.constants, (1 << len(self.spread.extents)) - 1)
        self.vector.one(self.stores, scope)
        order = self.spread.order
        places = self.index.digits(
            [f"i{k}" for k in order], [self.spread.extents[k] for k in order], "point"
        )
        head = (
            f"for ({kind} point = {start}({kind})blockIdx.x * {THREADS} + threadIdx.x; "
            f"point < {count}; point += ({kind})gridDim.x * {THREADS}) {{"
        )
        few = ["#pragma unroll 4"] if self.operations <= LIGHT // 4 else []
        return [*few, head, *places, *scope.lines, "}"]


def prepared(stores: Sequence[Store], facts: KernelFacts) -> list[Store]:
    """Returns the stores with combining ones rewritten as loads and plain stores where no two
    points share an address, and with chosen addresses."""
    # A kernel of one point keeps them: its load would be hoisted, and run by all threads.
    one = math.prod(facts.extents) == 1
    found = [store if one else _plain(store) for store in stores]
    k = vector_axis(found, facts.extents)
    bit = 0 if k is None else 1 << k

    def fixed(condition: Scalar) -> bool:
        return not facts.axes(condition) & bit

    return [with_values(each, lambda root: with_chosen_addresses(root, fixed)) for each in found]


def _plain(store: Store) -> Store:
    """Returns a combining store as a plain store of the loaded value combined with its own. No two
    points store at one address here (K-7)."""
    if store.combine is None or store.unordered:
        return store
    old = load(store.buffer, store.address, store.value.dtype)
    kind = combiner(store.combine)
    before = kind.identity([old.dtype]) if store.from_identity else (old,)
    (value,) = kind.combine(before, (store.value,))
    return attrs.evolve(store, value=value, combine=None, from_identity=False)
