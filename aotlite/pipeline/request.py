"""What a compilation is asked for, what it works with, and what it gives.

A `Request` is made by `api` for the call that no entry serves, a `Compilation` for each request.
Every step of the journey takes what it is to work on, and the compilation. Rules: GEN-9.
Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.options import Options
from aotlite.pipeline.observers import Observers
from aotlite.stages.records.capture import Captured, Containers
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.records.partition import Partition
from aotlite.stages.s10_runtime.entry import CompiledEntry

_NUMBERS = itertools.count(1)
"""GEN-9: compilations are numbered through the process."""


@attrs.frozen(eq=False)
class Request:
    """What is to be compiled: a function, and the call that shows it its arguments."""

    function: Callable[..., Any]
    """Where places of hidden inputs are searched."""
    call: Callable[[list[Any]], Any]
    """Calls the function with flat arguments."""
    leaves: Sequence[Any]
    tensors: Sequence[tuple[int, Tensor]]
    flatten: Callable[[Any], tuple[list[Any], Containers]]
    """Gives the flat results of a call, and their containers."""
    name: str

    def captured_by(self, capture: Callable[..., Captured]) -> Captured:
        """What stage 1 makes of it."""
        return capture(self.function, self.call, self.leaves, self.tensors, self.flatten, self.name)


@attrs.frozen(eq=False)
class Compilation:
    """One compilation: its number, its options, its stages by name, and who looks on."""

    number: int
    options: Options
    stages: Mapping[str, Callable[..., Any]]
    observers: Observers

    @classmethod
    def begin(cls, options: Options, stages: Mapping[str, Callable[..., Any]]) -> Compilation:
        """The next compilation of the process, with the options' stages in place of these."""
        number = next(_NUMBERS)
        return cls(number, options, {**stages, **options.stages}, Observers.of(options, number))

    def of_derivatives(self) -> Compilation:
        """The same for orders beyond the first: stages are compared with the first order's."""
        return attrs.evolve(self, observers=attrs.evolve(self.observers, runner=None))


@attrs.frozen(eq=False)
class Compiled:
    """A compiled entry, and what it was made of."""

    number: int
    """Of the compilation: entries, dumps and tracebacks are told apart by it (GEN-9)."""
    entry: CompiledEntry
    meta: FunctionMeta
    partition: Partition
    containers: Containers
    """Of the results."""
