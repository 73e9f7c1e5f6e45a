"""`decoded_entry`: a kept entry with its records decoded, and the check that its parts fit a call.

A document may come from anybody. Its graphs are checked where they are read; here they are compared
with each other and with the tensors of a call, so that no kernel reads or writes beyond its memory.
Rules: CACHE-5, CACHE-17. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from aotlite.artifacts.files.kept_entry import KeptEntry
from aotlite.artifacts.symbolic_records import EntrySymbols, on_one_table
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import FormatError
from aotlite.ir.graph.role import Hidden, Primal, Saved, Tangent
from aotlite.ir.symbols.assumption import concrete
from aotlite.pipeline.record_files import decoded
from aotlite.pipeline.size_regions.records import StageRecords


@attrs.frozen(eq=False)
class DecodedEntry:
    """A kept entry, and its records."""

    kept: KeptEntry
    cut: StageRecords
    higher: tuple[Any, ...] | None
    """The inputs that derivatives of the backward may reach; None if it has none."""
    guards: list[Any]
    """Its guards in words: those of `kept`, or the ones that need no function."""
    symbols: EntrySymbols | None = None
    """The symbols of its sizes; None where all sizes are numbers."""


def decoded_entry(kept: KeptEntry) -> DecodedEntry:
    """The entry with its records. Raises FormatError for what no compilation wrote."""
    found = decoded(kept.records())
    match found.root:
        case (StageRecords() as cut, (None | tuple()) as higher) if kept.symbols is None:
            _check_saved(cut)
            return DecodedEntry(kept, cut, higher, kept.guards)
        case (
            StageRecords() as cut,
            (None | tuple()) as higher,
            (tuple(), tuple(), tuple()) as given,
        ):
            if kept.symbols is not None:
                cut, symbols = on_one_table(cut, found.guards, given, kept.symbols)
                _check_saved(cut)
                return DecodedEntry(kept, cut, higher, kept.guards, symbols)
    raise FormatError("artifact: the records are of another kind, expected those of stages")


def check_parts(
    cut: StageRecords, tensors: Mapping[Any, object], values: Mapping[str, int]
) -> None:
    """Raises FormatError unless the records are of a function of these tensors, where the symbols
    have these values."""
    for each in cut.meta.inputs:
        tensor = tensors.get(each.role)
        if not isinstance(tensor, Tensor) or tensor.meta is not concrete(each.meta, values):
            raise _misfit(f"{each.role} is {each.meta}", "the argument of the call")
    for node in cut.partition.forward.placeholders:
        tensor = tensors.get(node.role)
        if isinstance(tensor, Tensor) and concrete(node.meta, values) is not tensor.meta:
            raise _misfit(f"{node.role} of the graph is {node.meta}", f"{tensor.meta}")
    for saved in cut.joint.backward.reads.saved:
        if isinstance(saved.owner, (Primal, Hidden)) and saved.owner not in tensors:
            raise _misfit(f"a saved tensor is on {saved.owner}", "an input of the function")
    metas = {node.role: node.meta for node in cut.partition.forward.placeholders}
    for base in cut.convention.bases:
        anchor = tensors.get(base.anchor)
        if not isinstance(anchor, Tensor) or metas.get(base.role, base.meta) is not base.meta:
            raise _misfit(f"{base.role} is {base.meta}", "the base of arguments")
        first = anchor.offset * anchor.dtype.itemsize + base.start
        end = first + base.meta.span * base.meta.dtype.itemsize
        if not 0 <= first <= end <= anchor.storage.nbytes():
            raise _misfit(f"{base.role} lies in bytes {first} to {end}", "those of its memory")


def _check_saved(cut: StageRecords) -> None:
    """Raises FormatError unless the backward takes what the forward saves."""
    backward = cut.partition.backward
    if backward is None:
        return
    forward = cut.partition.forward
    found = list(zip(forward.output_roles, forward.output_metas, strict=True))
    saved = {role.index: meta for role, meta in found if type(role) is Saved}
    shown = dict(found)
    for node in backward.placeholders:
        meta: Any = node.meta
        if type(node.role) is Saved and saved.get(node.role.index) is not meta:
            raise _misfit(f"{node.role} of the backward is {meta}", "what the forward saves")
        result: Any = shown.get(node.role.of) if type(node.role) is Tangent else None
        if result is not None and (result.shape, result.dtype) != (meta.shape, meta.dtype):
            raise _misfit(f"{node.role} of the backward is {meta}", f"{result}, as the result")


def _misfit(got: str, expected: str) -> FormatError:
    return FormatError(f"artifact: {got}, expected {expected}")
