"""Copies and overwriting: clone, restride, copy_, fill_."""

from __future__ import annotations

from aotlite.ir.arrays import NUMPY, Array, Namespace, host_array
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import elementwise
from aotlite.ir.ops.creation.factories import filled_parts, fitted
from aotlite.ir.ops.declare import in_parts, inplace_of, pure
from aotlite.ir.ops.precision import converted


def _clone_rule(self: TensorMeta) -> TensorMeta:
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


CLONE = pure(
    "clone(Tensor self) -> Tensor",
    meta=_clone_rule,
    kernel=lambda xp, meta, a: a,
    loops=lambda k, meta, a: k.map(meta, lambda *i: a[i]),
    namespaced=lambda meta, self: ("copy", {}) if self.contiguous else None,
    vjp={"self": lambda grad: grad},
    cost=Cost.POINTWISE,
    dims=elementwise,
    linear=(("self",),),
)
"""A copy with the same strides if they are dense, else those PyTorch's preserve_format gives."""


def _restride_rule(self: TensorMeta, stride: tuple[int, ...]) -> TensorMeta:
    if len(stride) != len(self.shape) or any(step < 0 for step in stride):
        raise ShapeError(
            f"restride: argument 'stride' is {stride}, expected {len(self.shape)} strides, none "
            "negative"
        )
    return self.with_stride(stride)


RESTRIDE = pure(
    "restride(Tensor self, int[] stride) -> Tensor",
    meta=_restride_rule,
    kernel=lambda xp, meta, a, stride: a,
    loops=lambda k, meta, a, stride: k.map(meta, lambda *i: a[i]),
    vjp={"self": lambda grad: grad},
    cost=Cost.POINTWISE,
    dims=elementwise,
    linear=(("self",),),
)
"""A copy with exactly these strides (FUN-12)."""


# ------------------------------------------------------------------------------ other devices
def _moved_rule(self: TensorMeta, device: Device) -> TensorMeta:
    return tensor_meta(
        self.shape, layout.clone_strides(self.shape, self.stride), self.dtype, device
    )


def _moved_kernel(xp: Namespace, meta: TensorMeta, a: Array, device: Device) -> Array:
    # Other libraries take arrays of the host, and of their own on other devices.
    return host_array(a) if device.arrays is NUMPY else a


TO_DEVICE: PureOp = pure(
    "to_device(Tensor self, device device) -> Tensor",
    meta=_moved_rule,
    kernel=_moved_kernel,
    vjp={"self": lambda grad, self_meta: grad._do("to_device", self_meta.device)},
    cost=Cost.INDEXING,
    dims=elementwise,
    linear=(("self",),),
)
"""A copy on another device (DEV-7)."""


# ------------------------------------------------------------------------------ overwriting
def _copy_rule(self: TensorMeta, src: TensorMeta) -> TensorMeta:
    if sizes.broadcast_shapes(self.shape, src.shape, op="copy_") != self.shape:
        raise ShapeError(
            f"copy_: the source has shape {src.shape}, expected one that broadcasts to {self.shape}"
        )
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


COPY: PureOp = pure(
    "copy(Tensor self, Tensor src) -> Tensor",
    meta=_copy_rule,
    kernel=lambda xp, meta, a, src: converted(xp, xp.broadcast_to(src, meta.shape), meta.dtype),
    loops=lambda k, meta, a, src: k.map(meta, lambda *i: k.cast(src.at(i), meta.dtype)),
    vjp={
        "self": lambda grad: grad.new_zeros(grad.shape),
        "src": lambda grad: grad,
    },
    cost=Cost.POINTWISE,
    dims=elementwise,
)
"""`src` broadcast and cast to self's geometry; self's values do not matter (FUN-5)."""
COPY_ = inplace_of(COPY, overwrites=True)

FILL: PureOp = pure(
    "fill(Tensor self, Scalar value) -> Tensor",
    meta=lambda self, value: self.with_stride(layout.clone_strides(self.shape, self.stride)),
    kernel=lambda xp, meta, a, value: xp.full(
        meta.shape, fitted("fill", value, meta.dtype), dtype=meta.dtype.numpy
    ),
    loops=lambda k, meta, a, value: k.map(meta, lambda *i: fitted("fill", value, meta.dtype)),
    vjp={"self": lambda grad: grad.new_zeros(grad.shape)},
    cost=Cost.FACTORY,
    dims=elementwise,
)
FILL_ = inplace_of(FILL, overwrites=True)
in_parts(FILL, filled_parts)
