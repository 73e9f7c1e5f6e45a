"""Scans on arrays: each position combines all values up to it, in as many steps as its number has
binary digits (Hillis and Steele, 1986). Spec: `specs/onnx.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.loops.combiners import combiner
from aotlite.interchange.arrays.expression import evaluated
from aotlite.interchange.arrays.target import ArrayTarget, Value
from aotlite.ir.scalar.expression import Scalar, parameter


def scanned(t: ArrayTarget, kind: str, values: Sequence[Value], dim: int) -> list[Value]:
    """The values of a combiner's parts, combined with all before them along a dimension."""
    if kind == "sum":
        found = t.running_sum(values[0], dim)
        if found is not None:
            return [found]
    rule, count = combiner(kind), values[0].shape[dim]
    kinds = [each.dtype for each in values]
    first = [parameter(k, dtype) for k, dtype in enumerate(kinds)]
    second = [parameter(len(kinds) + k, dtype) for k, dtype in enumerate(kinds)]
    combined = rule.combine(first, second)
    neutral = [t.constant(each.args[0], each.dtype) for each in rule.identity(kinds)]
    made, apart = list(values), 1
    while apart < count:
        before = [_moved(t, x, n, dim, apart) for x, n in zip(made, neutral, strict=True)]
        made = _on(t, combined, [*before, *made])
        apart *= 2
    return made


def _on(t: ArrayTarget, roots: Sequence[Scalar], operands: Sequence[Value]) -> list[Value]:
    return [evaluated(t, root, lambda leaf: operands[leaf.args[0]]) for root in roots]


def _moved(t: ArrayTarget, x: Value, filler: Value, dim: int, by: int) -> Value:
    """The values moved up along a dimension; the filler comes in."""
    begin, end = [0] * len(x.shape), list(x.shape)
    end[dim] -= by
    low, high = [0] * len(x.shape), [0] * len(x.shape)
    low[dim] = by
    return t.pad(t.slice(x, begin, end), low, high, filler)
