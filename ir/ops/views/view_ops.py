"""View ops: geometry rules, inverses (`put`) and gradients. Rules: TEN-2, FUN-7, FUN-8.

A rule gives (meta, start): the result's meta, and the position of its first element, counted in
elements from the operand's first. `put(parent, value, *args)` obeys the lens laws:
view(put(p, v)) = v; put(p, view(p)) = p; put(put(p, a), b) = put(p, b). With `put=None` the inverse
is the derived op `<name>_scatter`.
"""

from __future__ import annotations

from aotlite.ir.errors import AliasError, ArgumentError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.geometry.single_element import is_one
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import geometry_of, view
from aotlite.ir.ops.views.forms import in_shape

Window = tuple[TensorMeta, int]
Ints = tuple[int, ...]


def _seen(
    meta: TensorMeta, shape: tuple[int, ...], stride: tuple[int, ...], start: int = 0
) -> Window:
    return tensor_meta(shape, stride, meta.dtype, meta.device), start


def _reordered(meta: TensorMeta, order: tuple[int, ...]) -> Window:
    return _seen(meta, tuple(meta.shape[i] for i in order), tuple(meta.stride[i] for i in order))


# ------------------------------------------------------------------------------- same geometry
def _unchanged(self: TensorMeta) -> Window:
    return self, 0


ALIAS = view(
    "alias(Tensor(a) self) -> Tensor(a)",
    meta=_unchanged,
    put=lambda parent, value: value,
    vjp={"self": lambda grad: grad},
    keeps_all=True,
)

DETACH = view(
    "detach(Tensor(a) self) -> Tensor(a)",
    meta=_unchanged,
    put=lambda parent, value: value,
    vjp=None,
    keeps_all=True,
)

HIDDEN_ALIAS = view(
    "hidden_alias(Tensor(a) self) -> Tensor(a)",
    meta=_unchanged,
    put=lambda parent, value: value,
    vjp=None,
    keeps_all=True,
)
"""Like `detach`, but the result has a version counter of its own (TEN-5)."""


# ------------------------------------------------------------------------------------ reshaping
def _view(self: TensorMeta, size: tuple[int, ...]) -> Window:
    shape = sizes.infer_size(size, self.numel, op="view")
    stride = layout.view_strides(self.shape, self.stride, shape)
    if stride is None:
        raise ShapeError(
            f"view: shape {shape} is not expressible on shape {self.shape} with strides "
            f"{self.stride}, expected strides that merge; use reshape"
        )
    return _seen(self, shape, stride)


VIEW = view(
    "view(Tensor(a) self, int[] size) -> Tensor(a)",
    meta=_view,
    put=lambda parent, value, size: in_shape(value, parent.shape),
    vjp={"self": lambda grad, self_meta: in_shape(grad, self_meta.shape)},
    keeps_all=True,
)


def _unsqueeze(self: TensorMeta, dim: int) -> Window:
    dim = sizes.wrap_dim(dim, len(self.shape) + 1, op="unsqueeze")
    step = self.shape[dim] * self.stride[dim] if dim < len(self.shape) else 1
    return _seen(
        self,
        (*self.shape[:dim], 1, *self.shape[dim:]),
        (*self.stride[:dim], step, *self.stride[dim:]),
    )


UNSQUEEZE = view(
    "unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
    meta=_unsqueeze,
    put=lambda parent, value, dim: value.squeeze(dim),
    vjp={"self": lambda grad, dim: grad.squeeze(dim)},
    keeps_all=True,
)


def _squeezed(shape: tuple[int, ...], dim: tuple[int, ...] | None) -> tuple[int, ...]:
    """The dimensions that stay."""
    asked = range(len(shape)) if dim is None else sizes.wrap_dims(dim, len(shape), op="squeeze")
    return tuple(i for i in range(len(shape)) if i not in asked or shape[i] != 1)


def _squeeze(self: TensorMeta, dim: tuple[int, ...] | None) -> Window:
    return _reordered(self, _squeezed(self.shape, dim))


