"""The ops that have a lowering of their own, because their array form is the natural one.

All others are lowered by what their declaration says: an expression, loops, or simpler ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import Op, op_named

Lowering = Callable[..., Any]
"""`lowering(target, meta, *args)`: the result of a call whose tensors are `Value`s, a tuple for
several results. NotImplemented where the op's loops are better."""

LOWERINGS: dict[Op, Lowering] = {}

F = TypeVar("F", bound=Lowering)


def lowering_of(*names: str) -> Callable[[F], F]:
    """Enters a function as the lowering of ops."""

    def entered(function: F) -> F:
        LOWERINGS.update({op_named(name): function for name in names})
        return function

    return entered
