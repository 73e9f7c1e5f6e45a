"""`MlirBindings`: the parts of jaxlib's MLIR that the printer needs, and nothing else of it.

What depends on the version of jaxlib is here and in `runner`: 0.10 is what it was written for.
Spec: `specs/stablehlo.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import MissingExtraError

_FLOATS = {
    dtypes.float16: "F16Type",
    dtypes.bfloat16: "BF16Type",
    dtypes.float32: "F32Type",
    dtypes.float64: "F64Type",
    dtypes.float8_e4m3fn: "Float8E4M3FNType",
    dtypes.float8_e5m2: "Float8E5M2Type",
}
"""The classes of the types of floats."""


class MlirBindings:
    """An MLIR context with the dialects `func` and `stablehlo`. Types and operations are made while
    it is entered (`with bindings.entered():`)."""

    def __init__(self) -> None:
        try:
            from jaxlib.mlir import ir
            from jaxlib.mlir._mlir_libs import _jax_mlir_ext
            from jaxlib.mlir.dialects import func, stablehlo
        except ImportError as error:
            raise MissingExtraError(
                "to_stablehlo: jaxlib is not installed, expected it; install aotlite[stablehlo]"
            ) from error
        self.ir: Any = ir
        self.ops: Any = stablehlo
        self.functions: Any = func
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        self.context: Any = ir.Context()
        self.context.append_dialect_registry(registry)
        self.context.load_all_available_dialects()
        stablehlo.register_dialect(self.context)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The context in which everything is made."""
        with self.context, self.ir.Location.unknown():
            yield

    def location(self, name: str, file: str, line: int) -> Any:
        """The place of an operation: the graph's name of it, and the user's line."""
        return self.ir.Location.name(name, self.ir.Location.file(file, line, 1))

    def named_location(self, name: str) -> Any:
        """The place of an operation without a line."""
        return self.ir.Location.name(name)

    # --- types and attributes
    def element(self, dtype: DType) -> Any:
        """The type of one element."""
        if dtype in _FLOATS:
            return getattr(self.ir, _FLOATS[dtype]).get()
        if dtype is dtypes.bool_:
            return self.ir.IntegerType.get_signless(1)
        bits = 8 * dtype.itemsize
        kind = self.ir.IntegerType
        return kind.get_signless(bits) if dtype.is_signed else kind.get_unsigned(bits)

    def tensor(self, dtype: DType, shape: tuple[int, ...]) -> Any:
        """The type of an array."""
        return self.ir.RankedTensorType.get(shape, self.element(dtype))

    def elements(self, array: Array, dtype: DType) -> Any:
        """The attribute of a constant."""
        shape, element = array.shape, self.element(dtype)
        if not array.size:
            return self.ir.Attribute.parse(f"dense<> : {self.tensor(dtype, shape)}")
        if dtype.numpy.name not in np.sctypeDict:
            array = array.view(f"u{dtype.itemsize}")
        return self.ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=element, shape=shape)

    def integers(self, array: Array) -> Any:
        """The attribute of a table of numbers, as padding."""
        return self.ir.DenseIntElementsAttr.get(array)

    # --- blocks
    def erase_unused(self, block: Any) -> None:
        """Erases the operations whose results nothing takes, but for the last, which returns."""
        for operation in list(block.operations)[-2::-1]:
            if not any(list(result.uses) for result in operation.results):
                operation.erase()

    @contextmanager
    def block(self, region: Any, types: Sequence[Any]) -> Iterator[Any]:
        """A new block of a region, with arguments; operations go there."""
        made = region.blocks.append(*types)
        with self.ir.InsertionPoint(made):
            yield tuple(made.arguments)
