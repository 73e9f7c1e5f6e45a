"""Views of the same bytes as another dtype: `view_dtype`, `view_as_real`, `view_as_complex`.

The offset of such a view counts its own elements (`ViewOp.at`). A view of larger elements is
possible only at an aligned offset. Pure graphs, whose values have no offset, use the copying forms
instead. Rules: TEN-6, FUN-8.
"""

from __future__ import annotations

from collections.abc import Callable

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure, real_of, view
from aotlite.ir.ops.loops import Loops, LoopTensor

Window = tuple[TensorMeta, int]

_COMPLEX = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


# --------------------------------------------------------------------------------- other elements
def _view_dtype(self: TensorMeta, dtype: DType) -> Window:
    old, new = self.dtype.itemsize, dtype.itemsize
    if old == new:
        return self.with_dtype(dtype), 0
    _check_last("view_dtype", self, dtype)
    shape, stride = self.shape, self.stride
    if old > new:
        ratio = old // new
        steps = tuple(step * ratio for step in stride[:-1])
        return tensor_meta((*shape[:-1], shape[-1] * ratio), (*steps, 1), dtype, self.device), 0
    steps = _wider("view_dtype", self, new // old)
    return tensor_meta((*shape[:-1], shape[-1] // (new // old)), (*steps, 1), dtype, self.device), 0


def _check_last(name: str, self: TensorMeta, dtype: DType) -> None:
    if not self.shape:
        raise ShapeError(
            f"{name}: the tensor has no dimensions, expected at least 1 to see {self.dtype} as "
            f"{dtype}, of another size"
        )
    if self.stride[-1] != 1:
        raise ShapeError(
            f"{name}: the stride of the last dimension is {self.stride[-1]}, expected 1 to see "
            f"{self.dtype} as {dtype}, of another size"
        )


def _wider(name: str, self: TensorMeta, ratio: int) -> tuple[int, ...]:
    """The strides but the last in elements `ratio` times as large."""
    _check_size(name, self, ratio)
    for dim, step in enumerate(self.stride[:-1]):
        if step % ratio:
            raise ShapeError(
                f"{name}: the stride of dimension {dim} is {step}, expected a multiple of {ratio}"
            )
    return tuple(step // ratio for step in self.stride[:-1])


def _check_size(name: str, self: TensorMeta, ratio: int) -> None:
    if self.shape[-1] % ratio:
        raise ShapeError(
            f"{name}: the size of the last dimension is {self.shape[-1]}, expected a multiple of "
            f"{ratio}"
        )


def _view_dtype_copy(self: TensorMeta, dtype: DType) -> TensorMeta:
    """Of a dense copy, whose strides are multiples of its last size: they need no check."""
    old, new = self.dtype.itemsize, dtype.itemsize
    if old == new:
        return self.as_contiguous().with_dtype(dtype)
    _check_last("view_dtype", self.as_contiguous(), dtype)
    if old < new:
        _check_size("view_dtype", self, new // old)
    size = self.shape[-1] * (old // new) if old > new else self.shape[-1] // (new // old)
    return tensor_meta((*self.shape[:-1], size), None, dtype, self.device)


def _as_bytes(xp: Namespace, meta: TensorMeta, a: Array, *_: object) -> Array:
    """The bytes of the operand, laid out contiguously, as elements of the result."""
    if 0 in meta.shape:
        return xp.empty(meta.shape, dtype=meta.dtype.numpy)
    dense = xp.ascontiguousarray(a)
    return xp.reshape(dense.view(meta.dtype.numpy), meta.shape)


def _copy_of(rule: Callable[..., Window]) -> Callable[..., TensorMeta]:
    """The meta rule of a copy: what the view of a contiguous operand has."""
    return lambda self, *args: rule(self.as_contiguous(), *args)[0]


def _bits_loops(k: Loops, meta: TensorMeta, a: LoopTensor, dtype: DType) -> LoopTensor | None:
    """Where elements stay elements; a bool has no other bits than two."""
    if a.dtype.itemsize != dtype.itemsize or dtypes.bool_ in (a.dtype, dtype):
        return None
    return k.map(meta, lambda *i: k.bits(a[i], dtype))


VIEW_DTYPE_COPY = pure(
    "view_dtype_copy(Tensor self, dtype dtype) -> Tensor",
    meta=_view_dtype_copy,
    kernel=_as_bytes,
    loops=_bits_loops,
    vjp=None,
    cost=Cost.INDEXING,
)
VIEW_DTYPE = view(
    "view_dtype(Tensor(a) self, dtype dtype) -> Tensor(a)",
    meta=_view_dtype,
    put=lambda parent, value, dtype: value.view_dtype_copy(parent.dtype),
    vjp=None,
    keeps_all=True,
    recasts=True,
    copies=VIEW_DTYPE_COPY,
)
"""The bytes in another dtype (TEN-6); no gradient passes through, as in PyTorch."""


# ------------------------------------------------------------------------------- complex and real
def _view_as_real(self: TensorMeta) -> Window:
    if not self.dtype.is_complex:
        raise DTypeError(f"view_as_real: dtype is {self.dtype}, expected a complex one")
    steps = tuple(step * 2 for step in self.stride)
    return tensor_meta((*self.shape, 2), (*steps, 1), real_of(self.dtype), self.device), 0


def _view_as_complex(self: TensorMeta) -> Window:
    dtype = _COMPLEX.get(self.dtype)
    if dtype is None:
        raise DTypeError(f"view_as_complex: dtype is {self.dtype}, expected float32 or float64")
    _check_last("view_as_complex", self, dtype)
    if self.shape[-1] != 2:
        raise ShapeError(
            f"view_as_complex: the tensor has shape {self.shape}, expected a last dimension of "
            "size 2"
        )
    steps = _wider("view_as_complex", self, 2)
    return tensor_meta(self.shape[:-1], steps, dtype, self.device), 0


VIEW_AS_COMPLEX_COPY = pure(
    "view_as_complex_copy(Tensor self) -> Tensor",
    meta=_copy_of(_view_as_complex),
    kernel=_as_bytes,
    vjp={"self": lambda grad: grad.view_as_real()},
    cost=Cost.INDEXING,
)
VIEW_AS_REAL = view(
    "view_as_real(Tensor(a) self) -> Tensor(a)",
    meta=_view_as_real,
    put=lambda parent, value: value.view_as_complex_copy(),
    vjp={"self": lambda grad: grad.view_as_complex_copy()},
    keeps_all=True,
    recasts=True,
)
VIEW_AS_COMPLEX = view(
    "view_as_complex(Tensor(a) self) -> Tensor(a)",
    meta=_view_as_complex,
    put=lambda parent, value: value.view_as_real(),
    vjp={"self": lambda grad: grad.view_as_real()},
    keeps_all=True,
    recasts=True,
    copies=VIEW_AS_COMPLEX_COPY,
)


@composite(is_property=True, is_assignable=True)
def real(self: Operand) -> Operand:
    """The real parts: a view, and a real tensor itself."""
    return self.view_as_real()._do("select", -1, 0) if self.is_complex() else self


@composite(is_property=True, is_assignable=True)
def imag(self: Operand) -> Operand:
    """A view of the imaginary parts. Raises DTypeError for a real tensor."""
    if not self.is_complex():
        raise DTypeError(f"imag: dtype is {self.dtype}, expected a complex one")
    return self.view_as_real()._do("select", -1, 1)
