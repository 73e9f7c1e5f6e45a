"""Refusals: errors for what eager would have done, and a capture cannot do.

Users' Python may catch them, and go on where eager never goes. So each is noted by the recorders
that it concerns, and raised when users' Python has run. Errors that eager raises, too, are no
refusals. Rule: CAP-13. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aotlite.eager.base.modes import STATE
from aotlite.ir.errors import ArgumentError, ErrorT, noted

_CAUGHT = (
    "The function caught this error and went on, where eager does not go: eager knows what is "
    "asked here, and a capture does not. (CAP-13)"
)


def note_refusal(error: ErrorT, *recorders: Any) -> ErrorT:
    """Returns `error` itself, which these recorders raise if nobody else does, while they run."""
    for recorder in recorders:
        if recorder is None or (recorder.closed and recorder is not STATE.recorder):
            continue
        if recorder.refusal is None:
            recorder.refusal = error
    return error


@contextmanager
def raising_refusals(recorder: Any) -> Iterator[None]:
    """A block of users' Python, whose first refusal is raised whatever that has made of it.

    What it raised instead is its context: eager would not have come there. Ctrl-C is no answer to
    a refusal.
    """
    try:
        yield
        if recorder.refusal is not None:
            raise noted(recorder.refusal, _CAUGHT)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        refusal = recorder.refusal
        if refusal is None or refusal is error:
            raise
        raise noted(refusal, _CAUGHT)  # noqa: B904
    finally:
        recorder.refusal = None


@contextmanager
def refusals_apart() -> Iterator[None]:
    """A block whose refusals are not the user's: eager does not run it, or makes a text there."""
    recorder = STATE.recorder
    before = None if recorder is None else recorder.refusal
    try:
        yield
    finally:
        if recorder is not None:
            recorder.refusal = before


# --------------------------------------------------------------------------------------- values
def forbid_capture(tensor: Any, what: str, advice: str) -> None:
    """Raises where a tensor has no data: wrappers have none in eager, either."""
    recorder = STATE.recorder
    if recorder is not None and not tensor.__tensor_dispatch__:
        raise recorder.refuse(f"{what}() of a tensor (whose value is not known)", advice)
    if tensor.storage.buffer is None:
        raise tensor.storage.no_data(what)


def forbid_number(tensor: Any, what: str, advice: str) -> None:
    """`forbid_capture` of what asks for a number, which several elements do not give in eager."""
    if STATE.recorder is not None and tensor.numel() != 1 and not tensor.__tensor_dispatch__:
        raise several(tensor)
    forbid_capture(tensor, what, advice)


def several(tensor: Any) -> Exception:
    """The error for a tensor of which a number is asked, and that has not one element."""
    return ArgumentError(f"item: the tensor has shape {tensor.shape}, expected one element")
