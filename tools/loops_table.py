"""Prints which ops lowering turns into loops, by kind, and which run by their kernels.

An op of a kind with loops may still run by its kernel for some arguments (`specs/lowering.md`).
"""

import sys
from collections.abc import Iterator

from source_files import ROOT

sys.path.insert(0, str(ROOT))

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import OPS, PureOp

KINDS = ("loops", "scalar", "expands", "as it is")


def kind_of(op: PureOp) -> str:
    """The kind by which lowering takes the op."""
    if op.loops is not None:
        return "loops"
    if op.scalar is not None and op.computes is not None:
        return "scalar"
    return "as it is" if op.expands is None else "expands"


def lines() -> Iterator[str]:
    """The lines of the table: one for each cost class and kind."""
    pure = [op for op in OPS.values() if type(op) is PureOp]
    for kind in KINDS:
        found = [op for op in pure if kind_of(op) == kind]
        yield f"{kind}: {len(found)} of {len(pure)}"
        for cost in dict.fromkeys(op.cost for op in found):
            names = sorted(op.name for op in found if op.cost is cost)
            yield f"  {cost.value} ({len(names)}): {' '.join(names)}"


if __name__ == "__main__":
    print(*lines(), sep="\n")
