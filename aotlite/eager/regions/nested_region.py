"""`nested_compile_region`: names a function as a region of the graphs (REG-20).

Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from aotlite.eager.base.modes import STATE
from aotlite.ir.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


def nested_compile_region(function: F) -> F:
    """Marks a function as a region, such as a block of a model. Returns the function, marked.

    It is called as it is, in eager mode and in a compiled function. There its ops have the tag
    `region`, such as `block[3]`, in all graphs; printed graphs show it, and `explain` says which
    calls are alike. Raises ArgumentError for what is no function.

    >>> import aotlite as al
    >>> @nested_compile_region
    ... def block(x, w):
    ...     return (x @ w).relu()
    >>> def model(x, first, second):
    ...     return block(block(x, first), second)
    >>> stages = al.inspect.stages_of(model, al.ones(2, 2), al.ones(2, 2), al.ones(2, 2))
    >>> [(node.target.name, node.tags["region"]) for node in stages["capture"].calls]
    [('matmul', 'block[0]'), ('relu', 'block[0]'), ('matmul', 'block[1]'), ('relu', 'block[1]')]
    >>> print(stages["regions"])
    Region block, 2 calls of 1 form:
      block[0]: 2 ops.
      block[1]: as block[0].
    """
    if not callable(function):
        raise ArgumentError(
            f"nested_compile_region: the function is {function!r}, expected a function; write "
            "@nested_compile_region without brackets"
        )

    @wraps(function)
    def inside(*args: object, **kwargs: object) -> Any:
        recorder = STATE.recorder
        if recorder is None or recorder.origin is not None:  # in a backward the forward's count
            return function(*args, **kwargs)
        before = recorder.scopes.region(_name(function))
        try:
            return function(*args, **kwargs)
        finally:
            recorder.scopes.leave(before)

    return inside  # type: ignore[return-value]


def _name(function: Any) -> str:
    """`block` of a function; `Block` of its method `forward`."""
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return name.rpartition("<locals>.")[2].removesuffix(".forward")
