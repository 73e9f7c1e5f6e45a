"""All measurements on a GPU in one command of under eight minutes, from a source checkout.

    python -m benchmarks.gpu                     # on a machine with a GPU, CuPy and a driver
    python -m benchmarks.gpu --dry-run           # tiny, on the emulated device; times mean nothing
    python -m benchmarks.gpu --sections rows,training --seconds 200

Numerics of the whole op table on the device; the bandwidth of a copy; rows of 2^26 elements and
train steps against CuPy, cupy.fuse, PyTorch eager and compiled, and JAX, as far as they are here;
the overhead of a recorded graph; whether a compiled call waits for the device; first calls. Each
section has a share of the seconds. Each finding is written at once to
`benchmarks/results/gpu-<device>.json`, and printed in tables at the end: times, and claims with
their targets. The output of pytest is in `gpu-<device>-tests.txt` beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import platform
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).parent.parent))

NEEDED = ("attrs", "ml_dtypes", "networkx", "numpy", "rich", "sympy")
"""Packages that come with CuPy, PyTorch or JAX on most machines; optree has a stand-in."""


def _is_absent(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ValueError:  # None in the place of the module
        return True


if absent := [name for name in NEEDED if _is_absent(name)]:
    sys.exit(f"benchmarks.gpu needs {', '.join(absent)}: pip install {' '.join(absent)}")

from benchmarks import optree_stand_in  # noqa: E402

# JAX would take most of the memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
STOOD_IN = optree_stand_in.install()

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402

import aotlite as al  # noqa: E402
from aotlite.backends.cuda.driver import nvrtc  # noqa: E402
from aotlite.testing import emulating_cuda  # noqa: E402
from benchmarks import gpu_calls  # noqa: E402
from benchmarks.gpu_clocks import EventClock, HostClock, Timed, medians  # noqa: E402
from benchmarks.gpu_guard import SPOILED, Marker, guarded, read, write  # noqa: E402
from benchmarks.gpu_libraries import (  # noqa: E402
    SETS,
    Ours,
    action_of,
    libraries,
    of_row,
    random_arrays,
)
from benchmarks.gpu_programs import FULL, ROWS, TINY, Row  # noqa: E402
from benchmarks.gpu_report import is_right, short, summary, times, verdicts  # noqa: E402
from benchmarks.gpu_tests import tested  # noqa: E402
from benchmarks.gpu_training import DTYPES, models  # noqa: E402

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CHECKED = 16
"""The binary logarithm of the size at which rows are compared with float64 of the CPU."""
TOLERANCE = 2e-5
"""The tolerance of float32 against float64, relative to the largest result."""
LOSSES_APART = {"float32": 1e-4, "bfloat16": 2e-2}
"""The relative tolerance of three losses against PyTorch, which sums in another order."""
LIMIT = 150.0
"""The seconds after which one piece of work counts as a hang; compilers take most."""


class Session:
    """The findings, and the time that is left."""

    def __init__(self, *, dry: bool, path: Path, console: Console) -> None:
        self.dry, self.path, self.console = dry, path, console
        self.size = TINY if dry else FULL
        self.found = read(path)
        self.marker = Marker(path)
        self.end = 0.0

    def note(self, section: str, name: str, value: Any) -> None:
        """Writes a finding at once, and prints it."""
        self.keep(section, name, value)
        self.console.print(f"{section}: {name}: {short(value)}", highlight=False, markup=False)

    def keep(self, section: str, name: str, value: Any) -> None:
        """Writes a partial finding."""
        self.found.setdefault(section, {})[name] = value
        write(self.path, self.found)

    @property
    def left(self) -> float:
        """The seconds left for the section."""
        return self.end - time.perf_counter()

    def attempt(
        self, section: str, name: str, work: Callable[[], Any], limit: float = LIMIT
    ) -> None:
        """Does the work; an error is a finding, and no end. Out of time, it is not begun, and what
        has been found before is not done again."""
        if name in self.found.get(section, {}):
            return
        if self.left <= 0:
            self.note(section, name, {"left out": "out of time"})
            return
        with self.marker.at(section, name, limit):
            try:
                work()
            except Exception as error:
                self.fail(section, name, error)
            self.end_if_spoiled(section, name)

    def end_if_spoiled(self, section: str, name: str) -> None:
        """Ends the process after a fault of a kernel; the next process continues."""
        if self.dry:
            return
        try:
            al.cuda.synchronize()
        except Exception as error:
            self.fail(section, name, error)
            os._exit(SPOILED)

    def fail(self, section: str, name: str, error: Exception) -> None:
        """Writes an error beside the findings before it; of several, the first."""
        trace = "".join(traceback.format_exception(error))[-4000:]
        known = self.found.get(section, {}).get(name, {})
        said = {"error": f"{type(error).__name__}: {error}"[:400], "trace": trace}
        self.note(section, name, {**said, **known})


# ---------------------------------------------------------------------------------------- sections
def bandwidth(session: Session) -> None:
    """The bandwidth of a copy on the device, reads and writes: the upper bound."""
    row, ours = next(iter(ROWS.values())), Ours(None)
    sources = [ours.tensor(random_arrays(row, session.size, seed)[0]) for seed in range(SETS)]
    pairs = [(source, al.empty_like(source)) for source in sources]

    def eager(number: int) -> None:
        source, target = pairs[number % SETS]
        target.copy_(source)

    moved = 2 * pairs[0][0].nbytes
    if session.dry:
        actions = {"eager": Timed(eager, HostClock())}
    else:
        cupy = importlib.import_module("cupy")
        clock, runtime = EventClock(cupy, ahead=True), cupy.cuda.runtime

        def driver(number: int) -> None:
            source, target = [each.data_ptr() for each in pairs[number % SETS]]
            kind, stream = runtime.memcpyDeviceToDevice, cupy.cuda.get_current_stream().ptr
            runtime.memcpyAsync(target, source, moved // 2, kind, stream)

        actions = {"eager": Timed(eager, clock), "driver": Timed(driver, clock)}
    seconds = medians(actions, min(session.left, 3))
    for name, each in seconds.items():
        session.note("bandwidth", name, moved / each)
    session.note("bandwidth", "bytes a second", moved / min(seconds.values()))


def numerics(session: Session) -> None:
    """Rows against float64 of the CPU; memory shared with PyTorch and JAX."""
    for row in ROWS.values():
        session.attempt("numerics", row.name, partial(_compared, session, row))
    for library in libraries(session.dry)[0]:
        if hasattr(library, "shared") and library.name != "torch.compile":
            name = f"memory shared with {library.name}"
            session.attempt("numerics", name, partial(_shared, session, name, library))


def _shared(session: Session, name: str, library: Any) -> None:
    x = al.randn(64, 33).to("cuda")
    right = []
    for _ in range(20):  # each library has its own stream
        x = x + 1
        right.append((library.shared(x) == x * 2).all().item())
    session.note("numerics", name, {"right": all(right)})


def _compared(session: Session, row: Row) -> None:
    arrays = random_arrays(row, TINY if session.dry else CHECKED, 3)
    ours = Ours(None)
    plain = of_row(al, row)
    wide = [al.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in arrays]
    narrow = [ours.tensor(array) for array in arrays]
    expected, found = (
        [each.detach().cpu().numpy() for each in (made if row.backward else [made])]
        for made in (
            action_of(al, row, plain, [wide])(0),
            action_of(al, row, ours.compiled(plain), [narrow])(0),
        )
    )
    pairs = list(zip(expected, found, strict=True))
    worst = max([float(np.max(np.abs(e - f)) / np.max(np.abs(e))) for e, f in pairs])
    right = all(np.isfinite(f).all() for f in found) and worst <= TOLERANCE
    session.note("numerics", row.name, {"difference": worst, "right": bool(right)})


def tests(session: Session) -> None:
    """The tests for devices: every op of the table, random programs, training."""
    if session.dry:
        session.note("tests", "pytest", {"left out": "there is no device"})
        return
    log = session.path.with_name(session.path.stem + "-tests.txt")
    left = session.left
    work: Callable[[], Any] = lambda: session.note("tests", "pytest", tested(left - 10, log=log))
    session.attempt("tests", "pytest", work, left + 60)


def timed_rows(session: Session) -> None:
    """Each row by each library, and aotlite's share of a copy's bandwidth."""
    others, absent = libraries(session.dry)
    if absent:
        session.note("machine", "libraries left out", absent)
    _warm(others)
    for count, row in enumerate(ROWS.values()):
        seconds = session.left / (len(ROWS) - count)
        session.attempt("rows", row.name, partial(_row, session, row, others, seconds))


def _warm(others: Sequence[Any]) -> None:
    """What a library does once in a process belongs to no row; an error is one of rows, too."""
    row = next(iter(ROWS.values()))
    for library in others:
        with contextlib.suppress(Exception):
            library.row(row, [random_arrays(row, TINY, 0)]).action(0)


def _row(session: Session, row: Row, others: Sequence[Any], seconds: float) -> None:
    sets = [random_arrays(row, session.size, seed) for seed in range(SETS)]
    able = [library for library in others if library.trains or not row.backward]
    actions, missing = _ready(able, lambda library: library.row(row, sets), seconds)
    taken = medians(actions, min(seconds / 2, 6))
    moved = row.bytes(session.size, 4)
    found: dict[str, Any] = {"seconds": taken, "bytes": moved, "missing": missing}
    found |= _without_ours(missing)
    copied = session.found.get("bandwidth", {}).get("bytes a second")
    if "ours" in taken and copied:
        found["share of a copy"] = moved / taken["ours"] / copied
    session.keep("rows", row.name, found)
    exact = next((each for each in others if each.name == "torch"), None)
    if exact is not None and "ours" in actions:
        worst = exact.difference(row, sets[0], actions["ours"].action(0))
        found |= {"difference": worst, "right": worst <= TOLERANCE}
    session.note("rows", row.name, found)


def _ready(
    others: Sequence[Any], make: Callable[[Any], Timed | None], seconds: float
) -> tuple[dict[str, Timed], dict[str, str]]:
    """Actions that have been called, ours and as many others as there is time for; errors."""
    actions: dict[str, Timed] = {}
    missing: dict[str, str] = {}
    end = time.perf_counter() + seconds
    for library in others:
        name = library.name
        if time.perf_counter() > end and name not in ("ours", "torch.compile"):
            missing[name] = "out of time"
            continue
        try:
            made = make(library)
            if made is not None:
                made.action(0)
                actions[name] = made
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"[: 4000 if name == "ours" else 200]
    return actions, missing


def _without_ours(missing: dict[str, str]) -> dict[str, str]:
    """An error where it is ours that is missing; others may be."""
    return {"error": f"ours: {missing['ours']}"} if "ours" in missing else {}


def training(session: Session) -> None:
    """Train steps in float32 and bfloat16, ours and PyTorch's."""
    others = [each for each in libraries(session.dry)[0] if each.trains]
    cases = [(model, dtype) for model in models(session.dry) for dtype in DTYPES]
    for count, (model, dtype) in enumerate(cases):
        name, seconds = f"{model.name}, {dtype}", session.left / (len(cases) - count)

        work = partial(_trained, session, name, others, (model, dtype), seconds)
        session.attempt("training", name, work)


