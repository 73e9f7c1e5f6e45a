"""`OrderRecords`: one order of derivatives, as it is cut in two: what stages 9 and 10 make it of.

Used by `derivatives`, and by programs that are kept in files. Rules: DBL-2.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from aotlite.ir.graph.role import Role
from aotlite.pipeline.lowering import backward_compiler
from aotlite.pipeline.request import Compilation
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s10_runtime.backward.double_backward import CompiledOrder
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.backward.plan_builder import plan_backward
from aotlite.stages.s10_runtime.backward.single_visit import SingleVisitBackward


@attrs.frozen(eq=False, repr=False)
class OrderRecords(Record):
    """A backward as a differentiable function, cut in two."""

    joint: Joint
    partition: Partition
    results: tuple[tuple[SourceRole, int | None], ...]
    """For each input the index of the result that is its gradient; None if it gets none."""
    subclass_metas: Mapping[Role, SubclassMeta]
    """How wrapper results are rebuilt, by role."""
    is_single_visit: bool
    """Whether one backward may reach one tape node of a call alone (DBL-1)."""
    splits: bool
    """A gradient may arrive in parts: its backward is linear in it (DBL-1)."""
    order: int
    """The order of the derivatives that its backward computes."""
    why: str = ""
    """Why its gradients cannot be differentiated; empty if they can."""

    def compiled(self, compilation: Compilation, derivatives: Derivatives) -> CompiledOrder:
        """Stage 9 of the order; `derivatives` are those of its own backward."""
        partition = self.partition
        lower: Callable[..., Any] = partial(
            compilation.stages["lower"], backend=backward_compiler(partition, compilation)
        )
        run = lower(partition.forward)
        plan = None
        if partition.backward is not None:
            plan = self._plan(lower, derivatives, compilation.number)
        kind = SingleVisitBackward if self.is_single_visit else CompiledBackward
        return CompiledOrder(
            partition.forward, run, plan, self.results, self.subclass_metas, kind, self.why
        )

    def _plan(
        self, lower: Callable[..., Any], derivatives: Derivatives, number: int
    ) -> BackwardPlan | None:
        partition = self.partition
        return plan_backward(
            partition.backward,
            lower,
            self.joint,
            (),
            (),
            copied_on_write=partition.copied_on_write,
            byte_checked=partition.byte_checked,
            derivatives=derivatives,
            number=number,
        )
