"""Looking at a compilation: dumps, explanations, the graphs of every stage."""

from __future__ import annotations

from typing import Any


def explain_meta(meta: Any) -> str:
    """The metadata of a function as sentences."""
    return str(meta)
