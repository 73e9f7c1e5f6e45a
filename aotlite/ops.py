"""`aotlite.ops`: every op as a function on eager tensors, under the names that printed graphs use.

>>> import aotlite as al
>>> al.ops.mul(al.ones(2), 3.0).tolist()
[3.0, 3.0]
"""

from collections.abc import Callable
from typing import Any

from aotlite.eager.dispatch import dispatch
from aotlite.ir.source import OpNamespace

_NAMESPACE = OpNamespace(dispatch)


def __getattr__(name: str) -> Callable[..., Any]:
    """The op of this name as a function. Raises ArgumentError with near names."""
    if name.startswith("__"):
        raise AttributeError(name)
    function: Callable[..., Any] = getattr(_NAMESPACE, name)
    return function
