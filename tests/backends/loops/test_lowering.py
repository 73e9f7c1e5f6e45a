"""What a lowered graph computes on the interpreter is what the ops' own kernels compute."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.interpreter.program_interpreter import run_program, strided
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    GivenUp,
    Kernel,
    LoopProgram,
    Store,
    ValueCheck,
    values_of,
)
from aotlite.backends.loops.verify import verify
from aotlite.backends.reference import REFERENCE
from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.scalar.expression import walk
from aotlite.ir.scalar.primitives import PRIMITIVES
from aotlite.testing.laws import graphs, graphs_of
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys
from tests.thinning import first

_SAMPLES = 12
"""Samples of each op, spread over those that there are. The long profile takes all."""
_CHAINED = -800
"""Of a whole graph, whose differences cancel; of an op alone it is these."""
_ALONE = {"exact": 0, "functions": 8, "sums": -8}
"""Functions of the library are within a few units of NumPy's, and sums of another order."""


def with_loops(op):
    return type(op) is PureOp and (op.loops is not None or op.computes is not None)


OPS_WITH_LOOPS = sorted(name for name, op in OPS.items() if with_loops(op))


def flat(meta, array):
    memory = np.zeros(meta.span, meta.dtype.numpy)
    if meta.numel:
        strided(memory, 0, meta.shape, meta.stride)[...] = array
    return memory


def run_lowered(graph, arrays):
    """(program, inputs' memory afterwards, outputs)."""
    program = lower(graph)
    verify(program)
    given = [flat(node.meta, a) for node, a in zip(graph.placeholders, arrays, strict=True)]
    read = [None if n is None else a for n, a in zip(program.inputs, given, strict=True)]
    memory = run_program(program, read)
    outputs = [None if o is None else seen(memory[o.buffer], o) for o in program.outputs]
    return program, given, outputs


def seen(memory, placed):
    return strided(
        memory.view(placed.meta.dtype.numpy), placed.start, placed.meta.shape, placed.meta.stride
    )


def run_reference(graph, arrays):
    """(inputs' memory afterwards, outputs)."""
    buffers = []
    for node, array in zip(graph.placeholders, arrays, strict=True):
        buffer = NUMPY.allocate(node.meta.span, node.meta.dtype)
        buffer[...] = 0
        meta = node.meta
        NUMPY.copy(NUMPY.strided(buffer, meta.dtype, meta.shape, meta.stride, 0), array)
        buffers.append(buffer)
    windows = REFERENCE.compile(graph)([(buffer, 0) for buffer in buffers])
    outputs = [
        None if w is None else NUMPY.strided(w[0], v.meta.dtype, v.meta.shape, v.meta.stride, w[1])
        for v, w in zip(graph.outputs, windows, strict=True)
    ]
    return [
        b.view(n.dtype.numpy) for b, n in zip(buffers, graph.placeholders, strict=True)
    ], outputs


def arithmetic_of(program: LoopProgram) -> str:
    """What is computed: "exact" operations on elements, "functions" of the library, or "sums"."""
    kinds = {_arithmetic(step) for step in program.steps}
    return next((kind for kind in ("sums", "functions") if kind in kinds), "exact")


def _arithmetic(step):
    if type(step) in (Extern, ValueCheck):
        return "exact"
    if type(step) is not Kernel or any(type(s) is not Store or s.combine for s in step.body):
        return "sums"
    values = walk([value for statement in step.body for value in values_of(statement)])
    return "exact" if all(value.op in PRIMITIVES for value in values) else "functions"


def assert_same(expected, got, units, where):
    """Equal, up to so many units in the last place; those of the largest element, if negative."""
    if expected is None or got is None:
        assert expected is got, where
        return
    assert (expected.shape, expected.dtype) == (got.shape, got.dtype), where
    same = expected == got
    if expected.dtype.kind not in "iub":
        same |= (expected != expected) & (got != got)
    if units and expected.dtype.kind not in "iubc":
        finite = np.where(np.isfinite(expected), np.abs(expected), 0)
        largest = finite.max(initial=0) if units < 0 else finite
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))
        same |= apart <= abs(units) * np.spacing(largest).astype(np.float64)
    assert np.all(same), where


def assert_lowered(graph, arrays, where, chained=0):
    program, memories, got = run_lowered(graph, arrays)
    expected_memories, expected = run_reference(graph, arrays)
    alone = _ALONE[arithmetic_of(program)]
    with np.errstate(all="ignore"):
        for pair in zip([*expected_memories, *expected], [*memories, *got], strict=True):
            assert_same(*pair, alone and (chained or alone), where)


def check(name, samples):
    for case in graphs_of(name, samples):
        assert_lowered(case.graph, case.arrays, f"{case.name}\n{lower(case.graph)}")


