"""`RuntimePlan`: the facts from which an entry is written. Made by the pipeline for stage 10."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues


@attrs.frozen(eq=False, repr=False)
class RuntimePlan:
    """The facts from which an entry is written."""

    name: str
    number: int
    """The number of the compilation (GEN-9)."""
    meta: FunctionMeta
    inputs: tuple[Any, ...]
    """The roles of the forward's inputs, in order."""
    bases: tuple[BaseInput, ...]
    consumed: int
    """The offsets of the generator that one call consumes (RNG-4)."""
    sets_generator: bool
    """The graph returns the generator's state after a call (RNG-6)."""
    forward: Graph
    run: Any
    fast_paths: bool
    """False selects the general code, which does the same more slowly."""
    backward: BackwardPlan | None
    result_spec: Any
    guarded_values: GuardedValues
