"""Measures the cost of a call of a compiled function on eight elements, with kernels.

`python -m benchmarks.overhead` times aotlite, eager and compiled, the same NumPy calls made bare,
PyTorch (`aot_function` with compilers that do nothing, and eager) and `jax.jit`, all in one process
and by turns. A figure is the median over rounds of the fastest of several loops, in microseconds.
Gradients come from `autograd.grad`, which accumulates nothing; JAX returns them with the value.
Rows whose names start with + are side effects: the time of such a call above a plain call of the
same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console

from benchmarks.calls import CASES, actions
from benchmarks.command import Command
from benchmarks.common import table
from benchmarks.effects import EFFECTS
from benchmarks.effects import actions as effect_actions
from benchmarks.loops import Medians

COLUMNS = ("aotlite", "bare NumPy", "aotlite eager", "torch aot", "torch eager", "jax.jit")


# ----------------------------------------------------------------------------------------- printing
def report(found: Medians, console: Console) -> None:
    """Prints both tables."""
    effects = {effect.name for effect in EFFECTS}
    calls = {name: of for name, of in found.items() if name not in effects}
    if calls:
        _report_calls(calls, console)
    if len(calls) < len(found):
        _report_effects({name: of for name, of in found.items() if name in effects}, console)


def _report_calls(found: Medians, console: Console) -> None:
    columns = [c for c in COLUMNS if any(c in of for of in found.values())]
    made = table("\nmicroseconds a call", "call", "above bare NumPy", "asked", *columns)
    asked = {case.name: case.asked for case in CASES}
    for name, of in found.items():
        limit = asked[name]
        above = of["aotlite"] - of["bare NumPy"]
        texts = [f"{above:.1f}", "-" if limit is None else f"{limit:g}"]
        made.add_row(name, *texts, *(f"{of[column]:.1f}" for column in columns))
    console.print(made)


def _report_effects(found: Medians, console: Console) -> None:
    columns = ("above the plain call", "asked at most", "met", "with the effect", "plain")
    made = table("\nmicroseconds of a side effect", "effect", *columns)
    asked = {effect.name: effect.asked for effect in EFFECTS}
    for name, of in found.items():
        above = of["with"] - of["plain"]
        met = "yes" if above <= asked[name] else "no"
        numbers = f"{above:.2f}", f"{asked[name]:g}", met, f"{of['with']:.2f}", f"{of['plain']:.2f}"
        made.add_row(name, *numbers)
    console.print(made)


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    Command(
        prog="benchmarks.overhead",
        description=__doc__,
        rows={
            **{case.name: partial(actions, case) for case in CASES},
            **{effect.name: partial(effect_actions, effect) for effect in EFFECTS},
        },
        report=report,
        peers=("torch", "jax"),
    ).run(argv)


if __name__ == "__main__":
    main()
