"""Keeps random programs exact: the bound of a step's result is computed before it runs.

Numbers stay well below the bound of `observe.exact_numbers`, so that most gradients keep it too;
`observe.differences.is_exact` checks the observations in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aotlite.testing.engines import Engine
from aotlite.testing.observe.exact_numbers import BITS, are_exact, array_of, largest
from aotlite.testing.observe.observe_call import asked, backward_error, tensors_in
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import COMPUTING

MOVE = frozenset(("copy_", "setitem", "index_put_"))
"""The ops that cast their last argument if its dtype differs."""


def stays_exact(library: Engine, op: str, args: Sequence[object]) -> bool:
    """Whether a step computes with and casts exact numbers alone, and its results are small."""
    if op in COMPUTING:
        return _computes_exactly(op, [_array(library, arg) for arg in args])
    if op not in MOVE or not isinstance(args[-1], library.tensor_type):
        return True
    source, target = (_array(library, arg) for arg in (args[-1], args[0]))
    return source.dtype == target.dtype or are_exact([_as_float(source)])


def _computes_exactly(op: str, arrays: list[np.ndarray]) -> bool:
    names = {array.dtype.name for array in arrays if array.ndim} & BITS.keys()
    if not names:
        return True  # integer sums are exact, as they wrap around
    floats = [_as_float(array) for array in arrays]
    room = min(BITS[name] for name in names) // 2
    return are_exact(floats) and _made(op, floats) < 2.0**room


def _array(library: Engine, arg: object) -> np.ndarray:
    """The numbers of a tensor as a flat array; a number as a 0-d array."""
    if isinstance(arg, library.tensor_type):
        return array_of(library.bytes_of(arg.detach()), str(arg.dtype))
    return np.array(arg)


def _as_float(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.name in BITS else array.astype(np.float64)


def _made(op: str, arrays: list[np.ndarray]) -> float:
    """Returns a bound of an op's result on these numbers."""
    sizes = [largest(array) for array in arrays]
    match op.rstrip("_"):
        case "mul":
            return 2 * prod(sizes)  # each part of a complex product is a sum of two products
        case "square":
            return 2 * sizes[0] ** 2
        case "sum":
            return sizes[0] * arrays[0].size
    return sum(sizes)


# ------------------------------------------------------------------------------- afterwards
class Exactly:
    """Observes a run; `is_broken` after a step with inexact numbers."""

    def __init__(self, library: Engine) -> None:
        self.library = library
        self.is_broken = False

    def __call__(self, step: Step, args: list[object], result: object) -> None:
        if step.op in COMPUTING:
            self.is_broken |= not are_exact([_array(self.library, result)])
        elif step.op in MOVE:
            self.is_broken |= not stays_exact(self.library, step.op, args)


def has_exact_gradients(library: Engine, values: Sequence[Any], results: Sequence[object]) -> bool:
    """Whether a backward from the results gives exact gradients, or raises.

    It writes the `.grad` of the leaves among the values.
    """
    if backward_error(library, list(tensors_in(library, results))) is not None:
        return True
    leaves = [each for each in tensors_in(library, values) if asked(each, "is_leaf") is True]
    return are_exact(_array(library, leaf.grad) for leaf in leaves if leaf.grad is not None)
