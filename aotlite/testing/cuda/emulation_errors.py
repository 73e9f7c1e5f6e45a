"""The error for a fault that a GPU would not report."""

from __future__ import annotations


class EmulationError(AssertionError):
    """A use of CuPy with an undefined result, or one that a test looks for."""
