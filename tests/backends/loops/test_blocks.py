"""The interpreter goes over a kernel block by block: no bit depends on the blocks, values are
forgotten after their last use, and whoever waits for a compiler may leave it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from aotlite.backends.loops.interpreter import kernel_interpreter, program_interpreter
from aotlite.backends.loops.interpreter.kernel_interpreter import boxes
from aotlite.backends.loops.interpreter.program_interpreter import (
    Abandoned,
    allocated,
    interpreted,
    run_step,
)
from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    ProgramBuffer,
    Store,
)
from aotlite.ir.dtypes import float32
from aotlite.ir.scalar.evaluation import uses_of
from aotlite.ir.scalar.expression import Affine, load
from tests.backends.cpu.helpers.chosen_kernels import CHOSEN
from tests.backends.cpu.test_printer import inputs_of
from tests.backends.loops.helpers.drawn_programs import drawn
from tests.thinning import first

SIZES = (1, 3, 8, 50)
"""Points of a block: of these rows, parts of rows and several rows."""


def memory_of(program: LoopProgram, inputs: list[np.ndarray]) -> dict[int, bytes]:
    """The bytes of all buffers after a run, of which some are beside what is stored."""
    memory = allocated(program)
    for array in memory.values():
        array[...] = 0
    numbers = [buffer.number for buffer in program.buffers if buffer.kind is BufferKind.INPUT]
    memory |= zip(numbers, [array.copy() for array in inputs], strict=True)
    for step in program.steps:
        run_step(step, memory)
    return {number: array.tobytes() for number, array in memory.items()}


@pytest.mark.parametrize("extents", [(), *itertools.product((0, 1, 2, 5), repeat=3)])
def test_boxes_are_all_points_in_order(extents: tuple[int, ...]) -> None:
    everything = list(np.ndindex(*extents))
    for most in (1, 2, 4, 7, 100):
        found = list(boxes(extents, most))
        points = [list(itertools.product(*[range(*ends) for ends in box])) for box in found]
        assert everything == list(itertools.chain(*points))
        assert all(math.prod([end - begin for begin, end in box]) <= most for box in found)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seeds", first(range(40), 12))
@pytest.mark.parametrize("most", SIZES)
def test_drawn_programs_have_the_same_bits_in_blocks_of_any_size(
    most: int, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        program, inputs = drawn(seed)
        expected = memory_of(program, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(kernel_interpreter, "POINTS", most)
            assert expected == memory_of(program, inputs), f"seed {seed}"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_kernels_have_the_same_bits_in_blocks_of_any_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = CHOSEN[name]
    inputs = inputs_of(name, program)
    expected = memory_of(program, inputs)
    for most in (50, 2000):
        monkeypatch.setattr(kernel_interpreter, "POINTS", most)
        assert expected == memory_of(program, inputs), most


def test_each_use_is_counted_once() -> None:
    x = load(0, Affine((1,)), float32)
    double = x + x
    uses = uses_of([double, double, -double])
    assert {x: 1, double: 3, -double: 1} == dict(uses)


# ------------------------------------------------------------------------------------- leaving it
def doubled_twice(last: BufferKind) -> LoopProgram:
    """y = 2 x, and z = 2 y, where z may be an input that is overwritten."""
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT, last)
    buffers = tuple([ProgramBuffer(k, float32, 4, kind) for k, kind in enumerate(kinds)])
    steps = [
        Kernel(f"k{k}", (4,), 1, (Store(k + 1, Affine((1,)), load(k, Affine((1,)), float32) * 2),))
        for k in (0, 1)
    ]
    return LoopProgram(
        "doubled", buffers, tuple(steps), (0, 2) if last is BufferKind.INPUT else (0,), ()
    )


def arrays_of(last: BufferKind) -> list[np.ndarray]:
    """In order of slots: inputs before outputs."""
    arrays = [np.ones(4, np.float32), *[np.zeros(4, np.float32) for _ in range(2)]]
    return [arrays[0], arrays[2], arrays[1]] if last is BufferKind.INPUT else arrays


@pytest.mark.parametrize("asked", range(9))
def test_a_run_that_only_computes_may_be_left_at_any_time(asked: int) -> None:
    times = itertools.count()
    execute = interpreted(doubled_twice(BufferKind.OUTPUT), lambda: next(times) >= asked)
    arrays = arrays_of(BufferKind.OUTPUT)
    asks = 8  # before each of two steps, and before each of their three scalars
    if asked < asks:
        with pytest.raises(Abandoned):
            execute(arrays)
    else:
        assert not execute(arrays)
        assert [4.0] * 4 == arrays[2].tolist()
    assert [1.0] * 4 == arrays[0].tolist()


def test_a_run_that_writes_an_input_is_not_left_from_there_on() -> None:
    times = itertools.count()
    execute = interpreted(doubled_twice(BufferKind.INPUT), lambda: next(times) >= 5)
    arrays = arrays_of(BufferKind.INPUT)
    assert not execute(arrays)
    assert [4.0] * 4 == arrays[1].tolist()
    assert 5 == next(times)  # before one step, its three scalars, and what cannot be left
    with pytest.raises(Abandoned):
        interpreted(doubled_twice(BufferKind.INPUT), lambda: True)(arrays)


@pytest.mark.parametrize(("last", "expected"), [(BufferKind.INPUT, [12]), (BufferKind.OUTPUT, [])])
def test_a_run_tells_how_much_follows_that_cannot_be_left(
    last: BufferKind, expected: list[int]
) -> None:
    """Four points of three scalars, once."""
    told: list[int] = []
    interpreted(doubled_twice(last))(arrays_of(last), lambda: False, told.append)
    assert expected == told


SIZES_OF_PRODUCTS = [((), 300, 200, 100), ((3,), 40, 50, 60), ((), 1, 5000, 70), ((2, 2), 9, 9, 9)]


@pytest.mark.parametrize(("batch", "m", "n", "k"), SIZES_OF_PRODUCTS)
def test_products_of_matrices_are_made_in_panels_of_who_may_leave(
    batch: tuple[int, ...], m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_interpreter, "_PANEL", 64 * 64 * 10)
    count = math.prod(batch)

    def window(number: int, rows: int, columns: int) -> MatrixWindow:
        strides = [rows * columns * math.prod(batch[axis + 1 :]) for axis in range(len(batch))]
        return MatrixWindow(number, 0, tuple(strides), columns, 1)

    step = Gemm("g", batch, m, n, k, window(0, m, k), window(1, k, n), window(2, m, n))
    draw = np.random.default_rng(0)
    a = draw.integers(-8, 8, (count, m, k)).astype(np.float32)
    b = draw.integers(-8, 8, (count, k, n)).astype(np.float32)
    memory = {0: a.ravel(), 1: b.ravel(), 2: np.full(count * m * n, 7, np.float32)}
    asked: list[None] = []
    run_step(step, memory, lambda: asked.append(None))
    assert (a @ b).ravel().tolist() == memory[2].tolist()
    assert (1 < len(asked) - 1) == (count * m * n * k > program_interpreter._PANEL)
