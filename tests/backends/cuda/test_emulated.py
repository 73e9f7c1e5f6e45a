"""Compiled functions of tensors on a CUDA device, on an emulation that refuses what CuPy refuses.

Kernels are interpreted; memory, streams, devices and their errors are those of the emulation.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cuda.driver.driver_registry import driver_of
from aotlite.testing.cuda import emulated_cuda
from aotlite.testing.cuda.cupy_runtime import POOLS

F = al.nn.functional
CUDA = emulated_cuda()


def model() -> Any:
    al.manual_seed(0)
    return al.nn.Sequential(al.nn.Linear(6, 8), al.nn.GELU(), al.nn.Linear(8, 2)).to(CUDA)


@pytest.mark.parametrize("backend", ["cuda", "auto"])
@pytest.mark.parametrize("device_graphs", [False, True])
def test_steps_of_training_are_eagers(backend: str, device_graphs: bool) -> None:
    mine, its = model(), model()
    run = al.compile(
        lambda m, x: F.dropout(m(x), 0.25).log_softmax(-1).sum(),
        backend=backend,
        device_graphs=device_graphs,
    )
    x = al.randn(5, 6, device=CUDA)
    for step in range(4):
        al.manual_seed(step)
        run(mine, x).backward()
        al.manual_seed(step)
        F.dropout(its(x), 0.25).log_softmax(-1).sum().backward()
    for a, b in zip(mine.parameters(), its.parameters(), strict=True):
        assert (a.grad - b.grad).abs().max().item() < 1e-5


def test_numbers_on_the_cpu_come_along_and_stay_there() -> None:
    run = al.compile(lambda x, s: (x * s, s * 2.0), backend="cuda", device_graphs=True)
    x = al.ones(3, device=CUDA)
    for k in range(4):
        on_device, on_cpu = run(x, al.tensor(float(k)))
        assert on_device.tolist() == [float(k)] * 3
        assert (on_cpu.item(), on_cpu.device.name) == (2.0 * k, "cpu")


def test_a_number_on_the_cpu_that_is_written_is_written_there() -> None:
    def count(x: Any, steps: Any) -> Any:
        steps.add_(1.0)
        return x / steps

    run, steps = al.compile(count, backend="cuda"), al.tensor(0.0)
    x = al.ones(2, device=CUDA)
    assert [run(x, steps).tolist() for _ in range(2)] == [[1.0, 1.0], [0.5, 0.5]]
    assert steps.item() == 2.0


def test_tensors_of_the_cpu_are_moved_inside() -> None:
    """As a step does with what a loader gives it; the copy is one, and fuses with what follows."""
    w = al.arange(3.0, device=CUDA)

    def step(x: Any, i: Any) -> Any:
        return x, x.to(CUDA) * w, w[i.to(CUDA)], al.tensor([1.0, 2.0, 3.0]).to(CUDA) + w

    run, driver = al.compile(step, backend="cuda"), driver_of(CUDA)
    before: Any = driver
    waits = before.waits
    for k in range(2):
        x, i = al.full((2, 3), 1.0 + k), al.tensor([2, 0])
        same, scaled, picked, added = run(x, i)
        assert same is x
        assert scaled.tolist() == [[0.0, 1.0 + k, 2.0 + 2 * k]] * 2
        assert picked.tolist() == [2.0, 0.0]
        assert added.tolist() == [1.0, 3.0, 5.0]
    assert before.waits == waits, "what the host has is looked at there"
    with pytest.raises(al.IndexOutOfRangeError):
        run(al.ones(2, 3), al.tensor([5, 0]))


def test_what_is_expanded_takes_tensors_of_the_cpu_that_are_moved() -> None:
    """Ops as simpler ones are written by inferring metas anew."""
    w = al.ones(3, device=CUDA)
    run = al.compile(lambda x: (x.to(CUDA) * w).softmax(-1).sum(0), backend="cuda")
    assert run(al.ones(6, 3)).tolist() == pytest.approx([2.0] * 3)


def test_moving_a_result_to_the_cpu_inside_is_refused_with_what_to_do() -> None:
    def moved(x: Any) -> Any:
        return (x * 2.0).cpu() + 1.0

    with pytest.raises(al.BackendError, match=r"a call would wait for the device; return the val"):
        al.compile(moved, backend="cuda")(al.ones(2, device=CUDA))
    with pytest.warns(RuntimeWarning, match="runs op by op"):
        found = al.compile(moved, backend="auto")(al.ones(2, device=CUDA))
    assert found.tolist() == [3.0, 3.0]


def test_a_call_makes_the_device_of_its_graph_the_current_one() -> None:
    other = emulated_cuda(1)
    x = al.ones(2, device=other)
    found = al.compile(lambda x: x + 1.0, backend="cuda")(x)
    assert (found.tolist(), found.device) == ([2.0, 2.0], other)


def test_work_goes_to_the_current_stream() -> None:
    driver: Any = driver_of(CUDA)
    seen = []
    launch = driver._do

    def noted(stream: int, work: Any) -> None:
        seen.append(stream)
        launch(stream, work)

    run, x = al.compile(lambda x: x + 1.0, backend="cuda"), al.ones(2, device=CUDA)
    run(x)
    stream: Any = CUDA.arrays.cupy.cuda.Stream(non_blocking=True)  # type: ignore[attr-defined]
    driver._do = noted
    try:
        with stream:
            run(x)
        run(x)
    finally:
        del driver._do
    assert seen == [stream.ptr, driver.current_stream()]
    assert seen[0] != seen[1]


def test_without_room_a_call_says_so_and_keeps_nothing() -> None:
    run = al.compile(lambda x: (x.sort()[0] * 2.0, x + 1.0), backend="cuda")
    x = al.ones(1 << 16, device=CUDA)
    run(x)
    pool: Any = POOLS[0]
    gc.collect()
    before, limit, freed = pool.used, pool.limit, pool.freed
    pool.limit = before + (1 << 18) + 1000
    try:
        with pytest.raises(
            al.OutOfMemoryError, match="bytes are asked for, expected at mo"
        ) as caught:
            run(x)
        gc.collect()
        assert before == pool.used, "the error's trace keeps no memory"
        assert pool.freed > freed, "what was kept was given back first"
        assert "Use smaller batches" in "".join(caught.value.__notes__)
    finally:
        pool.limit = limit
    assert run(x)[1][0].item() == 2.0


def test_inputs_are_let_go_where_nobody_else_holds_them() -> None:
    run = al.compile(lambda x: x + 1.0, backend="cuda")
    x = al.ones(4, device=CUDA)
    memory = weakref.ref(x.storage.buffer)
    found = run(x)
    del x
    gc.collect()
    assert memory() is None
    assert found.tolist() == [2.0] * 4


def test_effects_happen_once_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def told(x: Any) -> Any:
        y = x * 2.0
        al.effects.print("y is {}", y)
        z = al.effects.callback(lambda a: a + 1, y, results=y.meta)
        al.effects.print("z comes")
        return z * 2.0

    run, x = al.compile(told, backend="cuda"), al.arange(2.0, device=CUDA)
    for _ in range(2):
        assert run(x).tolist() == [2.0, 6.0]
    assert capsys.readouterr().out == "y is [0. 2.]\nz comes\n" * 2
