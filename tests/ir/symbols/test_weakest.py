"""Each guard that is kept has sizes that it alone excludes, and for which the program is wrong."""

import pytest

from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.geometry.sizes import settled
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.graph.symbolic_check import differs_from, is_wrong_at, misfit
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.symbols.floats.size_expressions import Computing
from aotlite.ir.symbols.table import SymbolTable
from aotlite.ir.symbols.validation import judge, solver
from aotlite.ir.symbols.validation.weakest import weakest

needs_z3 = pytest.mark.skipif(not solver.is_installed(), reason="z3 is not installed")


def build_with(table, sizes, function, hints=None):
    """The graph of a function of inputs with these sizes, symbolic where there is a table."""
    build = Builder("made")
    metas = [tensor_meta(size) for size in sizes]
    if table is not None:
        metas = [symbolic_meta(table, meta, f"x{k}") for k, meta in enumerate(metas)]
    return build.finish([function(*[build.placeholder(meta) for meta in metas])])


@pytest.mark.rules("DYN-24")
def test_guards_of_rules_have_witnesses():
    """Broadcasting, and a split into as many parts."""
    table = SymbolTable()
    graph = build_with(table, [(6, 5), (6, 5)], lambda x, y: (x * y).split(2)[2])
    assert [guard.text for guard in table.log]
    needs = weakest(table, table.log, is_wrong_at([graph]))
    assert [] == [str(need) for need in needs if need.is_open]
    for need in needs:
        if need.witness is not None:
            failed = [each.guard for each in needs if not each.guard.holds(need.witness)]
            assert failed == [need.guard]
            assert misfit(graph, need.witness) is not None


@pytest.mark.rules("DYN-24")
def test_a_guard_of_a_users_branch_has_a_witness_by_another_trace():
    def branching(x, y):
        return x * y if x.shape[0] > 3 else x + y

    table = SymbolTable(duck_shape=True)
    graph = build_with(table, [(6,), (6,)], branching)
    assert ["s0 > 3"] == [guard.text for guard in table.log]
    assert misfit(graph, {"s0": 2}) is None

    def trace(values):
        size = (values["s0"],)
        return build_with(None, [size, size], branching)

    (need,) = weakest(table, table.log, differs_from(graph, trace))
    assert need.witness is not None and need.witness["s0"] <= 3
    assert str(need) == f"s0 > 3: needed at s0={need.witness['s0']}"
    (blind,) = weakest(table, table.log, is_wrong_at([graph]))
    assert blind.is_open and str(blind).startswith("s0 > 3: no witness; right at ")


@pytest.mark.rules("DYN-24")
@pytest.mark.parametrize("asks", [False, pytest.param(True, marks=needs_z3)])
def test_a_guard_that_others_imply_is_dropped(asks):
    table = SymbolTable()
    a, b = (table.symbol(hint, lower=2) for hint in (6, 5))
    assert bool(a > 3) and bool(a > b) and bool(b > 4)
    needs = weakest(table, table.log, lambda values: True, solver=asks)
    dropped = [need.guard.text for need in needs if need.is_needless]
    assert dropped == ["s0 > 3"]
    assert str(needs[0]) == "s0 > 3: the other guards imply it"
    kept = [need.guard for need in needs if not need.is_needless]
    assert judge(table, kept, solver=asks).counter is None


@pytest.mark.rules("DYN-24")
def test_of_two_equal_guards_one_is_kept():
    table = SymbolTable()
    size = table.symbol(6, lower=0)
    assert bool(size > 3)
    needs = weakest(table, [*table.log, *table.log], lambda values: True)
    assert [need.is_needless for need in needs] == [False, True]


@pytest.mark.rules("DYN-24")
@needs_z3
def test_a_witness_may_be_a_large_size():
    """No small size and no neighbor of the hint violates the guard."""
    table = SymbolTable()
    size = table.symbol(6, lower=2)
    assert bool(size < 1000)
    (need,) = weakest(table, table.log, lambda values: values["s0"] >= 1000)
    assert need.witness is not None and need.witness["s0"] >= 1000


@pytest.mark.rules("DYN-24")
def test_a_guard_that_is_too_strong_is_reported():
    table = SymbolTable()
    size = table.symbol(6, lower=2)
    assert bool(size > 3)
    (need,) = weakest(table, table.log, lambda values: values["s0"] < 2)
    assert need.is_open and {"s0": 3} in need.tried
    assert "no witness" in str(need)


@pytest.mark.rules("DYN-24")
@pytest.mark.parametrize("asks", [False, pytest.param(True, marks=needs_z3)])
def test_sizes_that_are_tried_are_unlike_one_another(asks):
    """The first sizes that violate `s0 == 0` are of 1 and 2, with all other sizes."""
    table = SymbolTable()
    sizes = [table.symbol(hint, lower=0) for hint in (0, 3, 4, 5)]
    assert bool(sizes[0] == 0)
    (need,) = weakest(table, table.log, lambda values: values["s0"] > 2, solver=asks)
    assert need.witness is not None and need.witness["s0"] > 2
    (need,) = weakest(table, table.log, lambda values: values["s3"] > 6, solver=asks)
    assert need.witness is not None and need.witness["s3"] > 6


@pytest.mark.rules("DYN-24")
def test_an_answer_of_a_function_that_others_imply_is_dropped():
    table = SymbolTable()
    rows, columns = (table.symbol(hint, lower=0) for hint in (1, 7))
    assert bool(rows < 2) and bool(rows != 0)
    assert sizes_of_overlap((rows, columns), (5, 1)) is False
    assert len(table.log) == 3
    needs = weakest(table, table.log, lambda values: True, solver=False)
    assert [need.is_needless for need in needs] == [False, False, True]


@pytest.mark.rules("DYN-24", "DYN-38")
def test_of_guards_on_floats_those_that_others_imply_are_dropped():
    table = SymbolTable()
    table.computes = Computing(table)
    size = table.symbol(1, lower=0)
    assert bool(size < 2) and not bool(size / 3 > 1) and bool(size * 0.5 != size)
    needs = weakest(table, table.log, lambda values: True, solver=False)
    kept = [need.guard.text for need in needs if not need.is_needless]
    assert kept == ["s0 < 2", "s0 != 0"]
    assert all(need.witness is not None for need in needs if not need.is_needless)


def sizes_of_overlap(shape, stride):
    """Whether elements share memory, as an answer that no solver knows."""
    return settled(has_internal_overlap, shape, stride)


@pytest.mark.rules("DYN-24")
def test_at_sizes_is_the_graph_of_these_sizes():
    def network(x, y):
        return (x @ y).flatten().softmax(0)

    table = SymbolTable()
    graph = build_with(table, [(6, 5), (5, 3)], network)
    numbers = at_sizes(graph, {"s0": 4, "s1": 7, "s2": 7, "s3": 2})
    verify(numbers)
    assert numbers.code == build_with(None, [(4, 7), (7, 2)], network).code
    assert misfit(graph, {"s0": 4, "s1": 7, "s2": 7, "s3": 2}) is None
    assert "matmul" in misfit(graph, {"s0": 4, "s1": 7, "s2": 8, "s3": 2})
