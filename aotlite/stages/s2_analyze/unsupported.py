"""What an analysis refuses, before anything has run: histories that cannot be put back, bases of
results that have left their memory.

Used by stage 2 alone. Rules: TEN-7, TEN-24, TEN-26, FUN-11, FUN-18, SYN-5, GEN-2. Spec:
`specs/s2_analyze.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError, UnsupportedError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.metadata.function_facts import FamilyMeta, InputMeta
from aotlite.stages.shared.user_frames import describe


def refuse_late(captured: Captured, metas: tuple[InputMeta, ...]) -> None:
    """A tensor that overlaps a written one of its family must be known before the write."""
    writers = {id(g.fake): m for g, m in zip(captured.inputs, metas, strict=True)}
    for first, second in captured.late:
        if any(writers[id(fake)].changes_history for fake in (first, second)):
            places = [writers[id(fake)].place for fake in (first, second)]
            raise noted(
                AliasError(
                    f"analyze: {places[0]} and {places[1]} overlap in memory, one of them is "
                    "written, and the second was found late, expected to see both from the start"
                ),
                "Pass it as an argument.",
            )


def refuse_reach_with_history(captured: Captured, metas: tuple[InputMeta, ...]) -> None:
    """FUN-11: a gradient of memory that an input does not span has no place to go."""
    for given, meta in zip(captured.inputs, metas, strict=True):
        if given.role in captured.reach and given.family is None and meta.requires_grad_at_exit:
            raise noted(
                UnsupportedError(
                    f"analyze: as_strided reaches outside the elements of {meta.place}, which "
                    "requires grad after the call, expected windows within its elements"
                ),
                "Pass the tensor that spans the whole storage as the argument. (FUN-11)",
            )


def refuse_overlap_with_history(
    metas: tuple[InputMeta, ...], families: tuple[FamilyMeta, ...]
) -> None:
    """TEN-7: a base that overlaps itself has no differentiable new value."""
    written = [(m.meta, m.place) for m in metas if m.changes_history]
    for family in families:
        if not family.changes_history:
            continue
        place = next(m.place for m in metas if m.role == family.members[0])
        written.append((family.meta, f"the base of {place}"))
    for meta, place in written:
        if has_internal_overlap(meta.shape, meta.stride):
            raise noted(
                AliasError(
                    f"analyze: {place}, {meta}, overlaps itself, expected a base with "
                    "one memory place for each element where the write has a gradient"
                ),
                "Pass the tensor that it is a view of, and expand it inside the function.",
            )


def refuse_leaf_window(index: int, given: CapturedInput) -> None:
    """A view of the leaf's new window, rebuilt from its old one, would sum what overlaps."""
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view of {given.place}, a leaf that is used after "
            "as_strided_, expected uses before it only"
        ),
        "Take an as_strided view instead of changing the leaf.",
    )


def refuse_history(given: CapturedInput) -> None:
    """Raises where the history of an input is one that its caller cannot be given."""
    raise noted(
        UnsupportedError(
            f"analyze: {given.place} is put onto other memory by set_ and gets a history there, or "
            "what it left does, expected writes without one"
        ),
        "Write with a history before, into the tensor whose memory it is. (FUN-18)",
    )


def refuse_lost_base(index: int, base: int, result: Tensor) -> None:
    """A view is rebuilt from who made its memory, and not from who has left it for another."""
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view of output {base}, which was put onto other memory "
            "by set_ since, expected a base that lies where its views do"
        ),
        describe(result.value.location),
        "Return a clone() of the view, or a new tensor in the place of the base. (TEN-26)",
    )


def refuse_view_of_moved_kin(index: int, result: Tensor, place: str) -> None:
    """A view of an input that shares a root with others, and leaves that memory by set_."""
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view, with a gradient, of {place}, which is a view of "
            "what others are views of, too, and is put onto other memory by set_, expected a view "
            "that is taken outside"
        ),
        describe(result.value.location),
        "Return a clone() of the view, or call set_ outside of the compiled function. (TEN-26)",
    )


def refuse_hooks_of_leaf(index: int, result: Any) -> None:
    """TEN-41: the hooks of a leaf that is made inside would be on that of the capture."""
    if not isinstance(result, Tensor) or result._node is not None or not result._leaf:
        return
    node = result._accumulator
    if is_watched(result) or (node is not None and node.collected):
        raise noted(
            UnsupportedError(
                f"analyze: output {index} is a leaf with hooks that were registered inside, "
                "expected a leaf without hooks"
            ),
            describe(result.value.location),
            "Register them on the result, after the call. (TEN-41)",
        )
