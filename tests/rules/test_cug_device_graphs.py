"""CUG: launches recorded once and done anew, on a CUDA device that is this process.

The recordings are those of the driver without a GPU, which does what was recorded with the
addresses of then: what is not there any more is an error, and what was left out is other numbers.
"""

from __future__ import annotations

import gc
import logging
import threading
import traceback
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver.driver_protocol import PER_THREAD
from aotlite.backends.cuda.execution import device_graphs
from aotlite.backends.cuda.execution.device_graphs import MOST, pool_of
from aotlite.ir.dtypes import float32
from aotlite.ir.errors import ArgumentError, BackendError, DeviceError
from aotlite.testing import check_program, draw
from aotlite.testing.cuda.host_driver import DEFAULT_STREAM
from tests.backends.cuda.helpers.devices import Relabeled, device, moved, results

F = al.nn.functional


class Counted:
    """A device whose driver counts what is recorded and what is done anew."""

    def __init__(self) -> None:
        self.device = device()
        self.driver = self.device.arrays.driver
        self.recorded = self.replayed = 0
        capture = self.driver.capture

        def counting(work: Any, **given: Any) -> Any:
            graph = capture(work, **given)
            self.recorded += 1
            launch = graph.launch

            def launched(stream: int) -> None:
                self.replayed += 1
                launch(stream)

            graph.launch = launched
            return graph

        self.driver.capture = counting

    def ones(self, *shape: int, grad: bool = False) -> Any:
        return moved(al.ones(*shape).requires_grad_(grad), self.device)

    def random(self, *shape: int) -> Any:
        return moved(al.randn(*shape), self.device)


@pytest.fixture
def on() -> Counted:
    return Counted()


def recording(function: Any, **options: Any) -> Any:
    return al.compile(function, backend="cuda", device_graphs=True, **options)


def scaled(x: Any) -> Any:
    return (x * 2.0).softmax(-1)


def value(x: Any) -> Any:
    return results(x)[0]


# ------------------------------------------------------------------------------------------- CUG-1
@pytest.mark.rules("CUG-1")
def test_each_size_is_recorded_once(on: Counted) -> None:
    run = recording(scaled)
    for n in (4, 8, 4, 8, 4, 8, 4):
        x = on.random(n, 3)
        np.testing.assert_array_equal(value(run(x)), value(al.compile(scaled, backend="cuda")(x)))
    assert on.recorded == 2
    assert on.replayed == 5, "all but the first call of each size"


@pytest.mark.rules("CUG-1")
def test_recordings_share_memory_as_large_as_the_largest_needs(on: Counted) -> None:
    run = recording(lambda x: (x @ x.t()).exp() @ x, dynamic=False)
    for n in (16, 4, 64, 4, 16, 64) * 3:
        run(on.random(n, n))
    rooms = {
        id(each.room)
        for entry in run.entries
        for each in _find(entry).recordings[DEFAULT_STREAM]
        if each.room is pool_of(on.driver, DEFAULT_STREAM).known()
    }
    assert len(rooms) == 1
    room = pool_of(on.driver, DEFAULT_STREAM).known()
    assert room is not None
    assert 64 * 64 * 4 <= room.size <= 4 * 64 * 64 * 4 + 4096


def _find(entry: Any) -> Any:
    found = [o for o in gc.get_objects() if isinstance(o, device_graphs.DeviceGraphRun)]
    return next(o for o in found if o.graph is entry.partition.forward)


@pytest.mark.rules("CUG-1")
def test_default_streams_of_threads_share_nothing(on: Counted) -> None:
    """They have one handle; what two threads record there may be done at the same time."""
    recorded = on.driver.current_stream
    on.driver.current_stream = lambda: recorded() if on.driver.is_recording else PER_THREAD
    run, x, rooms, together = recording(scaled), on.random(2, 3), [], threading.Barrier(2)

    def calls() -> None:
        for _ in range(3):
            np.testing.assert_allclose(value(run(x)), value(scaled(x)), 1e-6)
        rooms.append(pool_of(on.driver, PER_THREAD).known())
        together.wait(10)

    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert on.recorded == 2
    assert rooms[0] is not rooms[1]


