"""`nested_compile_region`: names a function whose equal calls are traced once (REG-20).

Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from aotlite.eager.base.modes import STATE

F = TypeVar("F", bound=Callable[..., Any])


def nested_compile_region(function: F) -> F:
    """Marks a function as a region, such as a block of a model. Returns the function, marked.

    Outside of compiled functions it is called as it is. In a compiled function its ops get the tag
    `region`, such as `block[3]`. A call that is provably equal to an earlier one is not run again:
    the ops of the earlier one are repeated on the tensors of this one. The graphs are those that
    they would be without the mark.

    >>> import aotlite as al
    >>> @nested_compile_region
    ... def block(x, w):
    ...     return (x @ w).relu()
    >>> def model(x, first, second):
    ...     return block(block(x, first), second)
    >>> stages = al.inspect.stages_of(model, al.ones(2, 2), al.ones(2, 2), al.ones(2, 2))
    >>> [(node.target.name, node.tags["region"]) for node in stages["capture"].calls]
    [('matmul', 'block[0]'), ('relu', 'block[0]'), ('matmul', 'block[1]'), ('relu', 'block[1]')]
    """

    @wraps(function)
    def inside(*args: object, **kwargs: object) -> Any:
        return _called(function, args, kwargs)

    return inside  # type: ignore[return-value]


def _called(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, object]
) -> object:
    recorder = STATE.recorder
    if recorder is None or recorder.origin is not None:  # in a backward the forward's marks count
        return function(*args, **kwargs)
    return recorder.scopes.regions.call(function, args, kwargs)
