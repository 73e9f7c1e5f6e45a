"""Compiled calls and backwards that get no memory raise what eager raises, and change nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cpu.runtime import result_memory
from aotlite.backends.cpu.runtime.result_memory import ResultMemory
from aotlite.backends.reference import ReferenceBackend

BACKENDS = ("reference", "loops", "cpu")
HUGE = 2**43


def grown(x: Any, w: Any) -> Any:
    x.mul_(2.0)
    return x + w.expand(HUGE)


def raised(function: Callable[..., Any], *args: Any) -> type[Exception]:
    with pytest.raises(MemoryError) as caught:
        function(*args)
    assert isinstance(caught.value, al.AotliteError)
    assert "asked for that the system does not give, expected less" in str(caught.value)
    return type(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_raises_as_eager_does(backend: str) -> None:
    x, w = al.ones(1), al.ones(1)
    assert raised(grown, x.clone(), w) is al.OutOfMemoryError
    compiled = al.compile(grown, backend=backend)
    for _ in range(4):
        assert raised(compiled, x, w) is al.OutOfMemoryError
    assert ([1.0], 0) == (x.tolist(), x._version)


LITTLE = """
import resource, sys
import aotlite as al
from aotlite.backends.cpu.runtime.result_memory import RESULTS
from aotlite.backends.cpu.runtime.runtime_library import load_runtime
def function(x):
    return (x.sin().cumsum(0).exp().cumsum(0) * x).sum()
def limited(action, *args):
    room = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 22)
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    try:
        action(*args)
    except MemoryError as error:
        print(type(error).__name__, "asked for" in str(error))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
x = al.zeros(1 << 22).requires_grad_()
RESULTS.keep(0)  # what was kept would do
load_runtime().limit_idle_bytes(0)
if sys.argv[1] != "eager":
    function = al.compile(function, backend=sys.argv[1])
    function(x).backward()  # which compiles
    x.grad = None
limited(function, x)
y = function(x)
limited(y.backward)
print(x.grad)
"""


@pytest.mark.slow("each backend in a process of little memory")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
def test_memory_that_is_missing_is_told_by_calls_and_backwards(backend: str) -> None:
    """Results, what is computed on the way, and scratch memory, in a process of little memory."""
    done = subprocess.run(
        [sys.executable, "-c", LITTLE, backend],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        timeout=100,
    )
    expected = ["OutOfMemoryError True"] * 2 + ["None"]
    assert (0, expected) == (done.returncode, done.stdout.splitlines()), done.stderr


class Starved(ReferenceBackend):
    """Has no memory for the first graph."""

    compiled = 0

    def compile(self, graph: Any) -> Any:
        self.compiled += 1
        if self.compiled == 1:
            raise MemoryError("of a kind")
        return super().compile(graph)


def test_memory_that_is_missing_for_compiling_is_told_and_the_next_call_compiles() -> None:
    """It is no fault of the backend's."""
    function, x = al.compile(lambda x: x + 1, backend=Starved()), al.ones(2)
    with pytest.raises(al.OutOfMemoryError) as caught:
        function(x)
    assert isinstance(caught.value.__cause__, MemoryError)
    assert not isinstance(caught.value, al.BackendError)
    assert str(caught.value) == (
        "lower: graph <lambda>: memory is asked for that the system does not give, expected less"
    )
    assert ["raised by backend 'reference'", "of a kind"] == caught.value.__notes__
    assert [2.0, 2.0] == function(x).tolist()


# --------------------------------------------------------------------------- results' memory
def test_blocks_that_are_idle_are_given_back_before_an_allocation_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recycler, pages = ResultMemory(1 << 30), result_memory._pages
    array = recycler.allocator((1 << 20,), al.float32.numpy)()
    del array
    kept = recycler.kept()
    assert kept > 0

    def full(size: int) -> Any:
        if recycler.kept():
            raise OSError(12, "Cannot allocate memory")
        return pages(size)

    monkeypatch.setattr(result_memory, "_pages", full)
    assert (1 << 21,) == recycler.allocator((1 << 21,), al.float32.numpy)().shape
    assert kept < recycler.kept() <= 1 << 30


@pytest.mark.parametrize("error", [OSError(12, "no"), OverflowError("no"), MemoryError()])
def test_no_pages_are_no_memory(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(size: int) -> Any:
        raise error

    monkeypatch.setattr(result_memory, "_pages", full)
    with pytest.raises(al.OutOfMemoryError) as caught:
        ResultMemory(1 << 30).allocator((1 << 20,), al.float32.numpy)()
    assert str(caught.value) == (
        "results: 4194304 bytes are asked for that the system does not give, expected less"
    )
