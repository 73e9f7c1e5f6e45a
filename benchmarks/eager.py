"""Measures the cost of an eager op above its one NumPy call, on eight elements or few more.

`python -m benchmarks.eager` times each op without grad and with (an operand requires grad, so that
a tape node is made), NumPy's own call, and PyTorch's eager op, all in one process and by turns. A
figure is the median over rounds of the fastest of several loops, in microseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import attrs
import numpy as np
from rich.console import Console

from benchmarks.command import Command
from benchmarks.common import table
from benchmarks.loops import Action, Medians

COLUMNS = ("aotlite", "aotlite with grad", "NumPy", "torch", "torch with grad")
PLAIN_LIMIT, GRAD_LIMIT = 5, 12
"""The limits in microseconds above NumPy's own call."""


# ---------------------------------------------------------------------------------------- the cases
@attrs.frozen(kw_only=True)
class Case:
    """One op on (a, b, m, i): two vectors, a matrix of eight by eight, and three indices."""

    name: str
    op: Callable[..., Any]
    """The op, as a function of a library's module and tensors, the same for aotlite and PyTorch."""
    bare: Callable[..., Any]
    """The NumPy call, as a function of arrays."""
    writes: bool = False
    """Whether it writes its first operand; then it is not timed with grad, as history grows."""


def _case(name: str, op: Callable[..., Any], bare: Callable[..., Any], **more: Any) -> Case:
    return Case(name=name, op=op, bare=bare, **more)


CASES = (
    _case("add", lambda al, a, b, m, i: a + b, lambda a, b, m, i: a + b),
    _case("mul by a number", lambda al, a, b, m, i: a * 2.0, lambda a, b, m, i: a * 2.0),
    _case("div, broadcast", lambda al, a, b, m, i: m / b, lambda a, b, m, i: m / b),
    _case("exp", lambda al, a, b, m, i: a.exp(), lambda a, b, m, i: np.exp(a)),
    _case("maximum", lambda al, a, b, m, i: al.maximum(a, b), lambda a, b, m, i: np.maximum(a, b)),
    _case("gt", lambda al, a, b, m, i: a > b, lambda a, b, m, i: a > b),
    _case("sum", lambda al, a, b, m, i: a.sum(), lambda a, b, m, i: np.sum(a)),
    _case("sum of a dim", lambda al, a, b, m, i: m.sum(1), lambda a, b, m, i: np.sum(m, axis=1)),
    _case("mean", lambda al, a, b, m, i: a.mean(), lambda a, b, m, i: np.mean(a)),
    _case("amax", lambda al, a, b, m, i: m.amax(0), lambda a, b, m, i: np.max(m, axis=0)),
    _case("argmax", lambda al, a, b, m, i: m.argmax(0), lambda a, b, m, i: np.argmax(m, axis=0)),
    _case("cumsum", lambda al, a, b, m, i: a.cumsum(0), lambda a, b, m, i: np.cumsum(a, axis=0)),
    _case("matmul", lambda al, a, b, m, i: m @ m, lambda a, b, m, i: m @ m),
    _case("cat", lambda al, a, b, m, i: al.cat((a, b)), lambda a, b, m, i: np.concatenate((a, b))),
    _case("flip", lambda al, a, b, m, i: a.flip(0), lambda a, b, m, i: np.flip(a, 0).copy()),
    _case("clone", lambda al, a, b, m, i: a.clone(), lambda a, b, m, i: a.copy()),
    _case(
        "index_select",
        lambda al, a, b, m, i: m.index_select(0, i),
        lambda a, b, m, i: np.take(m, i, axis=0),
    ),
    _case("view", lambda al, a, b, m, i: a.view(2, 4), lambda a, b, m, i: a.reshape(2, 4)),
    _case("transpose", lambda al, a, b, m, i: m.t(), lambda a, b, m, i: m.transpose()),
    _case("slice", lambda al, a, b, m, i: a[1:5], lambda a, b, m, i: a[1:5]),
    _case("select", lambda al, a, b, m, i: m[2], lambda a, b, m, i: m[2]),
    _case(
        "add_",
        lambda al, a, b, m, i: a.add_(b),
        lambda a, b, m, i: np.add(a, b, out=a),
        writes=True,
    ),
    _case(
        "copy_",
        lambda al, a, b, m, i: a.copy_(b),
        lambda a, b, m, i: np.copyto(a, b),
        writes=True,
    ),
)


def actions(case: Case, peers: Sequence[str]) -> dict[str, Action]:
    """The actions of the case in each installed library, with and without grad."""
    arrays = [
        np.linspace(0.5, 2, 8, dtype=np.float32),
        np.linspace(2, 0.25, 8, dtype=np.float32),
        np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8),
        np.array([3, 0, 5]),
    ]
    made: dict[str, Action] = {"NumPy": partial(case.bare, *[a.copy() for a in arrays])}
    for name in ("aotlite", *(peer for peer in peers if peer == "torch")):
        library = import_module(name)
        for grad in (False,) if case.writes else (False, True):
            tensors = [_tensor(library, a, grad=grad) for a in arrays]
            made[name + " with grad" * grad] = partial(case.op, library, *tensors)
    return made


def _tensor(library: Any, array: np.ndarray, *, grad: bool) -> Any:
    made = library.from_numpy(array.copy())
    return made.requires_grad_() if grad and array.dtype.kind == "f" else made


# ----------------------------------------------------------------------------------------- printing
def above(found: Medians, column: str) -> dict[str, float]:
    """Microseconds above NumPy's own call, for each case that has the column."""
    return {name: of[column] - of["NumPy"] for name, of in found.items() if column in of}


def report(found: Medians, console: Console) -> None:
    """Prints the table, and whether the limits hold."""
    columns = [c for c in COLUMNS if any(c in of for of in found.values())]
    made = table("\nmicroseconds an op", "op", "above NumPy", "above, with grad", *columns)
    plain, grad = above(found, "aotlite"), above(found, "aotlite with grad")
    for name, of in found.items():
        figures = [plain[name], grad.get(name), *(of.get(column) for column in columns)]
        made.add_row(name, *("-" if each is None else f"{each:.1f}" for each in figures))
    console.print(made)
    console.print(
        f"above NumPy's own call: without grad at most {max(plain.values()):.1f} us, median "
        f"{statistics.median(plain.values()):.1f}; with grad at most {max(grad.values()):.1f} us, "
        f"median {statistics.median(grad.values()):.1f} (asked: at most {PLAIN_LIMIT} and "
        f"{GRAD_LIMIT})"
    )


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    Command(
        prog="benchmarks.eager",
        description=__doc__,
        rows={case.name: partial(actions, case) for case in CASES},
        report=report,
        peers=("torch",),
    ).run(argv)


if __name__ == "__main__":
    main()
