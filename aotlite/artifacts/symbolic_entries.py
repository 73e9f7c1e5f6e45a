"""`CaptureAgain`: what a restored entry captures again, and the entry of kept records with symbols.

Derivatives of a backward need a tape, and reports on conditions need traces: neither is in a file.
Rules: CACHE-14, CACHE-20. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import attrs

from aotlite.artifacts.later_tape import LaterTape
from aotlite.artifacts.symbolic_records import EntrySymbols
from aotlite.eager.base.modes import outside_regions
from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import AutogradError
from aotlite.pipeline import CompiledEntry, Request
from aotlite.pipeline.journey import entry_of, retraced
from aotlite.pipeline.logs.stage_events import compiling
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.exact_types import searched
from aotlite.pipeline.size_regions.proof.witnesses import Retrace, Unrepeatable
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.region import records_of_region
from aotlite.pipeline.size_regions.region_entries import RegionParts, restored_region
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts


@attrs.frozen(eq=False)
class CaptureAgain:
    """The call for which an entry was restored, and how its function is captured again."""

    request: Request
    compilation: Compilation
    members: Collection[int]
    """The ids of the tensors that are of view families."""
    is_as_it_was: Callable[[list[Any]], bool]
    """Whether what the function reads beyond its tensors is as it was. Raises AutogradError where
    there is no function."""

    def with_tape(
        self, cut: StageRecords, higher: tuple[Any, ...] | None, symbols: EntrySymbols | None = None
    ) -> StageRecords:
        """The records with a tape that is recorded when a derivative of the backward needs it;
        `higher` are the inputs that it may reach, None if there are no derivatives."""
        if higher is None:
            return cut
        how = self.request, self.compilation, frozenset(higher), self.members, self.is_as_it_was
        tape = LaterTape(*how, *(() if symbols is None else self._symbols(symbols)))
        return attrs.evolve(cut, joint=attrs.evolve(cut.joint, kept_tape=tape))

    def _symbols(self, symbols: EntrySymbols) -> tuple[Any, ...]:
        """What makes the symbols for a capture, and what that must assume."""
        assumed = [each.text for each in symbols.sizes.table.log]
        return partial(self._retrace(symbols).symbols, symbols.sizes), assumed

    def with_symbols(
        self,
        cut: StageRecords,
        higher: tuple[Any, ...] | None,
        symbols: EntrySymbols,
        facts: GuardedFacts,
    ) -> CompiledEntry | None:
        """The entry of records with symbols; None if its conditions exclude this call."""
        request, sizes = self.request, symbols.sizes
        sizes.table.computes.user_code = searched(request.function, request.leaves)[1]
        cut = self.with_tape(cut, higher, symbols)
        with collector_paused(), outside_regions(), compiling(request, self.compilation):
            records = records_of_region(cut, sizes)
            parts = symbols.guards, records, facts, self._retrace(symbols), symbols.words.notes
            return restored_region(RegionParts(sizes, *parts), request, self.compilation, entry_of)

    def _retrace(self, symbols: EntrySymbols) -> Retrace:
        """How the function is traced again, for reports on conditions (DYN-24)."""

        def again(request: Request, compilation: Compilation, rest: Any) -> None:
            try:
                same = self.is_as_it_was(list(request.leaves))
            except AutogradError:
                raise Unrepeatable(
                    "not examined, since it was loaded without its function"
                ) from None
            if not same:
                raise Unrepeatable("not examined, since what the function reads has changed")
            retraced(request, compilation, rest)

        made = Retrace.of(self.request, again, self.compilation, self.members)
        return attrs.evolve(made, first=symbols.first())
