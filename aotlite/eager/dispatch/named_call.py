"""`call(name, ...)`: an op on tensors by its name, arguments not yet canonical."""

from __future__ import annotations

from typing import Any

from aotlite.eager.dispatch import dispatch
from aotlite.ir.op import OPS


def call(name: str, *args: object, **kwargs: object) -> Any:
    """The op of this name on these arguments."""
    op = OPS[name]
    return dispatch(op, op.bind(args, kwargs))
