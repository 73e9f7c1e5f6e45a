"""Lowering: a pure graph becomes a program of small kernels, about one an op.

Views cost nothing: a value is a buffer, a start and its meta. What an op is as loops is said by its
declaration: `scalar` of a pointwise one, `loops` of another; what says neither runs as it is.
Output: a `Program`, which passes make fast. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from aotlite.backends.loops.lowering.graph_lowering import lower

__all__ = ["lower"]
