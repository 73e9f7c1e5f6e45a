"""Measures accuracy and speed of the functions of the loop IR, as C, against NumPy's.

`python -m benchmarks.functions` prints for each floating function its stated bound, the
largest error found at bit patterns spread over all numbers of its dtype (float64: against 80-bit
long double), with contraction of products and sums off and on, and nanoseconds an element.
`--stride 1` looks at every float32 (minutes); `--table` prints the table of `specs/functions.md`.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from rich.console import Console

from aotlite.ir.dtypes import DType, float32, float64
from aotlite.ir.scalar.expression import walk
from aotlite.ir.scalar.functions import FUNCTIONS, ScalarFunction, declared, expanded_body, find
from benchmarks.common import machine_console, table
from benchmarks.function_kernels import Compiled

BLOCK = 1 << 16
SIZE = 1 << 14
"""The number of timed elements, for which the cost of a call is negligible."""
Reference = Callable[..., Any]

_FROM_MATH = {"erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma}


def floating() -> list[ScalarFunction]:
    """The functions of float32 and float64 that round."""
    every = [
        find(op, (dtype,) * count)
        for op, count, accepts in declared()
        for dtype in (float32, float64)
        if accepts(dtype)
    ]
    return sorted([f for f in every if f.ulp], key=lambda f: (f.op, f.parameters[0].itemsize))


def numpy_function(op: str) -> Reference | None:
    """NumPy's own function, if the row names one."""
    found: Reference = np.power if op == "pow" else FUNCTIONS[op].numpy
    return found if isinstance(found, np.ufunc) else None


def reference(op: str, dtype: DType) -> Reference | None:
    """The function in a wider dtype; for float64, if NumPy has it."""
    known = numpy_function(op)
    wide = np.float64 if dtype is float32 else np.longdouble
    if known is not None:
        return lambda *operands: known(*[a.astype(wide) for a in operands])
    if dtype is float64 or op not in _FROM_MATH:
        return None
    return lambda a: np.vectorize(_total(_FROM_MATH[op]), otypes=[float])(a.astype(float))


def _total(function: Callable[[float], float]) -> Callable[[float], float]:
    def value(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):  # lgamma at its poles
            return math.inf

    return value


