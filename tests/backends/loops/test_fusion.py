"""Passes on programs change nothing that a program computes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.program import (
    BufferKind,
    GivenUp,
    Kernel,
    LoopProgram,
    Placed,
    ProgramBuffer,
    Reduce,
    Store,
    ValueCheck,
)
from aotlite.backends.loops.verify import verify
from aotlite.ir.dtypes import bool_, float32
from aotlite.ir.meta import tensor_meta
from aotlite.ir.scalar.expression import Affine, Scalar, load, make, name
from tests.backends.loops.helpers.drawn_programs import drawn


def results(program: LoopProgram, inputs: list[np.ndarray]) -> list[bytes]:
    """The bytes of all outputs and of the inputs afterwards."""
    arrays = [array.copy() for array in inputs]
    memory = run_program(program, arrays)
    found = [memory[placed.buffer] for placed in program.outputs if placed is not None]
    return [array.tobytes() for array in [*found, *arrays]]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("block", range(4))
def test_fusing_changes_no_bit(block: int) -> None:
    for seed in range(60 * block, 60 * block + 60):
        program, inputs = drawn(seed)
        verify(program)
        after = fused(program)
        verify(after)
        assert results(program, inputs) == results(after, inputs), f"seed {seed}"


def softmax() -> LoopProgram:
    """x, its row maxima, the differences, their squares, the sums of them, the quotients."""
    at, row = Affine((5, 1)), Affine((1, 0))
    x, high = load(0, at, float32), load(1, row, float32)
    apart, square, total = [load(k, at, float32) for k in (2, 3)] + [load(4, row, float32)]

    def reduced(kind: str, value: Scalar, into: int) -> Kernel:
        store = Store(into, row, name(0, float32), each_row=True)
        return Kernel(kind, (3, 5), 1, (Reduce((0,), kind, (value,)), store))

    kernels = (
        reduced("max", x, 1),
        Kernel("sub", (3, 5), 2, (Store(2, at, x - high),)),
        Kernel("square", (3, 5), 2, (Store(3, at, make("sqrt", make("abs", apart))),)),
        reduced("sum", square, 4),
        Kernel("div", (3, 5), 2, (Store(5, at, square / total),)),
    )
    sizes = (15, 3, 15, 15, 3, 15)
    kinds = (BufferKind.INPUT, *[BufferKind.TEMPORARY] * 4, BufferKind.OUTPUT)
    buffers = [
        ProgramBuffer(k, float32, n, kind)
        for k, (n, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    placed = Placed(5, 0, tensor_meta((3, 5)))
    return LoopProgram("softmax", tuple(buffers), kernels, (0,), (placed,))


def test_a_row_softmax_becomes_one_kernel() -> None:
    after = fused(softmax())
    assert [
        "kernel max_sum_div[i0<3, *i1<5]:",
        "  v0 = reduce<max lanes=1>(b0[5*i0 + i1])",
        "  v1 = reduce<sum lanes=1>(sqrt(abs((b0[5*i0 + i1] - v0))))",
        "  b5[5*i0 + i1] = (sqrt(abs((b0[5*i0 + i1] - v0))) / v1)",
    ] == str(after.steps[0]).splitlines()
    assert 1 == len(after.steps)


def test_reductions_in_different_orders_stay_apart() -> None:
    """Of the same rows, one over (a, b), one over (b, a): bits tell which order it was."""
    across = (Affine((12, 4, 1)), Affine((12, 1, 4)))
    kernels = []
    for k, (at, extents) in enumerate(zip(across, ((2, 3, 4), (2, 4, 3)), strict=True)):
        store = Store(k + 1, Affine((1, 0, 0)), name(0, float32), each_row=True)
        body = (Reduce((0,), "sum", (load(0, at, float32),)), store)
        kernels.append(Kernel(f"sum{k}", extents, 1, body))
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.OUTPUT)
    buffers = [ProgramBuffer(k, float32, 24 if not k else 2, kind) for k, kind in enumerate(kinds)]
    placed = tuple([Placed(k, 0, tensor_meta((2,))) for k in (1, 2)])
    program = LoopProgram("orders", tuple(buffers), tuple(kernels), (0,), placed)
    inputs = [np.random.default_rng(5).standard_normal(24).astype(np.float32)]
    first, second, _ = results(program, inputs)
    assert first != second
    assert results(program, inputs) == results(fused(program), inputs)


def test_inputs_are_written_after_checks() -> None:
    """The kernel that finds what is refused loads what the copy loads, and stays before it."""
    x = load(0, Affine((1,)), float32)
    flag = Store(1, Affine((0,)), name(0, bool_), each_row=True)
    steps = (
        Kernel("refused", (4,), 0, (Reduce((0,), "any", (x < 0.0,)), flag)),
        ValueCheck(1),
        Kernel("copy", (4,), 1, (Store(0, Affine((1,)), x + 1.0),)),
    )
    buffers = (
        ProgramBuffer(0, float32, 4, BufferKind.INPUT),
        ProgramBuffer(1, bool_, 1, BufferKind.TEMPORARY),
    )
    program = fused(LoopProgram("checked", buffers, steps, (0,), ()))
    given = np.array([1, -1, 0, 2], np.float32)
    with pytest.raises(GivenUp):
        run_program(program, [given])
    assert [1, -1, 0, 2] == given.tolist()


@pytest.mark.parametrize("of_rows", [True, False])
def test_overlapping_windows_are_not_taken_for_a_reshape(of_rows: bool) -> None:
    """Of four values two windows of two: as many points, but not the same ones."""
    value = load(0, Affine((3, 1) if of_rows else (3,)), float32)
    store = Store(1, Affine((1, 0) if of_rows else (1,)), value, each_row=False)
    first = Kernel("stored", (4,), 1, (store,))
    if of_rows:
        row = Store(1, Affine((1, 0)), name(0, float32), each_row=True)
        first = Kernel("stored", (4, 3), 1, (Reduce((0,), "sum", (value,)), row))
    windows = Store(2, Affine((2, 1)), load(1, Affine((1, 1)), float32) * 2.0)
    kernels = (first, Kernel("windows", (2, 2), 2, (windows,)))
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.OUTPUT)
    buffers = [ProgramBuffer(k, float32, 4 if k else 12, kind) for k, kind in enumerate(kinds)]
    placed = tuple([Placed(k, 0, tensor_meta((4,))) for k in (1, 2)])
    program = LoopProgram("windows", tuple(buffers), kernels, (0,), placed)
    inputs = [np.arange(12, dtype=np.float32) ** 2]
    after = fused(program)
    verify(after)
    assert results(program, inputs) == results(after, inputs)