def _trained(
    session: Session, name: str, others: Sequence[Any], case: tuple[Any, str], seconds: float
) -> None:
    losses: dict[str, list[float]] = {}

    def make(library: Any) -> Timed:
        made: Timed = library.step(*case)
        losses[library.name] = [made.action(number).item() for number in range(3)]
        return made

    actions, missing = _ready(others, make, seconds)
    taken = medians(actions, min(seconds / 2, 8))
    found: dict[str, Any] = {"seconds": taken, "missing": missing, **_without_ours(missing)}
    if {"ours", "torch"} <= set(losses):
        pairs = zip(losses["ours"], losses["torch"], strict=True)
        apart = max([abs(mine - its) / abs(its) for mine, its in pairs])
        found |= {"losses apart": apart, "right": apart <= LOSSES_APART[case[1]]}
    session.note("training", name, found)


SECTIONS: dict[str, tuple[Callable[[Any], None], float]] = {
    "bandwidth": (bandwidth, 0.02),
    "waits": (gpu_calls.waits, 0.03),
    "overhead": (gpu_calls.overhead, 0.03),
    "rows": (timed_rows, 0.36),
    "training": (training, 0.26),
    "first calls": (gpu_calls.first_calls, 0.1),
    "numerics": (numerics, 0.03),
    "tests": (tests, 0.17),
}
"""In the order in which they are run, with shares of the time; what one leaves, others get."""


