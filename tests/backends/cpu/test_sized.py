"""C for all sizes, compiled once, computes what the ops' own kernels compute at each size."""

from __future__ import annotations

import pytest

from aotlite.backends.cpu.backend import CpuBackend
from aotlite.testing.laws import graphs_of
from tests.backends.loops.helpers.sized_graphs import PROGRAMS, sized, symbolized
from tests.backends.loops.test_lowering import OPS_WITH_LOOPS
from tests.backends.loops.test_sized import assert_sized
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys

EXACT = CpuBackend(contract=False)


@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_c_for_all_sizes_is_the_graph_at_each(name, low):
    function, *shapes = PROGRAMS[name]
    case = sized(name, function, *shapes, low=low)
    is_made, tried = assert_sized(case, 12, EXACT)
    assert is_made or low == 0
    assert tried >= 4 or not is_made


@pytest.mark.long
@pytest.mark.parametrize("name", OPS_WITH_LOOPS)
def test_c_of_an_op_for_all_sizes_is_its_kernel(name):
    samples = samples_of(name)
    for each in graphs_of(name, samples[:: max(len(samples) // 3, 1)]):
        case = symbolized(each.name, each.graph)
        if case is not None:
            assert_sized(case, 3, EXACT)


def test_c_of_random_programs_for_all_sizes():
    made = 0
    for number, journey in enumerate(journeys(100)[:40]):
        for graph in (journey.partition.forward, journey.partition.backward):
            case = None if graph is None else symbolized(f"{graph.name} {number}", graph)
            if case is not None:
                made += assert_sized(case, 3, EXACT)[0]
    assert made >= 8
