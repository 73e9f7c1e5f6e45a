"""Programs of one handwritten kernel, each for one form of printed kernels."""

from __future__ import annotations

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Scan,
    Statement,
    Store,
)
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType, float32
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, make, name, where

Sizes = dict[int, tuple[DType, int]]
"""Dtype and elements of buffers."""


def program(
    kernel: tuple[tuple[int, ...], int, int | None],
    body: list[Statement],
    inputs: Sizes,
    outputs: Sizes,
) -> LoopProgram:
    """A program of one kernel of (extents, space, vector axis)."""
    kinds = [(BufferKind.INPUT, inputs), (BufferKind.OUTPUT, outputs)]
    buffers = [ProgramBuffer(n, *size, kind) for kind, sizes in kinds for n, size in sizes.items()]
    extents, space, vector = kernel
    made = Kernel("chosen", extents, space, tuple(body), vector=vector)
    return LoopProgram("chosen", tuple(buffers), (made,), tuple(inputs), ())


def across(rows: int, columns: int, dtype: DType) -> LoopProgram:
    """x transposed plus y, and the sum of both stored across: tiles on both sides."""
    x = load(0, Affine((1, rows)), dtype)
    y = load(1, Affine((columns, 1)), dtype)
    body: list[Statement] = [
        Store(2, Affine((columns, 1)), make("sub", x, y)),
        Store(3, Affine((1, rows)), make("add", x, y)),
    ]
    size = (dtype, rows * columns)
    kernel = (rows, columns), 2, 1
    return program(kernel, body, {0: size, 1: size}, {2: size, 3: size})


def columns_across(rows: int, columns: int, kept: bool) -> LoopProgram:
    """Sums of columns of a product with a transposed operand, of which parts are stored."""
    x = load(0, Affine((1, columns)), float32)
    y = load(1, Affine((rows, 1)), float32)
    body: list[Statement] = [Reduce((0,), "sum", (x * y,))]
    body.append(Store(2, Affine((1, 0)), name(0, float32), each_row=True))
    if kept:
        body.append(Store(3, Affine((1, columns)), x * y - name(0, float32)))
        body.append(Store(4, Affine((rows, 1)), y + name(0, float32) * 2.0))
    size = (float32, rows * columns)
    outputs = {2: (float32, columns), 3: size, 4: size}
    return program((((columns, rows)), 1, 0), body, {0: size, 1: size}, outputs)


def in_place(n: int) -> LoopProgram:
    """A softmax-like kernel that writes over what it has loaded: the store comes last (K-6)."""
    x = load(0, Affine((n, 1)), float32)
    body: list[Statement] = [
        Store(0, Affine((n, 1)), x * 2.0),
        Reduce((0,), "max", (x,), 16),
        Reduce((1,), "sum", (x - name(0, float32),), 16),
        Store(1, Affine((n, 1)), x - name(1, float32)),
    ]
    size = (float32, 3 * n)
    return program(((3, n), 1, 1), body, {0: size}, {1: size})


def inherited(n: int) -> LoopProgram:
    """Kernels that compute in place of temporaries, one of another dtype."""

    def at(k: int, dtype: DType) -> Scalar:
        return load(k, Affine((1,)), dtype)

    values = [
        (1, at(0, float32) * 2.0),
        (2, cast(at(1, float32) + at(0, float32), dtypes.int32)),
        (3, cast(at(2, dtypes.int32), float32) * 0.5),
        (4, at(3, float32) - at(0, float32)),
    ]
    kinds = [BufferKind.INPUT, *[BufferKind.TEMPORARY] * 3, BufferKind.OUTPUT]
    types = [float32, float32, dtypes.int32, float32, float32]
    steps = [
        Kernel(f"inherited{k}", (n,), 1, (Store(k, Affine((1,)), value),), vector=0)
        for k, value in values
    ]
    buffers = [ProgramBuffer(k, types[k], n, kind) for k, kind in enumerate(kinds)]
    return LoopProgram("inherited", tuple(buffers), tuple(steps), (0,), ())


