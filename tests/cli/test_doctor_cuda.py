"""`aotlite doctor` explains each way in which CUDA can be missing, and says what to do."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from aotlite.cli.doctor import backend_runs, cuda
from aotlite.cli.doctor.cuda import CudaDevice, CudaInstallation
from aotlite.cli.doctor.probes import Outcome
from aotlite.cli.doctor.record import Finding
from aotlite.testing import emulating_cuda

WORKS = CudaInstallation(
    wheels={"cupy-cuda13x": "14.2.0"},
    cupy=Outcome(True, "14.2.0"),
    runtime=13020,
    has_driver=True,
    driver=13000,
    devices=1,
    device=CudaDevice("NVIDIA H100", (9, 0), memory=(70 << 30, 80 << 30)),
    nvrtc=Outcome(True, "13.0"),
    nvrtc_wheels={"nvidia-cuda-nvrtc": "13.0.88"},
    folder="/home/me/.cache/aotlite",
    kernel=Outcome(True, ""),
)
NONE: dict[str, Any] = {"devices": 0, "kernel": None}
CUPY, DRIVER, DEVICE = "CuPy (cuda)", "NVIDIA driver (cuda)", "CUDA device"
NVRTC, CACHE = "NVRTC (cuda)", "kernel cache (cuda)"


def found(**changes: Any) -> dict[str, Finding]:
    """What is said of a machine on which all works but for some changes."""
    return {each.name: each for each in cuda.findings(attrs.evolve(WORKS, **changes))}


def test_where_all_is_there_nothing_is_to_be_done() -> None:
    every = found()
    assert {("ok", "")} == {(each.state, each.advice) for each in every.values()}
    assert "14.2.0 for CUDA 13.2" == every[CUPY].value
    device = "NVIDIA H100, compute capability 9.0, 70.0 of 80.0 GiB free"
    assert device == every[DEVICE].value
    assert "13.0; needs no headers and no toolkit" == every[NVRTC].value
    assert f"{device}; 4 devices" == found(devices=4)[DEVICE].value
    backend = cuda.backend(WORKS)
    said = "compiles, runs and equals eager mode on NVIDIA H100"
    assert ("ok", said) == (backend.state, backend.value)


MISSING: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    # What is changed; which finding, its state, what it says, what is to be done.
    "no CuPy": (
        {"cupy": None, "wheels": {}, "runtime": 0, **NONE},
        CUPY, "absent", "not installed", "pip install 'aotlite[cuda13]'",
    ),
    "two wheels": (
        {"wheels": {"cupy-cuda12x": "13.4", "cupy-cuda13x": "14.2"}},
        CUPY, "broken", "cupy-cuda12x and cupy-cuda13x are both installed",
        "pip uninstall cupy-cuda12x cupy-cuda13x; pip install 'aotlite[cuda13]'",
    ),
    "two wheels, driver of CUDA 12": (
        {"wheels": {"cupy-cuda12x": "13.4", "cupy-cuda13x": "14.2"}, "driver": 12040},
        CUPY, "broken", "overwrite each other", "pip install 'aotlite[cuda12]'",
    ),
    "CuPy that cannot be imported": (
        {"cupy": Outcome(False, "ImportError: libcudart.so.13: no such file"), **NONE},
        CUPY, "broken", "libcudart.so.13", "cupy-cuda12x or cupy-cuda13x",
    ),
    "CuPy for an older CUDA": (
        {"runtime": 12080, "wheels": {"cupy-cuda12x": "14.2"}},
        CUPY, "ok", "for CUDA 12.8", "cupy-cuda13x is made for this driver's CUDA 13",
    ),
    "CuPy for a newer CUDA": (
        {"driver": 12040, **NONE},
        DRIVER, "broken", "knows CUDA 12.4, and CuPy is for CUDA 13.2",
        "pip uninstall cupy-cuda13x; pip install 'aotlite[cuda12]'; or install a newer NVIDIA",
    ),
    "no driver": (
        {"has_driver": False, "driver": 0, **NONE},
        DRIVER, "absent", "its library libcuda is not there", "install NVIDIA's driver",
    ),
    "no driver, so no device": (
        {"has_driver": False, "driver": 0, **NONE},
        DEVICE, "absent", "cannot be asked for without the driver", "",
    ),
    "a driver that is too old": (
        {"driver": 11080, **NONE},
        DRIVER, "broken", "knows CUDA 11.8, expected 12.0 or newer", "install a newer NVIDIA",
    ),
    "devices that are hidden": (
        {"visible": "", **NONE},
        DEVICE, "absent", "CUDA_VISIBLE_DEVICES is '', which hides all devices", "unset it",
    ),
    "devices that are hidden by a number": (
        {"visible": "-1", **NONE},
        DEVICE, "absent", "CUDA_VISIBLE_DEVICES is '-1'", "unset it, or name a device: 0",
    ),
    "a device that is not there": (
        {"visible": "7", "why": "cudaErrorNoDevice: no CUDA-capable device", **NONE},
        DEVICE, "absent", "none is there: cudaErrorNoDevice: no CUDA-capable device; CUDA_VISIBLE",
        "nvidia-smi",
    ),
    "no device": (
        {"why": "cudaErrorNoDevice", **NONE},
        DEVICE, "absent", "none is there: cudaErrorNoDevice", "nvidia-smi shows what",
    ),
    "an old device": (
        {"device": CudaDevice("Tesla V100", (7, 0), (1 << 30, 16 << 30)), "kernel": None},
        DEVICE, "broken", "compute capability 7.0", "compute capability 8.0 or newer",
    ),
    "no NVRTC": (
        {"nvrtc": None, "nvrtc_wheels": {}, "kernel": None},
        NVRTC, "absent", "not installed", "pip install 'aotlite[cuda13]', or 'aotlite[cuda12]'",
    ),
    "NVRTC that cannot be loaded": (
        {"nvrtc": Outcome(False, "OSError: libnvrtc.so.13: file too short"), "kernel": None},
        NVRTC, "broken", "file too short", "pip install --force-reinstall nvidia-cuda-nvrtc",
    ),
    "NVRTC newer than the driver": (
        {"driver": 12040, "runtime": 12040, "kernel": None},
        NVRTC, "broken", "13.0, whose code a driver of CUDA 12.4 refuses",
        "pip uninstall nvidia-cuda-nvrtc; pip install 'aotlite[cuda12]'",
    ),
    "NVRTC and a driver that is too old": (
        {"driver": 11080, "runtime": 11080, "kernel": None},
        NVRTC, "broken", "13.0, whose code a driver of CUDA 11.8 refuses", "install a newer NVIDIA",
    ),
    "NVRTC of another CUDA than CuPy": (
        {"nvrtc": Outcome(True, "12.8"), "nvrtc_wheels": {"nvidia-cuda-nvrtc-cu12": "12.8"}},
        NVRTC, "broken", "12.8, and CuPy is for CUDA 13.2",
        "pip uninstall nvidia-cuda-nvrtc-cu12; pip install 'aotlite[cuda13]'",
    ),
    "no cache": (
        {"cache": "/tmp/x can be written by others"},
        CACHE, "broken", "can be written by others", "AOTLITE_CACHE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", MISSING)
def test_each_way_in_which_cuda_is_missing_is_explained(way: str) -> None:
    changes, name, state, value, advice = MISSING[way]
    finding = found(**changes)[name]
    assert state == finding.state
    assert value in finding.value and advice in finding.advice
    backend = cuda.backend(attrs.evolve(WORKS, **changes))
    if changes.get("kernel", "") is None:
        assert "absent" == backend.state and backend.value
    else:
        assert "ok" == backend.state


def test_the_backend_says_what_is_missing_first() -> None:
    facts = attrs.evolve(WORKS, has_driver=False, driver=0, nvrtc=None, **NONE)
    backend = cuda.backend(facts)
    assert "NVIDIA driver (cuda): its library libcuda is not there" == backend.value
    assert "install NVIDIA's driver" in backend.advice
    broken = attrs.evolve(WORKS, kernel=Outcome(False, "the compiled value is 3"))
    assert ("broken", "the compiled value is 3") == attrs.astuple(cuda.backend(broken))[2:4]


def test_what_is_here_is_found_without_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    facts = cuda.facts()
    assert "5" == facts.visible
    assert (facts.kernel is not None) <= (facts.devices > 0)
    assert 5 == len(cuda.findings(facts))


def test_a_probe_that_crashes_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_PROBE", "import os, signal; os.kill(os.getpid(), 9)")
    facts = cuda.facts()
    assert "was ended by signal 9" == facts.why and not facts.devices


def test_without_a_home_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotlite.backends.native.cache.trusted_folders.chosen", lambda: None)
    assert ("", "there is no home folder to keep kernels in") == cuda._kept()


def test_the_trial_of_the_backend_runs_a_function_on_the_device() -> None:
    """On the emulated one, with gradients and a write."""
    with emulating_cuda():
        backend_runs.try_cuda(1.0)
