"""C for all sizes, compiled once, computes what the ops' own kernels compute at each size."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Any

import numpy as np
import pytest

from aotlite.backends.auto import AUTO
from aotlite.backends.cpu.backend import CpuBackend
from aotlite.backends.cpu.emit.c_kernel import SHORT_ROW
from aotlite.backends.loops.backend import LOOPS
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.threads import get_num_threads, set_num_threads
from aotlite.ir import dtypes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.table import SymbolTable
from aotlite.testing.laws import graphs_of
from tests.backends.loops.helpers.sized_graphs import (
    HINTS,
    PROGRAMS,
    SIZES,
    sized,
    symbolized,
)
from tests.backends.loops.test_lowering import OPS_WITH_LOOPS
from tests.backends.loops.test_sized import assert_sized
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys

EXACT = CpuBackend(contract=False)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_c_for_all_sizes_is_the_graph_at_each(name, low):
    function, *shapes = PROGRAMS[name]
    case = sized(name, function, *shapes, low=low)
    is_made, tried = assert_sized(case, 12, EXACT)
    assert is_made or low == 0
    assert tried >= 4 or not is_made


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["transposed", "matmul", "layer norm", "three", "chain"])
@pytest.mark.parametrize("which", [0, 1])
def test_c_for_sizes_that_the_log_fixes(name, which):
    """The symbols stay in the graph, and the table knows that one of them is a number."""
    function, *shapes = PROGRAMS[name]
    case = sized(name, function, *shapes, low=0)
    symbol = case.table.named(list(case.table.symbols)[which])
    assert symbol == symbol.hint
    assert assert_sized(case, 3, EXACT, sizes=(*SIZES, *HINTS.values())) == (True, 3)


@pytest.mark.long
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_c_of_an_op_for_all_sizes_is_its_kernel(name):
    samples = samples_of(name)
    for k, each in enumerate(graphs_of(name, samples[:: max(len(samples) // 3, 1)])):
        case = symbolized(each.name, each.graph, 2 * (k % 2), shared=k % 3 > 0)
        if case is not None:
            assert_sized(case, 3, EXACT)


def test_c_of_random_programs_for_all_sizes():
    made = 0
    for number, journey in enumerate(journeys()[:12]):
        for graph in (journey.partition.forward, journey.partition.backward):
            case = None if graph is None else symbolized(f"{graph.name} {number}", graph)
            if case is not None:
                made += assert_sized(case, 3, EXACT)[0]
    assert made >= 2


def test_auto_takes_the_kernels_of_cpu_and_says_why_it_has_none(monkeypatch):
    function, *shapes = PROGRAMS["softmax"]
    case = sized("softmax", function, *shapes, low=2)
    assert assert_sized(case, 2, AUTO) == (True, 2)
    reasons: list[str] = []
    monkeypatch.setattr("aotlite.backends.auto.problem", lambda: "no C compiler")
    assert AUTO.compile_sized(case.graph, reasons.append) is None
    assert reasons == ["no C compiler"]


def test_a_graph_of_sizes_that_nobody_knows_has_no_kernels():
    table, build = SymbolTable(), Builder("unknown")
    x = build.placeholder(tensor_meta((table.symbol(None, lower=1), 8)))
    reasons: list[str] = []
    assert EXACT.compile_sized(build.finish([x.exp() + 1.0]), reasons.append) is None
    assert "the value of u0 is asked for" in reasons[0]
    assert table.log == []


def test_no_size_compiles_anything(monkeypatch):
    function, *shapes = PROGRAMS["layer norm"]
    case = sized("layer norm", function, *shapes, low=2)
    made = EXACT.compile_sized(case.graph)
    assert made is not None

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a library is loaded again")

    monkeypatch.setattr("aotlite.backends.cpu.sized_program.load_c", refuse)
    monkeypatch.setattr("aotlite.backends.cpu.compiled_program.load_c", refuse)
    for values in case.values(8):
        made.at(values)


@pytest.mark.parametrize("name", ["softmax", "mean rows", "rows", "sum rows", "sum columns"])
def test_versions_for_lengths_have_the_same_bits(name):
    """SIZ-11: rows of a multiple of 64 points and others; on both sides of the length up to which
    values are kept."""
    function, *shapes = PROGRAMS[name]
    case = sized(name, function, *shapes, low=0)
    made, interpreted = EXACT.compile_sized(case.graph), LOOPS.compile_sized(case.graph)
    assert made is not None and interpreted is not None
    assert "_whole(" in made.versions[0][1].text.printed.text
    a, b = case.table.symbols
    narrow, long = (0, 1, 5, 8, 15, 16, 17, 33), (SHORT_ROW - 1, SHORT_ROW, SHORT_ROW + 1)
    for length in (*narrow, 63, 64, 65, 100, 128, *long, SHORT_ROW + 64):
        values = {a: 3, b: length}
        metas = [node.meta for node in SizesAt(values).graph(case.graph).placeholders]
        draws = np.random.default_rng(length)
        arrays = [draws.standard_normal(meta.numel).astype(np.float32) for meta in metas]
        runs = made.at(values), interpreted.at(values)
        (first, _), (second, _) = [run([(x, 0) for x in arrays])[0] for run in runs]
        np.testing.assert_array_equal(first.reshape(-1), second.reshape(-1))


def _before_a_wall(array: np.ndarray) -> np.ndarray:
    """Returns a copy whose end is the end of memory that may be read."""
    size = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    wall = ctypes.c_void_p(memory.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(wall, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    found = memory[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def _rows(x: Any, y: Any) -> list[Any]:
    kept = (x - x.mean(1, True)).exp()
    return [kept * y + x, kept / kept.sum(1, True), (x * x).sum(1), x.amax(1), (x * y).sum(0)]


def _whole_numbers(x: Any, y: Any) -> list[Any]:
    return [x * y - 3, x.amax(1), x.amin(0)]


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="the system has no mprotect")
@pytest.mark.thinned(6)
@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [(_rows, dtypes.float32), (_rows, dtypes.float64), (_whole_numbers, dtypes.int32)],
)
def test_last_points_of_a_row_have_the_same_bits(function, dtype, masks):
    """SIZ-20: with masks, if the processor has them, and without; nothing behind a row is read."""
    table, build = SymbolTable(), Builder("rests")
    a, b = table.symbol(24, "a"), table.symbol(40, "b")
    metas = [tensor_meta((a, b), dtype=dtype), tensor_meta((b,), dtype=dtype)]
    graph = build.finish(function(*map(build.placeholder, metas)))
    made, interpreted = EXACT.compile_sized(graph), LOOPS.compile_sized(graph)
    assert made is not None and interpreted is not None
    ((_, version),) = made.versions
    text = version.text.printed.text
    assert text.count("MASKED(") > 4 and "_narrow(" in text
    if not masks:
        text = text.replace("__AVX512BW__", "__NO_MASKS__")
        version.library = load_c(text, "rests", contract=False, libraries=False)
    for length in (1, 7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 64, 70, 128):
        draws = np.random.default_rng(length)
        arrays = [
            _before_a_wall((8 * draws.standard_normal(shape)).astype(dtype.numpy))
            for shape in ((5, length), (length,))
        ]
        values = {str(a): 5, str(b): length}
        first, second = [
            run([(x.reshape(-1), 0) for x in arrays])
            for run in (made.at(values), interpreted.at(values))
        ]
        for (x, _), (y, _) in zip(first, second, strict=True):
            np.testing.assert_array_equal(x.reshape(-1), y.reshape(-1))


@pytest.mark.parametrize("threads", [1, 3])
def test_columns_beside_rows_of_any_number(threads):
    """FUS-13 of symbolic extents: chunks of 64 rows, and one more with those left over."""
    table, build = SymbolTable(), Builder("beside")
    a, b = table.symbol(300, "a"), table.symbol(200, "b")
    x, y = [build.placeholder(tensor_meta((a, b))) for _ in range(2)]
    graph = build.finish([x * (x * y).sum(1, True), (x * y).sum(0), y.sum(0)])
    made, interpreted = EXACT.compile_sized(graph), LOOPS.compile_sized(graph)
    assert made is not None and interpreted is not None
    assert "from identity" in str(interpreted.program) and "<64" in str(interpreted.program)
    before = get_num_threads()
    set_num_threads(threads)
    try:
        for rows, length in itertools.product((0, 1, 63, 64, 65, 128, 200), (1, 16, 67, 128)):
            values = {str(a): rows, str(b): length}
            draws = np.random.default_rng(rows)
            arrays = [draws.standard_normal((rows, length)).astype(np.float32) for _ in range(2)]
            given = [(array.reshape(-1), 0) for array in arrays]
            first, second = made.at(values)(list(given)), interpreted.at(values)(list(given))
            for (found, _), (wanted, _) in zip(first, second, strict=True):
                np.testing.assert_array_equal(found.reshape(-1), wanted.reshape(-1))
            columns = second[1][0].reshape(-1)
            exact = (arrays[0].astype(np.float64) * arrays[1]).sum(0)
            np.testing.assert_allclose(columns, exact, atol=1e-4)
    finally:
        set_num_threads(before)
