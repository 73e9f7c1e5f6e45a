"""How `benchmarks.gpu` goes on behind faults, and what it makes of other libraries."""

from __future__ import annotations

import importlib.util
import signal
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.cuda.driver import nvrtc
from aotlite.testing import emulating_cuda
from benchmarks import gpu, gpu_clocks, gpu_guard, gpu_libraries, gpu_report, gpu_tests
from benchmarks.gpu_programs import ROWS, TINY

WORKER = """
    import os, sys, time
    sys.path.insert(0, {root!r})
    from pathlib import Path
    from benchmarks.gpu_guard import Marker, SPOILED, read, write
    path = Path({path!r})
    marker = Marker(path)
    def keep(name, value):
        found = read(path)
        found.setdefault("rows", {{}})[name] = value
        write(path, found)
    with marker.at("rows", "section", 60):
        for name in ("first", "second", "third"):
            if name in read(path).get("rows", {{}}):
                continue
            with marker.at("rows", name, 0.5 if {way!r} == "hangs" else 60):
                if name == "second":
                    {fault}
                keep(name, dict(seconds=1))
"""
FAULTS = {
    "crashes": ("os.kill(os.getpid(), 11)", "the process ended by SIGSEGV"),
    "leaves": ("sys.exit(3)", "the process ended with 3"),
    "hangs": ("time.sleep(60)", "the process took too long and was ended"),
    "is spoiled": ("keep(name, dict(error='a fault')); os._exit(SPOILED)", "a fault"),
}


@pytest.mark.parametrize("way", FAULTS)
def test_a_worker_that_fails_costs_what_it_was_at(way: str, tmp_path: Path) -> None:
    fault, said = FAULTS[way]
    path, script = tmp_path / "found.json", tmp_path / "worker.py"
    root = str(gpu.ROOT)
    text = textwrap.dedent(WORKER).format(root=root, path=str(path), way=way, fault=fault)
    script.write_text(text, "utf-8")
    gpu_guard.guarded([sys.executable, str(script)], path, 60, tmp_path)
    done = {"seconds": 1}
    expected = {"rows": {"first": done, "second": {"error": said}, "third": done}}
    assert expected == gpu_guard.read(path)
    assert not gpu_guard.Marker(path).path.exists()
    assert not gpu_report.is_right(expected)


def test_a_worker_that_does_not_start_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    gpu_guard.guarded([sys.executable, "-c", "import nothing_of_that_name"], path, 60, tmp_path)
    assert {"workers": {"start": {"error": "the process ended with 1"}}} == gpu_guard.read(path)


def test_time_that_is_up_ends_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_guard, "GRACE", 0.1)
    path, start = tmp_path / "found.json", time.time()
    gpu_guard.guarded([sys.executable, "-c", "import time; time.sleep(60)"], path, 0.5, tmp_path)
    assert time.time() - start < 30
    why = "the process took too long and was ended"
    assert {"workers": {"start": {"error": why}}} == gpu_guard.read(path)


