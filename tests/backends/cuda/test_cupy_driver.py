"""The driver by CuPy: which calls it makes, on a module that records them.

That CuPy's functions take these arguments is said by their texts where CuPy is installed; what
they do with them, only a GPU shows.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from aotlite.backends.cuda.driver import cupy_driver, driver_registry, nvrtc
from aotlite.backends.cuda.driver.cupy_driver import CupyDriver
from aotlite.backends.cuda.emit.cuda_program import Launch, PrintedKernels
from aotlite.backends.cuda.execution.argument_tables import maker
from aotlite.backends.loops.program import LoopProgram
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import BackendError, DeviceError
from tests.backends.cuda.helpers.fake_cupy import CUDADriverError, FakeCupy

PROGRAM = LoopProgram("it", (), (), (), ())


def driver_on(fake: FakeCupy, index: int = 0) -> CupyDriver:
    return CupyDriver(SimpleNamespace(cupy=fake, index=index))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[tuple[Any, ...]]:
    """What NVRTC is asked for; it gives other bytes each time."""
    asked: list[tuple[Any, ...]] = []

    def compile_text(text: str, target: Any, flags: Any) -> tuple[bytes, dict[str, Any]]:
        asked.append((text, target.architecture, flags))
        return f"cubin {len(asked)}".encode(), {}

    monkeypatch.setattr(cupy_driver, "compile_without_spills", compile_text)
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path))
    return asked


def device_on(fake: FakeCupy) -> Device:
    arrays: Any = SimpleNamespace(cupy=fake, index=0, driver=None)
    return Device("cuda:0", arrays)


def test_a_device_has_the_driver_that_is_registered_for_its_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one library alone; the same for the device each time. Other libraries are CuPy."""
    monkeypatch.setattr(driver_registry, "_registered", [])
    library: Any = FakeCupy()
    driver_registry.register(library, lambda arrays: ("driver of", arrays))  # type: ignore[arg-type, return-value]
    mine, other = device_on(library), device_on(FakeCupy())
    found: Any = driver_registry.driver_of(mine)
    assert found == ("driver of", mine.arrays)
    assert driver_registry.driver_of(mine) is driver_registry.driver_of(mine)
    assert type(driver_registry.driver_of(other)) is CupyDriver


def test_the_target_is_the_devices() -> None:
    target = driver_on(FakeCupy()).target
    assert (target.architecture, target.multiprocessors) == ("sm_90", 132)
    assert (target.shared, target.cache) == (232448, 52428800)


def test_a_launch_is_one_call_of_plain_numbers(compiled: Any) -> None:
    fake = FakeCupy()
    launch = Launch("kernel_0", (4, 2), 10, 128)
    module = driver_on(fake).module(PROGRAM, PrintedKernels("text 1", (launch,)), ("--fmad=false",))
    start = module.launcher(launch)
    table = maker((2, 4), [launch])()
    table[0](0x2000, 0x4000)
    start(7, table[1], 0)
    assert fake.calls[-1] == ("launchKernel", 1008, (10, 1, 1, 128, 1, 1, 0), 7, 0x4000, 0)
    assert compiled == [("text 1", "sm_90", ("--fmad=false",))]


def test_a_module_is_compiled_once_and_kept(compiled: Any) -> None:
    printed = PrintedKernels("text 2", ())
    for _ in range(2):
        driver_on(FakeCupy()).module(PROGRAM, printed, ())
    assert len(compiled) == 1
    cupy_driver.loaded.__globals__["_loaded"].forget()
    driver_on(FakeCupy()).module(PROGRAM, printed, ())
    assert len(compiled) == 1, "the cubin is in the disk cache"
    driver_on(FakeCupy()).module(PROGRAM, printed, ("--fmad=true",))
    assert len(compiled) == 2


def test_a_cubin_that_does_not_load_is_compiled_again(compiled: Any) -> None:
    """One of another architecture, say, in a cache that somebody copied."""
    printed = PrintedKernels("text 3", ())
    fake = FakeCupy()
    driver_on(fake).module(PROGRAM, printed, ())
    image = fake.calls[-1][1]
    cupy_driver.loaded.__globals__["_loaded"].forget()
    other = FakeCupy()
    other.refused.append(image)
    driver_on(other).module(PROGRAM, printed, ())
    assert len(compiled) == 2
    assert other.calls[-1][0] == "load"
    assert other.calls[-1][1] != image


def test_a_cubin_that_never_loads_is_an_error(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy_driver, "compile_without_spills", lambda *_: (b"always the same", {}))
    fake = FakeCupy()
    driver_on(fake).module(PROGRAM, PrintedKernels("text 4", ()), ())
    fake.refused.append(fake.calls[-1][1])
    cupy_driver.loaded.__globals__["_loaded"].forget()
    with pytest.raises(BackendError, match=r"NO_BINARY.*, expected some for sm_90"):
        driver_on(fake).module(PROGRAM, PrintedKernels("text 4", ()), ())


