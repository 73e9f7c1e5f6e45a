"""The roles of earlier results, and the refusal, of a double backward.

Used by stages 4 and 10. Rules: DBL-1, DBL-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.graph.role import Output, Part, Role
from aotlite.stages.records.base import Record


@attrs.frozen(repr=False)
class EarlierResult(Record):
    """The owner of memory that a later order reads: a result of the order before.

    `Output(0)` of order 2 is another tensor than `Output(0)` of order 1.
    """

    of: Role

    def __str__(self) -> str:
        return str(self.of)


def double_backward_refusal(why: str) -> Exception:
    """The error for a backward that cannot be differentiated (DBL-1)."""
    return noted(
        AutogradError(
            "backward: a gradient computed by a compiled function is differentiated, expected "
            "first derivatives only"
        ),
        f"{why} Differentiate the eager function for derivatives of higher order. (DBL-1)",
    )


def owner_at_next_order(owner: Role) -> Any:
    """The role by which the next order names an owner of memory."""
    whole = owner.whole if isinstance(owner, Part) else owner
    return EarlierResult(owner) if isinstance(whole, (Output, EarlierResult)) else owner
