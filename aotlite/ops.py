"""`aotlite.ops`: every op as a function on eager tensors, under the names that printed graphs use.

On proxies (in a pass, a decomposition) they emit nodes.

>>> import aotlite as al
>>> al.ops.mul(al.ones(2), 3.0).tolist()
[3.0, 3.0]
"""

from collections.abc import Callable
from typing import Any

import aotlite.eager.dispatch  # noqa: F401  (runs what is called)
from aotlite.eager.subclass.op_functions import FUNCTIONS


def __getattr__(name: str) -> Callable[..., Any]:
    """The op of this name as a function. Raises an error that suggests similar names."""
    if name.startswith("__"):
        raise AttributeError(name)
    function: Callable[..., Any] = getattr(FUNCTIONS, name)
    return function
