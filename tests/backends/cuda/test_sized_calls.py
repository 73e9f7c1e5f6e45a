"""Compiled functions of many sizes on an emulated CUDA device: modules are loaded once a region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cuda.driver.driver_registry import driver_of
from aotlite.backends.cuda.execution.launch_code import LaunchWriter
from aotlite.testing.cuda import emulated_cuda

F = al.nn.functional
CUDA = emulated_cuda()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the programs whose modules are loaded."""
    driver: Any = driver_of(CUDA)
    found: list[str] = []
    load = driver.module

    def module(program: Any, *given: Any) -> Any:
        found.append(program.name)
        return load(program, *given)

    monkeypatch.setattr(driver, "module", module)
    yield found


def model() -> Any:
    al.manual_seed(0)
    return al.nn.Sequential(al.nn.Linear(6, 8), al.nn.GELU(), al.nn.Linear(8, 2)).to(CUDA)


def loss(m: Any, x: Any) -> Any:
    return F.dropout(m(x), 0.25).log_softmax(-1).sum()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", ["cuda", "auto"])
@pytest.mark.parametrize("device_graphs", [False, True])
def test_training_at_many_sizes_is_eagers(
    backend: str, device_graphs: bool, loads: list[str]
) -> None:
    """Also with the host's part of a graph: the offset of the generator."""
    mine, its = model(), model()
    options: Any = {"backend": backend, "device_graphs": device_graphs}
    run = al.compile(loss, dynamic=True, **options)
    for step, n in enumerate((5, 7, 3, 9, 7, 5, 3, 12)):
        x = al.randn(n, 6, device=CUDA)
        al.manual_seed(step)
        run(mine, x).backward()
        al.manual_seed(step)
        loss(its, x).backward()
        for a, b in zip(mine.parameters(), its.parameters(), strict=True):
            assert (a.grad - b.grad).abs().max().item() < 1e-4
    assert [len(region.sizes) for region in run.regions()] == [5]
    assert len(set(loads)) == 2
    assert len(loads) <= 4  # forward and backward, of 32 and of 64 bits


def test_a_text_serves_sizes_of_0_and_1(loads: list[str]) -> None:
    run = al.compile(lambda x, w: (x * w).sum(0), dynamic=True, backend="cuda")
    w = al.arange(3.0, device=CUDA)
    for n in (4, 0, 1, 700):
        x = al.ones(n, 3, device=CUDA)
        assert run(x, w).tolist() == [0.0, float(n), 2.0 * n]
    regions = run.regions()
    assert sum([len(region.sizes) for region in regions]) == 4
    assert len(loads) <= 2 * len(regions) + 2


def test_values_of_the_host_are_checked_at_each_size(loads: list[str]) -> None:
    run = al.compile(lambda x, i: x[i], dynamic=True, backend="cuda")
    for n in (4, 6, 9):
        x = al.arange(float(n), device=CUDA)
        assert run(x, al.tensor([n - 1, 0])).tolist() == [n - 1.0, 0.0]
        with pytest.raises(al.IndexOutOfRangeError):
            run(x, al.tensor([n, 0]))
    assert len(loads) <= 2


def test_a_constant_is_uploaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of all sizes share it."""
    upload, found = LaunchWriter._uploaded, []

    def uploaded(writer: Any, buffer: Any) -> Any:
        found.append(buffer.number)
        return upload(writer, buffer)

    monkeypatch.setattr(LaunchWriter, "_uploaded", uploaded)
    run = al.compile(
        lambda x: x * al.tensor([1.0, 2.0, 3.0], device=CUDA), dynamic=True, backend="cuda"
    )
    for n in (4, 6, 9):
        assert run(al.ones(n, 3, device=CUDA)).sum().item() == 6.0 * n
    assert len(found) == 1


def test_a_number_that_is_a_symbol_is_an_argument_of_kernels(loads: list[str]) -> None:
    """No tensor has a symbol; the number changes, and the text does not."""
    run = al.compile(lambda x, n: x * n + (n // 2), dynamic=True, backend="cuda")
    x = al.arange(3.0, device=CUDA)
    for n in (5, 8, 13):
        assert run(x, n).tolist() == [n // 2 + k * n for k in range(3)]
    assert len(loads) <= 2
