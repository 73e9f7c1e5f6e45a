"""The deciding code: the files whose mutants are run, by stratum.

A stratum is a question that the compiler answers by itself and that no type checker sees. Left out:
what only prints (`s10_reasons.py`, `counts.py`, `record.py`), and what stages do with graphs that
decides nothing about aliasing (partitions, costs, decompositions).
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_STAGES = "aotlite/stages/"

STRATA: dict[str, tuple[str, ...]] = {
    "functionalize": (
        _STAGES + "s6_functionalize.py",
        _STAGES + "lenses.py",
        _STAGES + "windows.py",
        _STAGES + "dead_writes.py",
        _STAGES + "growth.py",
        _STAGES + "closing_copies.py",
        "ir/graph/storage_roots.py",
    ),
    "analyze": (
        _STAGES + "s2_analyze.py",
        _STAGES + "facts.py",
        _STAGES + "aliasing.py",
        _STAGES + "histories.py",
        _STAGES + "timeline.py",
        _STAGES + "changes.py",
        _STAGES + "refusals.py",
        _STAGES + "count_plan.py",
        _STAGES + "leaves.py",
    ),
    "overlap": (
        "ir/geometry/overlap.py",
        "ir/geometry/box_equation.py",
        "ir/geometry/lattice.py",
        "ir/geometry/layout.py",
    ),
    "convention": (
        _STAGES + "s3_convention.py",
        _STAGES + "families.py",
        _STAGES + "synthetic.py",
        _STAGES + "reach.py",
        _STAGES + "places.py",
        "aotlite/arguments.py",
    ),
    "run time": (
        _STAGES + "s10_runtime.py",
        _STAGES + "s10_results.py",
        _STAGES + "s10_backward.py",
        _STAGES + "s10_plan.py",
        _STAGES + "s10_guards.py",
        _STAGES + "s10_sharing.py",
        _STAGES + "s10_effects.py",
        _STAGES + "s10_changes.py",
        _STAGES + "s10_inputs.py",
        _STAGES + "s10_late.py",
        _STAGES + "s10_packed.py",
        _STAGES + "s10_source.py",
    ),
}

FILES = tuple(file for files in STRATA.values() for file in files)


def stratum_of(file: str) -> str:
    """The stratum that has this file."""
    return next(name for name, files in STRATA.items() if file in files)
