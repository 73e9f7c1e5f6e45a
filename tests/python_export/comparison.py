"""Compares a file of `to_python` with eager, on arrays that share memory as the tensors do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import optree

import aotlite as al
from aotlite.eager.base.tensor import Tensor


def module_of(text: str, name: str = "written") -> ModuleType:
    """The module of a file's text."""
    made = ModuleType(name)
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), made.__dict__)
    return made


class Arrays:
    """NumPy's arrays in place of tensors: one object for one tensor, on the same memory."""

    def __init__(self) -> None:
        self._made: dict[int, np.ndarray] = {}
        self._kept: list[Tensor] = []

    def of(self, value: Any) -> Any:
        """The array on a tensor's memory; containers of such; another value itself."""
        if isinstance(value, Tensor):
            self._kept.append(value)
            return self._made.setdefault(id(value), value._data[...])
        if isinstance(value, (list, tuple)):
            return type(value)([self.of(item) for item in value])
        return value


@attrs.frozen
class Seen:
    """What a caller sees of one call: the arrays before it, and those of the results."""

    given: list[np.ndarray]
    results: list[Any]

    @property
    def arrays(self) -> list[np.ndarray]:
        """All arrays, arguments first."""
        return [*self.given, *[r for r in self.results if isinstance(r, np.ndarray)]]


def differences(mine: Seen, its: Seen, *, tolerance: float = 0.0) -> list[str]:
    """How two calls differ: in kinds, bits, geometry, identity, shared memory; empty if not."""
    kinds = [[type(r).__name__ for r in seen.results] for seen in (mine, its)]
    if kinds[0] != kinds[1]:
        return [f"kinds of results are {kinds[0]}, expected {kinds[1]}"]
    found = []
    for place, (a, b) in enumerate(zip(mine.arrays, its.arrays, strict=True)):
        found += [f"array {place}: {each}" for each in _of_array(a, b, tolerance)]
    plain = [[r for r in s.results if not isinstance(r, np.ndarray)] for s in (mine, its)]
    if repr(plain[0]) != repr(plain[1]):
        found.append(f"other results are {plain[0]}, expected {plain[1]}")
    if found:
        return found
    for i, (a, x) in enumerate(zip(mine.arrays, its.arrays, strict=True)):
        for j, (b, y) in enumerate(zip(mine.arrays[:i], its.arrays[:i], strict=True)):
            found += [f"arrays {j} and {i}: {each}" for each in _of_pair((a, b), (x, y))]
    return found


def _of_array(a: np.ndarray, b: np.ndarray, tolerance: float) -> list[str]:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return [f"{a.dtype}{a.shape}, expected {b.dtype}{b.shape}"]
    found = []
    steps = [[s for n, s in zip(x.shape, x.strides, strict=True) if n > 1] for x in (a, b)]
    if a.size and steps[0] != steps[1]:
        found.append(f"strides {steps[0]}, expected {steps[1]}")
    if a.tobytes() != b.tobytes() and not _is_near(a, b, tolerance):
        found.append(f"{a.tolist()}, expected {b.tolist()}")
    return found


def _is_near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if not tolerance or a.dtype.kind not in "fc":
        return False
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def _of_pair(mine: Sequence[np.ndarray], its: Sequence[np.ndarray]) -> list[str]:
    (a, b), (x, y) = mine, its
    found = []
    if (a is b) != (x is y):
        found.append(f"one object: {a is b}, expected {x is y}")
    shared = np.shares_memory(a, b), np.shares_memory(x, y)
    if shared[0] != shared[1]:
        found.append(f"shared memory: {shared[0]}, expected {shared[1]}")
    elif shared[0] and _distance(a, b) != _distance(x, y):
        found.append(f"{_distance(a, b)} bytes apart, expected {_distance(x, y)}")
    return found


def _distance(a: np.ndarray, b: np.ndarray) -> int:
    starts = [x.__array_interface__["data"][0] for x in (a, b)]
    return starts[0] - starts[1]


# ------------------------------------------------------------------------------------ both ways
def leaves(tree: Any) -> list[Any]:
    """The leaves of containers, None among them."""
    return optree.tree_leaves(tree, none_is_leaf=True)


def eager_call(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Seen, list[Any]]:
    """What eager's caller sees, as arrays; and the flat results."""
    arrays = Arrays()
    flat = leaves(args)
    given = [arrays.of(leaf) for leaf in flat if isinstance(leaf, Tensor)]
    results = leaves(function(*args))
    return Seen(given, [arrays.of(r) for r in results]), results


def written_call(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Seen, Any]:
    """What a caller of a file's function sees; and what it returned behind the results.
    `function` is the entry, or the entry with its backward."""
    arrays = Arrays()
    made = [arrays.of(arg) for arg in args]
    given = [leaf for leaf in leaves(made) if isinstance(leaf, np.ndarray)]
    results, *rest = function(*made)
    return Seen(given, leaves(results)), rest


def cotangent(array: np.ndarray, place: int) -> np.ndarray:
    """Small whole numbers in the array's shape."""
    numbers = (np.arange(array.size) + place) % 5 - 2
    return numbers.reshape(array.shape).astype(array.dtype)


def eager_gradients(
    function: Callable[..., Any], args: Sequence[Any]
) -> dict[int, np.ndarray | None]:
    """The gradient that reaches each tensor among the arguments, by its place, as it was given."""
    found: dict[int, np.ndarray | None] = {}
    flat = leaves(args)
    seen: set[int] = set()
    for place, leaf in enumerate(flat):
        if not isinstance(leaf, Tensor) or not leaf.requires_grad or leaf._base is not None:
            continue  # a write to a view goes by its base, where no hook of the view sees it
        if id(leaf) not in seen:
            seen.add(id(leaf))
            found[place] = None

            def note(grad: Tensor, place: int = place) -> None:
                old = found[place]
                now = grad.detach().numpy().copy()
                found[place] = now if old is None else old + now

            leaf.register_hook(note)
    pairs = _differentiable(leaves(function(*args)))
    if pairs:
        given = [al.from_numpy(cotangent(r.detach().numpy(), i)) for i, r in pairs]
        al.autograd.backward([r for _, r in pairs], given)
    return found


def _differentiable(results: Sequence[Any]) -> list[tuple[int, Tensor]]:
    seen: set[int] = set()
    pairs = []
    for index, result in enumerate(results):
        if isinstance(result, Tensor) and result.requires_grad and id(result) not in seen:
            seen.add(id(result))
            pairs.append((index, result))
    return pairs
