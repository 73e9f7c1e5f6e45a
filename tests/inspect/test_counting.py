"""`inspect.counting` counts what runs, and `python -m benchmarks.orders` shows it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.inspect import Ran, counting
from benchmarks import orders

Call = Callable[..., Any]
gradients: Any = al.autograd.grad


def leaf() -> Any:
    return al.tensor([0.5, 2.0], dtype=al.float64, requires_grad=True)


def numbers(ran: Ran) -> tuple[int, int, dict[int, int]]:
    return ran.captures, ran.eager_ops, dict(ran.graphs)


def test_eager_ops_are_counted_one_by_one() -> None:
    """Those of the backward, too; captures and graphs there are none."""
    x = leaf()
    with counting() as ran:
        y = x * x + 1
    assert numbers(ran) == (0, 2, {})
    given = al.ones_like(y)
    with counting() as ran:
        gradients(y, [x], given)
    assert numbers(ran) == (0, 3, {})  # two products and their sum


def test_a_capture_counts_as_one_and_its_ops_not_at_all() -> None:
    runs: list[str] = []

    def function(x: Any) -> Any:
        runs.append("function")
        return (x * 2).sin()

    compiled = al.compile(function)
    shapes = [al.ones(2), al.ones(3), al.ones(2)]
    with counting() as ran:
        for x in shapes:
            compiled(x)
    assert numbers(ran) == (2, 0, {0: 3})
    assert len(runs) == ran.captures


@pytest.mark.rules("DYN-41")
def test_a_further_size_is_one_run_forward_and_one_backward() -> None:
    """What makes the functions of a vector of sizes runs nothing, whatever a function's name is."""

    def making(x: Any) -> Any:
        return (x * 2).sin().sum()

    compiled = al.compile(making, dynamic=True)
    inputs = [al.ones(size, requires_grad=True) for size in (2, 3, 4, 3)]
    with counting() as ran:
        for x in inputs:
            gradients(compiled(x), [x])
    assert numbers(ran) == (1, 0, {0: 4, 1: 4})


def test_an_entry_that_does_not_fit_is_no_run() -> None:
    compiled = al.compile(lambda x: x * 2)
    inputs = [al.ones(n) for n in (1, 2, 3, 4)]
    for x in inputs:
        compiled(x)
    with counting() as ran:
        compiled(inputs[0])  # the last entry is asked first
    assert numbers(ran) == (0, 0, {0: 1})


def test_it_counts_in_its_block_and_thread_alone() -> None:
    x = leaf()
    with counting() as ran:
        other = threading.Thread(target=lambda: x * x)
        other.start()
        other.join()
    _ = x * x
    assert numbers(ran) == (0, 0, {})
    assert sys.getprofile() is None


def test_blocks_nest_and_a_profiler_goes_on() -> None:
    x = leaf()
    seen: list[str] = []
    sys.setprofile(lambda frame, event, value: seen.append(event))
    try:
        with counting() as outer:
            _ = x * x
            with counting() as inner:
                _ = x + x
            _ = x - x
    finally:
        sys.setprofile(None)
    assert (outer.eager_ops, inner.eager_ops) == (3, 1)
    assert "return" in seen


def test_an_error_in_the_block_ends_the_counting() -> None:
    with pytest.raises(KeyError), counting():
        raise KeyError
    assert sys.getprofile() is None


def test_it_prints_as_a_sentence() -> None:
    x = al.ones(2)
    with counting() as ran:
        al.compile(lambda x: x * 2)(x)
    assert str(ran) == "captures: 1, eager ops: 0, graphs: 1 of order 0"
    assert str(Ran()) == "captures: 0, eager ops: 0, graphs: none"


# ------------------------------------------------------------------------------------- orders
@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", list(orders.FUNCTIONS))
def test_behind_the_first_call_each_order_runs_its_graph_alone(name: str, backend: str) -> None:
    """Neither the user's function nor an eager op."""
    compiled = al.compile(orders.FUNCTIONS[name], backend=backend)
    rows = list(orders.rows_of(name, compiled, 3))
    assert len(rows) == 12
    for row in rows:
        first = row.call == 0 and row.order == 0
        assert numbers(row.ran) == (int(first), 0, {row.order: 1})


@pytest.mark.rules("DBL-2")
def test_inputs_that_retain_a_graph_and_unused_ones_run_no_eager_op() -> None:
    """Also where gradients arrive at some of the results."""
    compiled = al.compile(lambda x, w: ((x * w).sin(), (w * w).exp()))
    x, w = leaf(), leaf()
    given = al.ones_like(x)
    for call in range(2):
        with counting() as ran:
            first, _ = compiled(x, w)
            (one,) = gradients(first, [x], given, create_graph=True)
            (two,) = gradients(one, [w], given, create_graph=True)
            gradients(two, [x], given, retain_graph=True)
            gradients(two, [x], given)
        assert numbers(ran) == (1 - call, 0, {0: 1, 1: 1, 2: 1, 3: 2})


@pytest.mark.rules("DBL-2", "TAN-3")
def test_a_gradient_in_another_layout_costs_two_ops() -> None:
    compiled = al.compile(lambda x: x * x)
    x = al.ones(2, 3, requires_grad=True)
    turned = al.ones(3, 2).t()
    compiled(x).backward(turned)
    result = compiled(x)
    with counting() as ran:
        gradients(result, [x], turned)
    assert numbers(ran) == (0, 2, {1: 1})


# ------------------------------------------------------------------------------------ the command
def test_the_table_has_a_row_for_each_call_and_order(capsys: pytest.CaptureFixture[str]) -> None:
    orders.main(["--calls", "2", "--backend", "reference"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    rows = [row for row in cells if row[0] in orders.FUNCTIONS]
    assert len(rows) == 2 * len(orders.ORDERS) * len(orders.FUNCTIONS)
    assert {row[-1] for row in rows if row[1] == "2"} == {"yes"}
    assert {row[-1] for row in rows if row[1] == "1"} == {"-"}


def test_a_row_that_runs_an_eager_op_is_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(eager_ops=1)
    ran.graphs[2] = 1
    row = orders.Row("cubes", 1, 2, ran)
    assert not row.is_met
    orders.report([row], orders.wide_console(), judges=True)
    assert "| no |" in " ".join(capsys.readouterr().out.split())


def test_the_eager_table_has_ops_at_each_order(capsys: pytest.CaptureFixture[str]) -> None:
    orders.main(["--calls", "1", "--eager"])
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if "third" in line]
    counts = [int(cells[5]) for cells in lines]
    assert len(counts) == len(orders.FUNCTIONS) and min(counts) > 5
