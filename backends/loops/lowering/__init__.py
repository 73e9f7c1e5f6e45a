"""Lowering: a pure graph becomes a loop program of small kernels, about one an op.

An op's declaration says its loops: `scalar` for a pointwise op, `loops` for another one. An op with
neither becomes an `Extern` step, which calls the op's own kernel. Views compute nothing: a value is
a buffer, a start and its meta. Fusion makes the program fast afterwards. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from aotlite.backends.loops.lowering.graph_lowering import lower

__all__ = ["lower"]
