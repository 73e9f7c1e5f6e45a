"""Hooks: users' functions that the engine calls during a backward. Rules: TEN-39 to TEN-41.

A tape node with hooks has a `NodeAttachments`. The methods that register hooks on tensors are in
`aotlite/eager/autograd/tensor_methods.py`. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.gradient_lock import gradient_lock
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError, UnsupportedError, noted
from aotlite.ir.meta.devices import check_device
from aotlite.ir.op.operand import Operand

Hook = Callable[..., Any]
Hooks = dict[int, Hook]
GradT = TypeVar("GradT")
"""A gradient or None: the type that the engine has for it."""

_NUMBERS = itertools.count()


class HookChanges:
    """Counts all changes of hooks in the process, so that caches of hooks can be validated."""

    count = 0


class RemovableHandle:
    """Removes a hook: by `remove()`, or at the end of a `with` block."""

    def __init__(self, hooks: Hooks, number: int) -> None:
        self.id = number
        self.hooks = hooks
        """The dict that holds the hook, under `id`."""
        recorder = STATE.recorder
        self._recorder = None if recorder is None else weakref.ref(recorder)
        """The recorder of the captured function in which the hook was registered."""

    @classmethod
    def of(cls, hooks: Hooks, hook: Hook) -> RemovableHandle:
        """Adds a hook to `hooks`, and returns its handle."""
        if not callable(hook):
            raise ArgumentError(f"register_hook: the hook is {hook!r}, expected a function")
        number = next(_NUMBERS)
        HookChanges.count += 1
        if STATE.recorder is not None:
            STATE.recorder.data.keep(hook)
        hooks[number] = hook
        return cls(hooks, number)

    def remove(self) -> None:
        """Removes the hook; does nothing if it was removed before.

        Raises UnsupportedError in a captured function for a hook from outside. Raises it outside
        for a hook of a captured function, since each call registers another one instead (HOOK-1).
        """
        if STATE.recorder is not (self._recorder and self._recorder()) or self._is_left():
            raise _of_another_run(STATE.recorder)
        if STATE.recorder is not None:
            STATE.recorder.hooks.removing(self)
        HookChanges.count += 1
        self.hooks.pop(self.id, None)

    def _is_left(self) -> bool:
        """Whether the capture in which the hook was registered has ended."""
        return self._recorder is not None and STATE.recorder is None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class NodeAttachments:
    """Optional data of a tape node, which few nodes have: hooks, retained gradients, forms."""

    __slots__ = ("forms", "kept", "made", "metadata", "post", "pre", "retained", "tensors")

    def __init__(self) -> None:
        self.tensors: dict[int, Hooks] = {}
        """Number of a result -> hooks on its gradient."""
        self.retained: dict[int, weakref.ref[Operand]] = {}
        """Number of a result -> the tensor that retains its gradient."""
        self.kept: dict[int, weakref.ref[Operand]] = {}
        """The same for tensors whose retained gradients the node itself provides (HOOK-4)."""
        self.pre: Hooks = {}
        self.post: Hooks = {}
        self.made: Any = None
        """The stack that made the node (`anomaly.ForwardStack`), in anomaly mode (TEN-43)."""
        self.metadata: dict[str, Any] = {}
        self.forms: dict[int, Callable[[Any], Any]] = {}
        """Number of a result that is a wrapper -> converts its gradient to its form (SHD-15)."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing for the engine to call."""
        hooked = any(self.tensors.values()) or self.retained or self.pre or self.post
        return not hooked

    def see_gradients(self, grads: list[GradT], *, absent: bool = True) -> None:
        """Calls the hooks of tensors, then stores gradients in the tensors that retain them.

        Hooks are called for a gradient None only if `absent` is set.
        """
        call = _call if STATE.recorder is None else STATE.recorder.hooks.call
        for index, hooks in self.tensors.items():
            for hook in list(hooks.values()) if absent or grads[index] is not None else ():
                given = call(hook, grads[index])
                if given is not None:
                    grads[index] = alike(hook, given, grads[index])
        for index, reference in self.retained.items():
            tensor = reference()
            if tensor is not None and grads[index] is not None:
                retain(tensor, grads[index])

    def before(self, grads: list[GradT]) -> list[GradT]:
        """The gradients of the results, after the node's pre-hooks."""
        call = _call if STATE.recorder is None else STATE.recorder.hooks.call_of_node
        for hook in list(self.pre.values()):
            grads = all_alike(hook, call(hook, tuple(grads)), grads)
        return grads

    def after(self, found: Sequence[object], grads: list[GradT]) -> Sequence[Any]:
        """The gradients of the operands, after the node's hooks."""
        call = _call if STATE.recorder is None else STATE.recorder.hooks.call_of_node
        for hook in list(self.post.values()):
            found = all_alike(hook, call(hook, tuple(found), tuple(grads)), list(found))
        return found


def _call(hook: Hook, *grads: object) -> Any:
    return hook(*grads)


def _of_another_run(recorder: Recorder | None) -> Exception:
    if recorder is not None:
        refused: Exception = recorder.refuse("removing a hook from outside", "remove it outside")
        return refused
    return noted(
        UnsupportedError(
            "remove: the hook was registered in a compiled function, expected one of eager code"
        ),
        "Each call registers a hook of its own, of which nobody has the handle: register it "
        "outside, or remove it inside. (HOOK-1)",
    )


def alike(hook: Hook, given: object, before: Any) -> Any:
    """The gradient that a hook returned. Raises unless it has the old one's shape and dtype."""
    if not isinstance(given, Operand):
        raise DTypeError(
            f"hook: what {_named(hook)} returned is {given!r}, expected a tensor or None"
        )
    if before is not None and (given.shape != before.shape or given.dtype is not before.dtype):
        raise AutogradError(
            f"hook: what {_named(hook)} returned is {given.meta}, expected the shape and dtype of "
            f"the gradient, {before.meta}"
        )
    if before is not None:
        check_device(f"hook: what {_named(hook)} returned", given.device, before.device)
    return given


def all_alike(hook: Hook, given: object, before: list[GradT]) -> list[Any]:
    """`alike` for each of the gradients that a hook of a node returned."""
    if given is None:
        return before
    if not isinstance(given, tuple):
        raise DTypeError(f"hook: what {_named(hook)} returned is {given!r}, expected a tuple")
    if len(given) != len(before):
        raise AutogradError(
            f"hook: {_named(hook)} returned {len(given)} gradients, expected {len(before)}"
        )
    pairs = zip(given, before, strict=True)
    return [None if new is None else alike(hook, new, old) for new, old in pairs]


def _named(hook: Hook) -> str:
    return repr(getattr(hook, "__name__", type(hook).__name__))


def retain(tensor: Any, grad: Any) -> None:
    """Adds a gradient to the `.grad` of a non-leaf tensor (TEN-40)."""
    with gradient_lock():
        before = tensor._grad
        if before is None:
            tensor._grad = grad.restride(grad.meta.as_contiguous().stride)
        else:
            tensor._grad = before + grad
