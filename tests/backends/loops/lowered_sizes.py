"""Sizes from which on programs are treated as large: lowered, so that small programs are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from aotlite.backends.loops import columns, merge, split

SIZES: dict[str, tuple[Any, str, int]] = {
    "rows": (columns, "SMALL", 8),
    "divided": (split, "SMALL", 8),
    "once": (merge, "KEPT_BYTES", 512),
    "long": (merge, "LONG_ROW", 4),
    "long lanes": (split, "LONGEST_LANE", 4),
    "long columns": (columns, "LONGEST_COLUMN", 4),
}
"""Thresholds, and what they are lowered to."""


def lower(patch: pytest.MonkeyPatch, sizes: Iterable[str]) -> None:
    """Lowers these thresholds."""
    for each in sizes:
        patch.setattr(*SIZES[each])
