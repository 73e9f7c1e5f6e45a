"""Names and refusals that the stages share where a backward is differentiated.

Rules: DBL-1, DBL-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.graph.role import Output, Part
from aotlite.stages.records.base import Record


@attrs.frozen(repr=False)
class EarlierResult(Record):
    """The memory of a result of an earlier order: who owns what a later one reads."""

    of: Any

    def __str__(self) -> str:
        return str(self.of)


def double_backward_refusal(why: str) -> Exception:
    """The error for what is not differentiated (DBL-1)."""
    return noted(
        AutogradError(
            "backward: a gradient computed by a compiled function is differentiated, expected "
            "first derivatives only"
        ),
        f"{why} Differentiate the eager function for derivatives of higher order. (DBL-1)",
    )


def owner_at_next_order(owner: Any) -> Any:
    """The owner of memory as a later order names it."""
    whole = owner.whole if isinstance(owner, Part) else owner
    return EarlierResult(owner) if isinstance(whole, (Output, EarlierResult)) else owner
