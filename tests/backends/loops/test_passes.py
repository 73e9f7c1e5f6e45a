"""Canonical axes, divided reductions, schedules and memory plans, over random programs."""

from __future__ import annotations

import itertools
import math

import attrs
import numpy as np
import pytest

from aotlite.backends.loops.arena import ALIGNMENT, lives_of, planned
from aotlite.backends.loops.interpreter.program_interpreter import allocated, run_program, run_step
from aotlite.backends.loops.passes import split_reductions as splitting
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fill_forwarding import with_fills
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.passes.split_reductions import split
from aotlite.backends.loops.passes.vectorization import vector_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    Placed,
    ProgramBuffer,
    Reduce,
    Step,
    Store,
    loads_of,
    stores_of,
)
from aotlite.backends.loops.verify import verify
from aotlite.ir.dtypes import DType, float32, int64
from aotlite.ir.meta import tensor_meta
from aotlite.ir.scalar.expression import Affine, axis, const, load, make, name, where
from tests.backends.loops.helpers.drawn_programs import drawn

SEEDS = range(1000, 1040)


def arrays(program: LoopProgram, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The memory of all outputs, and the inputs afterwards."""
    given = [array.copy() for array in inputs]
    memory = run_program(program, given)
    return [*[memory[p.buffer] for p in program.outputs if p is not None], *given]


def as_bytes(found: list[np.ndarray]) -> list[bytes]:
    """Their bytes."""
    return [array.tobytes() for array in found]


def test_canonical_axes_change_no_bit() -> None:
    for seed in SEEDS:
        program, inputs = drawn(seed)
        for before in (program, fused(program)):
            after = canonical(before)
            verify(after)
            assert as_bytes(arrays(before, inputs)) == as_bytes(arrays(after, inputs)), seed


def test_a_contiguous_kernel_has_one_axis_and_a_transposed_one_the_stores_order() -> None:
    x = load(0, Affine((1, 12, 4)), float32)
    flat = Kernel("flat", (4, 2, 3), 3, (Store(2, Affine((1, 12, 4)), x),))
    turned = Kernel(
        "turned", (3, 12), 2, (Store(2, Affine((1, 3)), load(1, Affine((12, 1)), float32)),)
    )
    found = canonical(LoopProgram("p", (), (flat, turned), (), ())).steps
    assert (24,) == found[0].extents  # type: ignore[union-attr]
    assert "kernel turned[i0<12, i1<3]:\n  b2[3*i0 + i1] = b1[i0 + 12*i1]" == str(found[1])


def test_dividing_reductions_changes_sums_by_rounding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SMALL", 8)
    monkeypatch.setattr(splitting, "SHORTEST", 1)
    monkeypatch.setattr(splitting, "columns_abreast", lambda kernel: 2)
    divided = 0
    for seed in SEEDS:
        program, inputs = drawn(seed)
        before = canonical(fused(program))
        after = split(before, 2)
        verify(after)
        verify(improved(program, 2))
        divided += len(after.steps) - len(before.steps)
        for step in (after, improved(program, 2)):
            for a, b in zip(arrays(before, inputs), arrays(step, inputs), strict=True):
                # Sums of up to 600 values of magnitude up to 1e4, in float32.
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-2, err_msg=f"seed {seed}")
    assert divided > 5


@pytest.mark.parametrize(
    ("rows", "points", "vector"),
    [(4096, 10, 0), (4096, 31, 0), (4096, 24, 1), (4096, 33, 1), (63, 10, 1)],
)
def test_short_rows_that_fill_no_vectors_are_computed_side_by_side(
    rows: int, points: int, vector: int
) -> None:
    """FUS-15: ten classes took three times as long row by row."""
    value = load(0, Affine((points, 1)), float32)
    store = Store(1, Affine((1, 0)), name(0, float32), each_row=True)
    kernel = Kernel("sum", (rows, points), 1, (Reduce((0,), "sum", (value,)), store))
    assert vector == vector_axis(kernel)


def test_a_full_sum_is_divided_and_a_row_sum_is_not() -> None:
    def summed(rows: int, points: int) -> list[str]:
        value = load(0, Affine((points, 1)), float32)
        store = Store(1, Affine((1, 0)), name(0, float32) * 2.0, each_row=True)
        kernel = Kernel("sum", (rows, points), 1, (Reduce((0,), "sum", (value,)), store))
        buffers = (
            ProgramBuffer(0, float32, rows * points, BufferKind.INPUT),
            ProgramBuffer(1, float32, rows, BufferKind.OUTPUT),
        )
        placed = Placed(1, 0, tensor_meta((rows,)))
        return [
            str(step)
            for step in improved(LoopProgram("p", buffers, (kernel,), (0,), (placed,)), 2).steps
        ]

    assert [
        "kernel sum[i0<32, *i1<32768]:\n"
        "  v0 = reduce<sum lanes=64>(b0[32768*i0 + i1])\n"
        "  each row: b2[i0] = v0",
        "kernel sum_rest[*i0<32]:\n"
        "  v0 = reduce<sum lanes=32>(b2[i0])\n"
        "  each row: b1[0] = (v0 * 2.0)",
    ] == summed(1, 1 << 20)
    assert 1 == len(summed(1024, 1024))
    for rows, points in ((8192, 4), (10_000, 4), (16_384, 2), (4096, 15)):
        # Partial results would be as many numbers as there are to be added, or nearly.
        assert 1 == len(summed(rows, points))


def test_living_temporaries_never_share_memory() -> None:
    """Run with the arena as memory, a program gives the same bits."""
    shared = 0
    for seed in SEEDS:
        program, inputs = drawn(seed)
        for before in (program, improved(program, 2)):
            plan, lives = planned(before), lives_of(before)
            sizes = {b.number: b.size * b.dtype.itemsize for b in before.buffers}
            assert all(start % ALIGNMENT == 0 for start in plan.offsets.values())
            assert all(start + sizes[n] <= plan.size for n, start in plan.offsets.items())
            shared += sum([sizes[n] for n in lives]) > plan.size
            for a, b in itertools.combinations(plan.offsets, 2):
                first, second = plan.offsets[a], plan.offsets[b]
                if first < second + sizes[b] and second < first + sizes[a]:
                    early, late = sorted((a, b), key=lambda n: lives[n])
                    assert lives[early][1] <= lives[late][0]
                    if lives[early][1] == lives[late][0]:
                        _assert_in_place(before.steps[lives[late][0]], early, late)
                        assert first == second
            assert as_bytes(arrays(before, inputs)) == as_bytes(_in_arena(before, inputs)), seed
    assert shared > 25


def _assert_in_place(step: Step, dying: int, born: int) -> None:
    """That a kernel loads what dies where it stores what is born, and nowhere else."""
    assert isinstance(step, Kernel)
    assert step.space == len(step.extents)
    addresses = {value.args[1] for value in loads_of(step) if value.args[0] == dying}
    assert addresses == {store.address for store in stores_of(step) if store.buffer == born}


def _in_arena(program: LoopProgram, inputs: list[np.ndarray]) -> list[np.ndarray]:
    plan = planned(program)
    arena = np.full(plan.size, 0xA5, np.uint8)
    given = [array.copy() for array in inputs]
    memory = allocated(program)
    memory.update({n: a for n, a in zip(program.inputs, given, strict=True) if n is not None})
    for buffer in program.buffers:
        if buffer.kind is BufferKind.TEMPORARY:
            start = plan.offsets.get(buffer.number, 0)
            end = start + buffer.size * buffer.dtype.itemsize
            memory[buffer.number] = arena[start:end].view(buffer.dtype.numpy)
    for step in program.steps:
        run_step(step, memory)
    return [*[memory[p.buffer] for p in program.outputs if p is not None], *given]


def _one_kernel(kernel: Kernel, sizes: tuple[int, int], dtype: DType) -> LoopProgram:
    """A kernel with an int64 input b0, an input b1, and an output b2."""
    buffers = (
        ProgramBuffer(0, int64, sizes[0], BufferKind.INPUT),
        ProgramBuffer(1, dtype, sizes[0], BufferKind.INPUT),
        ProgramBuffer(2, dtype, sizes[1], BufferKind.OUTPUT),
    )
    placed = Placed(2, 0, tensor_meta((sizes[1],), None, dtype))
    return LoopProgram("p", buffers, (kernel,), (0, 1), (placed,))


@pytest.mark.parametrize("dtype", [float32, int64])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_sum_of_one_term_is_that_term(dtype: DType, lanes: int) -> None:
    """Rows whose place is outside sum to 0.0; so does one whose term is -0.0."""
    place, value = load(0, Affine((1, 0)), int64), load(1, Affine((1, 0)), dtype)
    term = where(make("eq", place, axis(1)), value, const(0, dtype))
    store = Store(2, Affine((1, 0)), name(0, dtype), each_row=True)
    kernel = Kernel("selected", (6, 5), 1, (Reduce((0,), "sum", (term,), lanes), store))
    program = _one_kernel(kernel, (6, 6), dtype)
    after = canonical(program)
    places: np.ndarray = np.array([0, 4, 5, -1, 2, 3])
    values: np.ndarray = np.array([1.5, -0.0, 7, 8, -0.0, 3], dtype.numpy)
    inputs: list[np.ndarray] = [places, values]
    assert "reduce" in str(program)
    assert "reduce" not in str(after)
    assert as_bytes(arrays(program, inputs)) == as_bytes(arrays(after, inputs))


@pytest.mark.parametrize(
    ("extents", "steps", "start", "size", "parts"),
    [
        ((6, 4), (8, 2), 0, 48, 2),  # x[:, ::2]
        ((6, 4), (8, 2), 1, 48, 2),  # x[:, 1::2]
        ((6, 4), (12, 1), 8, 72, 3),  # x[2::3] of rows of 4, or x[:, 8:] of rows of 12
        ((6, 4), (4, 1), 24, 48, 2),  # the second half
        ((6, 4), (5, 1), 0, 30, 1),  # a part that is no n-th
        ((6, 2), (16, 1), 0, 96, 8),
        ((6, 2), (18, 1), 0, 108, 1),  # too many parts
    ],
)
def test_a_fill_is_made_by_what_overwrites_it(
    extents: tuple[int, ...], steps: tuple[int, ...], start: int, size: int, parts: int
) -> None:
    loaded = load(1, Affine((extents[1], 1)), float32)
    fill = Kernel("fill", (size,), 1, (Store(2, Affine((1,)), const(2.5, float32)),))
    part = Kernel("part", extents, 2, (Store(2, Affine(steps, start), loaded),))
    before = _one_kernel(part, (math.prod(extents), size), float32)
    before = attrs.evolve(before, steps=(fill, part))
    after = with_fills(before)
    verify(after)
    inputs: list[np.ndarray] = [
        np.zeros(24, np.int64),
        np.arange(math.prod(extents), dtype=np.float32),
    ]
    assert as_bytes(arrays(before, inputs)) == as_bytes(arrays(after, inputs))
    found = (len(after.steps), len(after.steps[-1].body))  # type: ignore[union-attr]
    assert ((2, 1) if parts == 1 else (1, parts)) == found


def test_a_fill_that_is_read_before_stays() -> None:
    fill = Kernel("fill", (8,), 1, (Store(2, Affine((1,)), const(2.5, float32)),))
    read = Kernel("read", (4,), 1, (Store(3, Affine((1,)), load(2, Affine((2,)), float32)),))
    part = Kernel("part", (4,), 1, (Store(2, Affine((2,)), load(1, Affine((1,)), float32)),))
    before = _one_kernel(part, (4, 8), float32)
    buffers = (*before.buffers, ProgramBuffer(3, float32, 4, BufferKind.TEMPORARY))
    before = attrs.evolve(before, buffers=buffers, steps=(fill, read, part))
    assert 3 == len(with_fills(before).steps)
