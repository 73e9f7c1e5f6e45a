"""The deciding code: the files whose mutants are run, by stratum.

A stratum is a question that the compiler decides and no type checker verifies. Left out: modules
that only print (`guards/failures.py`, `derived_counts.py`, `base.py`), and parts of stages that
decide nothing about aliasing (partitions, costs, decompositions).
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STRATA_PATTERNS: dict[str, tuple[str, ...]] = {
    "functionalize": (
        "aotlite/stages/s6_functionalize/*.py",
        "aotlite/stages/s7_simplify/views_of_scatters.py",
        "aotlite/stages/s7_simplify/dead_scatters.py",
        "aotlite/stages/shared/memory/windows.py",
        "aotlite/stages/s1_capture/storage_resize.py",
        "aotlite/stages/s2_analyze/storage_resize.py",
        "aotlite/stages/s8_partition/closing_copies.py",
        "ir/graph/storage_roots.py",
    ),
    "analyze": (
        "aotlite/stages/s2_analyze/[!s]*.py",
        "aotlite/stages/records/metadata/function_facts.py",
        "aotlite/stages/records/capture.py",
        "aotlite/stages/records/backward/joint.py",
        "aotlite/stages/records/version_counts.py",
        "aotlite/stages/shared/memory/view_analysis.py",
        "aotlite/stages/shared/tape_queries.py",
        "aotlite/stages/shared/memory/owners.py",
        "aotlite/stages/s1_capture/metadata_mutations.py",
    ),
    "overlap": (
        "ir/geometry/overlap.py",
        "ir/geometry/box_equation.py",
        "ir/geometry/lattice.py",
        "ir/geometry/layout.py",
    ),
    "convention": (
        "aotlite/stages/s3_convention/*.py",
        "aotlite/stages/records/synthetic_base.py",
        "aotlite/stages/records/guards/access_paths.py",
        "aotlite/stages/shared/memory/view_families.py",
        "aotlite/stages/shared/memory/extents.py",
        "aotlite/stages/s1_capture/as_strided_extents.py",
        "aotlite/stages/s1_capture/environment/access_search.py",
        "aotlite/pipeline/arguments.py",
    ),
    "run time": (
        "aotlite/stages/s10_runtime/[!ces]*.py",
        "aotlite/stages/s10_runtime/forward/[!_h]*.py",
        "aotlite/stages/s10_runtime/guarded_function*.py",
        "aotlite/stages/s10_runtime/support.py",
        "aotlite/stages/s10_runtime/source.py",
        "backends/python_source.py",
        "aotlite/stages/s10_runtime/guards/[!ef]*.py",
        "aotlite/stages/s10_runtime/backward/memory/mutations.py",
        "aotlite/stages/s10_runtime/backward/node.py",
        "aotlite/stages/s10_runtime/backward/memory/packed_saves.py",
        "aotlite/stages/s10_runtime/backward/plan.py",
        "aotlite/stages/s10_runtime/backward/plan_builder.py",
        "aotlite/stages/s10_runtime/backward/variants.py",
    ),
}


def _files(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The files that the patterns name, each once; each pattern has to name one."""
    found: dict[str, None] = {}
    for pattern in patterns:
        files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
        if not files:
            raise FileNotFoundError(f"tests/mutation/targets.py: no file is named by {pattern}")
        found.update(dict.fromkeys(files))
    return tuple(found)


STRATA = {name: _files(patterns) for name, patterns in STRATA_PATTERNS.items()}

FILES = tuple(file for files in STRATA.values() for file in files)


def stratum_of(file: str) -> str:
    """The stratum that has this file."""
    return next(name for name, files in STRATA.items() if file in files)
