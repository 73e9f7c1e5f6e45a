"""Memory shared with other libraries, both ways: DLPack and `__cuda_array_interface__`."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.arrays.cuda_devices import library
from aotlite.testing import emulated_cuda, emulating_cuda
from aotlite.testing.cuda import cupy_runtime


@pytest.fixture
def device(device):
    """The device, which 'cuda' means meanwhile."""
    if device.type == "cuda":
        yield device
        return
    with emulating_cuda():
        yield device


def peer(device, values):
    """An array of CuPy's on the device."""
    return device.arrays.moved(np.array(values, np.float32))


def test_an_array_of_cupys_is_shared_both_ways(device):
    array = peer(device, [[1, 2, 3], [4, 5, 6]])
    for take in (al.as_tensor, al.asarray, al.from_dlpack):
        for given in (array, array.T, array[:, 1:], array[:0]):
            x = take(given)
            assert (device, given.shape) == (x.device, x.shape)
            assert tuple(step * 4 for step in x.stride()) == given.strides or not x.numel()
            x.add_(1)
            assert given.tolist() == x.tolist()


def test_a_tensor_is_shared_with_cupy_both_ways(device):
    x = al.arange(6, device=device).to(al.float32).reshape(2, 3).t()[1:]
    cupy = library().cupy
    for array in (cupy.asarray(x), cupy.from_dlpack(x)):
        assert (x.shape, x.data_ptr()) == (array.shape, array.data.ptr)
        array[...] = array + 1
        assert array.tolist() == x.tolist()


def test_the_interface_names_the_stream(device):
    x = al.ones(2, 3, device=device)
    found = x.__cuda_array_interface__
    assert (3, (2, 3), "<f4", (x.data_ptr(), False)) == (
        found["version"], found["shape"], found["typestr"], found["data"]
    )  # fmt: skip
    assert found["stream"] not in (None, 0)
    stream = al.cuda.Stream()
    with al.cuda.stream(stream):
        assert stream.cuda_stream == x.__cuda_array_interface__["stream"]


class Peer:
    """Memory of a library that says no more than the interface."""

    def __init__(self, array, **facts):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **facts}


def test_a_peers_stream_is_waited_for():
    with emulating_cuda() as device:
        cupy_runtime.WAITED.clear()
        array = peer(device, [1, 2])
        x = al.as_tensor(Peer(array, stream=1234))
        assert ([1.0, 2.0], [1234]) == (x.tolist(), cupy_runtime.WAITED)
        assert array.data.ptr == x.data_ptr()


def test_memory_that_is_read_only_is_not_written(device):
    array = peer(device, [1, 2])
    x = al.as_tensor(Peer(array, data=(array.data.ptr, True)))
    with pytest.raises(al.ArgumentError, match="the destination is read-only memory"):
        x.add_(1)
    with pytest.raises(al.ArgumentError, match=r"^as_tensor: the array has a mask"):
        al.as_tensor(Peer(array, mask=array))


def test_tensor_copies_what_as_tensor_shares(device):
    array = peer(device, [1, 2])
    x = al.tensor(array, dtype=al.float64)
    x.add_(1)
    assert ([1.0, 2.0], [2.0, 3.0], device) == (array.tolist(), x.tolist(), x.device)
    assert "cpu" == str(al.tensor(array, device="cpu").device)
    assert "cpu" == str(al.as_tensor(array, device="cpu").device)


def test_memory_of_another_device_stays_there_unless_one_is_named():
    with emulating_cuda() as first:
        second = emulated_cuda(1)
        array = peer(second, [1, 2])
        assert second is al.as_tensor(array).device is al.from_dlpack(array).device
        assert second is al.as_tensor(Peer(array)).device
        moved = al.as_tensor(array, device="cuda:0")
        assert (first, [1.0, 2.0]) == (moved.device, moved.tolist())
        with pytest.raises(al.ArgumentError, match="copy is False, expected memory that is on"):
            al.from_dlpack(array, device="cuda:0", copy=False)
        with pytest.raises(al.DeviceError, match=r"^add: operands are on"):
            al.as_tensor(array) + al.ones(2, device=first)


def test_dlpack_copies_to_the_host_where_it_is_asked_to(device):
    x = al.tensor([1.0, 2.0], device=device)
    assert (2, device.index) == x.__dlpack_device__()
    host = np.from_dlpack(OnHost(x))
    assert [1.0, 2.0] == host.tolist()
    with pytest.raises(al.UnsupportedError, match=rf"^__dlpack__: the memory is of {device}"):
        x.__dlpack__(dl_device=(1, 0), copy=False)


class OnHost:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        options.pop("stream", None)
        return self.tensor.__dlpack__(**{**options, "dl_device": (1, 0), "copy": None})


def test_the_stream_that_a_taker_names_reaches_the_array():
    with emulating_cuda() as device:
        assert 7 == al.ones(2, device=device).__dlpack__(stream=7).stream


def test_tensors_of_the_cpu_share_with_numpy():
    x = al.arange(4).to(al.float32)[::2]
    array = np.from_dlpack(x)
    array += 1
    assert [1.0, 3.0] == x.tolist() == al.from_dlpack(array).tolist()
    assert (1, 0) == x.__dlpack_device__()
    assert not hasattr(x, "__cuda_array_interface__")
    copied = al.from_dlpack(array, copy=True)
    copied.add_(1)
    assert [1.0, 3.0] == x.tolist()


def test_what_cannot_be_shared_is_told(device):
    with pytest.raises(al.AutogradError, match="^__dlpack__: the tensor requires grad"):
        al.ones(2, device=device, requires_grad=True).__dlpack__()
    with pytest.raises(al.DTypeError, match="^__dlpack__: dtype is bfloat16"):
        al.ones(2, device=device, dtype=al.bfloat16).__dlpack__()
    with pytest.raises(al.ArgumentError, match="expected one with __dlpack__"):
        al.from_dlpack([1, 2])
    with pytest.raises(al.ArgumentError, match="strides that are not negative"):
        al.as_tensor(peer(device, [1, 2])[::-1])


def test_interfaces_that_say_something_false_are_told():
    """Before CuPy makes an array of them: it would ask for memory that is not there."""
    with emulating_cuda() as device:
        array, host = peer(device, [1, 2]), np.ones(2, np.float32)
        for facts, error, text in (
            ({"data": (host.ctypes.data, False)}, al.DeviceError, "is of no CUDA device"),
            ({"strides": (-4,)}, al.ArgumentError, r"has strides \(-4,\) at address"),
        ):
            with pytest.raises(error, match=f"^as_tensor: .*{text}"):
                al.as_tensor(Peer(array, **facts))
        bare = Peer(array)
        del bare.__cuda_array_interface__["data"]
        with pytest.raises(al.ArgumentError, match="__cuda_array_interface__ has no 'data'"):
            al.as_tensor(bare)
        with pytest.raises(al.DeviceError, match=r"^from_dlpack: device is 'cuda:9'"):
            al.from_dlpack(OnDevice9())


class OnDevice9:
    def __dlpack_device__(self):
        return 2, 9

    def __dlpack__(self, **options):
        raise AssertionError("not asked for")


def test_writes_of_others_are_not_hidden_from_a_backward(device):
    """Shared memory is exported: what is saved of it is copied, as of an ndarray's."""
    x = al.tensor([1.0, 2.0], device=device)
    array = library().cupy.asarray(x)
    assert x.storage.exported and al.as_tensor(array).storage.exported
