"""CuPy without a GPU: a library that behaves as CuPy 14 does, on memory of the host.

`emulated_cuda()` is its device. It refuses the calls that CuPy refuses, so that code that runs on
it should run on CuPy. Spec: `specs/cuda_device.md` (DEV-9).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

from aotlite.backends.cuda.driver.driver_registry import register
from aotlite.ir.arrays.cuda_devices import Library, using
from aotlite.ir.arrays.device import Device
from aotlite.testing.cuda.cupy_functions import module
from aotlite.testing.cuda.emulation_driver import EmulatedDriver

__all__ = ["emulated_cuda", "emulated_library", "emulating_cuda"]


@cache
def emulated_library() -> Library:
    """The emulated CuPy and its devices."""
    cupyx = SimpleNamespace(errstate=_errstate)
    cupy = module()
    register(cupy, EmulatedDriver)
    return Library(cupy, cupyx, name="emulated", made_by=_named)


@contextmanager
def _errstate(*, linalg: str) -> Iterator[None]:
    yield


def emulated_cuda(index: int = 0) -> Device:
    """A CUDA device without a GPU, the same object each time. There are two.

    >>> import aotlite as al
    >>> x = al.ones(3, device=emulated_cuda())
    >>> (x + 1).tolist(), x.device
    ([2.0, 2.0, 2.0], device('emulated:0'))
    """
    return emulated_library().device(index)


def _named(name: str) -> Device:
    return emulated_cuda(int(name.partition(":")[2]))


@contextmanager
def emulating_cuda() -> Iterator[Device]:
    """A block in which 'cuda', 'cuda:1' and `aotlite.cuda` mean the emulated devices."""
    with using(emulated_library()):
        yield emulated_cuda()
