"""Graphs that write their inputs: all is read before it is written, also after every pass."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import BufferKind, ValueCheck, writes
from aotlite.backends.loops.verify import verify
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from tests.backends.loops.test_lowering import flat, run_reference, seen

# (what becomes of x, what becomes of y, results): functions of two matrices.
CASES = {
    "transposed": lambda x, y: (x.t() * 2.0, None, []),
    "swapped": lambda x, y: (y * 2.0, x + 1.0, []),
    "momentum": lambda x, y: (x - y * 0.5, y * 0.5, [(x * y).sum()]),
    "flipped": lambda x, y: (x.flip((0,)), None, []),
    "rolled": lambda x, y: (x.roll((1,), (0,)) + y, y + x, [x.sum()]),
    "rows": lambda x, y: (x - x.sum((1,), True), x.sum((0,), True).expand((3, 3)) * 1.0, []),
    "crossed": lambda x, y: (x.t() + y, (x.t() + y) * 2.0, [(x.t() + y).sum()]),
    "product": lambda x, y: (x @ y, (x @ y).t() + x, []),
    "returned": lambda x, y: (x * 2.0, None, [x.t() * 3.0, y.select(0, 0)]),
    "placed": lambda x, y: (
        x.select_scatter(y.select(0, 0), 0, 1),
        y.slice_scatter(x.slice(0, 0, 2, 1), 0, 0, 2, 1),
        [],
    ),
}


def closing_graph(function):
    build = Builder("closing")
    inputs = [build.placeholder(tensor_meta((3, 3))) for _ in range(2)]
    *values, results = function(*inputs)
    for into, value in zip(inputs, values, strict=True):
        if value is not None:
            build.call(OPS["copy_"], (into, value))
    return build.finish(results)


@pytest.mark.rules("LOOP-3")
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", CASES)
def test_inputs_are_read_before_they_are_written(name, threads):
    """As lowered, and as passes leave it for two threads."""
    graph = closing_graph(CASES[name])
    program = improved(program_of(graph), threads) if threads else program_of(graph)
    verify(program)
    arrays = [np.arange(9, dtype=np.float32).reshape(3, 3) - k for k in (4, 1)]
    memories, results = run_reference(graph, arrays)
    given = [flat(node.meta, a) for node, a in zip(graph.placeholders, arrays, strict=True)]
    read = [None if n is None else a for n, a in zip(program.inputs, given, strict=True)]
    after = run_program(program, read)
    expected = [each.tolist() for each in [*memories, *results]]
    got = [*given, *[seen(after[o.buffer], o) for o in program.outputs]]
    assert expected == [each.tolist() for each in got]


@pytest.mark.rules("LOOP-3", "LOOP-8")
@pytest.mark.parametrize("threads", [0, 2])
def test_inputs_are_written_behind_the_last_check(threads):
    def function(x, y, i):
        x.mul_(2.0)
        taken = y.gather(0, i)
        y.add_(x)
        return taken * x

    args = al.ones(3, 3), al.ones(3, 3), al.full((3, 3), 7, dtype=al.int64)
    compiled = al.compile(function, keep_inference_input_mutations=True, backend="loops")
    with al.no_grad():
        graph = al.inspect.stages_of(compiled, *args)["forward"]
    program = program_of(graph)
    program = improved(program, threads) if threads else program
    inputs = {b.number for b in program.buffers if b.kind is BufferKind.INPUT}
    last = max(k for k, step in enumerate(program.steps) if type(step) is ValueCheck)
    assert not any(inputs & writes(step) for step in program.steps[:last])
    assert 2 == sum(len(inputs & writes(step)) for step in program.steps[last:])
    with al.no_grad(), pytest.raises(al.IndexOutOfRangeError, match="gather: an index is 7"):
        compiled(*args)
    assert ([3.0] * 3, [3.0] * 3) == (args[0].sum(0).tolist(), args[1].sum(0).tolist())


@pytest.mark.rules("LOOP-3")
@pytest.mark.parametrize("backend", ["loops", "cpu"])
@pytest.mark.parametrize("shape", [((2, 2), (0, 1)), ((2, 2, 2), (0, 2, 1)), ((3, 2), (1, 1))])
def test_an_argument_that_overlaps_itself_is_written_once(backend, shape):
    """Found by random programs: each repetition of a row had doubled it again."""

    def double(x):
        x.select(0, 0).mul_(2)

    memories = []
    for function in (double, al.compile(double, backend=backend)):
        memory = al.tensor([-3.0, 2.0, 5.0, 7.0])
        function(memory.as_strided(*shape))
        memories.append(memory.tolist())
    assert memories[0] == memories[1]
