"""Each op on its samples, as a file of CuPy that runs on the emulation of CuPy.

    python -m tests.python_export.cupy_ops

Prints the ops whose calls are refused or differ from the kernel by more than 1e-5, and the counts;
exit status 1 if any differs in a way that is not CuPy's own (`OTHER_VALUES`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.run.interpreter import run_graph
from aotlite.python_export.cupy_text import cupy_text
from aotlite.testing.cuda.cupy_array import fresh, ndarray
from aotlite.testing.cuda.cupy_functions import module
from tests.python_export.single_ops import Made, calls_of, exported_ops, text_of

OTHER_VALUES = {
    "floor_divide": "CuPy gives the floor of the rounded quotient",
    "div_floor": "CuPy gives the floor of the rounded quotient",
    "linalg_solve": "CuPy takes no right sides of another batch",
}


@contextmanager
def emulated_cupy() -> Iterator[Any]:
    """A block in which `import cupy` gives the emulation."""
    made: Any = ModuleType("cupy")
    made.__dict__.update(vars(module()))
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = made
    try:
        yield made
    finally:
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before


def on_device(value: Any) -> Any:
    """The arrays of containers as emulated ones."""
    if isinstance(value, dict):
        return {key: on_device(each) for key, each in value.items()}
    return fresh(np.array(value)) if isinstance(value, np.ndarray) else value


def on_host(value: Any) -> Any:
    """The emulated arrays of containers as NumPy's."""
    if isinstance(value, (tuple, list)):
        return type(value)([on_host(each) for each in value])
    return value.get() if isinstance(value, ndarray) else value


def outcome(made: Made) -> tuple[str, str]:
    """What became of a call: equal, near, refused, absent, different; and why."""
    try:
        text = text_of(made.graph)
    except AotliteError as error:
        return "refused", str(error)
    try:
        text = cupy_text(text)
    except UnsupportedError as error:
        return "absent", str(error)
    with np.errstate(all="ignore"):
        its = run_graph(made.graph, *made.arrays)
    names: dict[str, Any] = {}
    try:
        exec(compile(text, "<cupy file>", "exec"), names)
        mine = on_host(names["forward"](*map(on_device, made.arrays)))
    except Exception as error:
        return "different", f"{error!r} in {text}"
    kind = "equal"
    for a, b in zip(mine, its, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return "different", f"{a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        if a.tobytes() != b.tobytes():
            kind = "near"
            if not np.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True):
                return "different", f"{a.tolist()}, expected {b.tolist()}"
    return kind, ""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--samples", type=int, default=12, help="the most calls of each op")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    unexpected = False
    with emulated_cupy():
        for op in exported_ops():
            if given.ops and op.name not in given.ops:
                continue
            found = [outcome(made) for made in calls_of(op, given.samples)]
            kinds = Counter(kind for kind, _ in found)
            counts.update(kinds)
            if kinds.keys() - {"equal", "near"}:
                print(op.name, dict(kinds), next(why for _, why in found if why)[:200])
            unexpected |= "different" in kinds and op.name not in OTHER_VALUES
    print(dict(counts))
    return int(unexpected)


if __name__ == "__main__":
    sys.exit(main())
