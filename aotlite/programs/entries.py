"""`entry_of`: stages 9 and 10 of a program, for a call.

Spec: `specs/programs.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.base.modes import outside_regions
from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.role import Incoming, Role
from aotlite.pipeline import lowering
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.programs.records import MOST_ORDER, ProgramRecords
from aotlite.stages.s10_runtime.backward.double_backward import CompiledOrder, CompiledOrders
from aotlite.stages.s10_runtime.backward.plan import BackwardPlan, Derivatives
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues
from aotlite.stages.s10_runtime.plan import RuntimePlan


def entry_of(
    program: ProgramRecords, cut: StageRecords, values: GuardedValues, compilation: Compilation
) -> Any:
    """The function of calls like this one: a `GuardedFunction`."""
    with collector_paused(), outside_regions():
        how = cut.meta, compilation, None
        partition, run = lowering.lowered_forward(cut.partition, *how)
        compiler = lowering.backward_compiler(partition, compilation)
        splits = cut.derivable.is_linear
        orders = derivatives_of(program.order, program.orders, 1, compilation, splits=splits)
        parts = partition, cut.meta, cut.joint, compiler, compilation, orders
        plan = _reaching(lowering.planned_backward(*parts), program.reached)
        return compilation.stages["runtime"](
            RuntimePlan(
                name=program.name,
                number=f"{compilation.number}",
                meta=cut.meta,
                convention=cut.convention,
                forward=partition.forward,
                run=run,
                fast_paths=compilation.options.fast_paths,
                backward=plan,
                result_spec=cut.containers.spec,
                guarded_values=values,
            )
        )


def _reaching(plan: BackwardPlan | None, reached: Sequence[Any]) -> BackwardPlan | None:
    """The plan, with the inputs that derivatives of some order reach (DBL-2)."""
    if plan is None or not reached:
        return plan
    inputs = tuple([role for role, meta in plan.gradients if meta is None and role in reached])
    return attrs.evolve(
        plan, derivatives=attrs.evolve(plan.derivatives, higher_order_inputs=inputs)
    )


# ------------------------------------------------------------------------------------------ orders
def derivatives_of(
    most: int, orders: Any, order: int, compilation: Compilation, *, splits: bool
) -> Derivatives:
    """How the backward of an order is differentiated: by what the program has, and no further."""
    if order >= most:
        return Derivatives(why=_ends(most), splits=splits, order=order)
    made = _Orders(most, orders, order, compilation)
    why = "" if splits else "Its backward is not linear in the gradients."
    return Derivatives(CompiledOrders(made.order, made.incoming), why, splits, order)


def _ends(most: int) -> str:
    what = f"The program was exported for derivatives of order {most}"
    return (
        f"{what}, the highest."
        if most >= MOST_ORDER
        else f"{what}: export it with order={most + 1}."
    )


@attrs.frozen
class _Orders:
    """The orders behind one, by the gradients that arrive."""

    most: int
    found: Any
    number: int
    compilation: Compilation

    def order(self, arriving: Mapping[Role, bool]) -> CompiledOrder:
        """The order for these gradients. Raises UnsupportedError where the program has none."""
        for choice, records, behind in self.found:
            if dict(choice) == dict(arriving):
                rest = derivatives_of(
                    self.most, behind, records.order, self.compilation, splits=records.splits
                )
                with collector_paused(), outside_regions():
                    return records.compiled(self.compilation, rest)
        got = ", ".join([f"{role}{' with a history' * own}" for role, own in arriving.items()])
        raise noted(
            UnsupportedError(
                f"program: gradients of {got} arrive to be differentiated, expected those of all "
                "results or of one, all with a history or none"
            ),
            "Sum the results before the backward.",
        )

    def incoming(self, result: Any) -> Incoming:
        """The role of a result's gradient as an input of the next order."""
        role = Incoming(result)
        for _ in range(1, self.number):
            role = Incoming(role)
        return role
