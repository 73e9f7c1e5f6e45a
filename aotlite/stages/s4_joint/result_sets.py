"""Chooses the sets of results whose backwards are recorded together, by stage 4 and derivatives.

First all results at once. If that raises, all but those whose own backward raises. If gradients
depend on which others arrive, one backward for each subset of results (`tangent_variants.py`).
Rules: JNT-15, TAN-8, TEN-26. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ShapeError
from aotlite.stages.s4_joint.leaf_inputs import refuse_shapes
from aotlite.stages.s4_joint.subclasses.tangents import flat_gradients
from aotlite.stages.s4_joint.tangent_variants import (
    MOST,
    Flat,
    can_repeat,
    check_is_eagers,
    note_failing,
    recorded_choices,
)
from aotlite.stages.s4_joint.tape_recording import Root, TapeRecording


def recorded_gradients(recording: TapeRecording) -> Flat:
    """The gradients as graph outputs, and the metas by which wrappers are made of them.

    Results whose backward raises are noted in `recording.errors`.
    """
    recorder, start = recording.recorder, len(recording.recorder.nodes)

    def flat(roots: Sequence[Root]) -> Flat:
        return flat_gradients(recorder, recording.sources, recording.gradients(roots))

    grads = _of_healthy(recording)
    if grads is not None:
        found = flat_gradients(recorder, recording.sources, grads)
        if not (_has_choices(recording) and can_repeat(recorder.nodes[start:])):
            return found
    recorder.drop_from(start)
    recording.choices = []
    found = recorded_choices(recorder, recording.healthy(), flat, recording.choices)
    recording.started = [result for result, _, _ in recording.healthy()]
    return found


def _has_choices(recording: TapeRecording) -> bool:
    """Whether to record each subset of results: gradients depend on it, and there are few."""
    recorder = recording.recorder
    draws = recorder.streams.after_backward() is not None
    few = 1 < len(recording.healthy()) <= MOST
    return bool(few and recorder.wrapped.unlike and not (draws or recorder.hooks.kept))


# Note [results that fail together]
#     y = w * 2; w.set_(u); z = w.sum()
# The gradient of y has w's old shape, that of z the shape of u: each alone can be recorded, and
# their sum raises, as in eager's backward of both. Others raise alone, as a result does whose saved
# tensor was written. Which it is, one run does not tell. So: all at once; if that raises, one by
# one, noting those that fail alone; then the rest at once. If that raises too, the rest fail
# together, and either each subset of results is recorded, or the function is refused.
def _of_healthy(recording: TapeRecording) -> list[Tensor | None] | None:
    """The gradients of all results whose backward does not raise; None if they raise together.

    Note [results that fail together].
    """
    recorder, start = recording.recorder, len(recording.recorder.nodes)
    roots, expected = recording.healthy(), recording.expected_errors()
    together: tuple[type[Exception], ...] = (ShapeError, *expected)
    try:
        return recording.gradients(roots)
    except expected as error:
        check_is_eagers(error)
        is_noted = recording.note_error(error, start)
        recorder.drop_from(start)
    if is_noted:
        return _of_healthy(recording)
    note_failing(recorder, roots, recording.gradients, recording.errors, expected)
    try:
        return recording.gradients(recording.healthy())
    except together as error:
        recorder.wrapped.unlike = recording.may_differ()  # none of them fails alone
        if not _has_choices(recording):
            if isinstance(error, ShapeError):
                raise refuse_shapes() from error
            raise
        check_is_eagers(error)
        return None
