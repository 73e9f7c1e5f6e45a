"""The functions and tensors that wrappers are tested with, and the parts of a wrapper.

A wrapper is any object with `__tensor_flatten__` and `__tensor_unflatten__` (SUB-1), whose methods
and operators are those of tensors. Its parts may be wrappers in turn (SUB-9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.testing.laws.errors import broken

__all__ = ["FUNCTIONS", "WrapperFunction", "dense_parts", "flattened", "is_wrapper", "tensors"]


@attrs.frozen(eq=False)
class WrapperFunction:
    """A function to test. `kind`: `pure` (new results), `view` (of the first argument) or
    `in-place` (writes the first argument and returns it)."""

    name: str
    function: Callable[..., Any]
    kind: str = "pure"
    count: int = 1
    """The number of its arguments."""


def _written(name: str, *args: object) -> Callable[..., Any]:
    return lambda x, *others: getattr(x, name)(*args, *others)


FUNCTIONS: tuple[WrapperFunction, ...] = (
    WrapperFunction("x + y", lambda x, y: x + y, count=2),
    WrapperFunction("x + x", lambda x: x + x),
    WrapperFunction("x * y", lambda x, y: x * y, count=2),
    WrapperFunction("x * 2.0", lambda x: x * 2.0),
    WrapperFunction("2.0 - x", lambda x: 2.0 - x),
    WrapperFunction("-x", lambda x: -x),
    WrapperFunction("x.relu()", lambda x: x.relu()),
    WrapperFunction("x.sum()", lambda x: x.sum()),
    WrapperFunction("x.clone()", lambda x: x.clone()),
    WrapperFunction("x.t() @ x", lambda x: x.t() @ x),
    WrapperFunction("x[0]", lambda x: x[0], "view"),
    WrapperFunction("x[..., 1:]", lambda x: x[..., 1:], "view"),
    WrapperFunction("x.t()", lambda x: x.t(), "view"),
    WrapperFunction("x.view(-1)", lambda x: x.view(-1), "view"),
    WrapperFunction("x.unsqueeze(0)", lambda x: x.unsqueeze(0), "view"),
    WrapperFunction("x.t()[0]", lambda x: x.t()[0], "view"),
    WrapperFunction("x.mul_(2.0)", _written("mul_", 2.0), "in-place"),
    WrapperFunction("x.add_(y)", _written("add_"), "in-place", count=2),
    WrapperFunction("x.zero_()", _written("zero_"), "in-place"),
)
"""Functions of each kind, with exact results on the tensors of `tensors`."""

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (3,), (), (0, 3))


def tensors(count: int) -> Iterator[list[Tensor]]:
    """Yields fresh arguments: of each shape, transposed in memory, and of another dtype."""
    for shape in SHAPES:
        yield [_tensor(shape, k) for k in range(count)]
    yield [_tensor((3, 2), k).t() for k in range(count)]
    yield [_tensor((2, 3), k).to(al.float64) for k in range(count)]


def _tensor(shape: tuple[int, ...], seed: int) -> Tensor:
    numel = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(numel) - numel // 2
    return al.from_numpy((values.astype("float32") / 2).reshape(shape))


# ----------------------------------------------------------------------------------------- parts
def is_wrapper(value: object) -> bool:
    """Whether a value has the protocol of wrappers."""
    return hasattr(value, "__tensor_flatten__") and hasattr(type(value), "__tensor_unflatten__")


def flattened(wrapper: Tensor) -> tuple[tuple[str, ...], object]:
    """The names of a wrapper's parts, and its context. Raises `Broken` for any other result."""
    found = wrapper.__tensor_flatten__()
    if not isinstance(found, tuple) or len(found) != 2:
        raise broken(f"__tensor_flatten__ gives {found!r}, expected (names, context)")
    names, context = found
    texts = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    if not texts or not names or len(set(names)) < len(names):
        raise broken(f"the names of its parts are {names!r}, expected some, each once")
    for name in names:
        part = getattr(wrapper, name, None)
        if not isinstance(part, Tensor) and not is_wrapper(part):
            raise broken(f"its part {name!r} is {part!r}, expected a tensor or a wrapper")
    return tuple(names), context


def dense_parts(wrapper: Tensor) -> list[Tensor]:
    """The tensors of a wrapper and of the wrappers in it, depth first; for a tensor, itself."""
    if isinstance(wrapper, Tensor):
        return [wrapper]
    names, _ = flattened(wrapper)
    return [part for name in names for part in dense_parts(getattr(wrapper, name))]
