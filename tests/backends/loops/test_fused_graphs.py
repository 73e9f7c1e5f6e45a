"""Graphs of real functions, lowered and fused: the same bits, in few kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fusion import row_column_reduction
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import (
    BufferKind,
    GivenUp,
    Kernel,
    LoopProgram,
    loads_of,
    stores_of,
)
from aotlite.backends.loops.verify import verify
from aotlite.ir.graph import Graph
from aotlite.ir.scalar.expression import walk
from aotlite.testing.laws import graphs
from tests.backends.loops.helpers.lowered_sizes import SIZES, lower
from tests.stages.helpers.journeys import journeys


def inputs_of(program: LoopProgram) -> list[np.ndarray | None]:
    """Small numbers for the inputs; integers are 0 or 1."""
    kinds = {buffer.number: buffer for buffer in program.buffers}
    rng = np.random.default_rng(0)
    found: list[np.ndarray | None] = []
    for number in program.inputs:
        if number is None:
            found.append(None)
            continue
        buffer = kinds[number]
        low, high = (-6, 7) if buffer.dtype.is_floating_point else (0, 2)
        values = rng.integers(low, high, buffer.size)
        found.append((values / 4 if high > 2 else values).astype(buffer.dtype.numpy))
    return found


def memories(program: LoopProgram, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    """Outputs, and inputs afterwards."""
    given = [array if array is None else array.copy() for array in inputs]
    memory = run_program(program, given)
    kept = [b.number for b in program.buffers if b.kind in (BufferKind.OUTPUT, BufferKind.INPUT)]
    return [memory[number] for number in kept if number in memory]


def results(program: LoopProgram, inputs: list[np.ndarray | None]) -> list[bytes] | None:
    """The bytes of outputs and of inputs afterwards; None for a program that is given up."""
    try:
        return [array.tobytes() for array in memories(program, inputs)]
    except GivenUp:
        return None


def assert_fused(graph: Graph) -> LoopProgram:
    """That fusing the graph's program changes no bit; the fused program."""
    program = program_of(graph)
    verify(program)
    after = fused(program)
    verify(after)
    verify(improved(program, 2))
    inputs = inputs_of(program)
    assert results(program, inputs) == results(after, inputs), f"{program}\n{after}"
    return after


@pytest.mark.parametrize("case", graphs("forward", "backward"), ids=lambda c: c.name)
def test_fusing_a_graph_changes_no_bit(case: Any) -> None:
    assert_fused(case.graph)


def test_fusing_graphs_of_random_programs_changes_no_bit() -> None:
    for journey in journeys(60):
        for graph in (journey.partition.forward, journey.partition.backward):
            if graph is not None:
                assert_fused(graph)