SQUEEZE = view(
    "squeeze(Tensor(a) self, int[]? dim=None) -> Tensor(a)",
    meta=_squeeze,
    put=lambda parent, value, dim: in_shape(value, parent.shape),
    vjp={"self": lambda grad, self_meta: in_shape(grad, self_meta.shape)},
    keeps_all=True,
)


# ------------------------------------------------------------------------------ order of dims
def _transpose(self: TensorMeta, dim0: int, dim1: int) -> Window:
    if not self.shape:
        sizes.wrap_dim(dim0, 0, op="transpose")
        sizes.wrap_dim(dim1, 0, op="transpose")
        return self, 0
    order = list(range(len(self.shape)))
    a = sizes.wrap_dim(dim0, len(order), op="transpose")
    b = sizes.wrap_dim(dim1, len(order), op="transpose")
    order[a], order[b] = order[b], order[a]
    return _reordered(self, tuple(order))


TRANSPOSE = view(
    "transpose(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    meta=_transpose,
    put=lambda parent, value, dim0, dim1: value.transpose(dim0, dim1),
    vjp={"self": lambda grad, dim0, dim1: grad.transpose(dim0, dim1)},
    keeps_all=True,
)


def _t(self: TensorMeta) -> Window:
    if len(self.shape) > 2:
        raise ShapeError(f"t: the tensor has shape {self.shape}, expected at most 2 dimensions")
    return _reordered(self, tuple(reversed(range(len(self.shape)))))


T = view(
    "t(Tensor(a) self) -> Tensor(a)",
    meta=_t,
    put=lambda parent, value: value.t(),
    vjp={"self": lambda grad: grad.t()},
    keeps_all=True,
)


def _order(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    # Their number first, as in PyTorch: only then is a dimension that there is not an IndexError.
    order: tuple[int, ...] = ()
    if len(dims) == ndim:
        order = tuple(sizes.wrap_dim(d, ndim, op="permute") for d in dims)
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"permute: dims is {dims}, expected each of {ndim} dimensions once")
    return order


def _permute(self: TensorMeta, dims: tuple[int, ...]) -> Window:
    return _reordered(self, _order(dims, len(self.shape)))


def _permute_back(value: Operand, dims: tuple[int, ...]) -> Operand:
    order = _order(dims, len(value.shape))
    return value.permute(tuple(order.index(i) for i in range(len(order))))


PERMUTE = view(
    "permute(Tensor(a) self, int[] dims) -> Tensor(a)",
    meta=_permute,
    put=lambda parent, value, dims: _permute_back(value, dims),
    vjp={"self": lambda grad, dims: _permute_back(grad, dims)},
    keeps_all=True,
)


# ------------------------------------------------------------------------------------ repeating
def _expand(self: TensorMeta, size: tuple[int, ...]) -> Window:
    extra = len(size) - len(self.shape)
    if extra < 0:
        raise ShapeError(
            f"expand: size {size} has {len(size)} dimensions, expected at least {len(self.shape)}"
        )
    shape, stride = [], []
    for i, wanted in enumerate(size):
        have = self.shape[i - extra] if i >= extra else 1
        step = self.stride[i - extra] if i >= extra else 0
        keep = wanted == -1 and i >= extra
        if not keep and wanted != have and have != 1 or wanted < -1 or (wanted == -1 and not keep):
            raise ShapeError(
                f"expand: size {wanted} at dimension {i} does not fit size {have} of shape "
                f"{self.shape}, expected the same size, -1, or a dimension of size 1"
            )
        shape.append(have if keep else wanted)
        if keep or i >= extra and (sizes.always_equal(wanted, have) or have != 1):
            stride.append(step)
        else:  # a dimension that stays of size 1 keeps its stride; `step` is 0 for a new one
            stride.append(step * is_one(wanted))
    if self.shape:
        for i in reversed(range(extra)):  # PyTorch steps over a whole row where there is one only
            stride[i] = shape[i + 1] * stride[i + 1] * is_one(size[i])
    return _seen(self, tuple(shape), tuple(stride))


