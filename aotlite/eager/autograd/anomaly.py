"""Anomaly mode: an error or a nan in a backward also says where the forward was. Rule: TEN-43.

While it is on, each tape node notes the stack that made it, and the node that was running then, if
it was made in a backward. Compiled calls look at the ops that they are made of, and a backward that
a compiled function runs itself is looked at whenever it is called (JNT-8).
Spec: `specs/anomaly.md`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.host_callback import callback
from aotlite.eager.base.modes import STATE, watch_with
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.provenance.location import Location, place_of


@attrs.frozen(eq=False)
class ForwardStack:
    """Where a node was made."""

    stack: traceback.StackSummary
    within: TapeNode | None
    """The node whose gradient was being computed then."""


@cache
def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where our code lies, and what else lies below."""
    roots = [os.path.abspath(path) for path in sys.modules["aotlite"].__path__]
    others = ("tests", "examples", "benchmarks", "docs", ".venv")
    below = [os.path.join(root, part, "") for root in roots for part in others]
    return tuple([os.path.join(root, "") for root in roots]), tuple(below)


def _is_ours(frame: traceback.FrameSummary) -> bool:
    """Whether the code of a frame is aotlite's own."""
    if frame.filename.startswith("<"):  # what is generated, or a cell of a user's notebook
        return frame.filename.startswith(("<aotlite", "<attrs", "<frozen"))
    ours, others = _folders()
    file = os.path.abspath(frame.filename)
    return file.startswith(ours) and not file.startswith(others)


def made_now(within: TapeNode | None) -> ForwardStack:
    """The place that the program is at, as deep as the user's own code goes."""
    stack = traceback.extract_stack()
    while len(stack) > 1 and _is_ours(stack[-1]):
        stack.pop()
    return ForwardStack(stack, within)


# --------------------------------------------------------------------------------------- running
def run_watched(
    node: TapeNode,
    grads: list[Any],
    wanted: Sequence[bool] | None,
    run: Callable[[], Sequence[Any]],
) -> Sequence[Any]:
    """What `run()` gives for the node; its errors, and an error about nans, name the forward."""
    watch = STATE.watch
    assert watch is not None
    outer, watch.running = watch.running, node
    try:
        is_looked_at = node.look_inside(grads, wanted)
        try:
            found = run()
            if watch.check_nan and not is_looked_at:
                _check_nan(node, found)
            return found
        except Exception as error:
            noted(error, *notes_of(node))
            raise
    finally:
        watch.running = outer


def _check_nan(node: TapeNode, found: Sequence[Any]) -> None:
    for i, grad in enumerate(found):
        if grad is None:
            continue
        if STATE.recorder is not None and grad.storage.buffer is None:
            _look_at_each_call(node, i, grad)
        elif has_nan(grad):
            raise nan_error(node, i)


def has_nan(grad: Any) -> bool:
    """Whether an element of a dense gradient is no number."""
    if grad.storage.buffer is None:
        return False
    xp = grad.device.arrays.namespace
    return bool(xp.any(xp.isnan(grad._data)))


def nan_error(node: TapeNode, index: int) -> AutogradError:
    """The error of a nan in gradient `index` of those that the node has computed."""
    return AutogradError(
        f"{node.name()}: gradient {index} of those it computed has a nan, expected none in "
        "anomaly mode"
    )


def _look_at_each_call(node: TapeNode, index: int, grad: Any) -> None:
    """DBL-3: has the captured function look at a gradient of a backward that it runs itself."""
    if is_wrapper(grad):
        return  # nor does eager look at its parts
    called = _text(split(made_now(None).stack)[1])
    where = f"Its backward is run by the function itself, most recent call last:\n{called}"
    notes = [*notes_of(node, inside=True), where]

    def look(array: Any) -> None:
        if np.isnan(array).any():
            raise noted(nan_error(node, index), *notes)

    callback(look, grad.detach())


# ----------------------------------------------------------------------------------------- notes
def notes_of(node: TapeNode | None, *, inside: bool = False) -> Iterator[str]:
    """Where the node was made; if in a backward, where what was differentiated there was, too.

    With `inside` no more than what a captured function has run.
    """
    while node is not None:
        made = made_of(node)
        if made is None:
            yield _of_unknown(node)
            return
        before, within = split(made.stack)
        yield forward_note(node.name(), within if inside and within else [*before, *within])
        node = made.within
        if node is not None:
            yield f"That was in the backward of {node.name()}:"


def known_notes(node: TapeNode) -> Iterator[str]:
    """Where the node was made; nothing if that is not known."""
    if made_of(node) is not None or location_of(node) is not None:
        yield from notes_of(node)


def made_of(node: TapeNode) -> ForwardStack | None:
    """Where the node was made, if anomaly mode was on then."""
    return None if node.extra is None else node.extra.made


def forward_note(name: str, frames: Frames, rest: str = "") -> str:
    """The note that says where a node was made; `rest` is of its first line."""
    return f"The forward of {name}, most recent call last{rest}:\n{_text(frames)}"


def _of_unknown(node: TapeNode) -> str:
    location = location_of(node)
    if location is not None:
        return f"The forward of {node.name()}:\n{place_of(location).note()}"
    return (
        f"{node.name()} was made before anomaly mode was on: turn it on around the forward to "
        "see where. (TEN-43)"
    )


def location_of(node: TapeNode) -> Location | None:
    """The user's line that made a node of a captured function; None where it is not known."""
    location: Location | None = None if node.origin is None else node.origin.location
    return location


Frames = list[traceback.FrameSummary]


def split(stack: Sequence[traceback.FrameSummary]) -> tuple[Frames, Frames]:
    """The caller's frames, and those of a function that is captured; the compiler's are left out.

    Outside of a capture all are the caller's.
    """
    caller = os.path.join("stages", "s1_capture", "__init__.py")
    found = [k for k, frame in enumerate(stack) if frame.filename.endswith(caller)]
    if not found:
        return list(stack), []
    end = start = found[-1]
    while start > 0 and _is_ours(stack[start - 1]):
        start -= 1
    while end < len(stack) and _is_ours(stack[end]):
        end += 1
    return list(stack[:start]), list(stack[end:])


def _text(frames: Frames) -> str:
    return "".join(traceback.format_list(frames)).rstrip("\n")


# ---------------------------------------------------------------------------------------- blocks
class set_detect_anomaly:
    """Anomaly mode on or off: at once when called, and restored on exit when used in `with`."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = STATE.watch
        STATE.watch = watch_with(anomaly=mode, check_nan=check_nan, made_now=made_now)

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