def test_a_text_that_does_not_compile_is_named_with_its_file(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> bytes:
        raise BackendError("cuda: NVRTC gives 6, expected a text that compiles")

    monkeypatch.setattr(cupy_driver, "compile_without_spills", refuse)
    with pytest.raises(BackendError, match="the text is in ") as caught:
        driver_on(FakeCupy()).module(PROGRAM, PrintedKernels("text 5", ()), ())
    path = str(caught.value).rpartition("the text is in ")[2]
    with open(path, encoding="utf-8") as file:
        assert file.read() == "text 5"


def test_much_shared_memory_is_asked_for(compiled: Any) -> None:
    fake = FakeCupy()
    launch: Any = SimpleNamespace(name="k", buffers=(), blocks=1, threads=32, shared=100_000)
    driver_on(fake).module(PROGRAM, PrintedKernels("text 6", ()), ()).launcher(launch)
    assert ("funcSetAttribute", 1001, 8, 100_000) in fake.calls


def test_values_of_the_host_come_with_a_launch(compiled: Any) -> None:
    fake = FakeCupy()
    driver_on(fake).put(5, 0x1230, struct.pack("2q", 8, 9))
    name, _, grid, stream, value, _ = fake.calls[-1]
    assert (name, grid[0], stream, value) == ("launchKernel", 1, 5, 0x1230)


def test_reading_is_one_copy_and_one_wait() -> None:
    fake = FakeCupy()
    memory = ctypes.create_string_buffer(b"flags...")
    assert driver_on(fake).read(6, ctypes.addressof(memory), 5) == b"flags"
    assert fake.calls == [("memcpyAsync", 5, 2, 6), ("streamSynchronize", 6)]


def test_of_several_devices_the_right_one_is_made_current() -> None:
    fake = FakeCupy(devices=2, current=0)
    driver = driver_on(fake, index=1)
    assert driver.is_current is not None
    assert not driver.is_current()
    assert driver.guarded(driver.is_current)
    assert fake.current == 0


def test_a_threads_first_launch_makes_its_context() -> None:
    """Launches go to the driver, which has none in a thread that has called no runtime yet."""
    fake = FakeCupy()
    driver: Any = driver_on(fake)
    assert driver.is_current()
    found: list[Any] = []

    def elsewhere() -> None:
        found.append(driver.is_current())
        found.append(driver.guarded(driver.is_current))
        found.append(driver.is_current())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False, True, True]
    assert len(set(fake.contexts)) == 2


def test_work_is_recorded_on_a_stream_of_its_own() -> None:
    fake = FakeCupy()
    driver = driver_on(fake)
    streams = []
    graph = driver.capture(lambda: streams.append(driver.current_stream()))
    graph.launch(3)
    assert streams == [77]
    assert fake.calls == [("begin_capture", 77), ("end_capture", 77), ("graphLaunch", 99, 3)]
    assert driver.current_stream() == 0


def test_a_capture_that_breaks_off_ends_and_raises_what_broke_it() -> None:
    fake = FakeCupy()
    with pytest.raises(ZeroDivisionError):
        driver_on(fake).capture(lambda: 1 // 0)
    assert [call[0] for call in fake.calls] == ["begin_capture", "end_capture"]


def test_what_cuda_does_not_record_is_an_error_of_ours() -> None:
    """Which a device graph takes as a reason to run without (CUG-5)."""

    def refused() -> None:
        raise CUDADriverError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")

    fake = FakeCupy()
    with pytest.raises(DeviceError, match="CAPTURE_UNSUPPORTED"):
        driver_on(fake).capture(refused)
    fake.cuda.Stream.end_capture = lambda self: refused()
    with pytest.raises(DeviceError, match="CAPTURE_UNSUPPORTED"):
        driver_on(fake).capture(lambda: None)


def test_errors_of_cuda_are_ours() -> None:
    driver = driver_on(FakeCupy())
    with pytest.raises(DeviceError, match="CUDA_LAUNCH_BLOCKING=1"):
        driver.explain(CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS"))
    driver.explain(ValueError("of the user"))


# ------------------------------------------------------------------------------------ its texts
def test_cupys_functions_take_these_arguments() -> None:
    """As their first lines say; needs the package and no GPU."""
    driver = pytest.importorskip("cupy_backends.cuda.api.driver", exc_type=ImportError)
    runtime = pytest.importorskip("cupy_backends.cuda.api.runtime", exc_type=ImportError)
    launch = driver.launchKernel.__doc__.splitlines()[0]
    assert launch.count(",") == 10
    assert launch.endswith("intptr_t stream, intptr_t kernel_params, intptr_t extra)")
    copy = runtime.memcpyAsync.__doc__.splitlines()[0]
    assert copy == "memcpyAsync(intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream)"
    assert runtime.graphLaunch.__doc__.startswith(
        "graphLaunch(intptr_t graphExec, intptr_t stream)"
    )
    assert driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8