@pytest.mark.parametrize("lowered", [(), ("rows", "divided", "long lanes"), tuple(SIZES)])
def test_improving_graphs_of_random_programs_changes_no_more_than_roundings(
    lowered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small programs are treated as large ones: nothing of them would be divided otherwise."""
    lower(monkeypatch, lowered)
    for journey in journeys():
        for graph in (journey.partition.forward, journey.partition.backward):
            if graph is not None:
                assert_improved(program_of(graph))


@pytest.mark.parametrize("case", graphs("forward", "backward"), ids=lambda c: c.name)
def test_improving_a_graph_changes_no_more_than_roundings(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, SIZES)
    assert_improved(program_of(case.graph))


def assert_improved(before: LoopProgram) -> None:
    after = improved(before, threads=2)
    verify(after)
    inputs = inputs_of(before)
    try:
        pairs = zip(memories(before, inputs), memories(after, inputs), strict=True)
    except GivenUp:
        return
    for first, second in pairs:
        exact = np.result_type(first, np.int8) if first.dtype.kind in "biu" else np.float64
        # Of small numbers; float16 and bfloat16 are added up in float32.
        tolerance = 1e-9 if first.dtype == np.float64 else 2e-3 if first.itemsize < 4 else 1e-5
        np.testing.assert_allclose(
            first.astype(exact), second.astype(exact), rtol=tolerance, atol=tolerance
        )


def floats(*shape: int) -> al.Tensor:
    """A leaf of small numbers."""
    count = int(np.prod(shape))
    values = np.arange(count, dtype=np.float32).reshape(shape)
    return al.tensor(np.sin(values), requires_grad=True)


def kernels(function: Any, *args: Any) -> tuple[int, int]:
    """How many kernels forward and backward have, after checking that they compute the same."""
    compiled = al.compile(function)
    compiled(*args)
    both = (compiled.forward_graph, compiled.backward_graph)
    forward, backward = [
        sum([type(step) is Kernel for step in assert_fused(graph).steps]) for graph in both
    ]
    return forward, backward


LABELS = np.arange(6) % 5


@pytest.mark.parametrize(
    ("expected", "function", "args"),
    [
        ((1, 1), lambda x: al.softmax(x, -1), (floats(6, 8),)),
        ((1, 1), lambda x: al.log_softmax(x, 0), (floats(6, 8),)),
        # dx is of rows, the gradients of weight and bias are of columns.
        (
            (1, 2),
            lambda x, w, b: al.layer_norm(x, (8,), w, b),
            (floats(6, 8), floats(8), floats(8)),
        ),
        # Rows; the mean of them.
        ((2, 3), lambda x: al.cross_entropy(x, al.tensor(LABELS)), (floats(6, 5),)),
        ((1, 1), lambda x: al.roll(x, 1, 0) + al.roll(x, -1, 1) - 2 * x, (floats(6, 8),)),
        ((1, 1), lambda x, w: al.gelu(x * w) + x, (floats(6, 8), floats(8))),
        ((1, 1), lambda x, y: al.tanh(x.t() + y), (floats(6, 8), floats(8, 6))),
    ],
    ids=["softmax", "log_softmax", "layer_norm", "cross_entropy", "stencil", "gelu", "transposed"],
)
def test_real_functions_become_few_kernels(expected: tuple, function: Any, args: tuple) -> None:
    assert expected == kernels(function, *args)


@pytest.mark.parametrize(("rows", "steps"), [(16, 2), (19, 3)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: al.layer_norm(x, (8,), w, b),
        lambda x, w, b: al.softmax(x * w + b, -1),
        lambda x, w, b: (x + b) / (x * x).sum(-1, keepdim=True) * w,
    ],
    ids=["layer_norm", "softmax", "quotient"],
)
def test_columns_are_summed_while_rows_are_computed(
    function: Any, rows: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are left over by chunks of equal size are one more kernel."""
    monkeypatch.setattr(row_column_reduction, "SMALL", 8)
    compiled = al.compile(function)
    compiled(floats(rows, 8), floats(8), floats(8))
    before = canonical(fused(program_of(compiled.backward_graph)))
    after = row_column_reduction.with_columns(before, 1)
    verify(after)
    assert steps == len(after.steps)
    assert "from identity" in str(after.steps[0])
    assert "from identity" in str(after.steps[-2])
    inputs = inputs_of(before)
    for first, second in zip(memories(before, inputs), memories(after, inputs), strict=True):
        # Sums of up to 19 values of magnitude up to 20, in float32.
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-4)


def test_what_lies_across_stays_in_kernels_that_transpose() -> None:
    """A sum of columns does not take in what loads rows; a small one does."""
    for size, expected in ((256, 2), (8, 1)):
        compiled = al.compile(lambda x, y, z: x.t() * y * z)
        compiled(floats(size, size), al.zeros((size, size)), floats(size))
        graph = compiled.backward_graph
        assert graph is not None
        after = fused(program_of(graph))
        assert expected == len(after.steps)


def test_long_columns_are_not_gone_over_again_and_again() -> None:
    for rows, expected in ((4096, 3), (32, 1)):
        graph = al.capture(lambda x: al.softmax(x, 0))(al.zeros((rows, 256)))
        assert expected == len(fused(program_of(graph)).steps)


@pytest.mark.parametrize("rows", [4, 40, 300])
def test_positions_that_a_merged_kernel_computes_are_those_of_its_gather(rows: int) -> None:
    """The gather reads what its kernel computes again; its positions, an output, are stored there
    as well, and were loaded from memory that nothing had been stored to."""

    def gathered(x: Any, y: Any) -> Any:
        v = y[1:2] + x
        places = (v.clamp(-3, 3) * 0 + 2).to(al.int64).clamp(0, rows - 1)
        return (v - v.amax(0)).gather(0, places), places

    rng = np.random.default_rng(0)
    x, y = (al.tensor(rng.standard_normal((rows, 1))) for _ in range(2))
    graph = al.capture(gathered)(x, y)
    after = fused(program_of(graph))
    for kernel in [step for step in after.steps if type(step) is Kernel]:
        stored = {store.buffer for store in stores_of(kernel)}
        for load in loads_of(kernel):
            inside = [each for position in load.operands for each in walk([position])]
            assert not any(each.op == "load" and each.args[0] in stored for each in inside)
    memory = run_program(after, [np.asarray(each).reshape(-1) for each in (x, y)])
    placed = after.outputs[0]
    assert placed is not None
    assert np.array_equal(memory[placed.buffer], np.asarray(gathered(x, y)[0]).reshape(-1))