def masked(n: int) -> LoopProgram:
    """A row softmax's maximum under a causal mask, and a triangle."""
    x = load(0, Affine((n, 1)), float32)
    hidden = where(axis(1) <= axis(0), x, const(-1e30, float32))
    body: list[Statement] = [
        Reduce((0,), "max", (hidden,), 8),
        Store(1, Affine((n, 1)), where(axis(1) < axis(0) - 2, x, hidden - name(0, float32))),
        Store(2, Affine((n, 1)), where(make("eq", axis(1), axis(0)), x, const(0.0, float32))),
    ]
    size = (float32, n * n)
    return program(((n, n), 1, 1), body, {0: size}, {1: size, 2: size})


def picked(rows: int, n: int, lanes: int) -> LoopProgram:
    """One of each row by its number, and what is left of it; some numbers are none of a row."""
    x = load(0, Affine((n, 1)), float32)
    number = load(1, Affine((1, 0)), dtypes.int64) * 16
    here = make("eq", number, axis(1))
    body: list[Statement] = [
        Reduce((0,), "sum", (where(here, x, const(0.0, float32)),), lanes),
        Reduce((1,), "sum", (where(axis(1) < number + 5, x, const(1.0, float32)),), lanes),
        Store(2, Affine((n, 1)), where(here, const(0.0, float32), x - name(0, float32))),
        Store(3, Affine((1, 0)), name(1, float32), each_row=True),
    ]
    inputs = {0: (float32, rows * n), 1: (dtypes.int64, rows)}
    outputs = {2: (float32, rows * n), 3: (float32, rows)}
    return program(((rows, n), 1, 1), body, inputs, outputs)


def windows(n: int) -> LoopProgram:
    """The sum of padded windows of three by three: conditions of inner and outer axes."""
    i, j = axis(0) + axis(2) - 1, axis(1) + axis(3) - 1
    inside = (i >= 0) & (i < n) & (j >= 0) & (j < n)
    near = load(0, Affine((n, 1, n, 1), -n - 1), float32)
    value = where(inside, near, const(0.0, float32))
    body: list[Statement] = [
        Reduce((0,), "sum", (value,)),
        Store(1, Affine((n, 1, 0, 0)), name(0, float32), each_row=True),
    ]
    size = (float32, n * n)
    return program(((n, n, 3, 3), 2, 1), body, {0: size}, {1: size})


def joined(n: int) -> LoopProgram:
    """Three operands one behind the other along both axes."""

    def part(k: int, at: int) -> Scalar:
        return load(k, Affine((n, 1), at), float32)

    along = where(axis(1) < 5, part(0, 0), where(axis(1) < 9, part(1, 0), part(2, 0)))
    down = where(axis(0) < 4, along, where(axis(0) < 7, part(0, 0), part(1, -7 * n)))
    body: list[Statement] = [Store(3, Affine((n, 1)), down)]
    sizes = {0: (float32, n * n), 1: (float32, n * n), 2: (float32, n * n)}
    return program(((n, n), 2, 1), body, sizes, {3: (float32, n * n)})


def scattered(n: int) -> LoopProgram:
    """Rows added where an index says, in order; a running sum beside."""
    at = load(1, Affine((0, 1)), dtypes.int64)
    x = load(0, Affine((1, 3)), float32)
    body: list[Statement] = [
        Store(2, Affine((1, 0), 9, ((at, 3),)), x, combine="sum"),
        Scan((0,), "sum", (x,)),
        Reduce((1,), "max", (name(0, float32),)),
        Store(3, Affine((1, 3)), name(0, float32) - name(1, float32)),
    ]
    inputs = {0: (float32, 3 * n), 1: (dtypes.int64, n)}
    outputs = {2: (float32, 21), 3: (float32, 3 * n)}
    return program(((3, n), 1, 0), body, inputs, outputs)


