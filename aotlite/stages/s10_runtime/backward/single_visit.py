"""Tape nodes of compiled calls whose backward must get a gradient in one piece (DBL-1).

Used by stage 10, also for gradients of calls whose backward reads memory as it then is (SAV-3).
User code in a backward may compute a value that is not linear in the gradient. Eager runs it once
on the sum of the gradients. For a compiled call, gradients arrive at its own tape node and at those
of its gradients. If one backward meets two of these nodes, eager would compute another number, so
that is an error.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE
from aotlite.ir.errors import AutogradError, noted
from aotlite.stages.s10_runtime.backward.memory.mutations import check_forms
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


@attrs.frozen(eq=False, repr=False)
class EngineVisits:
    """The tape node of a call, or of its gradients, that each running backward has met."""

    _met: dict[int, CompiledBackward] = attrs.field(factory=dict)
    """The met node by the identity of the backward."""

    def note(self, node: CompiledBackward) -> None:
        """Raises AutogradError if this backward has met another node of the call."""
        task = STATE.task
        if task is None:
            return
        met = self._met.setdefault(id(task), node)
        if met is not node:
            raise noted(
                AutogradError(
                    "backward: gradients arrive at a compiled call in two parts, by way of its "
                    "results and of its gradients, expected them in one"
                ),
                f"{node.plan.derivatives.why} Differentiate the eager function, or the gradients "
                "alone. (DBL-1)",
            )
        task.append(_Met(self._met, id(task)))


@attrs.frozen(eq=False, repr=False)
class _Met:
    """Removes the entry of a backward at its end."""

    _met: dict[int, CompiledBackward]
    _task: int

    def forget(self) -> None:
        self._met.pop(self._task, None)


class SingleVisitBackward(CompiledBackward):
    """The tape node of a call, or of its gradients; a backward may meet only one of them."""

    __slots__ = ("_own", "visits")

    visits: tuple[EngineVisits, ...]
    """The visits in which it notes itself; unset until there is another node to meet."""

    def name(self) -> str:
        return CompiledBackward.__name__

    def begin_order(self, made: CompiledBackward) -> None:
        """Notes that gradients of this call have a tape node."""
        super().begin_order(made)
        if not self.plan.derivatives.splits:
            if not hasattr(self, "_own"):
                self._own = EngineVisits()
                self.visits = (*getattr(self, "visits", ()), self._own)
            made.visits = self.visits  # type: ignore[attr-defined]

    def _run(self, grads: list[Any], wanted: Any) -> Sequence[object]:
        for visits in getattr(self, "visits", ()):
            visits.note(self)
        if not self.plan.facts.memory and hasattr(self, "memory_forms"):
            check_forms(self.name(), self.memory_forms)
        return super()._run(grads, wanted)