# ------------------------------------------------------------------------------------------- CUG-2
@pytest.mark.rules("CUG-2")
def test_a_new_size_is_a_new_entry(on: Counted) -> None:
    run = recording(scaled)
    run(on.random(2, 3))
    run(on.random(5, 3))
    assert len(run.entries) == 2


# ------------------------------------------------------------------------------------------- CUG-3
@pytest.mark.rules("CUG-3")
def test_only_the_sizes_that_are_named_are_recorded(on: Counted) -> None:
    run = recording(scaled, device_graph_sizes=[4])
    for n in (4, 5) * 3:
        x = on.random(n, 3)
        np.testing.assert_allclose(value(run(x)).sum(-1), 1.0, rtol=1e-5)
    assert (on.recorded, on.replayed) == (1, 2)


@pytest.mark.rules("CUG-3")
def test_many_recordings_of_one_function_are_told_once(
    on: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_graphs, "MANY", 3)
    monkeypatch.setattr(device_graphs, "_counts", {})

    def of_many_sizes(x: Any) -> Any:
        return x + 1.0

    run = recording(of_many_sizes)
    with pytest.warns(RuntimeWarning, match="3 device graphs were recorded of of_many_sizes"):
        for n in range(2, 6):
            run(on.random(n))
            run(on.random(n))


@pytest.mark.rules("CUG-3")
@pytest.mark.parametrize("sizes", [[1, "2"], 4, [-1]])
def test_sizes_that_are_none_are_refused(sizes: Any) -> None:
    with pytest.raises(ArgumentError, match="expected a list of sizes, such as"):
        recording(scaled, device_graph_sizes=sizes)


@pytest.mark.rules("CUG-3")
def test_sizes_need_device_graphs_and_these_a_backend_that_has_them() -> None:
    with pytest.raises(ArgumentError, match="device_graphs is False, expected True with sizes"):
        al.compile(scaled, device_graph_sizes=[1])
    with pytest.raises(ArgumentError, match="backend 'cpu', expected 'auto' or 'cuda'"):
        al.compile(scaled, backend="cpu", device_graphs=True)


# ------------------------------------------------------------------------------------------- CUG-4
@pytest.mark.rules("CUG-4")
def test_the_first_call_warms_up_and_the_second_records(on: Counted) -> None:
    run = recording(scaled)
    x, done = on.random(4, 3), []
    for _ in range(4):
        run(x)
        done.append((on.recorded, on.replayed))
    assert done == [(0, 0), (1, 1), (1, 2), (1, 3)]


@pytest.mark.rules("CUG-4")
def test_what_stays_is_read_where_it_is_and_what_moves_is_copied(on: Counted) -> None:
    run = recording(lambda w, x: (w * x).sum(-1))
    weight, kept = on.random(4, 3), []
    for _ in range(4):
        kept.append(on.random(4, 3))
        expected = (weight._data * kept[-1]._data).sum(-1)
        np.testing.assert_allclose(value(run(weight, kept[-1])), expected, rtol=1e-5)
    (only,) = _find(run.entries[0]).recordings[DEFAULT_STREAM]
    assert [number for number, _ in only.fixed] == [0]
    assert [number for number, _ in only.copied] == [1]
    weight._data[...] = 2.0  # seen, without another recording
    np.testing.assert_allclose(value(run(weight, kept[0])), 2 * kept[0]._data.sum(-1), rtol=1e-5)
    assert on.recorded == 1


@pytest.mark.rules("CUG-4")
def test_an_input_that_begins_anywhere_is_copied(on: Counted) -> None:
    run = recording(lambda x: x * 3.0)
    whole = on.random(9)
    for _ in range(3):
        np.testing.assert_array_equal(value(run(whole[1:])), whole._data[1:] * np.float32(3))
    (only,) = _find(run.entries[0]).recordings[DEFAULT_STREAM]
    assert not only.fixed


