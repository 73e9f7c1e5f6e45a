"""Chooses the sets of results whose backwards stage 4 records together.

First all results at once. If that raises, all but those whose own backward raises. If gradients
depend on which others arrive, one backward for each subset of results (`tangent_variants.py`).
Rules: JNT-15, TAN-8, TEN-26. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, ShapeError
from aotlite.stages.s4_joint.backward_effects import refuse_repeated_writes
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
from aotlite.stages.s4_joint.tape_recording import Root
from aotlite.stages.s4_joint.user_code_recording import UserCodeRecording


def recorded_gradients(recording: UserCodeRecording) -> Flat:
    """The gradients as graph outputs, and the metas by which wrappers are made of them.

    Results whose backward raises are noted in `recording.paths.errors`.
    """
    recorder, start = recording.recorder, len(recording.recorder.nodes)

    def flat(roots: Sequence[Root]) -> Flat:
        return flat_gradients(recorder, recording.captured.sources, recording.gradients(roots))

    found = flat_gradients(recorder, recording.captured.sources, _of_healthy(recording))
    if _has_choices(recording) and can_repeat(recorder.nodes[start:]):
        recorder.drop_from(start)
        recording.choice_visits = []
        found = recorded_choices(recorder, recording.healthy(), flat, recording.arrival_choices)
        recording.started = [result for result, _, _ in recording.healthy()]
    return found


def _has_choices(recording: UserCodeRecording) -> bool:
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
def _of_healthy(recording: UserCodeRecording) -> list[Tensor | None]:
    """The gradients of all results whose backward does not raise.

    Note [results that fail together].
    """
    recorder, start = recording.recorder, len(recording.recorder.nodes)
    roots, expected = recording.healthy(), _expected_errors(recording)
    try:
        return recording.gradients(roots)
    except expected as error:
        check_is_eagers(error)
        if recording.run is not None:
            _note_users_error(recording, error, roots, start)
            return _of_healthy(recording)
        recorder.drop_from(start)
    note_failing(recorder, roots, recording.gradients, recording.paths.errors, expected)
    try:
        return recording.gradients(recording.healthy())
    except Exception as error:
        if not isinstance(error, (ShapeError, *expected)):
            raise
        recorder.wrapped.unlike = bool(recorder.wrapped)  # none of them fails alone
        if not _has_choices(recording):
            if isinstance(error, ShapeError):
                raise refuse_shapes() from error
            raise
        check_is_eagers(error)
        return [None] * len(recording.captured.sources)


def _expected_errors(recording: UserCodeRecording) -> tuple[type[Exception], ...]:
    """The errors that eager's backward raises too: the compiled one raises them when it runs."""
    if recording.recorder.wrapped or not recording.meta.training:
        return (Exception,)  # a wrapper's class may raise any; without training few need gradients
    # A leaf that set_ moved to another storage may get gradients of two shapes (TEN-26).
    put = recording.meta.count_plan is not None
    return (AutogradError, ShapeError) if put else (AutogradError,)


def _note_users_error(
    recording: UserCodeRecording, error: Exception, roots: Sequence[Root], start: int
) -> None:
    """Notes the error for the results that lead to the node at which users' Python has failed."""
    recorder, run = recording.recorder, recording.run
    assert run is not None
    if len(roots) > 1:  # unknown whether they fail together or alone: recorded again
        refuse_repeated_writes(recorder.nodes[start:])
    bits = run.bits.now or 0
    recording.paths.errors.update(
        {result: error for k, (result, _, _) in enumerate(roots) if bits >> k & 1}
    )
    recorder.drop_from(start)
