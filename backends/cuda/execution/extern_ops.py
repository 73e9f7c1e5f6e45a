"""Extern ops on a device: ops without loops run by their own kernels on its array library.

Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.backends.calling_convention import Window
from aotlite.backends.loops.interpreter.program_interpreter import results_of
from aotlite.backends.loops.program import Extern, Placed, operands_of
from aotlite.ir.arrays import ArrayBackend, array_over


def extern(step: Extern, arrays: ArrayBackend) -> Callable[[Sequence[Window]], None]:
    """Returns a function that runs the op on the windows of `windows_of(step)`, in order."""
    count = len(operands_of(step))
    results = [placed for placed in step.results if placed is not None]

    def run(windows: Sequence[Window]) -> None:
        given = iter(windows[:count])

        def argument(value: object) -> Any:
            if type(value) is Placed:
                return _array(arrays, value, next(given))
            if type(value) is tuple and value and type(value[0]) is Placed:
                return tuple([argument(item) for item in value])
            return value

        args = [argument(value) for value in step.args]
        found = results_of(step, arrays, args)
        into = iter(zip(results, windows[count:], strict=True))
        for placed, result in zip(step.results, found, strict=True):
            if placed is not None:
                arrays.copy(_array(arrays, *next(into)), result)

    return run


def windows_of(step: Extern) -> list[Placed]:
    """Returns the operands, then the results that are needed."""
    return [*operands_of(step), *[placed for placed in step.results if placed is not None]]


def _array(arrays: ArrayBackend, placed: Placed, window: Window) -> Any:
    # Places of the program do not know their device.
    return array_over(arrays, window[0], placed.meta, window[1])
