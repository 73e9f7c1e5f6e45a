"""`Array`, `Namespace`, `ArrayBuffer`: types of what kernels compute on, for type checkers.

Ground floor. Spec: `specs/arrays.md`.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

Array = np.ndarray
"""An array of any library. It has NumPy's type, because a protocol cannot stand for `ndarray`: its
operators take and return other types for each dtype. CuPy's arrays have the methods that kernels
use; what else `ndarray` has (`ctypes`, buffers) is for code that knows its arrays to be NumPy's."""


class ArrayBuffer(Protocol):
    """The memory of a tensor, in the form of its array library."""

    @property
    def nbytes(self) -> int: ...

    def copy(self) -> Self: ...


class ArrayFunction(Protocol):
    """A function of a namespace. Its operands are arrays, numbers, lists and keywords: `object`."""

    def __call__(self, *args: object, **kwargs: object) -> Array: ...

    def at(self, array: Array, key: object, values: object, /) -> None:
        """Of a ufunc: computes `array[key]` and `values` in place, at repeated keys repeatedly."""


class Namespace(Protocol):
    """The functions of an array library, under NumPy's names: `xp` in kernels."""

    @property
    def linalg(self) -> Namespace: ...

    @property
    def pi(self) -> float: ...

    @property
    def inf(self) -> float: ...

    @property
    def nan(self) -> float: ...

    def __getattr__(self, name: str, /) -> ArrayFunction: ...
