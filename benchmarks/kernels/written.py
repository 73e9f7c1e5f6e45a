"""Handwritten C for the first rows, compiled and called: the yardstick for generated code.

The sources are `benchmarks/handwritten/*.c` (x86-64 with AVX and FMA). A library is called with one
pointer to all slots and writes results that were allocated before, warm as an arena.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.functions import Action, tangent_like
from benchmarks.kernels.rows import BOTH

FOLDER = Path(__file__).parents[1] / "handwritten"
FLAGS = (
    "-O3 -march=native -std=gnu11 -fPIC -shared -fno-math-errno -fno-trapping-math "
    "-ffp-contract=fast -pthread -fvisibility=hidden"
)
ALIGNMENT = 64
SCRATCH = 1 << 16
"""Elements that forward may leave for backward."""


@cache
def _built() -> tempfile.TemporaryDirectory[str]:
    """The folder of this process' libraries, which is removed at its end."""
    return tempfile.TemporaryDirectory(prefix="aotlite-handwritten-")


@cache
def library(name: str) -> ctypes.CDLL:
    """A file of the folder as a library. Raises RuntimeError with the compiler's words."""
    target = Path(_built().name) / f"{name}.so"
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    command = [*compiler, *FLAGS.split(), str(FOLDER / f"{name}.c"), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}.c: {done.stderr.strip()[-500:]}")
    return ctypes.CDLL(str(target))


def aligned(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Zeros at an address that is a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def call_with(
    function: Any, slots: Sequence[np.ndarray], sizes: Sequence[int]
) -> Callable[[], None]:
    """A call of `function(void **slots, const int64_t *sizes)` that packs nothing anew."""
    pointers = (ctypes.c_void_p * len(slots))(*[each.ctypes.data for each in slots])
    numbers = (ctypes.c_int64 * len(sizes))(*sizes)
    function.argtypes, function.restype = None, None
    first, second = ctypes.byref(pointers), ctypes.byref(numbers)
    kept = list(slots)

    def call() -> None:
        function(first, second)

    call.kept = kept  # type: ignore[attr-defined]
    return call


def written_action(row: Any, direction: str, arrays: Sequence[np.ndarray]) -> Action:
    """The action of a row that names a file; inputs are copied to aligned memory."""
    made = library(row.written)
    inputs = [aligned(each.shape, each.dtype.name) for each in arrays]
    for to, each in zip(inputs, arrays, strict=True):
        to[...] = each
    result = aligned(_result_shape(row, arrays))
    tangent = aligned(result.shape)
    tangent[...] = tangent_like(result.shape, row.dtype)
    gradients = [aligned(arrays[place].shape) for place in row.with_grad]
    slots = [*inputs, result, tangent, *gradients, aligned((SCRATCH,))]
    sizes = arrays[0].shape
    forward = call_with(made.forward, slots, sizes)
    if direction != BOTH:
        return lambda: (forward(), [result])[1]
    given = [
        tangent if place in row.passed_on else gradient
        for place, gradient in zip(row.with_grad, gradients, strict=True)
    ]
    backward, returned = call_with(made.backward, slots, sizes), [result, *given]
    return lambda: (forward(), backward(), returned)[2]


def _result_shape(row: Any, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The shape of the result, by a run of the row's function on fakes."""
    import aotlite
    from benchmarks.kernels.libraries import TorchLike

    lib = TorchLike(aotlite.nn.functional)
    graph = aotlite.capture(lambda *xs: row.body(lib, *xs))(*map(aotlite.from_numpy, arrays))
    (value,) = graph.outputs
    return tuple(value.meta.shape)
