"""CUDA text for all sizes, compiled once, computes what the ops' own kernels compute at each size.

Kernels run on the CPU: interpreted, or the text itself on fibers, with each access checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite.backends.cuda.sized_program as sized_module
from aotlite.backends.c_family.size_names import SizeNames
from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.emit.cuda_program import print_sized
from aotlite.backends.cuda.emit.kernel_code import NARROW
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.interpreter.program_interpreter import interpreted
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Store,
)
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.ir.dtypes import float32
from aotlite.ir.meta import tensor_meta
from aotlite.ir.scalar.expression import Affine, load, name
from aotlite.ir.symbols.proving import proving
from aotlite.ir.symbols.table import SymbolTable
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.helpers.sized_texts import (
    OnDevice,
    counted,
    every,
    of_ops,
    of_random,
)
from tests.backends.loops.helpers.sized_graphs import PROGRAMS, Sized, sized
from tests.backends.loops.test_lowering import OPS_WITH_LOOPS, flat
from tests.backends.loops.test_sized import assert_sized, seen

NAMES = list(PROGRAMS)
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)


@pytest.fixture(scope="module")
def emulated() -> OnDevice:
    """The text itself, on fibers; each access is checked."""
    return OnDevice(interprets=False, checked=True)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses the last text, of 64 bits."""
    monkeypatch.setattr(sized_module, "_chosen", lambda texts, put: len(texts) - 1)


def program(name: str, low: int) -> Sized:
    function, *shapes = PROGRAMS[name]
    return sized(name, function, *shapes, low=low)


# ------------------------------------------------------------------------------- all around kernels
@pytest.mark.thinned(10)
@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_launches_for_all_sizes_are_the_graph_at_each(name: str, low: int) -> None:
    is_made, tried = assert_sized(program(name, low), 12, OnDevice())
    assert is_made or low == 0
    assert tried >= 4 or not is_made


@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(4))
def test_launches_of_ops_for_all_sizes_are_their_kernels(part: int) -> None:
    backend = OnDevice()
    made = [assert_sized(case, 2, backend)[0] for case in of_ops(OPS_WITH_LOOPS[part::4], 1)]
    assert sum(made) > 30


def test_launches_of_random_programs_for_all_sizes() -> None:
    backend = OnDevice()
    assert sum([assert_sized(case, 3, backend)[0] for case in of_random(100)]) >= 20


# --------------------------------------------------------------------------------------- the text
@needs_compiler
@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", NAMES)
def test_a_text_for_all_sizes_is_the_graph_at_each(name: str, emulated: OnDevice) -> None:
    assert assert_sized(program(name, 2), 6, emulated)[0]


@needs_compiler
@pytest.mark.usefixtures("wide")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", NAMES[::4])
def test_a_text_of_64_bits_is_the_graph_at_each_size(name: str, emulated: OnDevice) -> None:
    assert assert_sized(program(name, 2), 6, emulated)[0]


@needs_compiler
@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", ["rows", "sum all", "layer norm", "cumsum", "several", "flip"])
def test_a_text_for_sizes_of_0_and_1_is_the_graph(name: str, emulated: OnDevice) -> None:
    case = program(name, 0)
    assert assert_sized(case, 8, emulated) == (True, 8)


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_a_text_of_an_op_for_all_sizes_is_its_kernel(
    name: str, bits: int, emulated: OnDevice, request: pytest.FixtureRequest
) -> None:
    if bits == 64:
        request.getfixturevalue("wide")
    for case in of_ops([name], 6):
        assert_sized(case, 3, emulated)


@needs_compiler
@pytest.mark.long
def test_texts_of_random_programs_for_all_sizes(emulated: OnDevice) -> None:
    assert sum([assert_sized(case, 3, emulated)[0] for case in of_random(100)]) >= 20


# ------------------------------------------------------------------------------------------- bits
def first(made: Any) -> Any:
    """The kernels for the sizes of the hints."""
    return made.versions[0][1]


