"""Every op as a function, under the names of printed graphs: the contents of `aotlite.ops`.

On proxies (in a pass, a decomposition) they emit nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.op import Op
from aotlite.ir.op.namespace import OpNamespace
from aotlite.ir.op.operand import Operand


def _call(op: Op, args: tuple[object, ...]) -> object:
    for value in op.operands(args):
        if isinstance(value, Operand) and not isinstance(value, Tensor):
            return value._apply(op, args)
    return Tensor._apply(None, op, args)  # type: ignore[arg-type]


FUNCTIONS = OpNamespace(_call)


def function_of(op: Op) -> Callable[..., Any]:
    """The function of an op, always the same one."""
    function: Callable[..., Any] = getattr(FUNCTIONS, op.name)
    return function
