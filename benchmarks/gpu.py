"""Everything about a GPU in one command of under eight minutes, from a plain source checkout.

    python -m benchmarks.gpu                     # on a machine with a GPU, CuPy and a driver
    python -m benchmarks.gpu --dry-run           # tiny, on the emulated device; times say nothing
    python -m benchmarks.gpu --sections rows,training --seconds 200

Numerics of the whole op table on the device; the bandwidth of a copy; rows of 2^26 elements and
train steps against CuPy, cupy.fuse, PyTorch eager and compiled, and JAX, as far as they are here;
the overhead of a recorded graph; whether a compiled call waits for the device; first calls. Each
section has a share of the seconds. What has been found is written after each line of it to
`benchmarks/results/gpu-<device>.json`, and printed as one table at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).parent.parent))

NEEDED = ("attrs", "ml_dtypes", "networkx", "numpy", "rich", "sympy")
"""What comes with CuPy, PyTorch or JAX on most machines; optree has a stand-in."""


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
from rich import box  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import aotlite as al  # noqa: E402
from aotlite.testing import emulating_cuda  # noqa: E402
from benchmarks.gpu_clocks import Timed, medians  # noqa: E402
from benchmarks.gpu_libraries import SETS, Ours, libraries, random_arrays  # noqa: E402
from benchmarks.gpu_programs import FULL, ROWS, TINY, Row  # noqa: E402
from benchmarks.gpu_tests import tested  # noqa: E402
from benchmarks.gpu_training import models  # noqa: E402

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
CHECKED = 16
"""The binary logarithm of the size at which rows are compared with float64."""
TOLERANCE = 2e-5
"""Of float32 against float64, relative to the largest result: sums of up to 2^16 terms."""
DELAY = 0.1
"""Seconds of work before a call that must not wait for it."""


class Session:
    """What is being found, and how much time is left for it."""

    def __init__(self, *, dry: bool, path: Path, console: Console) -> None:
        self.dry, self.path, self.console = dry, path, console
        self.size = TINY if dry else FULL
        self.found: dict[str, Any] = {"dry": dry, "machine": machine(dry)}
        self.end = 0.0

    def note(self, section: str, name: str, value: Any) -> None:
        """Keeps a finding, at once."""
        self.found.setdefault(section, {})[name] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.found, indent=1, default=str) + "\n", "utf-8")
        self.console.print(f"{section}: {name}: {_short(value)}", highlight=False, markup=False)

    @property
    def left(self) -> float:
        """Seconds of the section."""
        return self.end - time.perf_counter()

    def attempt(self, section: str, name: str, work: Callable[[], Any]) -> Any:
        """What the work gives; an error is a finding, and no end. Out of time, it is not begun."""
        if self.left <= 0:
            self.note(section, name, {"left out": "out of time"})
            return None
        try:
            return work()
        except Exception as error:
            self.note(section, name, {"error": f"{type(error).__name__}: {error}"[:400]})
            return None


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join([f"{key} {_short(each)}" for key, each in value.items()])
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine(dry: bool) -> dict[str, Any]:
    """The device and what is installed."""
    found: dict[str, Any] = {"python": platform.python_version(), "aotlite": al.__version__}
    found["optree stands in"] = STOOD_IN
    for name in ("numpy", "cupy", "torch", "jax"):
        with contextlib.suppress(ImportError):
            found[name] = importlib.import_module(name).__version__
    found["device"] = "emulated" if dry else al.cuda.get_device_name()
    if not dry:
        found["capability"] = al.cuda.get_device_capability()
    return found


# ---------------------------------------------------------------------------------------- sections
def bandwidth(session: Session) -> None:
    """The bytes a second of a copy on the device, read and written: the most that is to be had."""
    source = al.randn(1 << session.size).to("cuda")
    target = al.empty_like(source)
    clock = next(libraries(session.dry)).clock
    actions = {"copy": Timed(lambda number: target.copy_(source), clock)}
    seconds = medians(actions, min(session.left, 3))["copy"]
    session.note("bandwidth", "bytes a second", 2 * source.nbytes / seconds)


def numerics(session: Session) -> None:
    """Rows against float64 of the CPU, then the tests that are for devices: the whole op table."""
    for row in ROWS.values():
        session.attempt("numerics", row.name, partial(_compared, session, row))
    if session.dry:
        return
    session.note("numerics", "tests", tested(session.left))


def _compared(session: Session, row: Row) -> None:
    arrays = random_arrays(row, TINY if session.dry else CHECKED, 3)
    ours = Ours(None)

    def result(tensors: Sequence[Any], function: Callable[..., Any]) -> list[np.ndarray]:
        made = function(*tensors)
        if not row.backward:
            return [made.cpu().numpy()]
        made.backward(al.ones_like(made) + made.detach())
        return [each.grad.cpu().numpy() for each in tensors]

    wide = [al.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in arrays]
    narrow = [ours.tensor(array) for array in arrays]
    if row.backward:
        wide, narrow = ([each.requires_grad_() for each in some] for some in (wide, narrow))
    plain: Callable[..., Any] = lambda *given: row.function(al, *given)
    expected, found = result(wide, plain), result(narrow, ours.compiled(plain))
    pairs = list(zip(expected, found, strict=True))
    worst = max([float(np.max(np.abs(e - f)) / np.max(np.abs(e))) for e, f in pairs])
    right = all(np.isfinite(f).all() for f in found) and worst <= TOLERANCE
    session.note("numerics", row.name, {"difference": worst, "right": bool(right)})


def timed_rows(session: Session) -> None:
    """Each row by each library, and the share of a copy's bandwidth that ours reaches."""
    others = list(libraries(session.dry))
    for count, row in enumerate(ROWS.values()):
        seconds = session.left / (len(ROWS) - count)
        session.attempt("rows", row.name, partial(_row, session, row, others, seconds))


