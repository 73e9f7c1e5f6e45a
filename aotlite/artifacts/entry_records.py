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
from aotlite.ir.graph.files.values import Unread
from aotlite.ir.symbols.assumption import concrete
from aotlite.pipeline.record_files import decoded
from aotlite.pipeline.record_files.part_check import as_error, check_bases, check_parts
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
            _check(cut, {})
            return DecodedEntry(kept, cut, higher, kept.guards)
        case (
            StageRecords() as cut,
            (None | tuple()) as higher,
            (tuple(), tuple(), tuple()) as given,
        ):
            if kept.symbols is not None:
                cut, symbols = on_one_table(cut, found.guards, given, kept.symbols)
                _check(cut, symbols.sizes.table.hints)
                return DecodedEntry(kept, cut, higher, kept.guards, symbols)
    raise FormatError("artifact: the records are of another kind, expected those of stages")


def check_call(cut: StageRecords, tensors: Mapping[Any, object], values: Mapping[str, int]) -> None:
    """Raises FormatError unless the records are of a function of these tensors, where the symbols
    have these values."""
    if values:
        _check(cut, values)
    for each in cut.meta.inputs:
        tensor = tensors.get(each.role)
        if not isinstance(tensor, Tensor) or tensor.meta is not concrete(each.meta, values):
            raise _misfit(f"{each.role} is {each.meta}", "the argument of the call")
    try:
        check_bases(cut, tensors, values)
    except Unread as error:
        raise as_error(error, "artifact") from None


def _check(cut: StageRecords, values: Mapping[str, int]) -> None:
    """Raises FormatError unless the parts of the records fit together (REC-10)."""
    try:
        check_parts(cut, values)
    except Unread as error:
        raise as_error(error, "artifact") from None


def _misfit(got: str, expected: str) -> FormatError:
    return FormatError(f"artifact: {got}, expected {expected}")
