"""Functions of the library alone: on NumPy arrays, and as C loops that are compiled and loaded.

The functions are evaluated by the interpreter's arithmetic and printed by the C printer; the loops
around them are as simple as possible, so that the library alone is measured.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.backends.c_family.c_types import from_memory, memory_type, to_memory
from aotlite.backends.c_family.scalar_text import FunctionTexts
from aotlite.backends.cpu.emit.c_program import preamble
from aotlite.backends.loops.interpreter.program_interpreter import evaluate
from aotlite.ir.scalar.expression import function as called
from aotlite.ir.scalar.expression import parameter
from aotlite.ir.scalar.functions import ScalarFunction

COMPILER = shutil.which("gcc")
FLAGS = (
    "-O3 -march=native -std=gnu11 -fPIC -shared -fno-math-errno -fno-trapping-math -fwrapv".split()
)


def evaluated(function: ScalarFunction, *operands: Any) -> Any:
    """The function of each element, by the interpreter."""
    with np.errstate(all="ignore"):
        return evaluate(function.body, [np.asarray(operand) for operand in operands])


# ----------------------------------------------------------------------------------------------- C
def c_text(functions: Sequence[ScalarFunction]) -> str:
    """A translation unit with a loop over arrays for each function, named like it."""
    library = FunctionTexts()
    loops = [_loop(function, library) for function in functions]
    return "\n".join([*preamble(library), *loops])


def _loop(function: ScalarFunction, library: FunctionTexts) -> str:
    kinds, result = function.parameters, function.result
    library.dtypes |= {*kinds, result}
    given = [parameter(k, kind) for k, kind in enumerate(kinds)]
    name = library.name(called(function.op, result, *given))
    taken = "".join(f", const {memory_type(d)} *restrict a{k}" for k, d in enumerate(kinds))
    operands = ", ".join(from_memory(d, f"a{k}[i]") for k, d in enumerate(kinds))
    value = to_memory(result, f"{name}({operands})")
    return (
        f"void loop_{function.name}(i64 n, {memory_type(result)} *restrict out{taken}) {{\n"
        f"    for (i64 i = 0; i < n; i++) out[i] = {value};\n}}\n"
    )


class Compiled:
    """A library of functions; a call with a function and its operands returns the results."""

    def __init__(self, functions: Sequence[ScalarFunction], folder: Path, *flags: str) -> None:
        self.text = c_text(functions)
        key = hashlib.sha256((self.text + " ".join(flags)).encode()).hexdigest()[:16]
        source, library = folder / f"{key}.c", folder / f"{key}.so"
        source.write_text(self.text, "utf-8")
        compiler = [COMPILER or "gcc", *FLAGS, *flags, "-fopt-info-vec"]
        files = [str(source), "-o", str(library), "-lm"]
        done = subprocess.run([*compiler, *files], check=True, capture_output=True, text=True)
        self._told = done.stderr
        self._library = ctypes.CDLL(str(library))

    def bound(self, function: ScalarFunction, out: Any, *operands: Any) -> Callable[[], Any]:
        """An action that writes a function of these operands to `out`, for timing."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *operands)]
        loop = self._library[f"loop_{function.name}"]
        return partial(loop, ctypes.c_int64(out.size), *pointers)

    def __call__(self, function: ScalarFunction, *operands: Any) -> Any:
        out = np.empty(operands[0].shape, function.result.numpy)
        self.bound(function, out, *operands)()
        return out

    def scalar_loops(self) -> set[str]:
        """The names of the functions whose loops gcc does not vectorize."""
        found = re.findall(r":(\d+):\d+: optimized: loop vectorized", self._told)
        vectors = {int(number) for number in found}
        lines = enumerate(self.text.split("\n"), 1)
        heads = [(k, line) for k, line in lines if line.startswith("void loop_")]
        scalar = [line for k, line in heads if not {k, k + 1} & vectors]
        return {line.partition("loop_")[2].partition("(")[0] for line in scalar}
