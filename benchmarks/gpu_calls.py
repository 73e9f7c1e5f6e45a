"""Host time of calls: launches, recorded or not, waits for the device, first calls."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import aotlite as al
from benchmarks.gpu_clocks import Spin
from benchmarks.gpu_guard import ended
from benchmarks.gpu_libraries import Ours

ROOT = Path(__file__).parent.parent
DELAY = 0.1
"""The seconds of work before a call that must not wait for it."""


def _softmax(x: Any, _: Any) -> Any:
    return al.softmax(x * 2.0 + 1.0, -1)


def _layers(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = al.softmax(al.tanh(x @ w) + x, -1)
    return x.sum(0)


FUNCTIONS: dict[str, Callable[..., Any]] = {"one kernel": _softmax, "products": _layers}


class Said(logging.Handler):
    """Collects the log messages about recordings that are not made."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.log = logging.getLogger("aotlite.device_graphs")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> Said:
        self.before = self.log.level
        self.log.addHandler(self)
        self.log.setLevel(logging.INFO)
        return self

    def __exit__(self, *error: object) -> None:
        self.log.removeHandler(self)
        self.log.setLevel(self.before)


def overhead(session: Any) -> None:
    """Host microseconds of a call on few elements: launched, and replayed as a device graph."""
    for name, options in (("launched", {}), ("recorded", {"device_graphs": True})):
        for kind, function in FUNCTIONS.items():
            work = partial(_overhead, session, f"{name}, {kind}", function, options)
            session.attempt("overhead", f"{name}, {kind}", work)


def _overhead(session: Any, name: str, function: Callable[..., Any], options: Any) -> None:
    compiled = Ours(None).compiled(function, **options)
    x, w = (al.randn(64, 64).to("cuda") for _ in range(2))
    with Said() as said:
        for _ in range(20):
            compiled(x, w)
        times = []
        for _ in range(5 if session.dry else 50):
            al.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                compiled(x, w)
            times.append((time.perf_counter() - start) / 20)
    found: dict[str, Any] = {"microseconds": 1e6 * float(np.median(times))}
    if said.lines:
        found["not recorded"] = said.lines[-1][:300]
    session.note("overhead", name, found)


def waits(session: Any) -> None:
    """Whether a compiled call returns while the device is still busy with earlier work.

    Without a GPU the emulated driver counts waits.
    """
    compiled = Ours(None).compiled(_layers)
    recorded = Ours(None).compiled(_layers, device_graphs=True)

    def step(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return al.autograd.grad(compiled(x, w).sum(), [x, w])

    calls = {"a call": compiled, "a recorded call": recorded, "forward and backward": step}
    for name, call in calls.items():
        session.attempt("waits", name, partial(_waits, session, name, call))


def _waits(session: Any, name: str, call: Callable[..., Any]) -> None:
    x, w = (al.randn(64, 64).to("cuda") for _ in range(2))
    for _ in range(5):
        call(x, w)
    if session.dry:
        arrays: Any = x.device.arrays
        driver = arrays.driver
        before = driver.waits
        call(x, w)
        session.note("waits", name, {"waits": driver.waits - before})
        return
    spin = Spin(importlib.import_module("cupy"))
    al.cuda.synchronize()
    start = time.perf_counter()
    spin(DELAY)
    call(x, w)
    returned = time.perf_counter() - start
    al.cuda.synchronize()
    done = time.perf_counter() - start
    found: dict[str, Any] = {"returned after": returned, "done after": done}
    found["waits"] = returned > done / 2
    if done < DELAY:
        found["error"] = f"the device was busy for {done:.3f} s, expected {DELAY}"
    session.note("waits", name, found)


# ------------------------------------------------------------------------------------- first calls
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


def first_calls(session: Any) -> None:
    """The seconds of the first forward and backward of a function, without caches."""
    if session.dry:
        x = al.randn(4, 4).to("cuda").requires_grad_()
        start = time.perf_counter()
        Ours(None).compiled(lambda x: al.softmax(al.tanh(x @ x) + x, -1).sum())(x).backward()
        session.note("first calls", "ours", {"seconds": time.perf_counter() - start})
        return
    for name in ("ours", "torch.compile"):
        limit = max(session.left, 1) + 30
        session.attempt("first calls", name, partial(_first_call, session, name), limit)


def _first_call(session: Any, name: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables = {"AOTLITE_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        variables |= {"TRITON_CACHE_DIR": folder, "CUPY_CACHE_DIR": folder}
        variables |= {"CUDA_CACHE_PATH": folder}
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        child = subprocess.Popen(
            [sys.executable, "-c", _FIRST, name.partition(".")[0]],
            cwd=ROOT,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, said = child.communicate(timeout=max(session.left, 1))
        finally:
            ended(child)
    if child.returncode:
        lines = said.strip().splitlines()
        session.note("first calls", name, {"error": "".join(lines[-1:]), "trace": said[-4000:]})
        return
    session.note("first calls", name, {"seconds": float(out.split()[-1])})
