"""The interface of the conformance suite to an array library: one class of small optional methods.

A subclass defines the methods that its library has, each by the library's own call, mostly as one
`return`: a witness is printed by substituting arguments into these very lines. If a method is not
defined, or raises `Absent`, the cases that need it are absent.

Arguments are positional. Arrays are the library's own objects, shapes are tuples, values are nested
lists of Python numbers, dtypes are NumPy's names ("int64"); sizes, strides and offsets count
elements. A method that cannot do what it should raises the library's own error.
"""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np

from aotlite.conformance.adapter_autograd import Differentiable
from aotlite.conformance.unsupported import Absent, optional

Array = Any
"""An array of the library under test, opaque here."""


class Adapter(Differentiable):
    """An array library as the rules see it. Subclass it, and define the methods of your library.

    Nearly every rule needs `from_list` and `to_list`.
    """

    name: str = ""
    """The library's name in reports."""
    version: str = ""
    """The library's version, for reports."""
    immutable: bool = False
    """Whether no array of the library can be written."""

    # --- create and read

    @optional
    def from_list(self, values: list[Any], dtype: str) -> Array:
        """A new array with these nested lists (or the one number) as its values."""

    @optional
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """A new array of zeros; also of shapes that nested lists cannot express, such as (0, 3)."""

    @optional
    def to_list(self, a: Array) -> Any:
        """The values as nested lists of Python numbers, a number where there is no dimension."""

    @optional
    def shape(self, a: Array) -> Any:
        """The shape as a tuple."""

    @optional
    def strides(self, a: Array) -> Any:
        """The strides as a tuple, in elements."""

    @optional
    def dtype(self, a: Array) -> Any:
        """The dtype by NumPy's name."""

    @optional
    def data_pointer(self, a: Array) -> Any:
        """The address of the first element, in bytes."""

    @optional
    def shares_memory(self, a: Array, b: Array) -> object:
        """The library's own answer whether two arrays have bytes in common."""

    @optional
    def is_writable(self, a: Array) -> object:
        """The library's own answer whether an array may be written."""

    # --- views, by PyTorch's names

    @optional
    def view(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Another shape on the same memory; an error if strides cannot express it."""

    @optional
    def reshape(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Another shape; shares memory if the library can."""

    @optional
    def flatten(self, a: Array) -> Array:
        """One dimension; shares memory if the library can."""

    @optional
    def transpose(self, a: Array, dim0: int, dim1: int) -> Array:
        """Two dimensions exchanged."""

    @optional
    def permute(self, a: Array, dims: tuple[int, ...]) -> Array:
        """The dimensions in another order."""

    @optional
    def expand(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Broadcast to a shape, without a copy."""

    @optional
    def select(self, a: Array, dim: int, index: int) -> Array:
        """One index of a dimension, which is removed."""

    @optional
    def narrow(self, a: Array, dim: int, start: int, length: int) -> Array:
        """A range of a dimension."""

    @optional
    def slice(self, a: Array, dim: int, start: int, stop: int, step: int) -> Array:
        """Every `step`-th index of a range of a dimension."""

    @optional
    def flip(self, a: Array, dim: int) -> Array:
        """A dimension reversed; a view if strides may be negative."""

    @optional
    def squeeze(self, a: Array, dim: int) -> Array:
        """Without a dimension of size 1."""

    @optional
    def unsqueeze(self, a: Array, dim: int) -> Array:
        """With a new dimension of size 1."""

    @optional
    def diagonal(self, a: Array) -> Array:
        """The main diagonal of the first two dimensions, as the last dimension."""

    @optional
    def as_strided(
        self, a: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> Array:
        """Any geometry on the memory of an array, counted from the start of that memory."""

    @optional
    def unfold(self, a: Array, dim: int, size: int, step: int) -> Array:
        """Windows of a dimension, which may overlap; the dimension of a window comes last."""

    @optional
    def split(self, a: Array, size: int, dim: int) -> Any:
        """Consecutive parts of a dimension; the last one may be shorter."""

    @optional
    def unbind(self, a: Array, dim: int) -> Any:
        """The slices along a dimension, as arrays without it."""

    @optional
    def view_dtype(self, a: Array, dtype: str) -> Array:
        """The same bytes read as another dtype."""

    @optional
    def real(self, a: Array) -> Array:
        """The real parts."""

    @optional
    def imag(self, a: Array) -> Array:
        """The imaginary parts."""

    @optional
    def getitem(self, a: Array, key: object) -> Array:
        """`a[key]` with integers, slices, None and Ellipsis only."""

    # --- picking: reads that copy

    @optional
    def pick(self, a: Array, places: list[int]) -> Array:
        """`a[places]`: rows by a list of integers."""

    @optional
    def pick_mask(self, a: Array, mask: list[bool]) -> Array:
        """`a[mask]`: the rows at which a mask is true."""

    # --- writes

    @optional
    def setitem(self, a: Array, key: object, value: object) -> None:
        """`a[key] = value` in place, with a key of `getitem` and an array or a number."""

    @optional
    def copy_(self, a: Array, b: Array) -> Array:
        """Writes the values of `b` into `a` in place."""

    @optional
    def fill_(self, a: Array, number: float) -> Array:
        """Writes one number into all of `a` in place."""

    @optional
    def add_(self, a: Array, b: Array | float) -> Array:
        """Adds an array or a number to `a` in place, and returns the library's result."""

    @optional
    def mul_(self, a: Array, b: Array | float) -> Array:
        """Multiplies `a` by an array or a number in place."""

    @optional
    def put(self, a: Array, places: list[int], value: Array | float) -> None:
        """`a[places] = value` in place; places may occur twice."""

    @optional
    def put_mask(self, a: Array, mask: list[bool], value: object) -> None:
        """`a[mask] = value` in place."""

    @optional
    def put_add(self, a: Array, places: list[int], value: Array | float) -> None:
        """Adds to rows of `a` in place; places that occur twice count twice."""

    @optional
    def add_out(self, a: Array, b: Array | float, out: Array) -> Array:
        """Writes `a + b` into `out`, and returns the library's result."""

    @optional
    def sum_out(self, a: Array, dim: int, out: Array) -> Array:
        """Writes the sum over a dimension into `out`."""

    @optional
    def cumsum_out(self, a: Array, dim: int, out: Array) -> Array:
        """Writes the running sum along a dimension into `out`."""

    @optional
    def matmul_out(self, a: Array, b: Array, out: Array) -> Array:
        """Writes the matrix product into `out`."""

    @optional
    def set_at(self, a: Array, key: object, value: object) -> Array:
        """A new array: `a` with `value` at `key`. `a` does not change."""

    @optional
    def add_at(self, a: Array, key: object, value: object) -> Array:
        """A new array: `a` with `value` added at `key`. `a` does not change."""

    @optional
    def frozen(self, values: list[object], dtype: str) -> Array:
        """A new array that nobody can write, by the library's promise."""

    # --- geometry in place

    @optional
    def transpose_(self, a: Array, dim0: int, dim1: int) -> Array:
        """Exchanges two dimensions of this object only; its memory and aliases stay."""

    @optional
    def unsqueeze_(self, a: Array, dim: int) -> Array:
        """Gives this object a new dimension of size 1; its memory and aliases stay."""

    @optional
    def resize_(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Gives this object another shape, and more memory if needed."""

    # --- functional ops

    @optional
    def add(self, a: Array, b: Array | float) -> Array:
        """`a + b`, new."""

    @optional
    def mul(self, a: Array, b: Array | float) -> Array:
        """`a * b`, new."""

    @optional
    def neg(self, a: Array) -> Array:
        """`-a`, new."""

    @optional
    def sum(self, a: Array, dim: int) -> Array:
        """The sum over a dimension, new."""

    @optional
    def sort(self, a: Array) -> Array:
        """Sorted along the last dimension, new."""

    @optional
    def concat(self, parts: list[Array], dim: int) -> Array:
        """Arrays joined along a dimension, new."""

    # --- copies

    @optional
    def clone(self, a: Array) -> Array:
        """A copy."""

    @optional
    def asarray(self, a: Array, copy: bool | None) -> Array:
        """The library's conversion of its own array. `copy`: True always, False never, None as it
        likes."""

    @optional
    def astype(self, a: Array, dtype: str, copy: bool) -> Array:
        """Converted; with `copy` False no copy is made if the dtype is right already."""

    @optional
    def reshape_copy(self, a: Array, shape: tuple[int, ...], copy: bool) -> Array:
        """Another shape. `copy`: True always; False never, with an error if it would have to."""

    @optional
    def contiguous(self, a: Array) -> Array:
        """A contiguous array; shares memory if `a` is contiguous."""

    # --- exchange with others

    @optional
    def from_numpy(self, a: Array) -> Array:
        """An array on the memory of a NumPy array."""

    @optional
    def convert(self, a: Array) -> Array:
        """The ordinary conversion of a NumPy array, which may share memory or copy."""

    @optional
    def to_numpy(self, a: Array) -> Any:
        """A NumPy array on the memory of `a`."""

    @optional
    def from_dlpack(self, a: Array) -> Array:
        """An array on the memory of any object that supports DLPack."""

    @optional
    def from_buffer(self, buffer: bytearray, dtype: str) -> Array:
        """A 1-d array on the memory of an object with the buffer protocol."""

    # --- Python's own protocols: defined here, because the language has them

    def assign_item(self, a: Array, key: object, value: object) -> None:
        """`a[key] = value`, whether or not the library supports it."""
        a[key] = value

    def iadd(self, a: Array, b: Array | float) -> Array:
        """The object that `a += b` would bind to `a`: the same one, or another."""
        if not any(hasattr(type(a), name) for name in ("__iadd__", "__add__")):
            raise Absent("+=")
        return operator.iadd(a, b)

    def deepcopy(self, values: list[Array]) -> object:
        """`copy.deepcopy` of a list of arrays."""
        return copy.deepcopy(values)

    def pickled(self, values: list[Array]) -> object:
        """A list of arrays through one pickle."""
        return pickle.loads(pickle.dumps(values))

    def memoryview(self, a: Array) -> Any:
        """The buffer of an array."""
        try:
            return memoryview(a)
        except TypeError as error:
            raise Absent("the buffer protocol") from error

    def orphan(self, values: list[object], dtype: str, steps: tuple[tuple[Any, ...], ...]) -> Array:
        """A view whose base nobody refers to; `steps` are names of views with their arguments."""
        a = self.from_list(values, dtype)
        for name, *arguments in steps:
            a = getattr(self, name)(a, *arguments)
        return a

    def from_dying_numpy(self, way: str, size: int) -> Array:
        """The result of a method on a NumPy array that nobody else refers to."""
        return getattr(self, way)(self.numpy_source(size))

    # --- the other side of an exchange: NumPy's arrays and Python's bytes

    def dlpack_to_numpy(self, a: Array) -> Any:
        """NumPy's array by DLPack."""
        if not hasattr(a, "__dlpack__"):
            raise Absent("__dlpack__")
        return np.from_dlpack(a)

    def numpy_source(self, size: int) -> object:
        """A NumPy array 0, 1, 2, ..., aligned to 64 bytes: some libraries share no other."""
        memory = np.empty(8 * size + 64, "uint8")
        start = -memory.ctypes.data % 64
        a = memory[start : start + 8 * size].view("int64")
        a[:] = range(size)
        return a

    def numpy_read_only(self, size: int) -> object:
        """The same array, read-only."""
        a = np.arange(size)
        a.flags.writeable = False
        return a

    def index_numpy(self, a: Any, key: object) -> object:
        """A view of a NumPy array."""
        return a[key]

    def numpy_values(self, a: Any) -> Any:
        """The values of a NumPy array."""
        return a.tolist()

    def python_bytes(self, size: int, writable: bool) -> Any:
        """The bytes 0, 1, 2, ... as an object with the buffer protocol."""
        return bytearray(range(size)) if writable else bytes(range(size))
