"""The ground floor: graphs, ops and their rules. Data without policy; imports nothing of the rest.

Always imported as `aotlite.ir`: under the folder's own name every class would exist twice.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = frozenset(
    """
    arrays builder collector compare device dtypes edit errors graph interpreter layout location
    memory meta op operand ops overlap printer role scalar schema serialize sizes source
    transform verify
    """.split()
)


def __getattr__(name: str) -> Any:
    """The module of this name, imported on first use."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
