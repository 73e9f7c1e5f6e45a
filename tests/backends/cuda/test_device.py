"""Compiled kernels on a CUDA device: the bits of the interpreter, recorded launches, faults.

The emulated device does a few of these always, as what they take of a device is tested elsewhere;
on a GPU (`pytest -m gpu`) all run: every op of the table, random programs, steps of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.driver.driver_registry import driver_of
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import interpreted
from aotlite.backends.loops.program import Extern, Gemm, LoopProgram, reads, writes
from aotlite.backends.loops.program_run import ProgramRun
from aotlite.backends.native.cache.disk_cache import DiskCache, key_of
from aotlite.backends.protocol import Window, WindowFunction
from aotlite.ir.arrays.cuda_devices import cuda_device, why_unavailable
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import BackendError, OutOfMemoryError
from aotlite.ir.graph import Graph
from aotlite.testing import check_program, draw, emulated_cuda
from aotlite.testing.laws.ops.runs import close, same_bits
from aotlite.testing.laws.samples.sample import Sample
from tests.backends.cpu.test_op_table import NAMES, graph_of, parts, results_of
from tests.backends.cuda.helpers.devices import graph_on

F = al.nn.functional
PARTS, EMULATED = 24, 1
EXACT = CudaBackend(contract=False)


def on_each(count: int, emulated: int) -> Any:
    """`count` cases on a GPU, the first ones of them on the emulated device."""
    cases = [("emulated", k) for k in range(emulated)]
    gpus = [pytest.param(("cuda", k), marks=pytest.mark.gpu) for k in range(count)]
    return pytest.mark.parametrize("case", [*cases, *gpus], ids="{0[0]}-{0[1]}".format)


def device_of(case: tuple[str, int]) -> Any:
    if case[0] == "emulated":
        return emulated_cuda()
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(str(reason))
    return cuda_device()


class OnDevice:
    """A backend for graphs of the CPU that runs them on a device, and brings back what it gives."""

    name = "on a device"
    fuses = True

    def __init__(self, device: Device) -> None:
        self.device: Any = device

    def compile(self, graph: Graph) -> WindowFunction:
        moved = graph_on(graph, self.device)
        run = EXACT.compile(moved)

        def call(given: list[Window]) -> Any:
            buffers = {id(buffer): buffer for buffer, _ in given}
            there = {key: self._sent(buffer) for key, buffer in buffers.items()}
            found: Any = run(
                [
                    window if node.meta.device is CPU else (there[id(window[0])], window[1])  # type: ignore[union-attr]
                    for window, node in zip(given, moved.placeholders, strict=True)
                ]
            )
            for key, buffer in buffers.items():
                _bytes(buffer)[...] = self._fetched(there[key])
            return [self._back(each) for each in found]

        return call

    def _sent(self, buffer: np.ndarray) -> Any:
        made = self.device.arrays.room(buffer.nbytes)
        self.device.arrays.copy(made.bytes(), _bytes(buffer))
        return made

    def _fetched(self, memory: Any) -> np.ndarray:
        found: np.ndarray = self.device.arrays.host(memory.bytes())
        return found

    def _back(self, window: Window | None) -> Window | None:
        if window is None or isinstance(window[0], np.ndarray):
            return window
        return self._fetched(window[0]), window[1]


def _bytes(buffer: np.ndarray) -> np.ndarray:
    return buffer.reshape(-1).view(np.uint8)


class Interpreted:
    """The program that a device gets, on the interpreter."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def compile(self, graph: Graph) -> ProgramRun:
        program = improved_for(program_of(graph), self.target)
        return ProgramRun(graph, program, interpreted(program))


def by_libraries(program: LoopProgram) -> set[int]:
    """The buffers with last bits of a library: products, ops without loops, what needs them."""
    found: set[int] = set()
    for step in program.steps:
        if type(step) in (Gemm, Extern) or reads(step) & found:
            found |= writes(step)
    return found


