"""The sets of results from which stage 4 records a backward.

All at once; where that raises, all but those whose own backward raises; and where gradients differ
with which others arrive, each choice of results (`tangent_variants.py`).
Rules: JNT-15, TAN-8, TEN-26. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, ShapeError
from aotlite.stages.s4_joint.backward_effects import refuse_again
from aotlite.stages.s4_joint.leaf_inputs import refuse_shapes
from aotlite.stages.s4_joint.subclass_tangents import flat_gradients
from aotlite.stages.s4_joint.tangent_variants import (
    MOST,
    Flat,
    can_repeat,
    check_is_eagers,
    recorded_choices,
)
from aotlite.stages.s4_joint.tape_recording import Root
from aotlite.stages.s4_joint.user_code_recording import UserCodeRecording


def recorded_gradients(recording: UserCodeRecording) -> Flat:
    """The outputs that gradients from the recording's roots are, and how wrappers are made of them.

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
    """Whether gradients differ for each choice of results, and there are few choices."""
    recorder = recording.recorder
    draws = recorder.streams.after_backward() is not None
    few = 1 < len(recording.healthy()) <= MOST
    return bool(few and recorder.wrapped.unlike and not (draws or recorder.hooks.kept))


def _of_healthy(recording: UserCodeRecording) -> list[Tensor | None]:
    """The gradients of all results whose backward does not raise."""
    recorder, start = recording.recorder, len(recording.recorder.nodes)
    roots, expected = recording.healthy(), _expected_errors(recording)
    try:
        return recording.gradients(roots)
    except expected as error:
        check_is_eagers(error)
        if recording.run is not None:
            _note_failing(recording, error, roots, start)
            return _of_healthy(recording)
        recorder.drop_from(start)
    _note_each_failing(recording, roots, expected)
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
    """The errors of eager's backward, which the compiled one raises when it runs."""
    if recording.recorder.wrapped or not recording.meta.training:
        return (Exception,)  # what classes of wrappers raise, or what few have asked for
    # A leaf that is put onto other memory may get gradients of two shapes (TEN-26).
    put = recording.meta.count_plan is not None
    return (AutogradError, ShapeError) if put else (AutogradError,)


def _note_failing(
    recording: UserCodeRecording, error: Exception, roots: Sequence[Root], start: int
) -> None:
    """Notes the error for the results that lead to the node at which users' Python has failed."""
    recorder, run = recording.recorder, recording.run
    assert run is not None
    if len(roots) > 1:  # which of them fail, together or alone, is not known
        refuse_again(recorder.nodes[start:])
    bits = run.now or 0
    recording.paths.errors.update(
        {result: error for k, (result, _, _) in enumerate(roots) if bits >> k & 1}
    )
    recorder.drop_from(start)


def _note_each_failing(
    recording: UserCodeRecording, roots: Sequence[Root], expected: tuple[type[Exception], ...]
) -> None:
    """Notes the results whose backwards fail alone. Nothing that is recorded stays."""
    start = len(recording.recorder.nodes)
    for root in roots:
        try:
            recording.gradients([root])
        except expected as error:
            check_is_eagers(error)
            recording.paths.errors[root[0]] = error
        recording.recorder.drop_from(start)
