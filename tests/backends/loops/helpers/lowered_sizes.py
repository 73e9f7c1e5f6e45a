"""Sizes from which on programs are treated as large: lowered, so that small programs are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from aotlite.backends.loops.passes import split_reductions
from aotlite.backends.loops.passes.fusion import merge, row_column_reduction

SIZES: dict[str, tuple[Any, str, int]] = {
    "rows": (row_column_reduction, "SMALL", 8),
    "divided": (split_reductions, "SMALL", 8),
    "shortest": (split_reductions, "SHORTEST", 1),
    "once": (merge, "KEPT_BYTES", 512),
    "long": (merge, "LONG_ROW", 4),
    "long lanes": (split_reductions, "LONGEST_LANE", 4),
    "long columns": (row_column_reduction, "LONGEST_COLUMN", 4),
}
"""Thresholds, and what they are lowered to."""


def lower(patch: pytest.MonkeyPatch, sizes: Iterable[str]) -> None:
    """Lowers these thresholds."""
    for each in sizes:
        patch.setattr(*SIZES[each])
