"""The error for what a GPU would do wrongly and in silence."""

from __future__ import annotations


class EmulationError(AssertionError):
    """A use of CuPy whose result is undefined, or that a test is to find."""