def floats(meta: Any, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(meta.shape)
    return values.astype(meta.dtype.numpy)


def outputs(run: Any, graph: Any) -> list[bytes]:
    """The bytes of the results of a run on floats."""
    metas: list[Any] = [node.meta for node in graph.placeholders]
    given = [(flat(meta, floats(meta, k)), 0) for k, meta in enumerate(metas)]
    pairs = zip(run(given), graph.outputs, strict=True)
    return [np.ascontiguousarray(seen(window, node.meta)).tobytes() for window, node in pairs]


def interpreted_at(made: Any, case: Sized, values: dict[str, int]) -> Any:
    put = SizesAt(values)
    found = put.program(made.program)
    return ProgramRun(put.graph(case.graph), found, interpreted(found))


@needs_compiler
@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", ["sum rows", "sum columns", "sum all", "softmax", "var", "chain"])
def test_a_text_has_the_bits_of_its_program_at_each_size(name: str, emulated: OnDevice) -> None:
    """SIZ-6: the interpreter of the program with numbers put in gives the order of sums."""
    case = program(name, 2)
    made: Any = emulated.compile_sized(case.graph, None)
    for values in case.values(5, sizes=(1, 2, 31, 64, 129, 300)):
        graph = SizesAt(values).graph(case.graph)
        expected = outputs(interpreted_at(made, case, values), graph)
        assert outputs(made.at(values), graph) == expected, values


@needs_compiler
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["pointwise", "rows", "transposed", "three", "heads", "flip"])
def test_a_text_without_sums_has_the_bits_of_kernels_for_the_size(
    name: str, emulated: OnDevice
) -> None:
    """SIZ-6."""
    case = program(name, 2)
    made: Any = emulated.compile_sized(case.graph, None)
    for values in case.values(3):
        graph = SizesAt(values).graph(case.graph)
        assert outputs(made.at(values), graph) == outputs(emulated.compile(graph), graph), values


# ------------------------------------------------------------------------------- once for all sizes
def test_no_size_compiles_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    case, backend = program("layer norm", 2), OnDevice()
    made: Any = backend.compile_sized(case.graph, None)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a module is loaded again")

    monkeypatch.setattr(first(made).driver, "module", refuse)
    runs = [made.at(values) for values in case.values(8)]
    assert len(set(map(id, runs))) == len(runs) > 1


def test_launch_geometry_is_a_function_of_sizes() -> None:
    """SIZ-15: grids and arguments differ, the text does not; nothing to do is not launched."""
    case = program("sum all", 0)
    made: Any = OnDevice().compile_sized(case.graph, None)
    plans = [made.at({"s0": n, "s1": 64}).plan.printed for n in (0, 1, 64, 4096)]
    assert len({plan.text for plan in plans}) == 1
    assert [[each.blocks for each in plan.launches] for plan in plans] == [
        [1, 1],
        [1, 1],
        [1, 1, 1],
        [64, 1, 1],
    ]
    arguments = {each.sizes for plan in plans for each in plan.launches}
    assert len(arguments) > 4


@needs_compiler
def test_rows_that_are_short_stay_in_registers(emulated: OnDevice) -> None:
    """SIZ-17: on both sides of the length up to which they do, with the same bits."""
    case = program("softmax", 2)
    made: Any = emulated.compile_sized(case.graph, None)
    even, every, _ = first(made).texts
    assert even.printed.launches[0].short is not None
    (launch,) = every.printed.launches
    assert launch.short is not None
    points, most, _ = launch.short
    assert (str(points), most) == ("s1", 256)
    for length in (most - 1, most, most + 1):
        values = {"s0": 3, "s1": length}
        (there,) = made.at(values).plan.printed.launches
        assert there.name == ("kernel_short_0" if length <= most else "kernel_0")
        graph = SizesAt(values).graph(case.graph)
        expected = outputs(interpreted_at(made, case, values), graph)
        assert outputs(made.at(values), graph) == expected


def test_points_beyond_32_bits_take_the_text_of_64() -> None:
    """SIZ-16: on both sides of the bound."""
    case = program("pointwise", 2)
    made: Any = OnDevice().compile_sized(case.graph, None)
    narrow, broad = [each.printed.text for each in first(made).texts]  # contiguous: no others
    assert "const i32 size0" in narrow
    assert "const i64 size0" in broad
    rows = NARROW >> 10
    for values, text in (((rows - 1, 1024), narrow), ((rows, 1024), broad), ((1, 5), narrow)):
        run = made.at(dict(zip(("s0", "s1"), values, strict=True)))
        assert run.plan.printed.text is text


def test_sizes_with_divisors_of_the_hints_take_wide_accesses() -> None:
    """SIZ-18: rows of four elements' multiples are loaded by 16 bytes; others have a text, too."""
    case = program("rows", 2)
    made: Any = OnDevice().compile_sized(case.graph, None)
    even, every, _ = first(made).texts
    assert [(str(size), number) for size, number in even.divided] == [("s1", 4)]
    assert "fetched<4>(b1 +" in even.printed.text
    assert "fetched<4>(b1 +" not in every.printed.text
    for length, text in ((4, even), (6, every), (8, even), (1, every), (40, even)):
        run = made.at({"s0": 3, "s1": length})
        assert run.plan.printed.text is text.printed.text


