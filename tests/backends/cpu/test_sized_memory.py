"""SIZ-8: no table is alive when its graph, program, C text and numbers are gone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from aotlite.backends.cpu.sized_program import sized_text
from aotlite.backends.loops.backend import sized_program
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.ir.symbols.proving import Demands
from aotlite.ir.symbols.table import SymbolTable
from aotlite.testing.laws import graphs_of
from tests.backends.loops.helpers.sized_graphs import PROGRAMS, Sized, sized, symbolized
from tests.backends.loops.test_lowering import OPS_WITH_LOOPS
from tests.samples import samples_of


def table_after(made: Callable[[], Sized | None]) -> weakref.ref[SymbolTable] | None:
    """The table of a graph after it was printed as C and got numbers, once; None without graph."""
    case = made()
    if case is None:
        return None
    demands = Demands(case.table.hints)
    program = sized_program(case.graph, case.table, demands)
    sized_text(program, case.table, demands)
    for values in case.values(2):
        SizesAt(values).program(program)
    return weakref.ref(case.table)


def assert_freed(made: Callable[[], Sized | None]) -> None:
    alive = table_after(made)
    gc.collect()  # a recursive function of an op's loops holds scalars,
    gc.collect()  # whose entries among the interned ones hold the sizes of their keys
    assert alive is None or alive() is None


@pytest.mark.thinned(2)
@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_table_outlives_its_program(name: str, low: int) -> None:
    function, *shapes = PROGRAMS[name]
    assert_freed(lambda: sized(name, function, *shapes, low=low))


@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_no_table_outlives_the_program_of_an_op(name: str) -> None:
    samples = samples_of(name)
    for each in graphs_of(name, samples[:: max(len(samples) // 2, 1)]):
        assert_freed(lambda graph=each: symbolized(graph.name, graph.graph))  # type: ignore[misc]
