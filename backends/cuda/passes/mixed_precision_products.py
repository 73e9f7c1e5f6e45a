"""Mixed-precision products: tensor cores multiply 16-bit matrices directly, and sum in float32.

    b2 = f32(b0); b3 = f32(b1); b4 = b2 @ b3; b5 = bf16(b4)    ->    b5 = b0 @ b1

Lowering widens the operands and rounds the product; this pass removes these copies. The value is
the same, since 16-bit numbers are exact in float32. If an operand does not lie as BLAS reads it,
its copy stays, in 16 bits. Spec: `specs/cuda_backend.md` (CUB-8).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    ProgramBuffer,
    Step,
    Store,
    reads,
    writes,
)
from aotlite.ir import dtypes
from aotlite.ir.geometry.sizes import maximum
from aotlite.ir.scalar.expression import Affine, Scalar, load
from aotlite.ir.symbols.proving import is_proved

HALVES = (dtypes.float16, dtypes.bfloat16)


@attrs.frozen
class _Cast:
    """A kernel that copies a buffer to another one in another dtype."""

    place: int
    extents: tuple[int, ...]
    source: Scalar
    """The load."""
    into: Store


def narrowed(program: LoopProgram) -> LoopProgram:
    """Returns the program with products of 16-bit matrices."""
    for gemm in [step for step in program.steps if type(step) is Gemm]:
        program = _narrowed(program, gemm) or program
    return program


def _narrowed(program: LoopProgram, gemm: Gemm) -> LoopProgram | None:
    """Returns the program with one product narrowed; None if it is no such product."""
    operands = [_writer(program, window.buffer) for window in (gemm.a, gemm.b)]
    rounded = _reader(program, gemm.c.buffer)
    a, b = operands
    if a is None or b is None or rounded is None or a.place == b.place:
        return None
    dtype = a.source.dtype
    if dtype not in HALVES or not b.source.dtype is rounded.into.value.dtype is dtype:
        return None
    steps: list[Step | None] = list(program.steps)
    buffers = {buffer.number: buffer for buffer in program.buffers}
    windows = [
        _operand(steps, buffers, cast, window, (*gemm.batch, *shape))
        for cast, window, shape in (
            (a, gemm.a, (gemm.m, gemm.k)),
            (b, gemm.b, (gemm.k, gemm.n)),
        )
    ]
    result = _result(steps, buffers, rounded, gemm.c)
    place = next(k for k, step in enumerate(program.steps) if step is gemm)
    steps[place] = attrs.evolve(gemm, a=windows[0], b=windows[1], c=result)
    kept = tuple([step for step in steps if step is not None])
    return attrs.evolve(program, buffers=tuple(buffers.values()), steps=kept)


# ---------------------------------------------------------------------------------------- patterns
def _writer(program: LoopProgram, number: int) -> _Cast | None:
    """Returns the copy that writes a temporary which one product alone reads; else None."""
    users = _users(program, number)
    if len(users) != 2 or type(program.steps[users[1]]) is not Gemm:
        return None
    return _cast(program.steps[users[0]], users[0])


def _reader(program: LoopProgram, number: int) -> _Cast | None:
    """Returns the copy that alone reads a product's result; else None."""
    users = _users(program, number)
    if len(users) != 2 or type(program.steps[users[0]]) is not Gemm:
        return None
    found = _cast(program.steps[users[1]], users[1])
    return found if found is not None and found.source.args[0] == number else None


def _users(program: LoopProgram, number: int) -> list[int]:
    """Returns the steps that use a temporary; nothing for other buffers."""
    kinds = {buffer.number: buffer.kind for buffer in program.buffers}
    if kinds[number] is not BufferKind.TEMPORARY:
        return []
    return [k for k, step in enumerate(program.steps) if number in reads(step) | writes(step)]


