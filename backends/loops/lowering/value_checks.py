"""Checks of values at run time, such as of indices: compiled code cannot raise eager's errors.

A kernel reduces "is refused" over all elements by `any` into one bool, and a `ValueCheck` step
abandons the program if it is true. The caller then runs the graph by the ops' own kernels, of which
one raises. Until then no memory of the caller's is written. Equal checks are made once. Spec:
`specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.backends.loops.program import ValueCheck
from aotlite.ir import dtypes
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.proving import Unproved


def refuse(k: Any, shape: Sequence[int], wrong: Callable[..., Any], once: Any = None) -> None:
    """Adds a check that `wrong(i, j, ...)` is false at all positions of the shape.

    Does nothing if a check with the key `once` was added before.
    """
    if 0 in shape or (once is not None and once in k.program.checks):
        return
    found = k.reduce(
        "any", tensor_meta((), None, dtypes.bool_), shape, lambda _, inner: wrong(*inner)
    )
    k.add(ValueCheck(found.placed.buffer))
    if once is not None:
        k.program.checks[once] = len(k.program.steps)


def check_index(k: Any, index: Any, low: int, high: int, ignored: int | None) -> None:
    """Adds a check that each element of `index` is `ignored`, or low <= element < high."""

    if is_symbolic((high,)) and not high > 0:
        raise Unproved(f"whether {k.name} has positions to choose from, {high}")

    def wrong(*i: Any) -> object:
        value = k.cast(index[i], dtypes.int64)
        outside = k.make("not", k.inside(value, low, high))
        return outside if ignored is None else outside & k.make("ne", value, ignored)

    refuse(k, index.shape, wrong, (index.placed, low, high, ignored))
