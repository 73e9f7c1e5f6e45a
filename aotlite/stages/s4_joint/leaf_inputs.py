"""Inputs that `requires_grad_()` made leaves: the gradient of the new leaf is theirs (FUN-36)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from aotlite.eager.base.tape.node import TapeNode
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole


def new_leaves(
    inputs: Sequence[CapturedInput], passed: Container[TapeNode]
) -> frozenset[InputRole]:
    """The inputs that became leaves, and get gradients as such.

    Raises UnsupportedError if a gradient goes to such an input's history at entry as well.
    """
    found = set()
    for given in inputs:
        if given.leaf_entry is None or given.leaf_entry[0] not in passed:
            continue
        found.add(given.role)
        if given.entry is not None and given.entry[0] in passed:
            raise noted(
                UnsupportedError(
                    f"joint: {given.place} is a leaf that the function made of a tensor with a "
                    "history, and both get gradients, expected one of the two to get one"
                ),
                "Use detach() and requires_grad_() on that, or take it out of its history before "
                "the call. (FUN-36)",
            )
    return frozenset(found)


def refuse_shapes() -> Exception:
    """The refusal of gradients of several shapes that one leaf would get by one call (TEN-26)."""
    return noted(
        UnsupportedError(
            "joint: a leaf that is put onto other memory gets gradients of several shapes, "
            "expected one shape"
        ),
        "Return what is computed of the leaf before, or after, set_ and not of both. (FUN-18)",
    )