def test_a_worker_goes_on_behind_what_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    """What is there is not done again; a spoiled process says so and ends."""
    path = tmp_path / "found.json"
    gpu_guard.write(path, {"rows": {"first": {"seconds": 1}}})
    session = gpu.Session(dry=False, path=path, console=gpu.Console(quiet=True))
    session.end = time.perf_counter() + 60
    done: list[str] = []
    monkeypatch.setattr(al.cuda, "synchronize", lambda: done.append("checked"))
    for name in ("first", "second"):
        session.attempt("rows", name, partial(done.append, name))
    assert ["second", "checked"] == done

    def spoiled() -> None:
        raise al.DeviceError("an illegal address")

    def left(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(al.cuda, "synchronize", spoiled)
    monkeypatch.setattr(gpu.os, "_exit", left)
    with pytest.raises(SystemExit, match=str(gpu_guard.SPOILED)):
        session.attempt("rows", "third", lambda: session.note("rows", "third", {"bytes": 1}))
    found = gpu_guard.read(path)["rows"]["third"]
    assert (1, "DeviceError: an illegal address") == (found["bytes"], found["error"])
    assert "in spoiled" in found["trace"]


# ---------------------------------------------------------------------------------------- pytest
def test_what_pytest_says_is_kept_and_counted() -> None:
    found = gpu_tests.found_in("...\n5 passed in 1s\n", 0)
    assert {"result": ["5 passed in 1s"], "passed": 5} == found
    said = "FAILED a::b - wrong\n1 failed, 2 passed in 1s\n"
    found = gpu_tests.found_in(said, 1)
    assert (["FAILED a::b - wrong"], 1, 2) == (found["failures"], found["failed"], found["passed"])
    assert found["error"].startswith("pytest gives 1: 1 failed")
    found = gpu_tests.found_in("E   No module named 'hypothesis'\n", 4)
    assert "pytest gives 4: E   No module named 'hypothesis'" == found["error"]


def test_tests_that_are_all_skipped_are_a_failure() -> None:
    """As where workers do not see the device."""
    assert "no test has passed" == gpu_tests.found_in("7 skipped in 1s\n", 0)["error"]


def test_tests_out_of_time_say_what_failed_till_then(tmp_path: Path) -> None:
    text = """
        import time
        def test_fails(): assert 0, "so it is"
        def test_hangs(): time.sleep(60)
    """
    test, log = tmp_path / "test_it.py", tmp_path / "log" / "said.txt"
    test.write_text(textwrap.dedent(text), "utf-8")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    try:
        for seconds in (8, 16, 32):  # a busy machine may not come to the first test in time
            found = gpu_tests.tested(seconds, ["-m", "", "-n", "0", str(test)], log)
            assert "out of time" == found["left out"]
            if "failures" in found:
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert ["so it is" in each for each in found["failures"]] == [True]
    assert 'assert 0, "so it is"' in log.read_text("utf-8")


@pytest.mark.slow("runs pytest in a process of its own")
def test_the_tests_of_devices_run_in_a_process_of_their_own() -> None:
    """With the plugin, which pytest imports first; none of these has the marker. Seconds."""
    found = gpu_tests.tested(300, ["tests/test_names.py"])
    assert found["error"].startswith("pytest gives 5: no tests ran")


# ----------------------------------------------------------------------------------------- clocks
class Emulated:
    """What clocks and `cupy.fuse` take of CuPy; a clock that counts what is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cuda = self.runtime = self
        self.deviceSynchronize = lambda: self.asked.append("wait")

    def RawKernel(self, text: str, name: str, backend: str) -> Any:
        assert (text, name, backend) == (gpu_clocks.SPIN, "spin", "nvrtc")
        return lambda grid, block, args: self.asked.append(f"spin {int(args[0])}")

    def Event(self) -> Any:
        return Moment(self.asked)

    def get_elapsed_time(self, start: Any, end: Any) -> float:
        return 12.0


class Moment:
    def __init__(self, asked: list[str]) -> None:
        self.record = lambda: asked.append("event")
        self.synchronize = lambda: asked.append("wait")


def test_events_come_behind_what_keeps_the_device_busy() -> None:
    cupy = Emulated()
    plain, ahead = (gpu_clocks.EventClock(cupy, ahead=ahead) for ahead in (False, True))
    ask = lambda number: cupy.asked.append(f"call {number}")
    assert 0.006 == plain.seconds(ask, 2)
    assert ["wait", "event", "call 0", "call 1", "event", "wait"] == cupy.asked
    del cupy.asked[:]
    ahead.seconds(ask, 1)
    assert ["wait", "spin 0", "spin 30000000", "event", "call 0", "event", "wait"] == cupy.asked


@pytest.mark.skipif(not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc")
def test_what_keeps_a_device_busy_compiles() -> None:
    assert nvrtc.compile_cubin(gpu_clocks.SPIN, "sm_90")


def test_what_cupy_fuses_has_a_name_for_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a lambda is none."""

    class Cupy:
        @staticmethod
        def fuse(*, kernel_name: str) -> Any:
            assert kernel_name.isidentifier()
            return lambda function: (kernel_name, function)

    monkeypatch.setattr(gpu_libraries.importlib, "import_module", lambda name: Cupy)
    made: Any = gpu_libraries.Cupy("cupy.fuse", None)._function(lambda n, x, y: x - y, 2)
    kernel, function = made
    assert ("fused", 3) == (kernel, function(5, 2))


# --------------------------------------------------------------------------------------- libraries
def test_a_library_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        if name == "cupy":
            return Emulated()
        raise AttributeError(f"{name} is broken")

    monkeypatch.setattr(gpu_libraries.importlib, "import_module", broken)
    found, missing = gpu_libraries.libraries(False)
    assert ["ours", "cupy", "cupy.fuse"] == [each.name for each in found]
    broken_torch = "AttributeError: torch is broken"
    assert broken_torch == missing["torch"] == missing["torch.compile"]


def test_pytorch_compiles_every_row_whole_and_for_its_sizes(torch: Any) -> None:
    """More functions than it compiles of one code, each in one graph without free sizes."""
    library = gpu_libraries.Torch("torch.compile", None, device="cpu")
    graphs: list[Any] = []

    def kept(module: Any, given: Any) -> Any:
        graphs.append([tuple(each.shape) for each in given])
        return module.forward

    for name, row in ROWS.items():
        for size in (TINY, TINY - 2):
            arrays = gpu_libraries.random_arrays(row, size, 0)
            given = [library.tensor(array) for array in arrays[: len(row.shapes(size))]]
            function = library.compiled(gpu_libraries.of_row(torch, row), backend=kept)
            function(*given)
            assert all(type(n) is int for shape in graphs[-1] for n in shape), name
    assert 2 * len(ROWS) == len(graphs)


def test_results_at_full_size_are_compared_with_float64(torch: Any) -> None:
    plain = gpu_libraries.Torch("torch", None, device="cpu")
    for name in ("softmax", "layer norm backward", "cross-entropy"):
        row, arrays = ROWS[name], gpu_libraries.random_arrays(ROWS[name], TINY, 0)
        given = [al.tensor(array) for array in arrays]
        function = gpu_libraries.of_row(al, row)
        found = gpu_libraries.action_of(al, row, function, [given])(0)
        assert plain.difference(row, arrays, found) < gpu.TOLERANCE
        several = list(found) if row.backward else [found]
        for wrong in (several[-1] * 1.001, several[-1] * float("nan")):
            made = [*several[:-1], wrong] if row.backward else wrong
            assert plain.difference(row, arrays, made) > gpu.TOLERANCE


def test_memory_is_shared_with_pytorch_and_jax(torch: Any) -> None:
    x = al.tensor([[1.0, 2.0], [3.0, 4.0]])
    libraries: list[Any] = [gpu_libraries.Torch("torch", None, device="cpu")]
    if importlib.util.find_spec("jax") is not None:
        libraries.append(gpu_libraries.Jax("cpu"))
    for library in libraries:
        assert [[2.0, 4.0], [6.0, 8.0]] == library.shared(x).tolist()


def test_memory_that_is_shared_wrongly_is_a_failure(tmp_path: Path) -> None:
    session = gpu.Session(dry=True, path=tmp_path / "a.json", console=gpu.Console(quiet=True))
    with emulating_cuda():
        for name, extra in (("right", 0.0), ("wrong", 0.5)):
            library = SimpleNamespace(shared=lambda x, extra=extra: x * 2 + extra)
            gpu._shared(session, name, library)
    assert {"right": {"right": True}, "wrong": {"right": False}} == session.found["numerics"]


def test_jax_that_finds_no_gpu_is_left_out() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="JAX computes on cpu"):
        gpu_libraries.Jax()


