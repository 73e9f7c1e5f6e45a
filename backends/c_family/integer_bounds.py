"""Range analysis of uint64 scalars: those below 2^32 are multiplied by one instruction of a GPU.

A product of two 64-bit integers takes four. Random numbers (Philox) are made of such products.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.c_family.c_types import value_type
from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Scalar, unknown

WORD = (1 << 32) - 1


class IntegerBounds:
    """Decides which uint64 scalars are below 2^32 whatever their operands are, and remembers it."""

    def __init__(self) -> None:
        self.known: dict[Scalar, bool] = {}

    def text(self, scalar: Scalar, texts: Sequence[str]) -> str | None:
        """Returns the C text of a product of two such numbers, or of one cast to a float; None for
        anything else."""
        if not all(each.dtype is dtypes.uint64 and self.fits(each) for each in scalar.operands):
            return None
        if scalar.op == "mul":
            return f"wide_product((u32){texts[0]}, (u32){texts[1]})"
        if scalar.op == "cast" and scalar.dtype in (dtypes.float32, dtypes.float64):
            return f"({value_type(scalar.dtype)})(u32){texts[0]}"
        return None

    def fits(self, root: Scalar) -> bool:
        """Whether a scalar is below 2^32."""
        for scalar in unknown(root, self.known):
            self.known[scalar] = scalar.dtype is dtypes.uint64 and self._own(scalar)
        return self.known[root]

    def _own(self, scalar: Scalar) -> bool:
        match scalar.op:
            case "const":
                return bool(scalar.args[0] <= WORD)
            case "bit_and":
                return any(self.known[each] for each in scalar.args)
            case "bit_or" | "bit_xor":
                return all(self.known[each] for each in scalar.args)
            case "where":
                return all(self.known[each] for each in scalar.args[1:])
            case "shr":
                value, by = scalar.args
                return self.known[value] or (by.op == "const" and 32 <= by.args[0] < 64)
            case "cast":
                inner = scalar.args[0].dtype
                return inner in (dtypes.uint32, dtypes.uint16, dtypes.uint8, dtypes.bool_)
        return False