def _put_expand(parent: Operand, value: Operand, size: tuple[int, ...]) -> Operand:
    """Takes one copy: all are equal, as only `fill_` and `zero_` may write them (TEN-7)."""
    for size_before in value.shape[: len(value.shape) - len(parent.shape)]:
        if size_before == 0:
            return parent
        value = value.select(0, 0)
    for dim, (have, grown) in enumerate(zip(parent.shape, value.shape, strict=True)):
        if have != grown:
            if grown == 0:
                return parent
            value = value.narrow(dim, 0, 1)
    return value


EXPAND = view(
    "expand(Tensor(a) self, int[] size) -> Tensor(a)",
    meta=_expand,
    put=_put_expand,
    vjp={"self": lambda grad, self_meta: grad.sum_to(self_meta.shape)},
)


# ------------------------------------------------------------------------------------ narrowing
def _select(self: TensorMeta, dim: int, index: int) -> Window:
    if not self.shape:
        raise ShapeError("select: the tensor has no dimensions, expected at least 1")
    dim = sizes.wrap_dim(dim, len(self.shape), op="select")
    size = self.shape[dim]
    if not -size <= index < size:
        raise IndexOutOfRangeError(
            f"select: index is {index}, expected {-size} <= index < {size}, the size of dimension "
            f"{dim}"
        )
    order = tuple(i for i in range(len(self.shape)) if i != dim)
    return _reordered(self, order)[0], (index % size) * self.stride[dim]


SELECT = view(
    "select(Tensor(a) self, int dim, int index) -> Tensor(a)",
    meta=_select,
    put=None,
    vjp={
        "self": lambda grad, self_meta, dim, index: grad.new_zeros(self_meta.shape).select_scatter(
            grad, dim, index
        )
    },
)


def _slice(self: TensorMeta, dim: int, start: int | None, end: int | None, step: int) -> Window:
    if not self.shape:
        raise ShapeError("slice: the tensor has no dimensions, expected at least 1")
    if step < 1:
        raise ArgumentError(f"slice: argument 'step' is {step}, expected at least 1")
    dim = sizes.wrap_dim(dim, len(self.shape), op="slice")
    first, last = sizes.slice_bounds(start, end, self.shape[dim])
    length = sizes.ceil_div(last - first, step)
    shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
    stride = (*self.stride[:dim], self.stride[dim] * step, *self.stride[dim + 1 :])
    return _seen(self, shape, stride, first * self.stride[dim])


SLICE = view(
    "slice(Tensor(a) self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor(a)",
    meta=_slice,
    put=None,
    vjp={
        "self": lambda grad, self_meta, dim, start, end, step: grad.new_zeros(
            self_meta.shape
        ).slice_scatter(grad, dim, start, end, step)
    },
)


def _diagonal(self: TensorMeta, offset: int, dim1: int, dim2: int) -> Window:
    ndim = len(self.shape)
    a = sizes.wrap_dim(dim1, ndim, op="diagonal")
    b = sizes.wrap_dim(dim2, ndim, op="diagonal")
    if a == b:
        raise ShapeError(f"diagonal: dim1 and dim2 are both {a}, expected two dimensions")
    rows, columns = self.shape[a], self.shape[b]
    if offset >= 0:
        length = sizes.minimum(rows, columns - offset)
    else:
        length = sizes.minimum(rows + offset, columns)
    length = sizes.maximum(length, 0)
    start = offset * self.stride[b] if offset >= 0 else -offset * self.stride[a]
    start *= sizes.minimum(length, 1)  # an empty diagonal starts where its operand does
    rest = [i for i in range(ndim) if i not in (a, b)]
    shape = (*(self.shape[i] for i in rest), length)
    stride = (*(self.stride[i] for i in rest), self.stride[a] + self.stride[b])
    return _seen(self, shape, stride, start)


DIAGONAL = view(
    "diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
    meta=_diagonal,
    put=None,
    vjp={
        "self": lambda grad, self_meta, offset, dim1, dim2: grad.new_zeros(
            self_meta.shape
        ).diagonal_scatter(grad, offset, dim1, dim2)
    },
)


