"""Anomaly mode: an error or a nan in a backward also says where the forward was. Rule: TEN-43.

While it is on, each tape node notes the stack that made it, and the node that was running then, if
it was made in a backward. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.node import TapeNode
from aotlite.eager.state import STATE, watch_with
from aotlite.ir.errors import AutogradError


@attrs.frozen(eq=False)
class Made:
    """Where a node was made."""

    stack: traceback.StackSummary
    within: TapeNode | None
    """The node whose gradient was being computed then."""


def made_now(within: TapeNode | None) -> Made:
    """The place that the program is at, as deep as the user's own code goes."""
    import os

    import aotlite

    ours = tuple(os.path.join(os.path.abspath(path), "") for path in aotlite.__path__)
    stack = traceback.extract_stack()
    while len(stack) > 1 and os.path.abspath(stack[-1].filename).startswith(ours):
        if os.sep + "tests" + os.sep in stack[-1].filename:
            break
        stack.pop()
    return Made(stack, within)


def run_watched(node: TapeNode, run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """What `run()` gives for the node; its errors, and an error about nans, name the forward."""
    watch = STATE.watch
    assert watch is not None
    outer, watch.running = watch.running, node
    try:
        found = run()
        if watch.check_nan:
            _check_nan(node, found)
        return found
    except Exception as error:
        for note in _notes(node):
            error.add_note(note)
        raise
    finally:
        watch.running = outer


def _check_nan(node: TapeNode, found: Sequence[Any]) -> None:
    for i, grad in enumerate(found):
        if grad is not None and grad.storage.buffer is not None and _has_nan(grad):
            raise AutogradError(
                f"{node.name()}: gradient {i} of those it computed has a nan, expected none in "
                "anomaly mode"
            )


def _has_nan(grad: Any) -> bool:
    xp = grad.device.arrays.namespace
    return bool(xp.any(xp.isnan(grad.array)))


def _notes(node: TapeNode | None) -> Iterator[str]:
    while node is not None:
        made = None if node.extra is None else node.extra.made
        if made is None:
            yield (
                f"{node.name()} was made before anomaly mode was on: turn it on around the "
                "forward to see where. (TEN-43)"
            )
            return
        yield f"The forward of {node.name()}, most recent call last:\n" + "".join(
            traceback.format_list(made.stack)
        ).rstrip("\n")
        node = made.within
        if node is not None:
            yield f"That was in the backward of {node.name()}:"


class set_detect_anomaly:
    """Anomaly mode on or off: at once when called, and restored on exit when used in `with`."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = STATE.watch
        STATE.watch = watch_with(anomaly=mode, check_nan=check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        STATE.watch = self.before


class detect_anomaly:
    """Block in which an error of a backward, or a nan that one computes, names the forward.

    A nan is an AutogradError in such a block, unless `check_nan` is False. It makes all slower.

    >>> import aotlite as al
    >>> x = al.zeros(2, requires_grad=True)
    >>> with detect_anomaly():
    ...     y = (x * 0).sqrt()
    ...     try:
    ...         y.sum().backward()
    ...     except al.AutogradError as error:
    ...         print(error)
    MulBackward: gradient 0 of those it computed has a nan, expected none in anomaly mode
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self._blocks: list[set_detect_anomaly] = []

    def __enter__(self) -> None:
        self._blocks.append(set_detect_anomaly(True, self.check_nan))

    def __exit__(self, *exc: object) -> None:
        self._blocks.pop().__exit__()
