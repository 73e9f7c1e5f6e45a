"""The error for a fault that a GPU would not report."""

from __future__ import annotations


class EmulationError(AssertionError):
    """A use of CuPy whose result is undefined, or that a test is to find."""
