"""Reductions, products, convolutions, pooling and indexing as loops: exact on small integers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.combiners import COMBINERS
from aotlite.backends.loops.interpreter.program_interpreter import (
    reduced,
    run_program,
    scanned,
    strided,
)
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.program import Extern, Gemm, Kernel, LoopProgram, Reduce
from aotlite.backends.loops.verify import verify
from aotlite.ir.dtypes import float16, float32, float64, int64
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.scalar.expression import const
from aotlite.testing.laws import graphs_of
from tests.samples import samples_of
from tests.test_decompositions import close

AS_THEY_ARE = {
    "index_fill": "fractions are cut off for integers",
    "scatter": "fractions are cut off for integers",
    "scatter_reduce": "of bools, and of 16 bits, which are rounded one by one",
    "view_dtype_copy": "elements of several sizes",
}
"""Ops of which some real samples have no loop form, and why."""


def is_real(graph: Graph) -> bool:
    metas = [node.meta for node in graph.nodes if type(node.meta) is TensorMeta]
    return not any(meta.dtype.is_complex for meta in metas)


def ran(program: LoopProgram, arrays: Any) -> list[Any]:
    memory = run_program(program, arrays)
    return [
        strided(memory[o.buffer], o.start, o.meta.shape, o.meta.stride)
        for o in program.outputs
        if o is not None
    ]


def flat(meta: TensorMeta, array: Any) -> Any:
    memory = np.zeros(meta.span, meta.dtype.numpy)
    if meta.numel:
        strided(memory, 0, meta.shape, meta.stride)[...] = array
    return memory


def assert_exact(graph: Graph, seed: int) -> LoopProgram:
    """The program of the graph, which computes on small integers exactly what the graph does."""
    draw = np.random.default_rng(seed)
    program = program_of(graph)
    verify(program)
    metas: list[Any] = [node.meta for node in graph.placeholders]
    arrays = [draw.integers(-3, 4, m.shape).astype(m.dtype.numpy) for m in metas]
    expected = run_graph(graph, *arrays)
    flats = [flat(m, a) for m, a in zip(metas, arrays, strict=True)]
    for got, value, node in zip(ran(program, flats), expected, graph.outputs, strict=True):
        np.testing.assert_array_equal(got, value, err_msg=f"{graph}\n{program}")
        assert [placed.meta for placed in program.outputs if placed] == [node.meta]
    return program


# ------------------------------------------------------------------------------------ every sample
IN_LOOPS = sorted(
    op.name
    for op in OPS.values()
    if type(op) is PureOp
    and (op.loops or op.expands)
    and not op.scalar
    and op.cost in (Cost.REDUCTION, Cost.CONTRACTION, Cost.INDEXING)
)


@pytest.mark.parametrize("name", IN_LOOPS)
def test_an_op_is_kernels_on_every_real_sample(name: str) -> None:
    """In valid programs, but for what `AS_THEY_ARE` says. Functions may be missing."""
    kept = 0
    for case in graphs_of(name, samples_of(name)):
        if is_real(case.graph):
            program = program_of(case.graph)
            verify(program)
            kept += any(type(s) is Extern and s.op.name == name for s in program.steps)
    assert (kept > 0) == (name in AS_THEY_ARE)


# ------------------------------------------------------------------------------------- products
def matrix(draw: random.Random, batch: tuple[int, ...], rows: int, columns: int) -> TensorMeta:
    """Dense, transposed, with gaps, or repeated rows or batches."""
    way = draw.choice(("dense", "turned", "gaps", "repeated", "turned gaps"))
    rows, columns = (columns, rows) if way.startswith("turned") else (rows, columns)
    stride = list(tensor_meta((*batch, rows, columns)).stride)
    if "gaps" in way:
        stride = [2 * step for step in stride]
    if way == "repeated":
        stride[draw.randrange(len(stride))] = 0
    shape = [*batch, rows, columns]
    if way.startswith("turned"):
        shape[-2:], stride[-2:] = shape[:-3:-1], stride[:-3:-1]
    return tensor_meta(shape, stride, draw.choice((float32, float64)))


def test_products_of_matrices_of_all_layouts_are_exact() -> None:
    """Windows for BLAS where it reads the operands as they lie, else copies."""
    draw, steps = random.Random(3), set[type]()
    for seed in range(150):
        batch = draw.choice(((), (), (2,), (2, 3), (1, 3)))
        m, n, inner = (draw.choice((0, 1, 2, 3, 5)) for _ in range(3))
        left = matrix(draw, batch, m, inner)
        right = matrix(draw, draw.choice((batch, ())), inner, n)
        build = Builder("product")
        operands = [build.placeholder(meta.with_dtype(left.dtype)) for meta in (left, right)]
        graph = build.finish([build.call(OPS["matmul"], tuple(operands))])
        program = assert_exact(graph, seed)
        steps |= {type(step) for step in program.steps}
        for step in program.steps:
            if type(step) is Gemm:
                assert all(1 in (w.row, w.column) for w in (step.a, step.b)) and step.c.column == 1
    assert {Gemm, Kernel} == steps


def test_a_batch_of_rows_times_one_matrix_is_one_product() -> None:
    build = Builder("layer")
    x, w = build.placeholder(tensor_meta((4, 8, 16))), build.placeholder(tensor_meta((16, 5)))
    (step,) = program_of(build.finish([x.matmul(w)])).steps
    assert type(step) is Gemm and ((), 32) == (step.batch, step.m)


def test_a_batch_that_is_one_matrix_repeated_is_not_taken_for_rows() -> None:
    build = Builder("repeated")
    x, w = build.placeholder(tensor_meta((4, 5), (10, 1))), build.placeholder(tensor_meta((5, 6)))
    graph = build.finish([x.expand((3, 4, 5)).matmul(w)])
    (step,) = assert_exact(graph, 1).steps
    assert type(step) is Gemm and (3,) == step.batch


@pytest.mark.parametrize("shapes", [((64, 32), (32,)), ((32,), (32,)), ((1, 32), (32, 64))])
def test_products_by_vectors_are_kernels(shapes: Any) -> None:
    build = Builder("vectors")
    operands = [build.placeholder(tensor_meta(shape)) for shape in shapes]
    (step,) = program_of(build.finish([operands[0].matmul(operands[1])])).steps
    assert type(step) is Kernel and type(step.body[0]) is Reduce


# ---------------------------------------------------------------------------------- convolutions
def image(draw: random.Random, shape: tuple[int, ...], dtype: Any) -> TensorMeta:
    _, channels, height, width = shape
    last = (height * width * channels, 1, width * channels, channels)
    return tensor_meta(shape, last if draw.random() < 0.4 else None, dtype)


def drawn_convolution(draw: random.Random) -> tuple[Any, ...]:
    """(dtype, input's shape, weight's shape, stride, padding, dilation, groups)."""
    groups, channels, filters = draw.choice((1, 1, 2)), draw.choice((1, 2, 3)), draw.choice((1, 2))
    size, kernel = draw.choice(((5, 6), (7, 7))), draw.choice(((1, 1), (3, 3), (2, 3)))
    dtype = draw.choice((float32, float32, float64, int64, float16))
    window = [
        draw.choice(((1,), (2,), (1, 2))),
        draw.choice(((0,), (1,))),
        draw.choice(((1,), (2,))),
    ]
    shape = (draw.choice((1, 2)), groups * channels, *size)
    return dtype, shape, (groups * filters, channels, *kernel), *window, groups


@pytest.mark.parametrize("op", ["conv2d", "conv2d_input", "conv2d_weight"])
def test_convolutions_of_all_layouts_are_exact(op: str) -> None:
    """Grouped, strided, padded, dilated, channels first and last, of floats and integers."""
    draw, products = random.Random(5), 0
    for seed in range(60):
        dtype, shape, weight, *window = drawn_convolution(draw)
        metas = [image(draw, shape, dtype), image(draw, weight, dtype)]
        result = OPS["conv2d"].rule(*metas, None, *window)
        grad = image(draw, result.shape, dtype)
        build = Builder(op)
        if op == "conv2d":
            args: Any = (*map(build.placeholder, metas), None)
        elif op == "conv2d_input":
            args = (*map(build.placeholder, (grad, metas[1])), shape)
        else:
            args = (*map(build.placeholder, (grad, metas[0])), weight)
        graph = build.finish([build.call(OPS[op], (*args, *window))])
        program = assert_exact(graph, seed)
        products += any(type(step) is Gemm for step in program.steps)
    assert 10 < products < 60


def test_a_convolution_by_single_pixels_reads_the_image_itself() -> None:
    build = Builder("pixels")
    x, w = (
        build.placeholder(tensor_meta((2, 8, 5, 5))),
        build.placeholder(tensor_meta((4, 8, 1, 1))),
    )
    (step,) = program_of(build.finish([x._do("conv2d", w)])).steps
    assert type(step) is Gemm


# --------------------------------------------------------------------------------------- pooling
@pytest.mark.parametrize("kernel", [(2, 3), (3, 3), (6, 6)])
@pytest.mark.parametrize("values", [[-np.inf], [-np.inf, np.nan, 1.0]])
def test_maxima_lie_on_the_image(kernel: Any, values: list[float]) -> None:
    """Where all is -inf, the border is too; of nans the last one counts, of others the first."""
    build = Builder("pool")
    x = build.placeholder(tensor_meta((3, 2, 7, 8)))
    graph = build.finish(x._do("max_pool2d_with_indices", kernel, (2,), (1,)))
    array = np.random.default_rng(0).choice(np.array(values, np.float32), (3, 2, 7, 8))
    expected, got = run_graph(graph, array), ran(program_of(graph), [array.reshape(-1)])
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_text_of_a_wide_window_is_short() -> None:
    """Each of its 25 candidates uses the best so far twice."""
    build = Builder("pool")
    x = build.placeholder(tensor_meta((1, 1, 9, 9)))
    graph = build.finish(x._do("max_pool2d_with_indices", (5, 5), (5,), (1,)))
    assert len(str(program_of(graph))) < 20_000


# ------------------------------------------------------------------------------------- combiners
@pytest.mark.parametrize("kind", [k for k in COMBINERS if "max" in k or "min" in k])
def test_extremes_do_not_depend_on_lanes(kind: str) -> None:
    """Ties, nans and infinities; positions choose, not the order of combining."""
    draw = np.random.default_rng(1)
    values = draw.choice(np.array([1, 2, -np.inf, np.inf, np.nan, 3], np.float32), (200, 7))
    values[:50] = draw.choice(np.array([1, -np.inf], np.float32), (50, 7))
    arrays = [values, np.tile(np.arange(7), (200, 1))][: COMBINERS[kind].parts]
    kinds = [float32, int64][: len(arrays)]
    expected = reduced(COMBINERS[kind], arrays, kinds, 1)
    for lanes in (2, 4, 8):
        for one, other in zip(
            expected, reduced(COMBINERS[kind], arrays, kinds, lanes), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    scalars = [const(0, dtype) for dtype in kinds]
    last = [each[:, -1] for each in scanned(COMBINERS[kind], arrays, scalars)]
    np.testing.assert_array_equal(expected, last)


def test_neighbors_are_combined_before_others() -> None:
    """Eight partial results: 1 and -1 go first in pairs, and are lost beside 1e8 otherwise."""
    big = np.float32(1e8)
    values = np.array([[1, big, -1, -big, 1, 2, 3, 4]], np.float32)
    pairs = np.float32(((1 + big) + (1 + 2)) + ((-1 - big) + (3 + 4)))
    fours = np.float32((1 - 1) + (big - big)) + np.float32((1 + 3) + (2 + 4))
    halves = np.float32(((1 + 1) + (-1 + 3)) + ((big + 2) + (-big + 4)))
    found = [reduced(COMBINERS["sum"], [values], [float32], 8, near)[0][0] for near in (1, 2, 4, 8)]
    assert found[1:3] == [pairs, fours]
    assert found[0] == found[3] == halves


@pytest.mark.parametrize("name", ["cummax", "cummin", "argmax", "argmin"])
def test_positions_of_equal_extremes_are_the_kernels(name: str) -> None:
    build = Builder(name)
    x = build.placeholder(tensor_meta((50, 6)))
    made: Any = x._do(name, 1)
    graph = build.finish(made if type(made) is tuple else [made])
    values = np.array([1, 2, np.nan, np.inf], np.float32)
    array = np.random.default_rng(0).choice(values, (50, 6), p=[0.5, 0.3, 0.1, 0.1])
    expected, got = run_graph(graph, array), ran(program_of(graph), [array.reshape(-1)])
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------ composites
def loss(build: Builder) -> Any:
    scores, labels = (
        build.placeholder(tensor_meta((6, 5))),
        build.placeholder(tensor_meta((6,), None, int64)),
    )
    return scores._do("log_softmax", 1)._do("nll_loss", labels).mean()


def normalized(build: Builder) -> Any:
    x, w = build.placeholder(tensor_meta((6, 5))), build.placeholder(tensor_meta((5,)))
    return x._do("layer_norm", (5,), w, w)


@pytest.mark.parametrize("make", [loss, normalized])
def test_composites_are_what_their_kernels_are(make: Any) -> None:
    """Fused too, whose sums are formed in the same order."""
    build = Builder(make.__name__)
    graph = build.finish([make(build)])
    draw = np.random.default_rng(2)
    metas: list[Any] = [node.meta for node in graph.placeholders]
    arrays = [draw.integers(0, 5, m.shape).astype(m.dtype.numpy) for m in metas]
    program, flats = program_of(graph), [array.reshape(-1) for array in arrays]
    (expected,), (got,) = run_graph(graph, *arrays), ran(program, flats)
    assert close(expected, got)
    (again,) = ran(fused(program), flats)
    np.testing.assert_array_equal(got, again)