def whole(n: int, kind: str, dtype: DType, lanes: int) -> LoopProgram:
    """One reduction of everything, without space axes."""
    x = load(0, Affine((1,)), dtype)
    body: list[Statement] = [
        Reduce((0,), kind, (x,), lanes),
        Store(1, Affine((0,)), name(0, dtype), each_row=True),
    ]
    return program(((n,), 0, 0), body, {0: (dtype, n)}, {1: (dtype, 1)})


def summed_beside(
    parts: int, rows: int, n: int, vector: int | None, kind: str | None = None
) -> LoopProgram:
    """Columns of each part added up in one place while rows are computed (K-7); of a `kind`: what
    lies there before does not count."""
    x = load(0, Affine((rows * n, n, 1)), float32)
    body: list[Statement] = [
        Reduce((0,), "max", (x,), 1 if vector == 0 else 8),
        Store(1, Affine((rows * n, n, 1)), x - name(0, float32)),
        Store(
            2,
            Affine((n, 0, 1)),
            x * name(0, float32),
            combine=kind or "sum",
            from_identity=kind is not None,
        ),
    ]
    size = (float32, parts * rows * n)
    outputs = {1: size, 2: (float32, parts * n)}
    return program(((parts, rows, n), 2, vector), body, {0: size}, outputs)


def single() -> LoopProgram:
    """No axes at all."""
    x = load(0, Affine(()), float32)
    body: list[Statement] = [
        Reduce((0,), "sum", (x,)),
        Store(1, Affine(()), name(0, float32) + cast(axis_free(), float32)),
    ]
    return program(((), 0, None), body, {0: (float32, 1)}, {1: (float32, 1)})


def axis_free() -> Scalar:
    """A number that depends on nothing."""
    return make("add", const(2, dtypes.int32), const(3, dtypes.int32))


def empty(space: int) -> LoopProgram:
    """No points: no rows, or rows of nothing."""
    extents = (0, 5) if space == 2 else (4, 0)
    x = load(0, Affine((5, 1)), float32)
    body: list[Statement] = [Store(1, Affine((5, 1)), x)]
    if space == 1:
        body = [Reduce((0,), "sum", (x,), 4)]
        body.append(Store(1, Affine((1, 0)), name(0, float32) + 1.0, each_row=True))
    return program((extents, space, 0), body, {0: (float32, 0)}, {1: (float32, 4)})


CHOSEN = {
    "across_f32": across(45, 70, dtypes.float32),
    "across_f64": across(33, 130, dtypes.float64),
    "across_bf16": across(40, 66, dtypes.bfloat16),
    "across_bool": across(64, 64, dtypes.uint8),
    "columns_across": columns_across(70, 140, False),
    "columns_across_kept": columns_across(70, 140, True),
    "in_place": in_place(77),
    "inherited": inherited(1000),
    "masked": masked(37),
    "picked": picked(30, 37, 8),
    "picked_in_order": picked(30, 37, 1),
    "windows": windows(19),
    "joined": joined(13),
    "scattered": scattered(50),
    "sum": whole(1000, "sum", dtypes.float32, 64),
    "prod_short": whole(3, "prod", dtypes.float64, 32),
    "max_f16": whole(77, "max", dtypes.float16, 16),
    "sum_i8": whole(300, "sum", dtypes.int8, 64),
    "any": whole(70, "any", dtypes.bool_, 64),
    "summed_beside": summed_beside(4, 9, 130, 2),
    "summed_beside_rows": summed_beside(3, 150, 40, 0),
    "summed_beside_parts": summed_beside(3, 150, 40, 1),
    "begun_beside": summed_beside(4, 9, 130, 2, "sum"),
    "begun_beside_rows": summed_beside(3, 150, 40, 0, "max"),
    "begun_beside_parts": summed_beside(3, 150, 40, 1, "prod"),
    "begun_beside_one_row": summed_beside(3, 1, 40, 2, "sum"),
    "single": single(),
    "empty_space": empty(2),
    "empty_inner": empty(1),
}
