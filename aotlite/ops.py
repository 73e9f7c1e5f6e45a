"""`aotlite.ops`: every op as a function on eager tensors, under the names that printed graphs use.

On values of a graph that is being made (in a pass, a decomposition) they emit nodes.

>>> import aotlite as al
>>> al.ops.mul(al.ones(2), 3.0).tolist()
[3.0, 3.0]
"""

from collections.abc import Callable
from typing import Any

from aotlite.eager.dispatch import dispatch
from aotlite.ir.builder import Proxy
from aotlite.ir.op import Op
from aotlite.ir.source import OpNamespace


def _call(op: Op, args: tuple[Any, ...]) -> Any:
    for value in op.operands(args):
        if type(value) is Proxy:
            return value.builder.call(op, args)
    return dispatch(op, args)


_NAMESPACE = OpNamespace(_call)


def __getattr__(name: str) -> Callable[..., Any]:
    """The op of this name as a function. Raises ArgumentError with near names."""
    if name.startswith("__"):
        raise AttributeError(name)
    function: Callable[..., Any] = getattr(_NAMESPACE, name)
    return function
