"""CuPy's adapter: on NumPy in CuPy's place, and on a device where there is one."""

import importlib
import sys
import types

import numpy as np
import pytest

from aotlite import conformance
from aotlite.conformance.adapters.numpy import NumPy
from aotlite.ir.errors import DeviceError

ADAPTER = "aotlite.conformance.adapters.cupy"
GROUPS = ["views", "geometry", "writes", "index", "copies"]


class CUDARuntimeError(RuntimeError):
    """What CuPy raises without a driver."""


def numpy_as_cupy(devices):
    """A module with what the adapter needs of CuPy, made of NumPy."""
    module = types.ModuleType("cupy")
    module.__dict__.update({name: getattr(np, name) for name in dir(np) if name[0] != "_"})
    runtime = types.SimpleNamespace(getDeviceCount=devices, CUDARuntimeError=CUDARuntimeError)
    module.cuda = types.SimpleNamespace(runtime=runtime)
    module.__version__ = np.__version__
    return module


@pytest.fixture
def adapter(monkeypatch):
    """A function from a way to count devices to the adapter's class on such a module."""

    def make(devices):
        monkeypatch.setitem(sys.modules, "cupy", numpy_as_cupy(devices))
        monkeypatch.setitem(sys.modules, "cupy.lib.stride_tricks", np.lib.stride_tricks)
        monkeypatch.delitem(sys.modules, ADAPTER, raising=False)
        return importlib.import_module(ADAPTER).CuPy

    yield make
    sys.modules.pop(ADAPTER, None)


def test_its_words_are_numpys(adapter):
    """Where CuPy does as NumPy, the adapter asks it the same."""
    cupy = adapter(lambda: 1)
    cupy.data_pointer = NumPy.data_pointer
    on_cupy, on_numpy = (conformance.check(each, GROUPS) for each in (cupy, NumPy))
    names = [{each.rule for each in report.broken} for report in (on_cupy, on_numpy)]
    assert names[1] == names[0], on_cupy.table()
    assert len(on_cupy.kept) > 50


def test_without_a_device_it_is_not_run(adapter):
    def devices():
        raise CUDARuntimeError("no driver")

    with pytest.raises(DeviceError, match=r"^conformance: there is no CUDA device, expected one$"):
        adapter(devices)()


@pytest.mark.gpu
def test_on_a_device_views_share_memory():
    pytest.importorskip("cupy")
    try:
        cupy = importlib.import_module(ADAPTER).CuPy()
    except DeviceError as error:
        pytest.skip(str(error))
    report = conformance.check(cupy, ["views", "geometry"])
    assert not report.broken, report.table()
