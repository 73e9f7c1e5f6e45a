"""Compiled autograd: captures and compiles the tape of an eager backward, as PyTorch's does.

>>> import aotlite as al
>>> x = al.tensor([1.0, 2.0], requires_grad=True)
>>> with al.compiled_autograd.enable():
...     (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

from aotlite.compiled_autograd.compiler import CompiledAutograd, Counters
from aotlite.compiled_autograd.context import (
    counters,
    disable,
    enable,
    is_enabled,
    is_running,
    is_tracing,
    reset,
)

__all__ = [
    "CompiledAutograd",
    "Counters",
    "counters",
    "disable",
    "enable",
    "is_enabled",
    "is_running",
    "is_tracing",
    "reset",
]


def __getattr__(name: str) -> bool:
    """PyTorch's variable `compiled_autograd_enabled`, which is `is_enabled()`."""
    if name != "compiled_autograd_enabled":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return is_enabled()