@pytest.mark.rules("CUG-4")
def test_what_a_forward_saves_is_read_where_it_is_by_its_backward(on: Counted) -> None:
    run = recording(lambda w, x: (x @ w).tanh().sum())
    weight, x = on.random(3, 3).requires_grad_(), on.random(4, 3)
    for _ in range(4):
        weight.grad = None
        run(weight, x).backward()
    eager = weight.detach().requires_grad_()
    (x @ eager).tanh().sum().backward()
    np.testing.assert_allclose(weight.grad._data, eager.grad._data, rtol=1e-5)
    assert on.recorded >= 2
    backward = [o for o in gc.get_objects() if isinstance(o, device_graphs.DeviceGraphRun)]
    last = next(o for o in backward if o.graph is run.entries[0].partition.backward)
    assert all(each.fixed for each in last.recordings[DEFAULT_STREAM])


@pytest.mark.rules("CUG-4")
def test_values_of_the_host_are_those_of_each_call(on: Counted) -> None:
    """The generator goes on, and a scalar of the CPU may be another one."""
    run = recording(lambda x: x + al.rand(4, device=x.device))
    plain = al.compile(lambda x: x + al.rand(4, device=x.device), backend="cuda")
    x = on.ones(4)
    al.manual_seed(3)
    mine = [value(run(x)) for _ in range(4)]
    al.manual_seed(3)
    its = [value(plain(x)) for _ in range(4)]
    np.testing.assert_array_equal(mine, its)
    assert on.replayed == 3


# ------------------------------------------------------------------------------------------- CUG-5
@pytest.mark.rules("CUG-5")
def test_results_that_are_held_are_not_overwritten(on: Counted) -> None:
    run = recording(lambda x: (x * 2.0, x + 1.0))
    held = []
    for k in range(6):
        x = on.ones(3) * float(k)
        held.append((k, run(x)))
    for k, (double, more) in held:
        assert value(double).tolist() == [2.0 * k] * 3
        assert value(more).tolist() == [k + 1.0] * 3


@pytest.mark.rules("CUG-5")
def test_a_view_holds_the_results_memory(on: Counted) -> None:
    run = recording(lambda x: x * 2.0)
    run(on.ones(4))
    view = run(on.ones(4))[1:3]
    for _ in range(3):
        run(on.ones(4) * 5.0)
    assert value(view).tolist() == [2.0, 2.0]


@pytest.mark.rules("CUG-5")
def test_memory_of_results_that_nobody_holds_is_used_again(on: Counted) -> None:
    run = recording(scaled)
    # All alive: an input in the memory of the one before would be read where it lies.
    for x in [on.random(4, 3) for _ in range(10)]:
        run(x)
    assert on.recorded == 1


@pytest.mark.rules("CUG-5")
def test_beyond_a_number_of_held_results_calls_run_without(
    on: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    run, x = recording(scaled), on.random(2, 3)
    with caplog.at_level(logging.INFO, "aotlite.device_graphs"):
        held = [run(x) for _ in range(MOST + 4)]
    assert on.recorded == MOST
    assert "recordings whose results are held (CUG-5)" in caplog.text
    for each in held:
        np.testing.assert_array_equal(value(each), value(held[0]))


@pytest.mark.rules("CUG-5")
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x.sort(-1)[0] * 2.0, "is computed by the array library, which allocates"),
        (lambda x: x[(x[0] * 0.0).long()], "a check waits for the device"),
    ],
    ids=["extern", "check"],
)
def test_what_cannot_be_recorded_runs_with_a_reason(
    on: Counted, caplog: pytest.LogCaptureFixture, function: Any, why: str
) -> None:
    run, x = recording(function), on.random(3, 3)
    with caplog.at_level(logging.INFO, "aotlite.device_graphs"):
        for _ in range(3):
            np.testing.assert_array_equal(value(run(x)), value(function(x)))
    (told,) = {each.getMessage() for each in caplog.records if each.levelno == logging.WARNING}
    assert "is not recorded: " in told and why in told
    assert on.recorded == 0


