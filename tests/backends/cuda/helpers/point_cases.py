"""Kernels of independent points: each for one way in which vectors reach memory."""

from __future__ import annotations

from aotlite.backends.loops.program import LoopProgram, Statement, Store
from aotlite.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int64, uint8
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, make, where
from tests.backends.cpu.helpers.chosen_kernels import program
from tests.backends.cuda.helpers.cuda_cases import Cases, inputs_of

ROWS, COLUMNS = 24, 72


def at(k: int, *coefficients: int, start: int = 0, dtype: DType = float32) -> Scalar:
    return load(k, Affine(coefficients, start), dtype)


def flat(n: int, *kinds: DType) -> LoopProgram:
    """The sum of operands, in the first dtype; of others a comparison too."""
    first, *others = [cast(at(k, 1, dtype=kind), kinds[0]) for k, kind in enumerate(kinds)]
    total = first
    for other in others:
        total = total + other
    body: list[Statement] = [Store(8, Affine((1,)), total), Store(9, Affine((1,)), total > 0)]
    inputs = {k: (kind, n) for k, kind in enumerate(kinds)}
    return program(((n,), 1, 0), body, inputs, {8: (kinds[0], n), 9: (bool_, n)})


def over_rows(rows: int, columns: int, spare: int = 0) -> LoopProgram:
    """A matrix plus a row, stored with `spare` elements between rows."""
    step = columns + spare
    value = at(0, columns, 1) + at(1, 0, 1) * 2.0 + cast(axis(1), float32)
    body: list[Statement] = [Store(2, Affine((step, 1)), value)]
    inputs = {0: (float32, rows * columns), 1: (float32, columns)}
    return program(((rows, columns), 2, 1), body, inputs, {2: (float32, rows * step)})


def stencil(rows: int, columns: int, dtype: DType = float32) -> LoopProgram:
    """The four neighbors of each point, of a torus."""

    def near(k: int, by: int) -> Scalar:
        step, extent = ((columns, rows), (1, columns))[k]
        here = {-1: axis(k) < 1, 1: axis(k) >= extent - 1}[by]
        wrapped = at(0, columns, 1, start=-by * step * (extent - 1), dtype=dtype)
        return where(here, wrapped, at(0, columns, 1, start=by * step, dtype=dtype))

    value = near(0, 1) + near(0, -1) + near(1, 1) + near(1, -1) - at(0, columns, 1, dtype=dtype)
    size = (dtype, rows * columns)
    body: list[Statement] = [Store(1, Affine((columns, 1)), value)]
    return program(((rows, columns), 2, 1), body, {0: size}, {1: size})


def inside(rows: int, columns: int) -> LoopProgram:
    """The same without the edges: rows of the result begin at other places than those loaded."""
    value = at(0, columns, 1, start=1) + at(0, columns, 1, start=columns)
    value += at(0, columns, 1, start=columns + 2) + at(0, columns, 1, start=2 * columns + 1)
    body: list[Statement] = [Store(1, Affine((columns - 2, 1)), value)]
    inner = (rows - 2), (columns - 2)
    outputs = {1: (float32, inner[0] * inner[1])}
    return program((inner, 2, 1), body, {0: (float32, rows * columns)}, outputs)


def joined() -> LoopProgram:
    """Two matrices below each other, beside two others."""
    n = COLUMNS

    def part(k: int, start: int) -> Scalar:
        return at(k, n, 1, start=start)

    left = where(axis(0) < 9, part(0, 0), part(1, -9 * n))
    value = where(axis(1) < 33, left, part(2, -33))
    body: list[Statement] = [Store(3, Affine((n, 1)), where(axis(1) < 40, value, part(0, 0)))]
    inputs = {0: (float32, ROWS * n), 1: (float32, (ROWS - 9) * n), 2: (float32, ROWS * n)}
    return program(((ROWS, n), 2, 1), body, inputs, {3: (float32, ROWS * n)})


def groups(n: int, dtype: DType) -> LoopProgram:
    """Pairs of neighbors, turned, and three results of each, side by side."""
    a, b = at(0, 2, dtype=dtype), at(0, 2, start=1, dtype=dtype)
    body: list[Statement] = [
        Store(1, Affine((2,)), a - b),
        Store(1, Affine((2,), 1), a + b),
        *[Store(2, Affine((3,), k), a * float(k)) for k in range(3)],
        Store(3, Affine((1,)), b),
    ]
    outputs = {1: (dtype, 2 * n), 2: (dtype, 3 * n), 3: (dtype, n)}
    return program(((n,), 1, 0), body, {0: (dtype, 2 * n)}, outputs)


