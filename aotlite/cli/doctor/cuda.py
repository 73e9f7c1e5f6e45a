"""The findings of `aotlite doctor` on CUDA: each way in which it can be missing, and what to do.

Input: a `CudaInstallation`, which `facts` gathers, in child processes where something may crash.
Output: findings. They follow from that record alone, so that each way can be tested without a GPU.
"""

from __future__ import annotations

import json
from importlib.metadata import distributions

import attrs

from aotlite.backends.native.cache import trusted_folders
from aotlite.cli.doctor import environment, probes
from aotlite.cli.doctor.probes import Outcome
from aotlite.cli.doctor.record import Finding

SECTION = "What the backends need"
WHEELS = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
NVRTC = {"nvidia-cuda-nvrtc": 13, "nvidia-cuda-nvrtc-cu12": 12}
"""The wheels of NVRTC in the extras, and the major version of CUDA of each."""
OLDEST = 12
"""The oldest major version of CUDA that CuPy has wheels for that work here."""
LEAST_CAPABILITY = (8, 0)
"""Conversions to bfloat16, and waiting copies, are the hardware's from there on."""
BOTH = "pip install 'aotlite[cuda13]', or 'aotlite[cuda12]' for a driver of CUDA 12"
UPDATE = "install a newer NVIDIA driver (580 or later for CUDA 13, 525 or later for CUDA 12)"
EQUAL = "compiles, runs and equals eager mode on"


@attrs.frozen
class CudaDevice:
    """The first CUDA device."""

    name: str
    capability: tuple[int, int]
    memory: tuple[int, int]
    """(free, total) bytes."""


@attrs.frozen(kw_only=True)
class CudaInstallation:
    """The CUDA installation of a machine. Versions are CUDA's numbers: 13020 is 13.2."""

    wheels: dict[str, str] = attrs.field(factory=dict)
    """The installed distributions of CuPy, with their versions."""
    cupy: Outcome | None = None
    """The outcome of importing CuPy; None if there is none."""
    runtime: int = 0
    """The CUDA version for which CuPy is built; 0: unknown."""
    has_driver: bool = False
    """Whether the driver's library can be loaded."""
    driver: int = 0
    """The newest CUDA version that the driver supports; 0: unknown."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES."""
    devices: int = 0
    why: str = ""
    """Why there are no devices."""
    device: CudaDevice | None = None
    nvrtc: Outcome | None = None
    """NVRTC's version, or why it cannot be loaded; None if it is not installed."""
    nvrtc_wheels: dict[str, str] = attrs.field(factory=dict)
    cache: str = ""
    """Why the disk cache cannot be used; empty if it can."""
    folder: str = ""
    kernel: Outcome | None = None
    """The outcome of compiling and running a function on the device; None if not tried."""


# ------------------------------------------------------------------------------------- what follows
def findings(facts: CudaInstallation) -> list[Finding]:
    """Returns the findings on all parts of CUDA, in the order in which they are needed."""
    return [_cupy(facts), _driver(facts), _device(facts), _nvrtc(facts), _cache(facts)]


def backend(facts: CudaInstallation) -> Finding:
    """Returns the finding on the backend, which is tried if all its parts are there."""
    if facts.kernel is None:
        missing = [each for each in findings(facts) if each.state != "ok"]
        first = missing[0] if missing else None
        why = "not tried" if first is None else f"{first.name}: {first.value}"
        advice = "" if first is None else first.advice
        return Finding("Backends", "cuda", "absent", why, advice)
    if facts.kernel.works and facts.device is not None:
        return Finding("Backends", "cuda", "ok", f"{EQUAL} {facts.device.name}")
    advice = "backend='reference' runs without kernels"
    return Finding("Backends", "cuda", "broken", facts.kernel.text, advice)