# ------------------------------------------------------------------------------------- single ops
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_an_op_lowered_is_its_kernel(name):
    samples = samples_of(name)
    check(name, samples[:: max(len(samples) // _SAMPLES, 1)])


@pytest.mark.long
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_an_op_lowered_is_its_kernel_on_every_sample(name):
    check(name, samples_of(name))


# ------------------------------------------------------------------------------------ whole graphs
@pytest.mark.parametrize("case", graphs("forward", "backward", "closing"), ids=lambda c: c.name)
def test_a_graph_lowered_is_the_graph(case):
    arrays = case.arrays or [drawn(node.meta, k) for k, node in enumerate(case.graph.placeholders)]
    assert_lowered(case.graph, arrays, f"{case.graph}\n{lower(case.graph)}", _CHAINED)


def drawn(meta, seed):
    """Small integers: sums of them are exact in every order. Places are 0 or 1."""
    least, end = (-3, 4) if meta.dtype.is_floating_point else (0, 2)
    values = np.random.default_rng(seed).integers(least, end, meta.shape)
    return (values * (4 if meta.dtype is al.uint64 else 1)).astype(meta.dtype.numpy)  # offsets


@pytest.mark.parametrize("numbers", first(range(200), 20))
def test_graphs_of_random_programs_lowered_are_the_graphs(numbers):
    for journey in journeys(200 if numbers.start else None)[numbers.start : numbers.stop]:
        for graph in (journey.partition.forward, journey.partition.backward):
            if graph is not None:
                arrays = [drawn(node.meta, k) for k, node in enumerate(graph.placeholders)]
                assert_lowered(graph, arrays, str(graph), _CHAINED)


# ------------------------------------------------------------------------------------- structure
def captured(function, *shapes):
    return al.capture(function)(*[al.zeros(shape) for shape in shapes])


@pytest.mark.rules("LOOP-1")
def test_views_make_no_step():
    graph = captured(lambda x: x.t()[1:].unsqueeze(0).expand(2, 2, 2), (2, 3))
    program = lower(graph)
    assert ((), [BufferKind.INPUT]) == (program.steps, [b.kind for b in program.buffers])
    (placed,) = program.outputs
    assert (0, 1, (2, 2, 2), (0, 1, 3)) == (
        placed.buffer,
        placed.start,
        placed.meta.shape,
        placed.meta.stride,
    )


@pytest.mark.rules("LOOP-1")
def test_an_input_that_nothing_reads_has_no_buffer():
    assert (0, None) == lower(captured(lambda x, y: x * 2.0, (2,), (3,))).inputs


@pytest.mark.rules("LOOP-2")
def test_a_constant_that_is_returned_is_copied_once():
    def function(x):
        c = al.tensor([1.0, 2.0])
        return c, c.view(2, 1), x

    program = lower(captured(function, (1,)))
    first, second, _ = program.outputs
    assert first.buffer == second.buffer
    assert program.buffers[first.buffer].kind is BufferKind.OUTPUT


@pytest.mark.rules("LOOP-3")
def test_what_closing_copies_read_of_inputs_is_read_before_any_is_written():
    """Two inputs that change places."""
    build = Builder("swap")
    x, y = (build.placeholder(tensor_meta((3,))) for _ in range(2))
    for into, value in ((x, y), (y, x)):
        build.call(OPS["copy_"], (into, value))
    graph = build.finish([])
    arrays = [np.arange(3, dtype=np.float32), np.full(3, 7, np.float32)]
    _, memories, _ = run_lowered(graph, arrays)
    assert [arrays[1].tolist(), arrays[0].tolist()] == [m.tolist() for m in memories]


@pytest.mark.rules("LOOP-4")
def test_axes_follow_the_memory_of_the_result():
    (kernel,) = lower(captured(lambda x: x.t().unsqueeze(1) * 2.0, (4, 3))).steps
    assert ((4, 3), 2) == (kernel.extents, kernel.space)
    assert (3, 1) == kernel.body[0].address.coefficients


@pytest.mark.rules("LOOP-5")
@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16], ids=str)
@pytest.mark.parametrize("function", [lambda a, b: a + b, lambda a, b: b - a, lambda a, b: a * b])
def test_operands_are_rounded_to_16_bits_before_they_are_widened(function, dtype):
    """A number, or a tensor that counts as one, is rounded first, where the op's kernel does so."""
    a, b = al.zeros(3, dtype=dtype), al.zeros((), dtype=al.float64)
    for graph in (al.capture(function)(a, b), al.capture(lambda a: function(a, 1 / 3))(a)):
        assert not any(type(step) is Extern for step in lower(graph).steps)
        arrays = [np.array([1.0, 0.1, 3000.0], dtype.numpy), np.float64(1 / 3)]
        assert_lowered(graph, arrays[: len(graph.placeholders)], str(graph))


@pytest.mark.rules("LOOP-6")
@pytest.mark.parametrize(
    ("function", "is_extern"),
    [
        (lambda x: x // 0, True),
        (lambda x: x & 3, False),
        (lambda x: x.masked_fill(x > 1, 2**40), True),
        (lambda x: x.masked_fill(x > 1, 2**20), False),
    ],
)
def test_numbers_that_an_op_refuses_are_left_to_it(function, is_extern):
    program = lower(al.capture(function)(al.zeros(3, dtype=al.int32)))
    assert is_extern is any(type(step) is Extern for step in program.steps)


def quotient(x, y):
    return x.div(y, rounding_mode="trunc") + 1


@pytest.mark.rules("LOOP-6")
def test_a_program_is_given_up_where_integers_are_divided_by_zero():
    graph = al.capture(quotient)(*[al.zeros(3, dtype=al.int32) for _ in range(2)])
    low = np.iinfo(np.int32).min
    assert_lowered(graph, [np.array([7, -7, low], np.int32), np.array([2, 2, -1], np.int32)], "")
    with pytest.raises(GivenUp):
        run_lowered(graph, [np.ones(3, np.int32), np.array([1, 0, 1], np.int32)])
    x, y = al.ones(3, dtype=al.int32), al.zeros(3, dtype=al.int32)
    with pytest.raises(al.ArgumentError, match="div: a divisor is 0"):
        al.compile(quotient, backend="loops")(x, y)


@pytest.mark.rules("LOOP-7")
@pytest.mark.parametrize("dtype", [al.int32, al.int64, al.int16, al.float64, al.uint8], ids=str)
def test_memory_seen_as_another_dtype(dtype):
    graph = al.capture(lambda x: (x[1:].view(dtype) == 3, x.view(dtype)))(al.zeros(3, 2))
    values = np.array([[1.5, 2.5], [4e-45, 0.0], [-3.0, 4e-45]], np.float32)
    assert_lowered(graph, [values], str(graph))
