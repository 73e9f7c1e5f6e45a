"""How the functions of this package compile, where nobody says how.

What is tested is what a compiled function does: its aliases, writes, histories and errors. The
reference backend computes eager's bits and takes no time to compile; kernels are tested by giving
another one, `backend="cpu"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compile_by_reference"]


def compile_by_reference(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`aotlite.compile` with the reference backend, where no other one is given."""
    import aotlite

    compiled: Callable[..., Any] = aotlite.compile(function, **{"backend": "reference", **options})
    return compiled
