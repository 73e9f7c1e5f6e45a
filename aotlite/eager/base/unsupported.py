"""Refusals: errors for operations that eager mode supports and a capture does not.

Users' code may catch such an error, and take a branch that eager mode never takes. So the recorders
concerned record it, and raise it when the users' code has ended. An error that eager mode raises as
well is not a refusal. Rule: CAP-13. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.ir.errors import ArgumentError, ErrorT, noted

_MEMORY = ("numpy", "array", "data_ptr")
"""What gives memory away, not numbers."""
_CAUGHT = (
    "The function caught this error and went on, where eager does not go: eager knows what is "
    "asked here, and a capture does not. (CAP-13)"
)


def note_refusal(error: ErrorT, *recorders: Any) -> ErrorT:
    """Returns `error` itself; these recorders will raise it if users' code catches it."""
    for recorder in recorders:
        if recorder is None or (recorder.closed and recorder is not STATE.recorder):
            continue
        if recorder.refusal is None:
            recorder.refusal = error
    return error


@contextmanager
def raising_refusals(recorder: Recorder) -> Iterator[None]:
    """A block of users' code. Raises its first refusal at the end, even if the code caught it.

    An error that the code raised instead becomes its context, as eager mode would not have come
    there; a KeyboardInterrupt is passed on.
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
    """A block whose refusals are not recorded: code that eager mode does not run, or that only
    makes a text."""
    recorder = STATE.recorder
    before = None if recorder is None else recorder.refusal
    try:
        yield
    finally:
        if recorder is not None:
            recorder.refusal = before


# --------------------------------------------------------------------------------------- values
def known_value(tensor: Any) -> Any:
    """The tensor with the elements of this one, in a mode that computes them; else None."""
    recorder = STATE.recorder
    mode = None if recorder is None else recorder.eager_values
    return None if mode is None else mode.known(tensor)


def forbid_capture(tensor: Any, what: str, advice: str) -> None:
    """Raises for a tensor without data: a captured one, or a wrapper."""
    recorder = STATE.recorder
    if recorder is not None and not tensor.__tensor_dispatch__:
        if recorder.eager_values is not None and what not in _MEMORY:
            return
        raise recorder.refuse(f"{what}() of a tensor (whose value is not known)", advice)
    if tensor.storage.buffer is None:
        raise tensor.storage.no_data(what)


def forbid_number(tensor: Any, what: str, advice: str) -> None:
    """`forbid_capture` for conversions to a number; for several elements, eager's error."""
    if STATE.recorder is not None and tensor.numel() != 1 and not tensor.__tensor_dispatch__:
        raise several(tensor)
    forbid_capture(tensor, what, advice)


def several(tensor: Any) -> Exception:
    """The error for the conversion of a tensor to a number that does not have one element."""
    return ArgumentError(f"item: the tensor has shape {tensor.shape}, expected one element")
