"""Kernels for all sizes, with numbers put in, compute what the ops' own kernels compute."""

from __future__ import annotations

import math

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import LOOPS
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.loops.verify import verify
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.verify import verify as verify_graph
from aotlite.ir.ops.nn.upsample import interpolate
from aotlite.testing.laws import graphs_of
from tests.backends.loops.helpers.sized_graphs import (
    PROGRAMS,
    SIZES,
    Sized,
    drawn,
    sized,
    symbolized,
)
from tests.backends.loops.test_lowering import (
    OPS_WITH_LOOPS,
    assert_same,
    flat,
    run_reference,
)
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys
from tests.thinning import thinned

UNITS = -800


def run_at(made, case: Sized, values, seed=0):
    """(expected, found, inputs' memory expected and found) of a sized run at these values."""
    graph = SizesAt(values).graph(case.graph)
    verify_graph(graph)
    metas = [node.meta for node in graph.placeholders]
    arrays = [drawn(meta, seed + k) for k, meta in enumerate(metas)]
    try:
        memories, expected = run_reference(graph, arrays)
    except AotliteError:  # of values that the op refuses
        refusals = [refusal(run, metas, arrays) for run in (made.at(values), LOOPS.compile(graph))]
        assert refusals[0] is refusals[1]
        return [], []
    given = [flat(meta, a) for meta, a in zip(metas, arrays, strict=True)]
    windows = made.at(values)([(memory, 0) for memory in given])
    found = [
        None if w is None else seen(w, v.meta) for w, v in zip(windows, graph.outputs, strict=True)
    ]
    return [*memories, *expected], [*given, *found]


def refusal(run, metas, arrays):
    """The class of the error that a run raises for these arrays; None if it raises none."""
    try:
        run([(flat(meta, array), 0) for meta, array in zip(metas, arrays, strict=True)])
    except AotliteError as error:
        return type(error)
    return None


def seen(window, meta):
    memory, start = window
    flat_memory = memory.reshape(-1)
    if meta.numel == 0:
        return np.zeros(meta.shape, meta.dtype.numpy)
    return np.lib.stride_tricks.as_strided(
        flat_memory[start:].view(meta.dtype.numpy),
        meta.shape,
        [step * meta.dtype.itemsize for step in meta.stride],
    )


def assert_sized(case: Sized, count, backend=LOOPS, units=UNITS, sizes=SIZES):
    """The sized run equals the ops' kernels; (whether there is one, how many sizes were tried)."""
    before = list(case.table.log)
    reasons: list[str] = []
    made = backend.compile_sized(case.graph, reasons.append)
    assert case.table.log == before
    if made is None:
        (reason,) = reasons
        assert reason.startswith(f"{case.graph.name}: kernels for all sizes would have to know ")
        return False, 0
    tried = case.values(count, sizes=sizes)
    for values in tried:
        version = made.version(values)
        if version is None:
            continue
        program = SizesAt(values).program(version.program)
        verify(program)
        with np.errstate(all="ignore"):
            for expected, found in zip(*run_at(made, case, values), strict=True):
                assert_same(expected, found, units, f"{case.name} at {values}\n{program}")
    assert case.table.log == before
    return True, len(tried)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_for_all_sizes_is_the_graph_at_each(name, low):
    function, *shapes = PROGRAMS[name]
    case = sized(name, function, *shapes, low=low)
    is_made, tried = assert_sized(case, 12)
    assert is_made or low == 0
    assert tried >= 4 or not is_made


def _resized(x):
    return interpolate(x, (5, 4), mode="bilinear")


def test_orders_of_sizes_make_versions():
    """SIZ-13: as many as there are ways in which the orders turn out."""
    case = sized("resized", _resized, (2, 3, "a", "b"))
    made = LOOPS.compile_sized(case.graph)
    a, b = case.table.symbols
    for n in range(1, 9):
        made.at({a: n, b: 7})
    assert len(made.versions) == 2
    assert_sized(case, 12)
    assert len(made.versions) == 2


def test_sizes_of_too_many_versions_compile_their_own(monkeypatch):
    monkeypatch.setattr("aotlite.backends.loops.size_versions.MOST_VERSIONS", 1)
    case = sized("resized", _resized, (2, 3, "a", "b"))
    made = LOOPS.compile_sized(case.graph)
    a, b = case.table.symbols
    assert made.version({a: 5, b: 7}) is None and made.version({a: 6, b: 7}) is not None
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
    ((found, _),) = made.at({a: 5, b: 7})([(x.reshape(-1), 0)])
    _, (expected,) = run_reference(SizesAt({a: 5, b: 7}).graph(case.graph), [x])
    assert_same(expected, found.reshape(expected.shape), 4, "own")
    assert len(made.versions) == 1


