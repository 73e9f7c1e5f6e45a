"""Anomaly mode: errors and nans in a backward also name the forward call. Rule: TEN-43.

While it is on, each tape node records the stack that made it; a node made in a backward also
records the node that was running. A call of a compiled function runs the function eagerly (JNT-8).
If a captured function enters the mode itself, its backward is checked at each call (DBL-3).
Spec: `specs/anomaly.md`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from aotlite.eager.base.host_callback import callback
from aotlite.eager.base.modes import STATE, watch_with
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.arrays import Array
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.provenance.library_files import is_library_file
from aotlite.ir.provenance.location import Location, place_of


@attrs.frozen(eq=False)
class ForwardStack:
    """The stack of Python frames that made a node."""

    stack: traceback.StackSummary
    within: TapeNode | None
    """The node whose gradients were being computed at that time, for a node made in a backward."""


def _is_ours(frame: traceback.FrameSummary) -> bool:
    """Whether the code of a frame is aotlite's own."""
    if frame.filename.startswith("<"):  # what is generated, or a cell of a user's notebook
        return frame.filename.startswith(("<aotlite", "<attrs", "<frozen"))
    return is_library_file(frame.filename)


def made_now(within: TapeNode | None) -> ForwardStack:
    """The current stack, down to the innermost frame of the user's code."""
    stack = traceback.extract_stack()
    while len(stack) > 1 and _is_ours(stack[-1]):
        stack.pop()
    return ForwardStack(stack, within)


# --------------------------------------------------------------------------------------- running
def run_watched(
    node: TapeNode, run: Callable[[], Sequence[Tensor | None]]
) -> Sequence[Tensor | None]:
    """The result of `run()` for the node. Its errors, and the error for a nan, name the forward."""
    watch = STATE.watch
    assert watch is not None
    outer, watch.running = watch.running, node
    try:
        found = run()
        if watch.check_nan:
            _check_nan(node, found)
        return found
    except Exception as error:
        noted(error, *notes_of(node))
        raise
    finally:
        watch.running = outer


def _check_nan(node: TapeNode, found: Sequence[Tensor | None]) -> None:
    for i, grad in enumerate(found):
        if grad is None:
            continue
        if STATE.recorder is not None and grad.storage.buffer is None:
            _look_at_each_call(node, i, grad)
        elif _has_nan(grad):
            raise _nan_error(node, i)


def _has_nan(grad: Tensor) -> bool:
    """Whether a dense gradient has a nan."""
    if grad.storage.buffer is None:
        return False
    xp = grad.device.arrays.namespace
    return bool(xp.any(xp.isnan(grad._data)))


def _nan_error(node: TapeNode, index: int) -> AutogradError:
    """The error for a nan in gradient number `index` of the node."""
    return AutogradError(
        f"{node.name()}: gradient {index} of those it computed has a nan, expected none in "
        "anomaly mode"
    )


def _look_at_each_call(node: TapeNode, index: int, grad: Tensor) -> None:
    """DBL-3: records a check for nans of a gradient that a captured function computes itself."""
    if is_wrapper(grad):
        return  # eager does not check its parts either
    called = _text(_split(made_now(None).stack)[1])
    where = f"Its backward is run by the function itself, most recent call last:\n{called}"
    notes = [*notes_of(node, inside=True), where]

    def look(array: Array) -> None:
        if np.isnan(array).any():
            raise noted(_nan_error(node, index), *notes)

    callback(look, grad.detach())


# ----------------------------------------------------------------------------------------- notes
def notes_of(node: TapeNode | None, *, inside: bool = False) -> Iterator[str]:
    """Notes with the stack that made the node, and for one made in a backward, the stacks of the
    nodes that were differentiated.

    `inside` limits the stacks to the frames of a captured function.
    """
    while node is not None:
        made = _made_of(node)
        if made is None:
            yield _of_unknown(node)
            return
        before, within = _split(made.stack)
        frames = within if inside and within else [*before, *within]
        yield f"The forward of {node.name()}, most recent call last:\n{_text(frames)}"
        node = made.within
        if node is not None:
            yield f"That was in the backward of {node.name()}:"


def known_notes(node: TapeNode) -> Iterator[str]:
    """`notes_of` the node; empty if its stack is not known."""
    if _made_of(node) is not None or _location_of(node) is not None:
        yield from notes_of(node)


def _made_of(node: TapeNode) -> ForwardStack | None:
    """The stack that made the node; None if anomaly mode was off then."""
    return None if node.extra is None else node.extra.made


def _of_unknown(node: TapeNode) -> str:
    location = _location_of(node)
    if location is not None:
        return f"The forward of {node.name()}:\n{place_of(location).note()}"
    return (
        f"{node.name()} was made before anomaly mode was on: turn it on around the forward to "
        "see where. (TEN-43)"
    )


def _location_of(node: TapeNode) -> Location | None:
    """The user's line that made a node of a captured function; None where it is not known."""
    location: Location | None = None if node.origin is None else node.origin.location
    return location


Frames = list[traceback.FrameSummary]


def _split(stack: Sequence[traceback.FrameSummary]) -> tuple[Frames, Frames]:
    """(frames of the caller, frames of the captured function), without aotlite's own.

    Outside of a capture, all frames are the caller's.
    """
    caller = os.path.join("stages", "s1_capture", "__init__.py")
    found = [k for k, frame in enumerate(stack) if frame.filename.endswith(caller)]
    end = found[-1] if found else len(stack)
    return _users(stack[:end]), _users(stack[end:])


def _users(frames: Sequence[traceback.FrameSummary]) -> Frames:
    return [frame for frame in frames if not _is_ours(frame)]


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
    """A block in which errors and nans of a backward name the forward call.

    A nan raises an AutogradError, unless `check_nan` is False. Everything in the block is slower.

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
