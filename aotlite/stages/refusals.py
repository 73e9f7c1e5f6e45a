"""What an analysis refuses of inputs, before anything has run: histories that cannot be put back.

Used by stage 2 alone. Rules: TEN-7, FUN-11, SYN-5, GEN-2. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from aotlite.ir.errors import AliasError, UnsupportedError, noted
from aotlite.ir.overlap import has_internal_overlap
from aotlite.stages.facts import Captured, FamilyMeta, InputMeta


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