# --------------------------------------------------------------------------------------------- run
def machine(dry: bool) -> dict[str, Any]:
    """The device and what is installed."""
    found: dict[str, Any] = {"python": platform.python_version(), "aotlite": al.__version__}
    found["optree stands in"] = STOOD_IN
    for name in ("numpy", "cupy", "torch", "triton", "jax"):
        with contextlib.suppress(Exception):  # one that is broken is left out
            found[name] = importlib.import_module(name).__version__
    with contextlib.suppress(al.AotliteError):
        found["nvrtc"] = nvrtc.version()
    found["device"] = "emulated" if dry else al.cuda.get_device_name()
    if not dry:
        runtime = importlib.import_module("cupy").cuda.runtime
        found["capability"] = al.cuda.get_device_capability()
        found["CUDA"] = {"driver": runtime.driverGetVersion(), "own": runtime.runtimeGetVersion()}
    return found


def run(session: Session, sections: Sequence[str], seconds: float) -> None:
    """All sections, each for its share of the time that is left."""
    end = time.perf_counter() + seconds
    session.note("machine", "started", time.strftime("%Y-%m-%d %H:%M"))
    for name, value in machine(session.dry).items():
        session.note("machine", name, value)
    for count, name in enumerate(sections):
        work, share = SECTIONS[name]
        rest = sum([SECTIONS[each][1] for each in sections[count:]])
        left = end - time.perf_counter()
        session.end = time.perf_counter() + left * share / rest
        session.attempt(name, "section", partial(work, session), max(left, 0) + LIMIT)
        session.note("done", name, True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all went well; 1 where something failed or is wrong; 2 without a device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--sections", default=",".join(SECTIONS), help="names, by commas")
    parser.add_argument("--seconds", type=float, default=440.0, help="for everything")
    parser.add_argument("--dry-run", action="store_true", help="tiny, on the emulated device")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    console = Console(width=140)
    sections = given.sections.split(",")
    unknown = sorted(set(sections) - set(SECTIONS))
    if unknown:
        parser.error(f"--sections: {unknown[0]!r} is none of {', '.join(SECTIONS)}")
    if not given.dry_run and not al.cuda.is_available():
        console.print("there is no CUDA device: see `aotlite doctor`, or try --dry-run")
        return 2
    device = "dry-run" if given.dry_run else al.cuda.get_device_name()
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    path = given.out / f"gpu-{name}.json"
    if given.worker:
        session = Session(dry=False, path=path, console=console)
        done = session.found.get("done", {})
        run(session, [each for each in sections if each not in done], given.seconds)
        return 0
    path.unlink(missing_ok=True)
    if given.dry_run:
        with emulating_cuda():
            run(Session(dry=True, path=path, console=console), sections, given.seconds)
    else:
        command = [sys.executable, "-m", "benchmarks.gpu", "--worker", "--sections", given.sections]
        guarded([*command, "--out", str(given.out.resolve())], path, given.seconds, ROOT)
    return told(read(path), path, console)


def told(found: dict[str, Any], path: Path, console: Console) -> int:
    """Prints what has been found; 1 where something failed or is wrong."""
    for line in summary(found):
        console.print(line, highlight=False, markup=False)
    console.print(times(found))
    console.print(verdicts(found))
    console.print(f"written to {path}")
    return 0 if is_right(found) else 1


if __name__ == "__main__":
    sys.exit(main())