# ------------------------------------------------------------------------- windows and strides
def _unfold(self: TensorMeta, dimension: int, size: int, step: int) -> Window:
    dim = sizes.wrap_dim(dimension, len(self.shape), op="unfold")
    have = self.shape[dim] if self.shape else 1
    if step < 1 or size < 0:
        raise ArgumentError(
            f"unfold: size is {size} and step is {step}, expected size >= 0 and step >= 1"
        )
    if size > have:
        raise ShapeError(
            f"unfold: size is {size}, expected at most {have}, the size of dimension {dim}"
        )
    if not self.shape:
        return _seen(self, (size,), (1,))
    count = (have - size) // step + 1
    shape = (*self.shape[:dim], count, *self.shape[dim + 1 :], size)
    base = self.stride[dim]
    stride = (*self.stride[:dim], base * step, *self.stride[dim + 1 :], base)
    return _seen(self, shape, stride)


def _put_unfold(parent: Operand, value: Operand, dimension: int, size: int, step: int) -> Operand:
    if step < size and value.size(dimension) > 1:
        if 0 in value.shape:  # no element, and so none that two windows share
            return parent
        raise AliasError(
            f"unfold: windows of size {size} with step {step} overlap, expected windows that do "
            "not, to be written"
        )
    return parent.unfold_scatter(value, dimension, size, step)


def _unfold_vjp(
    grad: Operand, self_meta: TensorMeta, dimension: int, size: int, step: int
) -> Operand:
    seen, start = _unfold(self_meta.as_contiguous(), dimension, size, step)
    return grad.strided_accumulate(self_meta.shape, seen.stride, start)


UNFOLD = view(
    "unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
    meta=_unfold,
    put=_put_unfold,
    vjp={"self": _unfold_vjp},
)


def _as_strided(
    self: TensorMeta, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Window:
    if len(size) != len(stride):
        raise ShapeError(
            f"as_strided: size {size} and stride {stride} differ in length, expected a stride for "
            "each size"
        )
    if any(n < 0 for n in size) or any(n < 0 for n in stride):
        raise ShapeError(f"as_strided: size {size}, stride {stride}, expected no negative number")
    return _seen(self, size, stride, offset)


def _as_strided_vjp(
    grad: Operand,
    self_meta: TensorMeta,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
) -> Operand:
    """The gradient of the operand's elements; that of memory outside the operand is dropped."""
    lead = (
        0 if sizes.is_symbolic((offset,)) else max(-offset, 0)
    )  # the window begins before the operand
    start = lead + offset
    span = grad.strided_accumulate((start + layout.span(size, stride),), stride, start)
    missing = lead + self_meta.span - span.numel()
    if missing > 0:
        zeros = span.new_zeros((lead + self_meta.span,))
        span = zeros.slice_scatter(span, 0, 0, span.numel(), 1)
    whole = window_on_operand(span, self_meta.shape, self_meta.stride, lead)
    if self_meta.dense or not has_internal_overlap(self_meta.shape, self_meta.stride):
        return whole
    # Elements in one place share what flows to it.
    ones = grad.new_zeros(self_meta.shape) + 1
    count = ones.strided_accumulate((self_meta.span,), self_meta.stride, 0)
    return whole / window_on_operand(count, self_meta.shape, self_meta.stride, 0)


def window_on_operand(value: Operand, size: Ints, stride: Ints, offset: int) -> Operand:
    """`as_strided` with the op's offset, which counts from the operand's first element."""
    return value._do("as_strided", size, stride, offset)


AS_STRIDED = view(
    "as_strided(Tensor(a) self, int[] size, int[] stride, int offset=0) -> Tensor(a)",
    meta=_as_strided,
    put=None,
    vjp={"self": _as_strided_vjp},
)
"""`offset` counts from the operand's first element (the tensor method takes storage offsets)."""


T_ = geometry_of(T, "t_")
TRANSPOSE_ = geometry_of(TRANSPOSE, "transpose_")
SQUEEZE_ = geometry_of(SQUEEZE, "squeeze_")
UNSQUEEZE_ = geometry_of(UNSQUEEZE, "unsqueeze_")
AS_STRIDED_ = geometry_of(AS_STRIDED, "as_strided_")