def turned(rows: int, columns: int) -> LoopProgram:
    """Back to front, loaded and stored."""
    last = columns - 1
    body: list[Statement] = [
        Store(1, Affine((columns, 1)), at(0, columns, -1, start=last) + at(0, columns, 1)),
        Store(2, Affine((columns, -1), last), at(0, columns, 1)),
    ]
    size = (float32, rows * columns)
    return program(((rows, columns), 2, 1), body, {0: size}, {1: size, 2: size})


def gathered(rows: int, columns: int) -> LoopProgram:
    """Rows at positions that are read, and elements of a row at such positions."""
    row = load(1, Affine((1, 0)), int64) + 3
    place = load(2, Affine((0, 1)), int64) + 3
    of_row = load(0, Affine((0, 1), 0, ((row, columns),)), float32)
    element = load(0, Affine((columns, 0), 0, ((place, 1),)), float32)
    body: list[Statement] = [Store(3, Affine((columns, 1)), of_row - element)]
    size = (float32, rows * columns)
    inputs = {0: size, 1: (int64, rows), 2: (int64, columns)}
    return program(((rows, columns), 2, 1), body, inputs, {3: size})


def gathered_down(rows: int, columns: int) -> LoopProgram:
    """Elements of columns: neighbors are of rows that are read for each, or chosen for each."""
    row = load(1, Affine((columns, 1)), int64) + 3
    chosen = where(axis(1) < columns // 2, const(0, int64), const(2, int64))
    read, found = (
        load(0, Affine((0, 1), 0, ((place, columns),)), float32) for place in (row, chosen)
    )
    body: list[Statement] = [
        Store(2, Affine((columns, 1)), read),
        Store(3, Affine((columns, 1)), found),
        Store(4, Affine((columns, 1)), row),
    ]
    size, places = (float32, rows * columns), (int64, rows * columns)
    outputs = {2: size, 3: size, 4: places}
    return program(((rows, columns), 2, 1), body, {0: size, 1: places}, outputs)


def in_place(n: int) -> LoopProgram:
    """What lies there is added to, halved, and overwritten in turn."""
    body: list[Statement] = [
        Store(0, Affine((1,)), at(1, 1), combine="sum"),
        Store(1, Affine((1,)), at(1, 1) * 0.5),
        Store(2, Affine((2,)), at(1, 1)),
        Store(2, Affine((2,)), at(0, 1)),
        Store(2, Affine((2,), 1), const(7.0, float32)),
    ]
    sizes = {0: (float32, n), 1: (float32, n)}
    return program(((n,), 1, 0), body, sizes, {2: (float32, 2 * n)})


def triangle(n: int) -> LoopProgram:
    """Conditions that flip at other places in each row, beside loads that must not be made."""
    below = where(axis(1) < axis(0), at(0, n, 1), const(0.0, float32))
    before = where(axis(0) > axis(1), at(0, n, 1, start=-1), below)
    body: list[Statement] = [Store(1, Affine((n, 1)), below + before)]
    size = (float32, n * n)
    return program(((n, n), 2, 1), body, {0: size}, {1: size})


def strided(n: int) -> LoopProgram:
    """Every fifth element, to every seventh."""
    body: list[Statement] = [Store(1, Affine((7,), 2), at(0, 5, start=1) * 2.0)]
    return program(((n,), 1, 0), body, {0: (float32, 5 * n)}, {1: (float32, 7 * n)})


def positions(n: int) -> LoopProgram:
    """Bits of positions."""
    place = make("shr", axis(0) * 3 + 1, const(1, int64))
    word = make("bit_xor", make("bit_not", place), make("neg", axis(1)))
    body: list[Statement] = [Store(1, Affine((n, 1)), word + at(0, n, 1, dtype=int64))]
    size = (int64, n * n)
    return program(((n, n), 2, 1), body, {0: size}, {1: size})


def crossed(rows: int, columns: int, *kinds: DType, batch: int = 1) -> LoopProgram:
    """An operand that lies across, plus others that do not; some edges are conditions."""
    first, *others = kinds
    step = rows * columns
    value: Scalar = load(0, Affine((step, 1, rows)), first)
    for k, kind in enumerate(others):
        beside = load(k + 1, Affine((step, columns, 1)), kind)
        value = value + cast(where(axis(2) < 3, const(1, kind), beside), first)
    body: list[Statement] = [Store(9, Affine((step, columns, 1)), value)]
    inputs = {k: (kind, batch * step) for k, kind in enumerate(kinds)}
    extents = batch, rows, columns
    return program((extents, 3, 2), body, inputs, {9: (first, batch * step)})


def both_across(rows: int, columns: int) -> LoopProgram:
    """Two operands that lie across, with gaps between their rows."""
    x = load(0, Affine((1, rows + 4)), float32)
    y = load(1, Affine((1, rows + 1), 1), float64)
    body: list[Statement] = [Store(2, Affine((columns, 1)), x + cast(y, float32))]
    inputs = {0: (float32, columns * (rows + 4)), 1: (float64, columns * (rows + 1) + 1)}
    return program(((rows, columns), 2, 1), body, inputs, {2: (float32, rows * columns)})


def scattered(rows: int, n: int, *, combine: str | None = "sum") -> LoopProgram:
    """Rows that are added, or put, where positions say, which repeat."""
    place = load(1, Affine((0, 1)), int64) + 3
    address = Affine((1, 0), 0, ((place, rows),))
    body: list[Statement] = [Store(2, address, at(0, 1, rows) * 2.0, combine=combine)]
    inputs = {0: (float32, rows * n), 1: (int64, n)}
    return program(((rows, n), 1, 0), body, inputs, {2: (float32, 7 * rows)})


def at_one_place(n: int, *, combine: str = "sum") -> LoopProgram:
    """A row that is combined with the one whose position is read."""
    address = Affine((1,), 0, ((load(1, Affine((0,)), int64) + 3, n),))
    body: list[Statement] = [Store(2, address, at(0, 1) * 2.0, combine=combine)]
    return program(((n,), 1, 0), body, {0: (float32, n), 1: (int64, 1)}, {2: (float32, 7 * n)})


def counted(n: int, m: int) -> LoopProgram:
    """Numbers of two axes that are added up at what is read and where it lies."""
    place = load(1, Affine((m, 1)), int64) + 3
    body: list[Statement] = [
        Store(2, Affine((0, 2), 0, ((place, 1),)), at(0, m, 1, dtype=int64), combine="sum")
    ]
    inputs = {0: (int64, n * m), 1: (int64, n * m)}
    return program(((n, m), 0, 1), body, inputs, {2: (int64, 2 * m + 5)})


PROGRAMS: dict[str, LoopProgram] = {
    "one_axis": flat(1003, float32, float32),
    "whole": flat(1024, float32),
    "halves": flat(1021, bfloat16, float32),
    "small_and_wide": flat(640, float64, float16, uint8),
    "bytes": flat(999, uint8, bool_),
    "over_rows": over_rows(7, 64),
    "over_odd_rows": over_rows(7, 93),
    "spare": over_rows(7, 62, 2),
    "odd_spare": over_rows(5, 93, 2),
    "stencil": stencil(ROWS, COLUMNS),
    "odd_stencil": stencil(11, 45),
    "stencil_bf16": stencil(ROWS, COLUMNS, bfloat16),
    "inside": inside(ROWS, COLUMNS),
    "joined": joined(),
    "groups": groups(203, float32),
    "groups_f16": groups(64, float16),
    "turned": turned(5, COLUMNS),
    "turned_odd": turned(5, 39),
    "gathered": gathered(7, COLUMNS),
    "gathered_down": gathered_down(7, COLUMNS),
    "gathered_down_odd": gathered_down(7, 75),
    "in_place": in_place(203),
    "triangle": triangle(45),
    "strided": strided(37),
    "positions": positions(36),
    "crossed": crossed(72, 136, float32, float32),
    "crossed_batch": crossed(40, 24, float32, batch=3),
    "crossed_odd": crossed(37, 75, float32, float32),
    "crossed_bf16": crossed(72, 80, bfloat16, float32),
    "crossed_bytes": crossed(96, 64, uint8),
    "crossed_f64": crossed(34, 66, float64, float16),
    "both_across": both_across(44, 68),
    "scattered": scattered(40, 50),
    "scattered_one": scattered(1, 300),
    "last_put": scattered(9, 60, combine=None),
    "largest": scattered(5, 60, combine="max"),
    "counted": counted(7, 11),
    "at_one_place": at_one_place(64),
    "at_one_place_one": at_one_place(1),
    "at_one_place_odd": at_one_place(67, combine="max"),
    "many": flat(1 << 16, float32),
}


def cases() -> Cases:
    """The programs with inputs."""
    return {name: (each, inputs_of(name, each)) for name, each in PROGRAMS.items()}
