"""The refusals of stage 2: mutations and aliases that a compiled call could not reproduce.

Used by stage 2 alone. Rules: TEN-7, TEN-24, TEN-26, FUN-11, FUN-18, SYN-5, GEN-2.
Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError, UnsupportedError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.graph.role import Role
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.records.metadata.function_facts import FamilyMeta, InputMeta
from aotlite.stages.shared.user_frames import describe


def refuse_late(captured: Captured, metas: tuple[InputMeta, ...]) -> None:
    """Refuses a written input that overlaps one which was met after the function had begun.

    Both need one view family before the write; the second became an input too late for that.
    """
    writers = {id(g.fake): m for g, m in zip(captured.inputs, metas, strict=True)}
    for fakes in captured.without_family:
        group = [writers[id(fake)] for fake in fakes]
        if len(group) > 1 and any(each.changes_history for each in group):
            places = [each.place for each in group]
            raise noted(
                AliasError(
                    f"analyze: {places[0]} and {places[1]} overlap in memory, one of them is "
                    "written, and the second was found late, expected both to be known at the start"
                ),
                "Pass it as an argument.",
            )


def refuse_reach_with_history(captured: Captured, metas: tuple[InputMeta, ...]) -> None:
    """Refuses `as_strided` beyond an input that requires grad and has no view family (FUN-11).

    The gradient of the outer elements would belong to no tensor.
    """
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
    """Refuses a differentiable write to memory with two elements in one place (TEN-7).

    The new value is an output of the graph, with one gradient for each element.
    """
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
    """Refuses a result that is a view of a leaf after `as_strided_`."""
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view of {given.place}, a leaf that is used after "
            "as_strided_, expected uses before it only"
        ),
        "Take an as_strided view instead of changing the leaf.",
    )


def refuse_history(given: CapturedInput) -> None:
    """Refuses an input that requires grad after `set_`, or leaves a storage that does."""
    raise noted(
        UnsupportedError(
            f"analyze: {given.place} is put onto other memory by set_ and requires grad there, or "
            "the memory that it leaves does, expected memory without gradients on both sides"
        ),
        "Do the differentiable write before set_, into the tensor that owns the memory. (FUN-18)",
    )


def refuse_moved_leaf(given: CapturedInput, name: str) -> None:
    """Refuses a leaf whose geometry changes before `set_`: its gradient has the new geometry."""
    raise noted(
        UnsupportedError(
            f"analyze: {given.place} requires grad, changes its geometry by {name}_, and is put "
            "onto other memory by set_ after that, expected the geometry of the call until set_"
        ),
        "Take a view of it instead, or call set_ outside of the compiled function. (FUN-18)",
    )


def refuse_lost_base(index: int, base: int, result: Tensor) -> None:
    """Refuses a result that is a view of another result which `set_` moved away since.

    A view is rebuilt from its base, and that base has another storage now.
    """
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view of output {base}, which was put onto other memory "
            "by set_ since, expected a base on the memory of its views"
        ),
        describe(result.value.location),
        "Return a clone() of the view, or a new tensor in the place of the base. (TEN-26)",
    )


def refuse_view_in_moved_family(index: int, result: Tensor, place: str) -> None:
    """Refuses a differentiable view of a member of a view family that `set_` moves away."""
    raise noted(
        UnsupportedError(
            f"analyze: output {index} is a view, with a gradient, of {place}, which shares its "
            "base with other inputs and is put onto other memory by set_, expected a view that is "
            "taken outside"
        ),
        describe(result.value.location),
        "Return a clone() of the view, or call set_ outside of the compiled function. (TEN-26)",
    )


def refuse_hooks_of_leaf(index: int, result: Role) -> None:
    """Refuses to return a leaf with hooks that the function made (TEN-41).

    The hooks are on the captured leaf; those of later calls would have none.
    """
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