def _cast(step: Step, place: int) -> _Cast | None:
    """Returns the step as a copy between float32 and a 16-bit float; None if it is none."""
    if type(step) is not Kernel or step.space < len(step.extents) or len(step.body) != 1:
        return None
    store = step.body[0]
    if type(store) is not Store or store.combine is not None or store.value.op != "cast":
        return None
    source = store.value.args[0]
    if source.op != "load" or {source.dtype, store.value.dtype}.isdisjoint(HALVES):
        return None
    if source.args[1].dynamic or store.address.dynamic or 0 in step.extents:
        return None
    return _Cast(place, step.extents, source, store)


# --------------------------------------------------------------------------------------- rewriting
def _operand(
    steps: list[Step | None],
    buffers: dict[int, ProgramBuffer],
    cast: _Cast,
    window: MatrixWindow,
    shape: tuple[int, ...],
) -> MatrixWindow:
    """Returns the window of the copy's source, if BLAS reads it there; else of the copy, which is
    made one of 16 bits."""
    found = _before(cast, window, shape)
    if found is not None:
        steps[cast.place] = None
        buffers.pop(window.buffer)
        return found
    _retype(steps, buffers, cast, window.buffer, cast.source)
    return window


def _result(
    steps: list[Step | None], buffers: dict[int, ProgramBuffer], cast: _Cast, window: MatrixWindow
) -> MatrixWindow:
    """Returns the window of the rounded product: in the copy's target, if the layouts agree."""
    address: Affine = cast.source.args[1]
    into = cast.into
    old, new = buffers[window.buffer], buffers[into.buffer]
    if address == into.address and old.size == new.size and new.kind is not BufferKind.INPUT:
        steps[cast.place] = None
        buffers.pop(window.buffer)
        return attrs.evolve(window, buffer=into.buffer)
    _retype(steps, buffers, cast, window.buffer, load(window.buffer, address, new.dtype))
    return window


def _retype(
    steps: list[Step | None],
    buffers: dict[int, ProgramBuffer],
    cast: _Cast,
    number: int,
    value: Scalar,
) -> None:
    """Makes the copy keep its 16-bit dtype, and the buffer one of 16-bit elements."""
    buffers[number] = attrs.evolve(buffers[number], dtype=value.dtype)
    kernel = steps[cast.place]
    assert type(kernel) is Kernel
    store = attrs.evolve(cast.into, value=value)
    steps[cast.place] = attrs.evolve(kernel, body=(store,))


def _before(cast: _Cast, window: MatrixWindow, shape: tuple[int, ...]) -> MatrixWindow | None:
    """Returns the window in the source of a copy; None if BLAS cannot read it there."""
    source: Affine = cast.source.args[1]
    address = cast.into.address
    if window.start != address.start:
        return None
    pairs = list(zip(cast.extents, address.coefficients, source.coefficients, strict=True))
    strides = [
        _stride(pairs, step, n)
        for step, n in zip((*window.batch, window.row, window.column), shape, strict=True)
    ]
    found = [step for step in strides if step is not None]
    if len(found) < len(strides):
        return None
    unit = _readable(found[-2], found[-1], *shape[-2:])
    if unit is None:
        return None
    return MatrixWindow(cast.source.args[0], source.start, tuple(found[:-2]), *unit)


def _readable(row: int, column: int, rows: int, columns: int) -> tuple[int, int] | None:
    """Returns strides that BLAS takes: one is 1, the other at least a row's or column's length."""
    if (column == 1 or columns == 1) and (is_proved(row >= columns) or rows == 1):
        return maximum(row, columns), 1
    if (row == 1 or rows == 1) and (is_proved(column >= rows) or columns == 1):
        return 1, maximum(column, rows)
    return None


def _stride(pairs: Sequence[tuple[int, int, int]], step: int, extent: int) -> int | None:
    """Returns the source's stride along an axis of the copy, which may be several axes of the
    kernel. 0: it does not move. None: it has no single stride."""
    if extent == 1 or step == 0:
        return 0
    by_step = {into: (n, own) for n, into, own in pairs if is_axis(n)}
    if step not in by_step:
        return None
    count, first = by_step[step]
    while count != extent:
        following = by_step.get(step * count)
        if following is None or following[1] != first * count:
            return None
        count *= following[0]
    return first