@needs_compiler
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["rows", "sum rows", "softmax", "layer norm", "sum columns"])
def test_all_texts_give_the_same_bits(
    name: str, emulated: OnDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIZ-6, SIZ-18: the order of sums is one, whichever text serves the sizes."""
    case = program(name, 2)
    made: Any = emulated.compile_sized(case.graph, None)
    for values in ({"s0": 5, "s1": 4}, {"s0": 3, "s1": 200}, {"s0": 130, "s1": 36}):
        graph, found = SizesAt(values).graph(case.graph), []
        for place in range(3):
            choose = lambda texts, put, place=place: place
            monkeypatch.setattr(sized_module, "_chosen", choose)
            found.append(outputs(made.at(values), graph))
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("least", "inside"), [(0, True), (1, False)])
def test_a_load_that_needs_a_point_stays_inside_of_rows_without_points(
    least: int, inside: bool
) -> None:
    """SIZ-12: of an empty row nothing may be loaded."""
    table = SymbolTable()
    rows: Any = table.symbol(8, "x", lower=1)
    length: Any = table.symbol(40, "x", lower=least)
    first_one = load(1, Affine((0, 0)), float32)
    value = load(0, Affine((length, 1)), float32) * first_one
    total = Store(2, Affine((1, 0)), name(0, float32), each_row=True)
    body = (Reduce((0,), "sum", (value,), 32), total)
    kernel = Kernel("k", (rows, length), 1, body, vector=1)
    sizes = {0: rows * length, 1: length, 2: rows}
    kinds = {0: BufferKind.INPUT, 1: BufferKind.INPUT, 2: BufferKind.OUTPUT}
    buffers = tuple([ProgramBuffer(n, float32, size, kinds[n]) for n, size in sizes.items()])
    names = SizeNames()
    with proving(table, names.spell):
        alone = LoopProgram("p", buffers, (kernel,), (0, 1), ())
        text = print_sized(alone, names, H100, wide=False).text
    text = text[text.index("/* kernel") :]
    assert (text.index("= b1[0]") > text.index("for (i32 base")) is inside


def test_a_bound_of_sizes_that_is_known_makes_one_text() -> None:
    table = SymbolTable()
    size = table.symbol(40, "batch", lower=1, upper=512)
    case = _of("bounded", table, size)
    found: Any = OnDevice().compile_sized(case.graph, None)
    made = first(found).texts
    assert len(made) == 1
    assert table.log == []


def _of(name: str, table: SymbolTable, size: Any) -> Sized:
    from aotlite.ir.graph.builder import Builder

    build = Builder(name)
    x = build.placeholder(tensor_meta((size, 8)))
    return Sized(name, build.finish([x.exp() + x.meta.shape[0]]), table)


def test_a_text_does_not_depend_on_names_of_symbols() -> None:
    """SIZ-14."""
    texts = []
    for before in (0, 3):
        table = SymbolTable()
        for _ in range(before):
            table.symbol(7, "other", lower=2)
        case = _of("named", table, table.symbol(40, "x", lower=2))
        made: Any = OnDevice().compile_sized(case.graph, None)
        texts.append([each.printed.text for each in first(made).texts])
    assert texts[0] == texts[1]


def test_a_graph_of_sizes_that_nobody_knows_has_no_text() -> None:
    table = SymbolTable()
    case = _of("unknown", table, table.symbol(None, lower=1))
    reasons: list[str] = []
    assert OnDevice().compile_sized(case.graph, reasons.append) is None
    assert "the value of u0 is asked for" in reasons[0]
    assert table.log == []


def test_a_graph_of_the_cpu_has_no_text() -> None:
    reasons: list[str] = []
    assert CudaBackend().compile_sized(program("rows", 2).graph, reasons.append) is None
    assert reasons == ["rows: it has no symbol, or no value on a CUDA device"]


# ------------------------------------------------------------------------------------------ NVRTC
@needs_nvrtc
def test_nvrtc_accepts_some_texts_for_all_sizes() -> None:
    found = counted(every(), share=60)
    assert found.refused == []
    assert found.sized == found.as_loops > 10
    assert found.accepted == len(found.modules) > 15


@needs_nvrtc
@pytest.mark.long
def test_nvrtc_accepts_every_text_for_all_sizes() -> None:
    found = counted(every())
    assert found.refused == []
    assert found.sized == found.as_loops > 900
    assert found.accepted == len(found.modules)
