"""The input, context and output of the journey: `Request`, `Compilation`, `CompiledEntry`.

`api.CompiledFunction` makes a `Request` for a call without a valid entry. The journey makes a
`Compilation`, and a `CompiledEntry`. Rules: GEN-9. Spec: `specs/pipeline.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.symbols.floats.symfloat import FloatFact
from aotlite.pipeline.logs.stage_events import stage_table
from aotlite.pipeline.observers import Observers
from aotlite.pipeline.options import Options
from aotlite.pipeline.size_regions.unsupported_symbols import by_symbols, with_plain_keys
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Captured, Containers
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.symbolic_sizes import Source, SymbolicSizes
from aotlite.stages.s10_runtime.guards.failures import GuardedCalls

_NUMBERS = itertools.count(1)
"""GEN-9: compilations are numbered through the process."""


@attrs.frozen(eq=False, repr=False)
class Request:
    """A function and the flat arguments of the call to compile it for."""

    function: Callable[..., object]
    """The user's function: hidden inputs are searched in its closure and globals."""
    call: Callable[[list[object]], object]
    """Unflattens a list of leaves, and calls the function."""
    leaves: Sequence[object]
    tensors: Sequence[tuple[int, Tensor]]
    flatten: Callable[[object], tuple[list[object], Containers]]
    """Returns the flat results of a call, and their containers."""
    name: str
    sizes: SymbolicSizes | None = None
    """The symbols for sizes of arguments; None where all sizes are numbers."""
    refused: list[str] = attrs.field(factory=list)
    """Why sizes that were to be symbols are numbers all the same."""
    keep: Callable[[Captured, Any, Any], None] = lambda captured, records, guards: None
    """Is given the capture, the records of stages 2 to 8, and guards on sizes; None for numbers."""

    def captured_by(self, capture: Callable[..., Captured]) -> Captured:
        """Runs stage 1, given as `capture`."""
        call = self.function, self.call, self.leaves, self.tensors, self.flatten, self.name
        if self.sizes is None:
            return with_plain_keys(capture(*call))
        return with_plain_keys(by_symbols(self.sizes, capture, call, self.refused))


@attrs.frozen(eq=False, repr=False)
class Compilation:
    """The context of one compilation: its number, options, stages by name, and observers."""

    number: int
    options: Options
    stages: Mapping[str, Callable[..., Any]]
    observers: Observers

    @classmethod
    def begin(cls, options: Options, stages: Mapping[str, Callable[..., object]]) -> Compilation:
        """The next compilation of the process; the option `stages=` overrides `stages`."""
        number = next(_NUMBERS)
        chosen = {**stages, **options.stages}
        table = stage_table(chosen, number, is_silent=not options.enable_log)
        return cls(number, options, table, Observers.of(options, number))

    def of_derivatives(self) -> Compilation:
        """This compilation for a double backward: its graphs are verified, and not run.
        The runner compares each graph with the one before, which is the first order's."""
        return attrs.evolve(self, observers=attrs.evolve(self.observers, runner=None))


@attrs.define(eq=False, repr=False)
class CompiledEntry:
    """One compiled variant of a function, with its metadata and its partition."""

    number: int
    """The compilation's: it distinguishes entries, dumps and tracebacks (GEN-9)."""
    guarded: GuardedCalls
    """The generated function: its guards, the call, and the side effects."""
    entry = property(attrgetter("guarded"), doc="The name in the release before.")
    meta: FunctionMeta
    partition: Partition
    containers: Containers
    """The lists, tuples and dicts of the results."""
    numbers: Mapping[int, float | None] = attrs.field(factory=dict)
    """The numbers among the flat arguments of the first call; None for a symbol or an input."""
    floats: tuple[FloatFact, ...] = ()
    """The conditions on float arguments (DYN-27)."""
    symbols: Mapping[Source, bool] = attrs.field(factory=dict)
    """The symbols' sources; for each, whether it was marked, or nothing fixes it (DYN-3)."""
    convention: Convention | None = None
    hidden: Mapping[int, AccessPath] = attrs.field(factory=dict)
    """Where each call finds the hidden inputs, by number."""
    reached: Mapping[int, AccessPath] = attrs.field(factory=dict)
    """The arguments that are reached by another path as well."""
    kept: object = None  # what the artifact cache keeps of it, or why it keeps nothing