@pytest.mark.rules("CUG-5")
def test_inputs_that_are_written_must_stay(on: Counted, caplog: pytest.LogCaptureFixture) -> None:
    def add(x: Any) -> Any:
        x.add_(1.0)
        return x * 2.0

    run, stays, kept = recording(add), on.ones(3), []
    for _ in range(4):
        run(stays)
    assert value(stays).tolist() == [5.0] * 3
    assert on.replayed == 3
    with caplog.at_level(logging.INFO, "aotlite.device_graphs"):
        for _ in range(3):
            kept.append(on.ones(3))
            run(kept[-1])
    assert [value(each).tolist() for each in kept] == [[2.0] * 3] * 3
    assert "an input that is written is somewhere else at each call (CUG-5)" in caplog.text


@pytest.mark.rules("CUG-5")
def test_faults_of_the_device_are_told_and_keep_nothing(on: Counted) -> None:
    """Where recorded work is launched; a fault while it is recorded only ends recording."""

    class Fault(RuntimeError):
        pass

    def explain(error: BaseException) -> None:
        if type(error) is Fault:
            raise DeviceError("cuda: the device says no") from error

    def launch(stream: int) -> None:
        raise Fault

    run, x = recording(scaled), on.random(2, 3)
    for _ in range(2):
        run(x)
    on.driver.explain = explain
    (only,) = _find(run.entries[0]).recordings[DEFAULT_STREAM]
    only.graph.launch = launch
    with pytest.raises(DeviceError, match="the device says no") as caught:
        run(x)
    assert caught.value.__cause__ is not None
    frames = [each[0] for each in traceback.walk_tb(caught.value.__cause__.__traceback__)]
    own = [frame for frame in frames if frame.f_code.co_filename == device_graphs.__file__]
    assert ["_replayed", "_launch"] == [frame.f_code.co_name for frame in own]
    assert [[], []] == [frame.f_locals["values"] for frame in own]
    assert [] == own[0].f_locals["box"]


# ------------------------------------------------------------------------------------------- CUG-6
@pytest.mark.rules("CUG-6")
def test_random_programs_give_the_same_bits_recorded_or_not() -> None:
    """Views, writes and gradients; each program runs several times with one function."""
    plain = CudaBackend(contract=False)
    backend = Relabeled(device(), plain.with_device_graphs(None))
    for seed in range(200, 212):
        check_program(draw(seed), backend=backend)


@pytest.mark.rules("CUG-6")
def test_a_training_loop_recorded_takes_the_steps_of_one_that_is_not(on: Counted) -> None:
    def trained(**options: Any) -> list[Any]:
        al.manual_seed(0)
        first, last = on.random(6, 8).requires_grad_(), on.random(8, 2).requires_grad_()
        given, wanted = on.random(5, 6), on.random(5, 2)

        def loss(a: Any, b: Any, x: Any, y: Any) -> Any:
            return ((F.gelu(x @ a) @ b - y) ** 2).mean()

        run, losses = al.compile(loss, backend=CudaBackend(), **options), []
        for _ in range(6):
            found = run(first, last, given, wanted)
            found.backward()
            losses.append(float(value(found)))
            with al.no_grad():
                for weight in (first, last):
                    weight.sub_(weight.grad * 0.1)
                    weight.grad = None
        return [*losses, value(first), value(last)]

    for mine, its in zip(trained(device_graphs=True), trained(), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert on.replayed >= 8


@pytest.mark.rules("CUG-6")
def test_a_recording_whose_memory_is_gone_is_seen(on: Counted) -> None:
    """What the driver without a GPU does where a GPU would read whatever lies there."""
    arrays, driver = on.device.arrays, on.driver
    buffer = arrays.allocate(4, float32)
    place = driver.address(buffer)
    graph = driver.capture(lambda: driver.move(driver.current_stream(), place, place, 16))
    graph.launch(0)
    del buffer
    with pytest.raises(BackendError, match="of the device that is still there"):
        graph.launch(0)


@pytest.mark.rules("CUG-6")
def test_the_default_stream_cannot_be_recorded_and_nobody_waits_meanwhile(on: Counted) -> None:
    driver = on.driver
    with pytest.raises(BackendError, match="capture is on the default stream"):
        driver.captured(DEFAULT_STREAM, lambda: None)
    with pytest.raises(BackendError, match="the device is waited for while work is recorded"):
        driver.capture(driver.synchronize)
    driver.synchronize()