def _row(session: Session, row: Row, others: Sequence[Any], seconds: float) -> None:
    sets = [random_arrays(row, session.size, seed) for seed in range(SETS)]
    actions, missing = {}, {}
    for library in others:
        if row.backward and not hasattr(library, "step"):
            continue
        try:
            made = library.row(row, sets)
            if made is not None:
                made.action(0)
                actions[library.name] = made
        except Exception as error:
            missing[library.name] = f"{type(error).__name__}: {error}"[:200]
    times = medians(actions, min(seconds / 2, 10))
    moved = row.bytes(session.size, 4)
    found: dict[str, Any] = {"seconds": times, "bytes": moved, "missing": missing}
    found |= _without_ours(missing)
    copied = session.found.get("bandwidth", {}).get("bytes a second")
    if "ours" in times and copied:
        found["share of a copy"] = moved / times["ours"] / copied
    session.note("rows", row.name, found)


def _without_ours(missing: dict[str, str]) -> dict[str, str]:
    """An error where it is ours that is missing; others may be."""
    return {"error": f"ours: {missing['ours']}"} if "ours" in missing else {}


def training(session: Session) -> None:
    """Train steps in float32 and bfloat16, ours and PyTorch's."""
    others = [each for each in libraries(session.dry) if hasattr(each, "step")]
    cases = [(model, dtype) for model in models(session.dry) for dtype in ("float32", "bfloat16")]
    for count, (model, dtype) in enumerate(cases):
        name, seconds = f"{model.name}, {dtype}", session.left / (len(cases) - count)

        def work(model: Any = model, dtype: str = dtype, seconds: float = seconds) -> None:
            actions, missing = {}, {}
            for library in others:
                try:
                    actions[library.name] = library.step(model, dtype)
                    actions[library.name].action(0)
                except Exception as error:
                    actions.pop(library.name, None)
                    missing[library.name] = f"{type(error).__name__}: {error}"[:200]
            times = medians(actions, min(seconds / 2, 10))
            found = {"seconds": times, "missing": missing, **_without_ours(missing)}
            session.note("training", f"{model.name}, {dtype}", found)

        session.attempt("training", name, work)


def overhead(session: Session) -> None:
    """Host microseconds of a call on few elements: launched, and replayed as a device graph."""
    for name, options in (("launched", {}), ("recorded", {"device_graphs": True})):

        def work(name: str = name, options: dict[str, Any] = options) -> None:
            function = Ours(None).compiled(lambda x: al.softmax(x * 2.0 + 1.0, -1), **options)
            x = al.randn(64, 64).to("cuda")
            for _ in range(20):
                function(x)
            times = []
            for _ in range(5 if session.dry else 50):
                al.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    function(x)
                times.append((time.perf_counter() - start) / 20)
            session.note("overhead", name, {"microseconds": 1e6 * float(np.median(times))})

        session.attempt("overhead", name, work)


SPIN = r"""
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


def waits(session: Session) -> None:
    """Whether a compiled call returns while the device is still busy with what came before.

    Without a GPU the emulated driver counts who waits.
    """
    x = al.randn(1 << 16).reshape(64, -1).to("cuda")
    function = Ours(None).compiled(lambda x: al.softmax(al.tanh(x) + x, -1).sum(0))
    function(x)
    if session.dry:
        driver = x.device.arrays.driver
        before = driver.waits
        function(x)
        session.note("waits", "call", {"waits": driver.waits - before})
        return
    cupy = importlib.import_module("cupy")
    spin = cupy.RawKernel(SPIN, "spin", backend="nvrtc")
    clock = cupy.cuda.Device().attributes["ClockRate"] * 1000
    spin((1,), (1,), (np.int64(1000),))
    al.cuda.synchronize()
    start = time.perf_counter()
    spin((1,), (1,), (np.int64(DELAY * clock),))
    function(x)
    returned = time.perf_counter() - start
    al.cuda.synchronize()
    done = time.perf_counter() - start
    found = {"returned after": returned, "done after": done, "waits": returned > done / 2}
    session.note("waits", "call", found)


_FIRST = """\
import os, sys, time
from benchmarks import optree_stand_in
optree_stand_in.install()
import numpy as np
if sys.argv[1] == "ours":
    import aotlite as t
    options = {"backend": "cuda"}
    x = t.tensor(np.ones((512, 512), np.float32)).to("cuda")
