"""`aotlite.cuda`: PyTorch's names for devices, streams, events and memory."""

import pytest

import aotlite as al
from aotlite.ir.arrays.cuda_devices import using
from aotlite.testing import emulated_cuda, emulating_cuda
from tests.cuda.test_devices import library_whose_count


@pytest.fixture
def first():
    with emulating_cuda() as device:
        yield device


def test_without_a_device_it_says_so():
    with using(library_whose_count(lambda: 0)):
        assert (False, 0) == (al.cuda.is_available(), al.cuda.device_count())
        with pytest.raises(al.DeviceError, match="there are 0 devices"):
            al.cuda.current_device()


def test_names_are_pytorchs(torch):
    ours = set(al.cuda.__all__) - {"DeviceProperties"}
    assert set() == ours - set(dir(torch.cuda))


def test_devices(first):
    assert (True, 2, 0) == (
        al.cuda.is_available(), al.cuda.device_count(), al.cuda.current_device()
    )  # fmt: skip
    for place in (1, "cuda:1", emulated_cuda(1)):
        with al.cuda.device(place):
            assert 1 == al.cuda.current_device()
            assert emulated_cuda(1) is al.zeros(1, device="cuda").device
    with al.cuda.device(None):
        assert 0 == al.cuda.current_device()
    al.cuda.set_device(1)
    al.cuda.set_device(first)
    assert 0 == al.cuda.current_device()
    al.cuda.synchronize()


@pytest.mark.parametrize("place", [7, -1, "cpu", "cuda:9"])
def test_devices_that_are_not_there(place, first):
    with pytest.raises(al.DeviceError, match=r"device is '?(cuda:7|cuda:-1|cpu|cuda:9)'?"):
        al.cuda.synchronize(place)


def test_streams(first):
    stream = al.cuda.Stream()
    assert stream != al.cuda.current_stream() == al.cuda.default_stream()
    with al.cuda.stream(stream):
        assert stream == al.cuda.current_stream()
        x = al.ones(3, device=first)
    assert al.cuda.default_stream() == al.cuda.current_stream()
    al.cuda.current_stream().wait_stream(stream)
    stream.synchronize()
    assert ([1.0] * 3, True) == (x.tolist(), stream.query())
    same = al.cuda.ExternalStream(stream.cuda_stream)
    assert same == stream and hash(same) == hash(stream)
    with al.cuda.stream(None):
        assert al.cuda.default_stream() == al.cuda.current_stream()


def test_a_stream_makes_its_device_current(first):
    stream = al.cuda.Stream(device=1)
    with al.cuda.stream(stream):
        assert (1, stream) == (al.cuda.current_device(), al.cuda.current_stream())
        assert al.cuda.default_stream(0) == al.cuda.current_stream(0)


def test_events(first):
    start, end = (al.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record(al.cuda.Stream())
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
    waiting = al.cuda.Stream()
    end.wait(waiting)
    assert end.held is waiting.held.waited[-1]
    with pytest.raises(al.ArgumentError, match="enable_timing False, expected True"):
        start.elapsed_time(al.cuda.Event())


def test_memory(first):
    before = al.cuda.memory_allocated()
    x = al.zeros(1000, device=first)
    assert 4000 <= al.cuda.memory_allocated() - before < 8000 <= al.cuda.memory_reserved() + 8000
    free, total = al.cuda.mem_get_info(first)
    assert 0 < free <= total
    al.cuda.empty_cache()
    del x
    assert before == al.cuda.memory_allocated()


def test_properties(first):
    found = al.cuda.get_device_properties(0)
    assert found.name == al.cuda.get_device_name() == "Emulated GPU"
    assert (found.major, found.minor) == al.cuda.get_device_capability("cuda:1")
    assert 32 == found.warp_size


def test_seeds_are_those_of_all_devices(first):
    al.cuda.manual_seed(5)
    drawn = al.rand(3, device=first).tolist()
    al.manual_seed(5)
    assert drawn == al.rand(3).tolist()
