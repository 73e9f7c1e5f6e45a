"""`aotlite.decompositions`: ready-made decompositions, for backends that support few ops.

`core_table()` is a table for `compile(fn, decompositions=...)`: the decompositions in the ops'
declarations (`PureOp.expands`).
Spec: `specs/s7_simplify.md`. Rules: DEC-1 to DEC-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import OPS, Op, PureOp

__all__ = ["core_table"]


def core_table() -> dict[Op, Callable[..., Any]]:
    """A new table of all declared decompositions; entries may be removed or replaced.

    >>> import aotlite as al
    >>> table = al.decompositions.core_table()
    >>> f = al.compile(lambda x: x.softmax(-1), decompositions=table)
    >>> _ = f(al.ones(2, 3))
    >>> [node.target.name for node in f.forward_graph.calls]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    return {op: op.expands for op in OPS.values() if type(op) is PureOp and op.expands is not None}
