"""RuntimePlan: the facts that an entry is written from. Made by the pipeline, read by stage 10."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Graph
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues


@attrs.frozen(eq=False)
class RuntimePlan:
    """All that an entry is written from."""

    name: str
    number: int
    """Of the compilation (GEN-9)."""
    meta: FunctionMeta
    inputs: tuple[Any, ...]
    """The roles of the forward's inputs, in order."""
    bases: tuple[BaseInput, ...]
    consumed: int
    """Offsets of the generator that one call uses up (RNG-4)."""
    sets_generator: bool
    """The graph says where a call leaves the generator (RNG-6)."""
    forward: Graph
    run: Any
    is_compact: bool
    """Forward and backward are called by their compact faces (`backends.calling_convention`)."""
    fast_paths: bool
    """False: by the general ways, which do the same more slowly."""
    backward: BackwardPlan | None
    result_spec: Any
    world: GuardedValues
