"""`Operand`: the methods that eager tensors and graph proxies share.

Ground floor. Gradient formulas, the `put` of views and decompositions are written in these methods.
So one text runs in eager mode, under capture, and when a pass rebuilds a graph:

    grad * x.exp()      on tensors: computes      on proxies: emits `exp` and `mul`

`install_methods` adds a method for each op and composite. Written out here are the operators,
Python's protocols, and what depends on shape, strides and dtype alone. A subclass says in `_apply`
how an op is applied to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.memory_format import MemoryFormat, contiguous_format, has_format
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Op
from aotlite.ir.op.composite import COMPOSITES, Composite, described, face_of
from aotlite.ir.op.named_results import results_of


class Operand:
    """Anything with a `meta` that ops can be applied to."""

    __slots__ = ()

    if TYPE_CHECKING:
        meta: TensorMeta

        # Methods derived from the op table. Of several results each is one, too: a type checker
        # lets any operand be unpacked.
        def __getattr__(self, name: str) -> Callable[..., Self]: ...
        def __iter__(self) -> Iterator[Self]: ...
        def __len__(self) -> int: ...
        def __getitem__(self, key: object) -> Self: ...

        # The properties among the composites, and methods that do not return operands.
        @property
        def T(self) -> Self: ...
        @property
        def mT(self) -> Self: ...
        @property
        def H(self) -> Self: ...
        @property
        def mH(self) -> Self: ...
        @property
        def real(self) -> Self: ...
        @property
        def imag(self) -> Self: ...

    def _apply(self, op: Op, args: tuple[object, ...]) -> Any:
        raise TypeError(f"{type(self).__name__} must say how an op is applied to it")

    def _do(self, name: str, *args: object, **kwargs: object) -> Self:
        op = OPS[name]
        return self._apply(op, op.bind((self, *args), kwargs))

    def _run(self, name: str, *args: object) -> Self:
        """`_do` for arguments that are already canonical."""
        return self._apply(OPS[name], (self, *args))

    def _filled(self, size: tuple[int, ...], value: object, dtype: DType, device: object) -> Self:
        """A new value filled with a number: for `*_like` and `new_*`."""
        return self._apply(OPS["full"], (size, value, dtype, device))

    # --- geometry
    @property
    def shape(self) -> tuple[int, ...]:
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def device(self) -> Device:
        return self.meta.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    ndimension = dim

    def numel(self) -> int:
        """Number of elements."""
        return self.meta.numel

    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[sizes.wrap_dim(dim, self.ndim, op="size")]

    def stride(self, dim: int | None = None) -> Any:
        """The strides in elements, or the stride of one dimension."""
        stride = self.meta.stride
        return stride if dim is None else stride[sizes.wrap_dim(dim, len(stride), op="stride")]

    def is_contiguous(self, *, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements lie in this order, without gaps."""
        if memory_format is contiguous_format:
            return self.meta.contiguous
        return has_format(memory_format, self.shape, self.meta.stride)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps between them."""
        return self.meta.nbytes

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating one."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is a complex one."""
        return self.dtype.is_complex

    # --- arithmetic operators
    def __add__(self, other: object) -> Self:
        return self._do("add", other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Self:
        return self._do("sub", other)

    def __rsub__(self, other: object) -> Self:
        return self._do("rsub", other)

    def __mul__(self, other: object) -> Self:
        return self._do("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Self:
        return self._do("div", other)

    def __rtruediv__(self, other: object) -> Self:
        return self.reciprocal() * other

    def __pow__(self, exponent: object) -> Self:
        return self._do("pow", exponent)

    def __rpow__(self, base: object) -> Self:
        return self._reflected("pow", base)

    def __neg__(self) -> Self:
        return self._do("neg")

    def __abs__(self) -> Self:
        return self._do("abs")

    def __matmul__(self, other: object) -> Self:
        return self._do("matmul", other)

    def __rmatmul__(self, other: object) -> Self:
        op = OPS["matmul"]
        return self._apply(op, op.bind((other, self), {}))

    def __floordiv__(self, other: object) -> Self:
        return self._do("floor_divide", other)

    def __rfloordiv__(self, other: object) -> Self:
        return self._reflected("floor_divide", other)

    def __mod__(self, other: object) -> Self:
        return self._do("remainder", other)

    def __rmod__(self, other: object) -> Self:
        return self._reflected("remainder", other)

    def __invert__(self) -> Self:
        return self._do("bitwise_not")

    def __and__(self, other: object) -> Self:
        return self._do("bitwise_and", other)

    __rand__ = __and__

    def __or__(self, other: object) -> Self:
        return self._do("bitwise_or", other)

    __ror__ = __or__

    def __xor__(self, other: object) -> Self:
        return self._do("bitwise_xor", other)

    __rxor__ = __xor__

    def __lshift__(self, other: object) -> Self:
        return self._do("bitwise_left_shift", other)

    def __rlshift__(self, other: object) -> Self:
        return self._reflected("bitwise_left_shift", other)

    def __rshift__(self, other: object) -> Self:
        return self._do("bitwise_right_shift", other)

    def __rrshift__(self, other: object) -> Self:
        return self._reflected("bitwise_right_shift", other)

    def _reflected(self, name: str, first: object) -> Self:
        op = OPS[name]
        return self._apply(op, op.bind((first, self), {}))

    def __pos__(self) -> Self:
        return self.positive()

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._compared("ne", other)

    def _compared(self, name: str, other: object) -> Self:
        """The elementwise comparison; NotImplemented for what cannot be an element (None, a str),
        so that Python compares identities."""
        op = OPS[name]
        try:
            args = op.bind((self, other), {})
        except ArgumentError:
            if hasattr(other, "meta") or hasattr(other, "__array__") or type(other) is int:
                raise
            return NotImplemented
        return self._apply(op, args)

    def __lt__(self, other: object) -> Self:
        return self._do("lt", other)

    def __le__(self, other: object) -> Self:
        return self._do("le", other)

    def __gt__(self, other: object) -> Self:
        return self._do("gt", other)

    def __ge__(self, other: object) -> Self:
        return self._do("ge", other)

    __hash__ = object.__hash__

    def __iadd__(self, other: object) -> Self:
        return self._do("add_", other)

    def __isub__(self, other: object) -> Self:
        return self._do("sub_", other)

    def __imul__(self, other: object) -> Self:
        return self._do("mul_", other)

    def __itruediv__(self, other: object) -> Self:
        return self._do("div_", other)

    def __ifloordiv__(self, other: object) -> Self:
        return self._do("floor_divide_", other)

    def __imod__(self, other: object) -> Self:
        return self._do("remainder_", other)

    def __ipow__(self, other: object) -> Self:
        return self._do("pow_", other)

    def __iand__(self, other: object) -> Self:
        return self._do("bitwise_and_", other)

    def __ior__(self, other: object) -> Self:
        return self._do("bitwise_or_", other)

    def __ixor__(self, other: object) -> Self:
        return self._do("bitwise_xor_", other)

    def __ilshift__(self, other: object) -> Self:
        return self._do("bitwise_left_shift_", other)

    def __irshift__(self, other: object) -> Self:
        return self._do("bitwise_right_shift_", other)

    # --- the inverses of broadcasting and promotion, for gradients
    def sum_to(self, shape: Sequence[int]) -> Self:
        """The sum over the dimensions that broadcasting from `shape` added or expanded."""
        shape = tuple(shape)
        if sizes.same_shape(self.shape, shape):
            return self
        extra = self.ndim - len(shape)
        kept = [i + extra for i, n in enumerate(shape) if n == 1 and self.shape[i + extra] != 1]
        summed = self._do("sum", (*range(extra), *kept), True)
        return summed._do("view", shape) if extra else summed

    def to_kind(self, dtype: DType) -> Self:
        """`to(dtype)` for a gradient: the real part of complex values for a real dtype (TEN-36)."""
        lone = self.is_complex() and not dtype.is_complex
        return (self._do("real") if lone else self).to(dtype)


def install_methods() -> None:
    """Gives `Operand` a method for each op and composite that has one, unless written out above."""
    for made in COMPOSITES.values():
        if made.is_method:
            install_composite(made)
    for op in OPS.values():
        if op.name not in COMPOSITES:
            install_method(op)


def install_method(op: Op) -> None:
    """Gives `Operand` the method of an op whose first parameter is `self`."""
    first = op.schema.parameters[:1]
    if first and first[0].name == "self" and op.name not in Operand.__dict__:
        setattr(Operand, op.name, _method(op))


def install_composite(made: Composite) -> None:
    """Gives `Operand` the method or property of a composite."""
    if made.name not in Operand.__dict__:
        face = face_of(made)
        setter = _assigning(made) if made.is_assignable else None
        setattr(Operand, made.name, property(face, setter) if made.is_property else face)


def _assigning(made: Composite) -> Callable[[Operand, object], None]:
    """The setter of an assignable property: copies the value into what the property shows."""

    def assign(self: Operand, value: object) -> None:
        made.function(self).copy_(value)

    return assign


def _method(op: Op) -> Callable[..., object]:
    alone = len(op.schema.parameters) == 1

    def method(self: Operand, *args: object, **kwargs: object) -> Any:
        if alone and not args and not kwargs:  # nothing to bind
            return self._apply(op, (self,))
        return self._apply(op, op.bind((self, *args), kwargs))

    named = results_of(op.schema)

    def naming(self: Operand, *args: object, **kwargs: object) -> Any:
        return named(*method(self, *args, **kwargs))

    def nothing(self: Operand, *args: object, **kwargs: object) -> None:
        method(self, *args, **kwargs)

    face = nothing if not op.schema.returns else method if named is None else naming
    described(face, op.name, None, op.schema)
    return face