# ------------------------------------------------------------------------------------------- errors
def patterns(dtype: DType, stride: int) -> Iterator[np.ndarray]:
    """Numbers of all signs and sizes, nan among them: every `stride`-th bit pattern, in blocks."""
    kind: Any = {4: np.uint32, 8: np.uint64}[dtype.itemsize]
    count = (1 << 32) // stride
    step = stride << (8 * dtype.itemsize - 32)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        places = np.arange(start, stop, dtype=np.uint64) * np.uint64(step)
        yield (places + np.uint64(step // 3)).astype(kind).view(dtype.numpy)


def operand_blocks(function: ScalarFunction, stride: int) -> Iterator[list[np.ndarray]]:
    """Blocks of operands within the domain; two are shuffled, and every second pair is near 1."""
    rng = np.random.default_rng(0)
    for block in patterns(function.parameters[0], stride):
        if len(function.parameters) == 1:
            yield [-np.abs(block) if "x <= 0" in function.domain else block]
            continue
        first, second = rng.permutation(block), rng.permutation(block)
        first[::2] = rng.lognormal(0, 2, first[::2].size)
        second[::2] = rng.normal(0, 8, second[::2].size)
        yield [first, second]


def errors(mine: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units of the last place; infinite if one alone is nan or infinite."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(mine.dtype)
        last = np.spacing(np.abs(rounded)).astype(exact.dtype)
        found = np.abs(mine.astype(exact.dtype) - exact) / last
        odd = ~np.isfinite(rounded) | ~np.isfinite(mine)
        same = (np.isnan(mine) & np.isnan(rounded)) | (mine == rounded)
        near = np.isinf(mine) ^ np.isinf(rounded)  # one is rounded up to infinity
        largest = np.finfo(mine.dtype).max
        edge = near & (np.fmin(np.abs(mine), np.abs(rounded)) >= largest)
        return np.where(odd, np.where(same | edge, 0.0, np.inf), found).astype(float)


@attrs.frozen
class Worst:
    """The largest error and the operands that have it."""

    ulp: float
    operands: tuple[float, ...]


def worst(function: ScalarFunction, run: Compiled, stride: int) -> Worst | None:
    """The worst error over the blocks of operands; None without a reference."""
    exact = reference(function.op, function.parameters[0])
    if exact is None:
        return None
    found = Worst(0.0, ())
    for operands in operand_blocks(function, stride):
        with np.errstate(all="ignore"):
            wide = np.asarray(exact(*operands))
        error = errors(run(function, *operands), wide)
        k = int(np.argmax(error))
        if error[k] > found.ulp:
            found = Worst(float(error[k]), tuple([float(a[k]) for a in operands]))
    return found


# --------------------------------------------------------------------------------------------- time
def nanoseconds(action: Callable[[], Any], size: int) -> float:
    """The nanoseconds of an element, in the fastest of several loops."""
    best = math.inf
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(10):
            action()
        best = min(best, time.perf_counter() - start)
    return best / 10 / size * 1e9


def timed(function: ScalarFunction, run: Compiled) -> tuple[float, float]:
    """The nanoseconds of an element in cache: here, and in NumPy (nan if it lacks the function)."""
    dtype = function.parameters[0].numpy
    operands = [np.linspace(1.01 * k + 0.01, k + 0.99, SIZE).astype(dtype) for k in range(2)]
    operands = operands[: len(function.parameters)]
    out = np.empty(SIZE, dtype)
    mine = nanoseconds(run.bound(function, out, *operands), SIZE)
    known = numpy_function(function.op)
    if known is None:
        return mine, math.nan
    with np.errstate(all="ignore"):
        return mine, nanoseconds(lambda: known(*operands, out=out), SIZE)


# ----------------------------------------------------------------------------------------- printing
def stated(functions: list[ScalarFunction]) -> str:
    """The table of the spec: the stated bound of each function."""
    lines = [
        "| function | domain | at most, ulp | computes in | operations |",
        "|---|---|---|---|---|",
    ]
    for f in functions:
        count = sum(v.op not in ("const", "parameter") for v in walk([expanded_body(f)]))
        lines.append(f"| `{f.name}` | {f.domain} | {f.ulp} | {f.arithmetic} | {count} |")
    return "\n".join(lines) + "\n"


def report(functions: list[ScalarFunction], stride: int, console: Console) -> None:
    """Prints the table of measurements."""
    columns = ("stated", "ulp, apart", "ulp, contracted", "at", "ns", "NumPy's ns")
    made = table(f"errors over every {stride}th pattern; times in the caches", "function", *columns)
    with tempfile.TemporaryDirectory() as folder:
        apart = Compiled(functions, Path(folder), "-ffp-contract=off")
        fast = Compiled(functions, Path(folder), "-ffp-contract=off", "-DCONTRACT")
        for f in functions:
            first, second = worst(f, apart, stride), worst(f, fast, stride)
            mine, numpys = timed(f, fast)
            at = "" if first is None else ", ".join(f"{v:.9g}" for v in first.operands)
            found = ["-" if w is None else f"{w.ulp:.3f}" for w in (first, second)]
            made.add_row(f.name, str(f.ulp), *found, at, f"{mine:.2f}", f"{numpys:.2f}")
    console.print(made)


def main() -> None:
    """Prints the measurements, or the table of the spec."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="names of functions; all if none")
    parser.add_argument("--stride", type=int, default=4099, help="1 is every float32")
    parser.add_argument("--table", action="store_true", help="the table of the spec")
    options = parser.parse_args()
    chosen = [f for f in floating() if not options.ops or f.op in options.ops]
    if options.table:
        print(stated(chosen), end="")
        return
    console = machine_console()
    report(chosen, options.stride, console)


if __name__ == "__main__":
    main()
