"""`DispatchMode`: a block in which a method of the user's sees each op, below autograd.

A mode stands before the classes of the operands (`eager.dispatch.subclass`): it is asked for the
op's result in the same way, and its result is checked and linked to the tape in the same way.
Rules: DSP-1 to DSP-8. Spec: `specs/dispatch_modes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aotlite.eager.base.modes import STATE, watch_with
from aotlite.ir.errors import ArgumentError, ProtocolError, noted
from aotlite.ir.op import Op

ModeT = TypeVar("ModeT", bound="DispatchMode")


class DispatchMode:
    """Base of context managers whose `__tensor_dispatch__` computes each op of a block.

    `__tensor_dispatch__(self, func, types, args, kwargs)` gets a function of `aotlite.ops`, the
    wrapper classes among the operands, and the arguments as they were given. It returns the
    result, mostly `func(*args, **kwargs)`: a new tensor with the shape and dtype of the op's; for
    a view a view of the first argument, for a write the first argument itself. The mode is off
    while it runs, outer modes are on, and nothing is recorded for gradients, which are those of
    the op. NotImplemented leaves the op to the next mode or class.

    Raises ProtocolError when a class without the method is entered. It is PyTorch's
    TorchDispatchMode.

    >>> import aotlite as al
    >>> class Names(DispatchMode):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def __tensor_dispatch__(self, func, types, args=(), kwargs=None):
    ...         self.seen.append(func.__name__)
    ...         return func(*args, **kwargs or {})
    >>> x = al.ones(2, requires_grad=True)
    >>> with Names() as names:
    ...     y = x.exp().sum()
    >>> names.seen
    ['exp', 'sum']
    """

    __tensor_dispatch__: Any = None

    def __enter__(self: ModeT) -> ModeT:
        if not callable(self.__tensor_dispatch__):
            raise noted(
                ProtocolError(
                    f"DispatchMode: {type(self).__name__} has no __tensor_dispatch__, expected a "
                    "class with it"
                ),
                "It is called as mode.__tensor_dispatch__(func, types, args, kwargs). (DSP-1)",
            )
        STATE.watch = watch_with(modes=(*active_modes(), self))
        STATE.wrappers = True  # for this thread: operands are looked at
        return self

    def __exit__(self, *exc: object) -> None:
        modes = active_modes()
        last = next((k for k in reversed(range(len(modes))) if modes[k] is self), None)
        if last is None:
            raise ArgumentError(
                f"DispatchMode: {type(self).__name__} is left, expected a mode that this thread "
                "is in"
            )
        STATE.watch = watch_with(modes=modes[:last] + modes[last + 1 :])
        if len(modes) == 1:
            vars(STATE).pop("wrappers", None)  # what all threads know holds again


class InMode:
    """The first of the classes that are asked for an op, in the block of a mode."""

    __tensor_function__ = None


def active_modes() -> tuple[DispatchMode, ...]:
    """The thread's modes, the innermost last."""
    return () if STATE.watch is None else STATE.watch.modes


def asked_modes(
    function: Callable[..., Any],
    types: tuple[type[Any], ...],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> tuple[object, type[Any]]:
    """(result, class) of the innermost mode that does not return NotImplemented (DSP-3)."""
    outer, modes = STATE.watch, active_modes()
    for k in reversed(range(len(modes))):
        STATE.watch = watch_with(modes=modes[:k])
        try:
            found = modes[k].__tensor_dispatch__(function, types, args, dict(kwargs))
        finally:
            STATE.watch = outer
        if found is not NotImplemented:
            return found, type(modes[k])
    return NotImplemented, type(modes[-1])


def endless(op: Op, depth: int) -> Exception:
    """The error for modes that see the ops that they run themselves."""
    name = type(active_modes()[-1]).__name__
    return noted(
        ProtocolError(
            f"{op.name}: {name}.__tensor_dispatch__ runs ops within ops, {depth} deep, expected an "
            "end"
        ),
        "A mode that enters itself sees the ops that it runs. (DSP-3)",
    )
