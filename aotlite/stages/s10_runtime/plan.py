"""`RuntimePlan`: the facts from which an entry is written. Made by the pipeline for stage 10."""

from __future__ import annotations

import attrs
from optree import PyTreeSpec

from aotlite.backends.calling_convention import Run
from aotlite.ir.graph import Graph
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues


@attrs.frozen(eq=False, repr=False)
class RuntimePlan:
    """The facts from which an entry is written."""

    name: str
    number: str
    """The number of the compilation (GEN-9); in a region with that of the instance behind it."""
    meta: FunctionMeta
    convention: Convention
    forward: Graph
    run: Run
    fast_paths: bool
    """False selects the general code, which does the same more slowly."""
    backward: BackwardPlan | None
    result_spec: PyTreeSpec | None
    guarded_values: GuardedValues
