"""Runs parts of the journey for a kept entry: stages 9 and 10, and, for derivatives, the others.

Rules: CACHE-1, CACHE-14, GEN-9. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.modes import outside_regions
from aotlite.ir.collector import collector_paused
from aotlite.pipeline import CompiledEntry, Request
from aotlite.pipeline.journey import STAGES, cut_of, entry_of, traced
from aotlite.pipeline.logs.stage_events import compiling
from aotlite.pipeline.options import Options
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.capture import Captured
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedValues


def begun(options: Options) -> Compilation:
    """The next compilation of the process, with these options (GEN-9)."""
    return Compilation.begin(options, STAGES)


def restored(
    request: Request, cut: StageRecords, values: GuardedValues, compilation: Compilation
) -> CompiledEntry:
    """The entry of records that an earlier process has made: stages 9 and 10 alone (CACHE-1)."""
    with collector_paused(), outside_regions(), compiling(request, compilation):
        return entry_of(compilation, request.name, f"{compilation.number}", cut, values)


def tape_of(request: Request, compilation: Compilation) -> Any:
    """The tape of a function that is captured again, for derivatives of its backward (CACHE-14)."""
    with collector_paused(), outside_regions():
        return traced(request, compilation.of_derivatives(), _kept_tape)


def _kept_tape(captured: Captured, _: Request, compilation: Compilation) -> Any:
    return cut_of(captured, compilation)[1].joint.kept_tape
