"""Devices by name, and what is said where there are none."""

import copy
import pickle
import sys
from types import SimpleNamespace

import pytest

import aotlite as al
from aotlite.ir.arrays import cuda_devices
from aotlite.ir.arrays.cuda_devices import Library, device_named, library, using, why_unavailable
from aotlite.ir.arrays.device import CPU
from aotlite.testing import emulated_cuda, emulating_cuda
from aotlite.testing.cuda import emulated_library


def test_a_device_is_one_object():
    first = emulated_cuda()
    assert first is emulated_cuda(0) is not emulated_cuda(1)
    assert first is copy.deepcopy(first) is pickle.loads(pickle.dumps(first))
    assert ("emulated", 0, "cpu", None) == (first.type, first.index, CPU.type, CPU.index)


def test_names_mean_the_devices_of_the_library():
    with emulating_cuda() as first:
        assert first is device_named("cuda") is device_named("cuda:0")
        assert emulated_cuda(1) is al.zeros(2, device="cuda:1").device
        with emulated_library().cupy.cuda.Device(1):
            assert emulated_cuda(1) is al.ones(2).cuda().device
        with pytest.raises(al.DeviceError, match=r"device is 'cuda:7', expected an index"):
            al.zeros(2, device="cuda:7")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:x", ""])
def test_other_names_are_refused(name):
    with pytest.raises(al.DeviceError, match=r"^to: device is '.*', expected 'cpu', 'cuda', or"):
        al.ones(2).to(name)


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"cudaError {status}")
        self.status = status


def library_whose_count(count):
    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    return Library(SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)), None)


@pytest.mark.parametrize(
    ("status", "message", "advice"),
    [
        (35, "cuda: the driver is missing or too old", "aotlite[cuda12]"),
        (100, "cuda: the driver finds no device", "CUDA_VISIBLE_DEVICES"),
        (999, "cuda: the driver says cudaError 999", ""),
    ],
)
def test_a_driver_that_does_not_work_is_told(status, message, advice):
    def count():
        raise CUDARuntimeError(status)

    with using(library_whose_count(count)), pytest.raises(al.DeviceError, match=message) as caught:
        al.ones(2, device="cuda")
    assert advice in " ".join(getattr(caught.value, "__notes__", ()))


def test_no_device_is_told():
    with using(library_whose_count(lambda: 0)):
        assert "cuda: there are 0 devices, expected at least one" == str(why_unavailable())


def test_cupy_that_is_missing_is_told(monkeypatch):
    monkeypatch.setattr(cuda_devices, "_LOADED", [])
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(al.MissingExtraError, match=r"^cuda: CuPy cannot be imported") as caught:
        library()
    assert "pip install 'aotlite[cuda13]'" in caught.value.__notes__[0]
    assert isinstance(why_unavailable(), al.MissingExtraError)
