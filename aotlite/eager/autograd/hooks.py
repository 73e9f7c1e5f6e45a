"""Hooks: functions of users that the engine calls on its way. Rules: TEN-39 to TEN-41.

They live on tape nodes, in a record that few nodes have. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aotlite.eager.autograd.locks import gradient_lock
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError

if TYPE_CHECKING:
    from aotlite.eager.autograd.anomaly import Made
    from aotlite.eager.tensor import Tensor

Hook = Callable[..., Any]
Hooks = dict[int, Hook]

_NUMBERS = itertools.count()


class Changes:
    """Counts changes of hooks in the process: who knows them all asks whether any came since."""

    count = 0


class RemovableHandle:
    """Removes a hook: by `remove()`, or at the end of a `with` block."""

    def __init__(self, hooks: Hooks, number: int) -> None:
        self.id = number
        self._hooks = hooks

    @classmethod
    def of(cls, hooks: Hooks, hook: Hook) -> RemovableHandle:
        """The handle of a hook that is added to `hooks` now."""
        if not callable(hook):
            raise ArgumentError(f"register_hook: the hook is {hook!r}, expected a function")
        number = next(_NUMBERS)
        Changes.count += 1
        hooks[number] = hook
        return cls(hooks, number)

    def remove(self) -> None:
        """Removes the hook; nothing happens if it is gone."""
        Changes.count += 1
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Extra:
    """What few tape nodes have."""

    __slots__ = ("forms", "made", "metadata", "post", "pre", "retained", "tensors")

    def __init__(self) -> None:
        self.tensors: dict[int, Hooks] = {}
        """Hooks on the gradient of each result, by its number."""
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        """The tensors that keep the gradient of a result in `.grad`, by its number."""
        self.pre: Hooks = {}
        self.post: Hooks = {}
        self.made: Made | None = None
        """Where the node was made, noted in anomaly mode (TEN-43)."""
        self.metadata: dict[str, Any] = {}
        self.forms: dict[int, Callable[[Any], Any]] = {}
        """What brings gradients of results that are wrappers to their form (SHD-15)."""

    @property
    def is_idle(self) -> bool:
        """Whether the engine has nothing to call."""
        hooked = any(self.tensors.values()) or self.retained or self.pre or self.post
        return not hooked

    def see_gradients(self, grads: list[Any]) -> None:
        """Calls the hooks of tensors, then gives the gradients to those that retain theirs."""
        for index, hooks in self.tensors.items():
            for hook in list(hooks.values()):
                given = hook(grads[index])
                if given is not None:
                    grads[index] = _alike(hook, given, grads[index])
        for index, reference in self.retained.items():
            tensor = reference()
            if tensor is not None and grads[index] is not None:
                _retain(tensor, grads[index])

    def before(self, grads: list[Any]) -> list[Any]:
        """The gradients for the node, after its own hooks."""
        for hook in list(self.pre.values()):
            grads = _all_alike(hook, hook(tuple(grads)), grads)
        return grads

    def after(self, found: Sequence[Any], grads: list[Any]) -> Sequence[Any]:
        """The gradients that the node gives, after its own hooks."""
        for hook in list(self.post.values()):
            found = _all_alike(hook, hook(tuple(found), tuple(grads)), list(found))
        return found


def _alike(hook: Hook, given: Any, before: Any) -> Any:
    """What a hook gave in the place of a gradient, if it can stand there."""
    from aotlite.eager.tensor import Tensor

    if not isinstance(given, Tensor):
        raise DTypeError(
            f"hook: what {_named(hook)} returned is {given!r}, expected a tensor or None"
        )
    if before is not None and (given.shape != before.shape or given.dtype is not before.dtype):
        raise AutogradError(
            f"hook: what {_named(hook)} returned is {given.meta}, expected the shape and dtype of "
            f"the gradient, {before.meta}"
        )
    return given


def _all_alike(hook: Hook, given: Any, before: list[Any]) -> list[Any]:
    if given is None:
        return before
    if not isinstance(given, tuple):
        raise DTypeError(f"hook: what {_named(hook)} returned is {given!r}, expected a tuple")
    if len(given) != len(before):
        raise AutogradError(
            f"hook: {_named(hook)} returned {len(given)} gradients, expected {len(before)}"
        )
    pairs = zip(given, before, strict=True)
    return [None if new is None else _alike(hook, new, old) for new, old in pairs]


def _named(hook: Hook) -> str:
    return repr(getattr(hook, "__name__", type(hook).__name__))


def _retain(tensor: Tensor, grad: Any) -> None:
    """Adds a gradient to the `.grad` of a tensor that is no leaf (TEN-40)."""
    with gradient_lock():
        before = tensor._grad
        if before is None:
            tensor._grad = grad.restride(grad.meta.as_contiguous().stride)
        else:
            tensor._grad = before + grad


def is_watched(tensor: Tensor) -> bool:
    """Whether hooks on the tensor see the gradient that arrives at it, or it is retained."""
    node, index = tensor._node, tensor._index
    if node is None and tensor._leaf:
        node = tensor._accumulator
    extra = None if node is None else node.extra
    return extra is not None and (bool(extra.tensors.get(index)) or index in extra.retained)


def retains(tensor: Tensor, node: Any, index: int) -> bool:
    """Whether the tensor keeps the gradient that arrives at this result."""
    extra = None if node is None else node.extra
    if extra is None or index not in extra.retained:
        return False
    kept: Any = extra.retained[index]()
    return kept is tensor


def retain_at(tensor: Tensor, node: Any, index: int) -> None:
    """From now on the tensor keeps the gradient that arrives at this result."""
    Changes.count += 1
    node.extras().retained[index] = weakref.ref(tensor)


def move_retained(tensor: Tensor, before: tuple[Any, int], after: tuple[Any, int]) -> None:
    """Lets a tensor whose history changed keep the gradient of its new value (TEN-40)."""
    if retains(tensor, *before):
        del before[0].extra.retained[before[1]]
        retain_at(tensor, *after)