def two(samples: Sequence[Sample]) -> list[Sample]:
    """The smallest sample, and the largest."""
    sizes = [max([a.size for a in s.args if isinstance(a, np.ndarray)], default=0) for s in samples]
    order = sorted(range(len(samples)), key=sizes.__getitem__)
    return [samples[k] for k in dict.fromkeys((*order[:1], *order[-1:]))]


@on_each(PARTS, EMULATED)
def test_ops_of_the_table_have_the_interpreters_bits(case: tuple[str, int]) -> None:
    """CUB-4, of every op; what a library computes is near."""
    device = device_of(case)
    target = driver_of(device).target
    for cases in parts(NAMES[case[1] :: PARTS], two):
        graph, arrays = graph_of(cases)
        rounded = by_libraries(program_of(graph))
        places = program_of(graph).outputs
        backends = Interpreted(target), OnDevice(device)
        expected, found = (results_of(backend, graph, arrays) for backend in backends)
        for node, place, mine, its in zip(graph.outputs, places, expected, found, strict=True):
            near = place is not None and place.buffer in rounded
            alike = close(mine, its, 2e-3) if near else same_bits(mine, its)
            assert alike, f"{graph.names[node]} of {node.args}: {its}, not {mine}"


@on_each(20, 2)
def test_random_programs_on_a_device_do_what_eager_does(case: tuple[str, int]) -> None:
    check_program(draw(9000 + case[1]), backend=OnDevice(device_of(case)))


def trained(device: Device, compiled: Callable[[Any], Any]) -> list[float]:
    """The losses of a few steps."""
    al.manual_seed(0)
    model = al.nn.Sequential(al.nn.Linear(6, 8), al.nn.GELU(), al.nn.Linear(8, 3)).to(device)
    x, labels = al.randn(5, 6).to(device), al.tensor([0, 1, 2, 1, 0]).to(device)
    step = compiled(lambda m, x: F.cross_entropy(F.dropout(m(x), 0.25), labels))
    losses = []
    for _ in range(6):
        loss = step(model, x)
        loss.backward()
        losses.append(loss.item())
        with al.no_grad():
            for weight in model.parameters():
                assert weight.grad is not None
                weight.sub_(weight.grad * 0.1)
                weight.grad = None
    return losses


@on_each(1, 1)
@pytest.mark.parametrize("device_graphs", [False, True])
@pytest.mark.parametrize("stream", ["default", "own"])
def test_compiled_training_is_that_of_the_cpu(
    case: tuple[str, int], device_graphs: bool, stream: str
) -> None:
    """Recorded or not, on the default stream, which CUDA does not record, and on another."""
    device = device_of(case)
    options = {"backend": "cuda", "device_graphs": device_graphs}

    streams = device.arrays.cupy.cuda.Stream
    with streams.null if stream == "default" else streams(non_blocking=True):
        found = trained(device, lambda f: al.compile(f, **options))
    np.testing.assert_allclose(found, trained(CPU, lambda f: f), 1e-5)


@on_each(1, 0)
def test_memory_that_a_device_has_not_is_an_error_and_work_goes_on(case: tuple[str, int]) -> None:
    device = device_of(case)
    x = al.ones(1, device=device)
    large = al.compile(lambda x: x.expand(1 << 50).contiguous(), backend="cuda")
    for work in (lambda: al.empty(1 << 50, device=device), lambda: large(x)):
        with pytest.raises(OutOfMemoryError, match=r"\d+ bytes are asked for, expected at most"):
            work()
    assert (x + 1).tolist() == [2.0]


@on_each(1, 0)
def test_a_cubin_of_another_architecture_is_refused(case: tuple[str, int], tmp_path: Path) -> None:
    driver: Any = driver_of(device_of(case))
    other = "sm_80" if driver.target.architecture != "sm_80" else "sm_90"
    image = nvrtc.compile_cubin('extern "C" __global__ void nothing() {}', other)
    path = DiskCache(str(tmp_path)).keep(key_of(other), "other", ".cubin", image)
    with pytest.raises(BackendError, match=f"expected some for {driver.target.architecture}"):
        driver._load(path)