def _cupy(facts: CudaInstallation) -> Finding:
    name = "CuPy (cuda)"
    if len(facts.wheels) > 1:
        both = " and ".join(sorted(facts.wheels))
        keep = "12" if 0 < facts.driver < 13000 else "13"
        advice = f"pip uninstall {' '.join(sorted(facts.wheels))}; "
        advice += f"pip install 'aotlite[cuda{keep}]'"
        text = f"{both} are both installed, and overwrite each other's files"
        return Finding(SECTION, name, "broken", text, advice)
    if facts.cupy is None:
        return Finding(SECTION, name, "absent", "not installed", BOTH)
    if not facts.cupy.works:
        advice = f"reinstall it for the driver's CUDA: {' or '.join(WHEELS.values())}"
        return Finding(SECTION, name, "broken", facts.cupy.text, advice)
    said = f" for CUDA {_version(facts.runtime)}" if facts.runtime else ""
    advice = ""
    if facts.driver and 0 < _major(facts.runtime) < _major(facts.driver):
        fitting = WHEELS.get(_major(facts.driver))
        advice = f"{fitting} is made for this driver's CUDA {_major(facts.driver)}"
        advice = advice if fitting else ""
    return Finding(SECTION, name, "ok", f"{facts.cupy.text}{said}", advice)


def _driver(facts: CudaInstallation) -> Finding:
    name = "NVIDIA driver (cuda)"
    if not facts.has_driver:
        text = "its library libcuda is not there"
        advice = "install NVIDIA's driver; in a container, start it with its GPUs (--gpus all)"
        return Finding(SECTION, name, "absent", text, advice)
    known = f"knows CUDA {_version(facts.driver)}" if facts.driver else "is there"
    if facts.driver and _major(facts.driver) < OLDEST:
        text = f"{known}, expected {OLDEST}.0 or newer"
        return Finding(SECTION, name, "broken", text, UPDATE)
    if facts.driver and _major(facts.runtime) > _major(facts.driver):
        text = f"{known}, and CuPy is for CUDA {_version(facts.runtime)}"
        advice = f"pip uninstall {' '.join(facts.wheels) or 'cupy'}; "
        advice += f"pip install 'aotlite[cuda{_major(facts.driver)}]'; or {UPDATE}"
        return Finding(SECTION, name, "broken", text, advice)
    return Finding(SECTION, name, "ok", known)


def _device(facts: CudaInstallation) -> Finding:
    name = "CUDA device"
    device = facts.device
    if facts.devices and device is not None:
        gib = [f"{count / 2**30:.1f}" for count in device.memory]
        major, minor = device.capability
        text = f"{device.name}, compute capability {major}.{minor}, {gib[0]} of {gib[1]} GiB free"
        more = f"; {facts.devices} devices" if facts.devices > 1 else ""
        if device.capability < LEAST_CAPABILITY:
            least = ".".join(map(str, LEAST_CAPABILITY))
            wanted = f"a device of compute capability {least} or newer"
            return Finding(SECTION, name, "broken", f"{text}; too old", wanted)
        return Finding(SECTION, name, "ok", text + more)
    if facts.visible is not None and facts.visible.strip() in ("", "-1", "NoDevFiles"):
        text = f"CUDA_VISIBLE_DEVICES is {facts.visible!r}, which hides all devices"
        return Finding(SECTION, name, "absent", text, "unset it, or name a device: 0")
    if not facts.has_driver or facts.cupy is None or not facts.cupy.works:
        missing = "the driver" if not facts.has_driver else "CuPy"
        return Finding(SECTION, name, "absent", f"cannot be asked for without {missing}")
    text = f"none is there: {facts.why}" if facts.why else "none is there"
    if facts.visible is not None:
        text += f"; CUDA_VISIBLE_DEVICES is {facts.visible!r}"
    return Finding(SECTION, name, "absent", text, "nvidia-smi shows what the driver sees")


def _nvrtc(facts: CudaInstallation) -> Finding:
    name = "NVRTC (cuda)"
    if facts.nvrtc is None:
        return Finding(SECTION, name, "absent", "not installed", BOTH)
    if not facts.nvrtc.works:
        found = " ".join(facts.nvrtc_wheels) or "nvidia-cuda-nvrtc"
        advice = f"pip install --force-reinstall {found}"
        return Finding(SECTION, name, "broken", facts.nvrtc.text, advice)
    major = int(facts.nvrtc.text.partition(".")[0])
    if facts.driver and major > _major(facts.driver):
        text = f"{facts.nvrtc.text}, whose code a driver of CUDA {_version(facts.driver)} refuses"
        return Finding(SECTION, name, "broken", text, _other_nvrtc(facts, _major(facts.driver)))
    if facts.runtime and major != _major(facts.runtime):
        text = f"{facts.nvrtc.text}, and CuPy is for CUDA {_version(facts.runtime)}"
        return Finding(SECTION, name, "broken", text, _other_nvrtc(facts, _major(facts.runtime)))
    return Finding(SECTION, name, "ok", f"{facts.nvrtc.text}; needs no headers and no toolkit")


