"""NumPy as the conformance suite sees it."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.testing.conformance.adapter import Adapter
from aotlite.testing.conformance.spelling import along


class NumPy(Adapter):
    """NumPy's ndarrays. Strides are counted in elements here, in bytes there."""

    name, version = "numpy", np.__version__

    def from_list(self, values: list[Any], dtype: str) -> Any:
        return np.array(values, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.zeros(shape, dtype)

    def to_list(self, a: Any) -> Any:
        return a.tolist()

    def shares_memory(self, a: Any, b: Any) -> bool:
        return np.shares_memory(a, b)

    def transpose(self, a: Any, dim0: int, dim1: int) -> Any:
        return np.swapaxes(a, dim0, dim1)

    def permute(self, a: Any, dims: tuple[int, ...]) -> Any:
        return np.permute_dims(a, dims)

    def select(self, a: Any, dim: int, index: int) -> Any:
        return a[along(dim, index, ...)]

    def narrow(self, a: Any, dim: int, start: int, length: int) -> Any:
        return a[along(dim, slice(start, start + length))]

    def slice(self, a: Any, dim: int, start: int, stop: int, step: int) -> Any:
        return a[along(dim, slice(start, stop, step))]

    def setitem(self, a: Any, key: Any, value: Any) -> None:
        a[key] = value
