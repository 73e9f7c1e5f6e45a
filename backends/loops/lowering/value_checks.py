"""Checks of what is computed: a program is given up where an op refuses values.

A kernel finds out whether any value is refused, and a `ValueCheck` step gives up if so; the caller
then runs the graph by the ops' own kernels, which raise. Until then nothing that the caller sees is
written. What is checked twice is checked once. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.backends.loops.program import ValueCheck
from aotlite.ir import dtypes
from aotlite.ir.meta import tensor_meta


def refuse(k: Any, shape: Sequence[int], wrong: Callable[..., Any], once: Any = None) -> None:
    """Adds the check that `wrong(i, j, ...)` holds at no positions of the shape.

    Where there is a check with the key `once` already, there is nothing to do.
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
    """Adds the check that low <= each element < high, or that it is `ignored`."""

    def wrong(*i: Any) -> Any:
        value = k.cast(index[i], dtypes.int64)
        outside = k.make("not", k.inside(value, low, high))
        return outside if ignored is None else outside & k.make("ne", value, ignored)

    refuse(k, index.shape, wrong, (index.placed, low, high, ignored))