def _other_nvrtc(facts: CudaInstallation, major: int) -> str:
    if major < OLDEST:
        return UPDATE
    installed = " ".join(facts.nvrtc_wheels) or "nvidia-cuda-nvrtc"
    return f"pip uninstall {installed}; pip install 'aotlite[cuda{major}]'"


def _cache(facts: CudaInstallation) -> Finding:
    name = "kernel cache (cuda)"
    if facts.cache:
        advice = "name a folder of yours in AOTLITE_CACHE; until then each process compiles anew"
        return Finding(SECTION, name, "broken", facts.cache, advice)
    return Finding(SECTION, name, "ok", facts.folder)


def _major(version: int) -> int:
    return version // 1000


def _version(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


# ------------------------------------------------------------------------------------ what is there
_PROBE = """\
import ctypes, json
found = {"has_driver": False}
for name in ("libcuda.so.1", "nvcuda.dll"):
    try:
        library = ctypes.CDLL(name)
        found["has_driver"] = True
        version = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            found["driver"] = version.value
    except OSError:
        pass
try:
    import cupy
    runtime = cupy.cuda.runtime
    found["runtime"] = runtime.runtimeGetVersion()
    found["devices"] = runtime.getDeviceCount()
    if found["devices"]:
        said = runtime.getDeviceProperties(0)
        name = said["name"]
        name = name.decode() if isinstance(name, bytes) else name
        capability = [said["major"], said["minor"]]
        found["device"] = [name, capability, list(runtime.memGetInfo())]
except ImportError:
    pass
except Exception as error:
    found["why"] = str(error).partition("\\n")[0]
print(json.dumps(found))
"""

_NVRTC = """\
import aotlite.backends.cuda.driver.nvrtc as nvrtc
print(nvrtc.version())
"""


def facts() -> CudaInstallation:
    """Returns the installation of this machine. Imports nothing that may crash."""
    found = CudaInstallation(
        wheels=_installed("cupy"),
        cupy=_imported(),
        visible=environment.visible_devices(),
        nvrtc=_found_nvrtc(),
        nvrtc_wheels={n: v for n, v in _installed("nvidia-cuda-nvrtc").items() if n in NVRTC},
    )
    probed = probes.python(_PROBE)
    if probed.works:
        said = json.loads(probed.text.splitlines()[-1])
        if "device" in said:
            name, capability, memory = said["device"]
            said["device"] = CudaDevice(name, tuple(capability), tuple(memory))
        found = attrs.evolve(found, **said)
    else:
        found = attrs.evolve(found, why=probed.text)
    folder, why = _kept()
    found = attrs.evolve(found, folder=folder, cache=why)
    if found.devices and all(each.state == "ok" for each in findings(found)[:4]):
        found = attrs.evolve(found, kernel=probes.backend("cuda"))
    return found


def _installed(start: str) -> dict[str, str]:
    """Returns the installed distributions whose names begin with `start`, with their versions."""
    found = {}
    for each in distributions():
        name = (each.metadata["Name"] or "").lower()
        if name == start or name.startswith(f"{start}-"):
            found[name] = each.version
    return found


def _imported() -> Outcome | None:
    if not probes.is_found("cupy"):
        return None
    return probes.imports(["cupy"])["cupy"]


def _found_nvrtc() -> Outcome | None:
    outcome = probes.python(_NVRTC)
    return None if "NVRTC is not installed" in outcome.text else outcome


def _kept() -> tuple[str, str]:
    """Returns the cache's folder, and why it cannot be used."""
    folder = trusted_folders.chosen()
    if folder is None:
        return "", "there is no home folder to keep kernels in"
    return folder, trusted_folders.made(folder)
