"""CUG-1 to CUG-3 and CUG-6 with symbols for sizes: recordings by size, kernels once for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.execution import device_graphs
from aotlite.backends.cuda.execution.device_graphs import pool_of
from aotlite.testing.cuda.host_driver import DEFAULT_STREAM
from tests.backends.cuda.helpers.devices import results
from tests.rules.test_cug_device_graphs import Counted, recording, value


def shares(x: Any) -> Any:
    return (x * 2.0).softmax(-1)


def projects(x: Any, w: Any) -> Any:
    return (x @ w).exp()


def centers(x: Any) -> Any:
    return (x - x.sum(0)).exp().sum(0)


def weighs(x: Any, w: Any) -> Any:
    return (x * w).exp()


@pytest.fixture
def on() -> Counted:
    return Counted()


@pytest.fixture
def loads(on: Counted, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs whose modules are loaded."""
    found: list[str] = []
    load = on.driver.module

    def module(program: Any, *given: Any) -> Any:
        found.append(program.name)
        return load(program, *given)

    monkeypatch.setattr(on.driver, "module", module)
    return found


@pytest.mark.rules("CUG-1")
def test_the_first_call_of_a_size_records_once_the_kernels_have_run(
    on: Counted, loads: list[str]
) -> None:
    """The key is the sizes; nothing is compiled for a new one."""
    run = recording(shares, dynamic=True)
    counts, held = [], [on.random(n, 3) for n in (4, 8, 4, 8, 12, 12)]
    for x in held:  # each at an address of its own
        np.testing.assert_array_equal(value(run(x)), value(al.compile(shares, backend="cuda")(x)))
        counts.append((on.recorded, on.replayed))
    assert counts == [(0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (3, 5)]
    assert [len(region.sizes) for region in run.regions()] == [3]


@pytest.mark.rules("CUG-1")
def test_a_size_compiles_nothing(on: Counted, loads: list[str]) -> None:
    run = recording(shares, dynamic=True)
    for n in (4, 8, 12, 5, 9):
        run(on.random(n, 3))
    assert len(loads) == 2  # of 32 and of 64 bits


@pytest.mark.rules("CUG-1")
def test_a_size_with_products_warms_up(on: Counted) -> None:
    """cuBLAS takes kernels by size, which the first call of the size loads."""
    run = recording(projects, dynamic=True)
    w, counts = on.random(5, 4), []
    held = [on.random(n, 5) for n in (4, 8, 4, 8, 8)]  # each at an address of its own
    for x in held:
        run(x, w)
        counts.append((on.recorded, on.replayed))
    assert counts == [(0, 0), (0, 0), (1, 1), (2, 2), (2, 3)]


@pytest.mark.rules("CUG-1")
def test_recordings_of_all_sizes_share_memory(on: Counted, monkeypatch: Any) -> None:
    rooms: list[Any] = []
    made = device_graphs.DeviceGraphRun._recorded

    def recorded(self: Any, *given: Any, **options: Any) -> Any:
        found = made(self, *given, **options)
        rooms.append(found.room)
        return found

    monkeypatch.setattr(device_graphs.DeviceGraphRun, "_recorded", recorded)
    run = recording(centers, dynamic=True)
    held = [on.random(n, 64) for n in (64, 64, 4, 16, 4, 33)]  # each at an address of its own
    for x in held:
        run(x)
    assert len(rooms) == 4
    assert {id(room) for room in rooms} == {id(pool_of(on.driver, DEFAULT_STREAM).known())}


@pytest.mark.rules("CUG-4")
def test_what_has_one_address_at_all_sizes_is_read_in_place(on: Counted) -> None:
    """A parameter is static for a size from its first call on; a batch is not."""
    run = recording(weighs, dynamic=True)
    w, moves = on.random(3), []
    move = on.driver.move

    def counted(*given: Any) -> None:
        moves.append(given)
        move(*given)

    on.driver.move = counted
    held = [on.random(n, 3) for n in (4, 8, 12)]
    for x in held:
        np.testing.assert_allclose(value(run(x, w)), value((x * w).exp()), 1e-6)
    assert on.recorded == 2
    assert len(moves) == 2  # each of its batch


@pytest.mark.rules("CUG-2")
def test_sizes_are_static_by_choice(on: Counted, loads: list[str]) -> None:
    run = recording(shares, dynamic=False)
    held = [on.random(n, 3) for n in (4, 8, 4, 8)]
    for x in held:
        run(x)
    assert len(run.entries) == 2
    assert len(loads) == 2  # one for each size
    assert (on.recorded, on.replayed) == (2, 2)


@pytest.mark.rules("CUG-3")
def test_only_sizes_that_are_named_are_recorded_in_a_region(on: Counted) -> None:
    run = recording(shares, dynamic=True, device_graph_sizes=[4])
    held = [on.random(n, 3) for n in (4, 5, 6) * 3]
    for x in held:
        run(x)
    assert (on.recorded, on.replayed) == (1, 2)
    assert [len(region.sizes) for region in run.regions()] == [3]


@pytest.mark.rules("CUG-6")
def test_gradients_of_recordings_by_size_are_those_without(on: Counted) -> None:
    def loss(x: Any, w: Any) -> Any:
        return (x * w).softmax(-1).sum(0)

    w = on.ones(5, grad=True)
    runs = recording(loss, dynamic=True), al.compile(loss, backend="cuda", dynamic=True)
    for n in (4, 7, 4, 7, 9, 9):
        x = on.random(n, 5).requires_grad_()
        expected, found = (
            [*results(y), *results(al.autograd.grad((y * y).sum(), (x, w)))]
            for y in [run(x, w) for run in runs]
        )
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)
    assert on.recorded >= 6
