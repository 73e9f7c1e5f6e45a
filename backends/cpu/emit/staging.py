"""Staging: loops whose results or operands go through local memory.

Large results go through a local line that is stored past the caches (non-temporal stores), so that
memory is not read before it is written. Operands that lie across the vector axis go through tiles,
which are transposed by vector shuffles. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from aotlite.backends.c_family.c_types import from_memory, memory_type
from aotlite.backends.c_family.loop_body import FIRST_LOCAL_NAME, Body, PointWork
from aotlite.backends.c_family.loop_geometry import TILE, LoopGeometry
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts, KernelFacts, LocalElement
from aotlite.backends.cpu.emit.loop_text import Range, in_steps
from aotlite.backends.cpu.emit.split_loops import Loop, Splitter
from aotlite.backends.cpu.emit.transpose_tiles import ACROSS, LEAST, is_across, loads_across
from aotlite.backends.loops.program import Store
from aotlite.backends.loops.rewrite import replaced
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Affine, Scalar, walk

BIG = 1 << 25
"""A buffer of at least so many bytes is stored past the caches: no cache holds it."""
RUN = 1024
"""The shortest run of bytes that is stored so. Short runs end within cache lines too often."""
LINE = 512
"""The points of a local line."""
FETCHED = 1 << 20
"""Memory of at least so many bytes is prefetched."""


class Stager:
    """Prints loops whose operands or results go through local memory."""

    def __init__(
        self, splitter: Splitter, body: Body, library: FunctionTexts, loaded: frozenset[int]
    ) -> None:
        self.splitter, self.body, self.library, self.loaded = splitter, body, library, loaded
        self.loops: LoopGeometry = body.loops
        self.facts: KernelFacts = body.facts
        self.kinds, self.row = body.kinds, body.row

    def streamed(self, work: PointWork, parent: CScope, whole: Range, loop: Loop) -> None:
        """Prints a loop whose large results go to a local line, which is then stored at once."""
        big = [store for store in work.stores if self._is_big(store, work)]
        if not big:
            self.splitter.split(work, parent, whole, loop)
            return
        self.library.streams = True
        k = self.loops.innermost or 0
        part = CScope(parent)
        for store in big:
            line = f"line{store.buffer}"
            kind = memory_type(self.kinds[store.buffer])
            self.row.lines.append(f"{kind} {line}[{LINE}] __attribute__((aligned(64)));")
            self.body.lines[store.buffer] = f"{line}[i{k} - x0]"
        self.splitter.split(work, part, ("x0", "x1"), loop)
        part.positions[k] = "x0"
        for store in big:
            del self.body.lines[store.buffer]
            size = self.kinds[store.buffer].itemsize
            place = f"b{store.buffer} + {self.body.writer.address(store.address, part)}"
            part.lines.append(f"stream({place}, line{store.buffer}, (x1 - x0) * {size});")
        parent.lines += in_steps("x", whole, LINE, part.lines)

    def _is_big(self, store: Store, work: PointWork) -> bool:
        """Whether a store writes a long run of a large buffer that the kernel does not load."""
        k, number = self.loops.innermost or 0, store.buffer
        itemsize = self.kinds[number].itemsize
        size, run = self.facts.sizes[number] * itemsize, self.facts.extents[k] * itemsize
        alone = sum(each.buffer == number for each in work.stores) == 1
        plain = not store.address.dynamic and store.combine is None
        in_run = plain and alone and store.address.coefficients[k] == 1
        large = hint_of(size) >= BIG and hint_of(run) >= RUN
        return in_run and large and number not in self.loaded

    # --- tiles
    def has_inner_tiles(self, work: PointWork) -> bool:
        """Whether operands of a pass lie across: with stride 1 along the last inner axis."""
        k, last = self.loops.vector or 0, self.loops.inner[-1]
        if min(hint_of(self.facts.extents[k]), hint_of(self.facts.extents[last])) < LEAST:
            return False
        if any(reduce.lanes > 1 for reduce in work.reduces):
            return False
        loads = [each for each in self.facts.in_order(work.roots) if each.op == "load"]
        stored = any(is_across(store, k, last) for store in work.stores)
        return stored or any(self.facts.safe(x) for x in loads_across(loads, k, last))

    def tiled(self, work: PointWork, parent: CScope, tile: int, whole: Range, loop: Loop) -> None:
        """Prints a loop over tiles of the vector axis and axis `tile`. Accesses that lie across go
        through local tiles, which are transposed in before and out after the loops."""
        self.library.tiles = True
        k = self.loops.vector or 0
        part = CScope(parent)
        part.positions.update({k: "w0", tile: "u0"})
        loads = [each for each in self.facts.in_order(work.roots) if each.op == "load"]
        memo: dict[Scalar, Scalar] = {}
        for load in loads_across(loads, k, tile):
            if self.facts.safe(load):
                memo[load] = self._staged(load, part, tile)
        work = work.changed(lambda root: replaced(root, memo))
        out = [store for store in work.stores if is_across(store, k, tile)]
        for store in out:
            kind = self.kinds[store.buffer]
            self.body.lines[store.buffer] = self._tile(f"out{store.buffer}", kind, tile)
        row = CScope(part, 1 << tile)
        row.positions.update({tile: f"i{tile}", k: f"i{k}"})
        # No streaming here: rows of tiles are too short.
        self.splitter.split(work, row, ("w0", "w1"), loop)
        part.lines += [f"for (i64 i{tile} = u0; i{tile} < u1; ++i{tile}) {{", *row.lines, "}"]
        for store in out:
            del self.body.lines[store.buffer]
            self._unstaged(store, part)
        parent.lines += in_steps("w", whole, ACROSS, part.lines)

    def _tile(self, text: str, dtype: DType, tile: int) -> str:
        """Declares a tile and returns the C text of its element."""
        kind, size = memory_type(dtype), TILE * ACROSS
        self.row.lines.append(f"{kind} {text}[{size}] __attribute__((aligned(64)));")
        return f"{text}[(i{tile} - u0) * {ACROSS} + i{self.loops.vector} - w0]"

    def _staged(self, load: Scalar, part: CScope, tile: int) -> Scalar:
        """Prints the transposition of a load's operand into a tile, and returns the load's name."""
        number, address = load.args
        k, dtype = self.loops.vector or 0, load.dtype
        leaf = self.body.new_name(dtype)
        text = f"tile{leaf.args[0] - FIRST_LOCAL_NAME}"
        element = from_memory(dtype, self._tile(text, dtype, tile))
        axes = 1 << k | 1 << tile
        self.facts.name_axes[leaf.args[0]] = axes
        self.body.writer.places[leaf] = LocalElement(axes, lambda scope: element, dtype)
        place = self.body.writer.address(address, part)
        size, step = dtype.itemsize, address.coefficients[k]
        part.lines.append(
            f"transposed_{size}((const void *)(b{number} + {place}), {step}, (void *){text}, "
            f"{ACROSS}, w1 - w0, u1 - u0);"
        )
        return leaf

    def _unstaged(self, store: Store, part: CScope) -> None:
        """Prints the transposition of a tile into a store's buffer."""
        number, address = store.buffer, store.address
        place = self.body.writer.address(address, part)
        size, step = self.kinds[number].itemsize, address.coefficients[self.loops.vector or 0]
        part.lines.append(
            f"transposed_{size}((const void *)out{number}, {ACROSS}, "
            f"(void *)(b{number} + {place}), {step}, u1 - u0, w1 - w0);"
        )


def prefetches(loops: LoopGeometry, work: PointWork, lanes: int) -> list[str]:
    """Returns prefetches of the next row, for the second pass over a row: it finds its own row in a
    cache, so that memory is idle meanwhile."""
    found: dict[str, tuple[int, str]] = {}
    k = loops.outer[-1]
    for load in [value for value in walk(work.roots) if value.op == "load"]:
        address: Affine = load.args[1]
        size = load.dtype.itemsize
        if address.dynamic or address.coefficients[-1] != 1 or not address.coefficients[k]:
            continue
        moved = loops.units * loops.points * size
        if type(moved) is int and moved < FETCHED:
            continue
        large = "" if type(moved) is int else f"if (__builtin_expect({moved} >= {FETCHED}, 0)) "
        next_row = [f"i{j} * {address.coefficients[j]}" for j in loops.outer]
        start = address.start + address.coefficients[k]
        place = " + ".join([*next_row, str(start), "base", "ahead"])
        found[f"&b{load.args[0]}[{place}]"] = max(64 // size, 1), large
    return [
        f"{large}for (i64 ahead = 0; ahead < {lanes}; ahead += {step}) __builtin_prefetch({place});"
        for place, (step, large) in found.items()
    ]