# ------------------------------------------------------------------------------------------ report
def test_every_claim_is_told_with_its_target_and_whether_it_is_met() -> None:
    found = {
        "rows": {
            "softmax": {"seconds": {"ours": 1.0, "torch.compile": 1.25}, "share of a copy": 0.91},
            "softmax backward": {"seconds": {"ours": 1.0}, "share of a copy": 0.79},
        },
        "training": {"MLP, bfloat16": {"seconds": {"ours": 2.0, "torch.compile": 1.0}}},
        "overhead": {
            "recorded, one kernel": {"microseconds": 9.0},
            "recorded, products": {"microseconds": 9.0, "not recorded": "too large"},
        },
        "waits": {"a call": {"waits": False}},
        "first calls": {"ours": {"seconds": 1.0}, "torch.compile": {"seconds": 2.0}},
    }
    claims = {each.what: each for each in gpu_report.claims(found)}
    expected = {
        "softmax: of a copy's bandwidth": ("at least 90%", "91%", True),
        "softmax: of torch.compile's time": ("at most 1.00", "0.80", True),
        "softmax backward: of a copy's bandwidth": ("at least 80%", "79%", False),
        "softmax backward: of torch.compile's time": ("at most 1.00", "-", None),
        "MLP, bfloat16: of torch.compile's time": ("at most 1.00", "2.00", False),
        "MLP, float32: of torch.compile's time": ("at most 1.00", "-", None),
        "recorded, one kernel: a call, µs": ("at most 10.0", "9.0", True),
        "recorded, products: a call, µs": ("at most 10.0", "-", None),
        "a call: waits for the device": ("does not wait", "does not wait", True),
        "first call: of torch.compile's": ("at most 0.33", "0.50", False),
    }
    assert expected == {
        what: (claims[what].target, claims[what].found, claims[what].met) for what in expected
    }
    assert 2 * len(ROWS) + 4 + 2 + 1 + 1 == len(claims)
    nothing = list(gpu_report.claims({}))
    assert {None} == {each.met for each in nothing} and len(nothing) == len(claims) - 1