@pytest.mark.parametrize("name", thinned(OPS_WITH_LOOPS, 10))
def test_an_op_for_all_sizes_is_its_kernel(name):
    samples = samples_of(name)
    for k, each in enumerate(graphs_of(name, samples[:: max(len(samples) // 6, 1)])):
        case = symbolized(each.name, each.graph, 2 * (k % 2), shared=k % 3 > 0)
        if case is not None:
            assert_sized(case, 4)


def test_graphs_of_random_programs_for_all_sizes():
    made = 0
    for number, journey in enumerate(journeys()[:30]):
        for graph in (journey.partition.forward, journey.partition.backward):
            case = None if graph is None else symbolized(f"{graph.name} {number}", graph)
            if case is not None:
                made += assert_sized(case, 3)[0]
    assert made >= 5


# ------------------------------------------------------------------- sizes that may be 1 or another
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
FIRST_ONE = {
    "pointwise": lambda x: x * (x[:1] * 2),
    "reduced": lambda x: (x + x[:1].exp()).sum(0),
    "batches": lambda x: (x[:1] + 1) @ x.transpose(1, 2),
    "last": lambda x: x[..., :1].exp() * x,
}


@pytest.mark.rules("SIZ-2", "SIZ-6")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
@pytest.mark.parametrize("name", FIRST_ONE)
def test_first_row_of_any_number_is_repeated(name, backend):
    """x[:1] has min(1, s0) rows, which no expression says is 1."""
    function = FIRST_ONE[name]
    compiled = al.compile(function, dynamic=True, backend=backend)
    for shape in [(4, 3, 2), (1, 3, 2), (5, 2, 1), (2, 1, 3), (0, 2, 2), (3, 4, 4)]:
        x = al.arange(math.prod(shape)).reshape(shape) / 8
        found, expected = compiled(x), function(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-2", "SIZ-6")
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
def test_joined_rows_are_read_backwards(backend):
    """An axis with a negative step is not split by a size: its parts had negative extents."""

    def mirrored(x):
        return al.cat([x, x.cos()], 1).flip(1)

    compiled = al.compile(mirrored, dynamic=True, backend=backend)
    for shape in [(2, 6), (5, 4), (64, 64), (3, 17)]:
        x = al.arange(math.prod(shape)).reshape(shape) / 8
        np.testing.assert_allclose(compiled(x).numpy(), mirrored(x).numpy(), rtol=1e-4, atol=1e-5)
    assert len(compiled.entries) == 1


FACTORIES = {
    "linspace": lambda n: al.linspace(1.5, 7, n),
    "linspace of ints": lambda n: al.linspace(3, -10, n, dtype=al.int64),
    "linspace to a size": lambda n: al.linspace(n / 2, 3 * n, n),
    "logspace": lambda n: al.logspace(0, 2, n),
    "arange": lambda n: al.arange(1, 2 * n + 1, 2),
    "eye": lambda n: al.eye(n, 2),
    "full": lambda n: al.full((n, 2), n),
    "tril_indices": lambda n: al.tril_indices(n, n, 1),
}


@pytest.mark.rules("SIZ-2", "SIZ-6")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
@pytest.mark.parametrize("name", FACTORIES)
def test_what_is_made_of_a_size_alone(name, backend):
    """One step of linspace is its start, which equals no other number for all sizes."""
    compiled = al.compile(FACTORIES[name], dynamic=True, backend=backend)
    for n in (3, 1, 0, 2, 8):
        np.testing.assert_allclose(compiled(n).numpy(), FACTORIES[name](n).numpy(), rtol=1e-6)
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-13")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
def test_gradient_of_padded_rows_of_which_there_are_none(mode, backend):
    compiled = al.compile(lambda x: al.pad(x, (1, 1), mode), dynamic=True, backend=backend)
    for n in (2, 0, 3):
        x = al.ones(n, 3).requires_grad_()
        compiled(x).sum().backward()
        assert x.grad.shape == (n, 3)
        assert x.grad.sum().item() == 5 * n


@pytest.mark.rules("SIZ-13")
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
def test_convolution_of_no_channels(backend):
    """The groups are no quotient of two sizes of 0."""
    compiled = al.compile(al.conv1d, dynamic=True, backend=backend)
    for n in (2, 0):
        x, w = al.ones(2, n, 6).requires_grad_(), al.ones(3, n, 3).requires_grad_()
        y = compiled(x, w)
        assert y.tolist() == [[[3.0 * n] * 4] * 3] * 2
        y.sum().backward()
        assert (x.grad.shape, w.grad.shape) == (x.shape, w.shape)
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-2", "SIZ-13")
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
def test_an_expansion_at_sizes_of_one(backend):
    """A rule says 1 there for a result's size, which is s1 to who asked for it."""
    compiled = al.compile(al.addr, dynamic=True, backend=backend)
    for n in (4, 1, 0):
        found = compiled(al.ones(2, n), al.ones(2), al.ones(n))
        assert found.tolist() == [[2.0] * n] * 2
    assert len(compiled.entries) == 1


@pytest.mark.rules("SIZ-2", "SIZ-13")
@pytest.mark.parametrize("op", [al.adaptive_avg_pool2d, al.adaptive_max_pool2d])
def test_windows_of_which_there_are_none(op):
    compiled = al.compile(lambda x, n: op(x, n), dynamic=True, backend="loops")
    for n in (2, 0, 4):
        x = al.ones(2, 4, 4).requires_grad_()
        y = compiled(x, n)
        y.sum().backward()
        assert y.shape == (2, n, n)
        assert x.grad.sum().item() == pytest.approx(2 * n * n)


@pytest.mark.rules("SIZ-2", "SIZ-12")
@pytest.mark.parametrize("backend", ["loops", pytest.param("cpu", marks=needs_compiler)])
def test_no_matrix_of_a_batch_is_read_that_has_none(backend):
    """A batch whose matrices are all one is copied as one, if there is one."""
    compiled = al.compile(al.bmm, dynamic=True, backend=backend)
    for n in (0, 2):
        x, y = al.ones(1, 3, 1).expand(n, 3, 4), al.ones(1, 1, 2).expand(n, 4, 2)
        assert compiled(x, y).tolist() == [[[4.0, 4.0]] * 3] * n
        x, y = al.empty_strided((0, 3, 4), (0, 0, 0)), al.empty_strided((0, 4, 2), (0, 0, 0))
        assert compiled(x, y).shape == (0, 3, 2)
