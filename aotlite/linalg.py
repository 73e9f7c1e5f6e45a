"""`aotlite.linalg`: linear algebra under PyTorch's names, on matrices or batches of them.

A table of names: `linalg.inv` is the op or composite `linalg_inv`.

>>> import aotlite as al
>>> al.linalg.det(al.tensor([[2.0, 1.0], [0.0, 3.0]])).item()
6.0
"""

from collections.abc import Callable
from typing import Any

from aotlite.eager.creation.namespace import function, names
from aotlite.ir.errors import LinAlgError

__all__ = ["LinAlgError"]
_PREFIX = "linalg_"
_WITHIN = frozenset(("cofactors",))
"""Ops that gradient formulas use, and for which PyTorch has no public name."""


def __getattr__(name: str) -> Callable[..., Any]:
    """The function of this name, cached in the module."""
    found = None if name.startswith("_") or name in _WITHIN else function(_PREFIX + name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    known = {name.removeprefix(_PREFIX) for name in names() if name.startswith(_PREFIX)}
    return sorted({"LinAlgError", *known - _WITHIN})