else:
    import torch as t
    options = {}
    x = t.ones(512, 512, device="cuda")
x = x.requires_grad_()
w = (x.detach() + 1).requires_grad_()
t.tanh(x @ w).sum().backward()
t.cuda.synchronize()
start = time.perf_counter()
function = t.compile(lambda x, w: t.softmax(t.tanh(x @ w) + x, -1).sum(), **options)
function(x, w).backward()
t.cuda.synchronize()
print(time.perf_counter() - start)
"""


def first_calls(session: Session) -> None:
    """Seconds until a function has run forward and backward for the first time; no caches."""
    if session.dry:
        x = al.randn(4, 4).to("cuda").requires_grad_()
        start = time.perf_counter()
        Ours(None).compiled(lambda x: al.softmax(al.tanh(x @ x) + x, -1).sum())(x).backward()
        session.note("first calls", "ours", {"seconds": time.perf_counter() - start})
        return
    for name in ("ours", "torch.compile"):
        session.attempt("first calls", name, partial(_first_call, session, name))


def _first_call(session: Session, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        variables = {"AOTLITE_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        variables |= {"TRITON_CACHE_DIR": folder, "CUPY_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", _FIRST, name.partition(".")[0]],
            cwd=ROOT,
            env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=max(session.left, 1),
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    session.note("first calls", name, {"seconds": float(done.stdout.split()[-1])})


SECTIONS: dict[str, tuple[Callable[[Session], None], float]] = {
    "bandwidth": (bandwidth, 0.02),
    "waits": (waits, 0.03),
    "overhead": (overhead, 0.05),
    "rows": (timed_rows, 0.35),
    "training": (training, 0.2),
    "first calls": (first_calls, 0.15),
    "numerics": (numerics, 0.2),
}
"""In the order in which they are run, with shares of the time; what one leaves, others get."""


# -------------------------------------------------------------------------------------- the report
def table_of(found: dict[str, Any]) -> Table:
    """Everything that is a time, and what it is compared with."""
    table = Table(box=box.MARKDOWN, title=str(found["machine"]["device"]))
    names = ("ours", "cupy", "cupy.fuse", "torch", "torch.compile", "jax")
    for head in ("ms", *names, "of a copy"):
        table.add_column(head, justify="left" if head == "ms" else "right")
    for section in ("rows", "training"):
        for name, each in found.get(section, {}).items():
            times = each.get("seconds", {})
            cells = [f"{1e3 * times[key]:.3f}" if key in times else "-" for key in names]
            share = each.get("share of a copy")
            table.add_row(name, *cells, "-" if share is None else f"{share:.0%}")
    return table


def summary(found: dict[str, Any]) -> Iterator[str]:
    """Lines of what is no row."""
    for section in ("bandwidth", "overhead", "waits", "first calls", "numerics"):
        for name, value in found.get(section, {}).items():
            yield f"{section}: {name}: {_short(value)}"


def is_right(found: dict[str, Any]) -> bool:
    """Whether nothing failed, and the numbers are right."""
    every = [value for part in found.values() if isinstance(part, dict) for value in part.values()]
    parts = [value for value in every if isinstance(value, dict)]
    wrong = any(
        "error" in each or each.get("right") is False or each.get("failed") for each in parts
    )
    return not wrong


def run(session: Session, sections: Sequence[str], seconds: float) -> None:
    """All sections, each for its share of the time that is left."""
    end = time.perf_counter() + seconds
    for count, name in enumerate(sections):
        work, share = SECTIONS[name]
        rest = sum([SECTIONS[each][1] for each in sections[count:]])
        left = end - time.perf_counter()
        session.end = time.perf_counter() + left * share / rest
        session.attempt(name, "section", partial(work, session))


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all went well; 1 where something failed or is wrong; 2 without a device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--sections", default=",".join(SECTIONS), help="names, by commas")
    parser.add_argument("--seconds", type=float, default=420.0, help="for everything")
    parser.add_argument("--dry-run", action="store_true", help="tiny, on the emulated device")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    given = parser.parse_args(arguments)
    console = Console(width=120)
    sections = given.sections.split(",")
    unknown = sorted(set(sections) - set(SECTIONS))
    if unknown:
        parser.error(f"--sections: {unknown[0]!r} is none of {', '.join(SECTIONS)}")
    if not given.dry_run and not al.cuda.is_available():
        console.print("there is no CUDA device: see `aotlite doctor`, or try --dry-run")
        return 2
    with emulating_cuda() if given.dry_run else contextlib.nullcontext():
        device = "dry-run" if given.dry_run else al.cuda.get_device_name()
        name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
        session = Session(dry=given.dry_run, path=given.out / f"gpu-{name}.json", console=console)
        session.note("machine", "started", time.strftime("%Y-%m-%d %H:%M"))
        run(session, sections, given.seconds)
    console.print(table_of(session.found))
    for line in summary(session.found):
        console.print(line, highlight=False, markup=False)
    console.print(f"written to {session.path}")
    return 0 if is_right(session.found) else 1


if __name__ == "__main__":
    sys.exit(main())
