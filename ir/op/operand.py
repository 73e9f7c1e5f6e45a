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
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.memory_format import MemoryFormat, contiguous_format, has_format
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Op
from aotlite.ir.op.composite import COMPOSITES, Composite, described, face_of
from aotlite.ir.op.named_results import results_of

S = TypeVar("S", bound="Operand")


def _unary(name: str) -> Callable[[S], S]:
    """The method of a unary operator: an op of one operand."""

    def operator(self: S) -> S:
        return self._do(name)

    return operator


def _binary(name: str) -> Callable[[S, object], S]:
    """The method of a binary operator: an op whose first operand is `self`."""

    def operator(self: S, other: object) -> S:
        return self._do(name, other)

    return operator


def _reflected(name: str) -> Callable[[S, object], S]:
    """The method of a reflected operator: an op whose second operand is `self`."""

    def operator(self: S, other: object) -> S:
        op = OPS[name]
        return self._apply(op, op.bind((other, self), {}))

    return operator


def _compared(name: str) -> Callable[[S, object], S]:
    """The method of `==` or `!=`; it gives NotImplemented for what cannot be an element (None, a
    str), so that Python compares identities."""

    def operator(self: S, other: object) -> S:
        op = OPS[name]
        try:
            args = op.bind((self, other), {})
        except ArgumentError:
            if hasattr(other, "meta") or hasattr(other, "__array__") or type(other) is int:
                raise
            return NotImplemented
        return self._apply(op, args)

    return operator


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
        def item(self) -> Any: ...
        def tolist(self) -> Any: ...
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

    def is_conj(self) -> bool:
        """False: a conjugate is a copy (TEN-35), as a negative is."""
        return False

    is_neg = is_conj

    # --- operators
    __add__ = __radd__ = _binary("add")
    __sub__ = _binary("sub")
    __rsub__ = _binary("rsub")
    __mul__ = __rmul__ = _binary("mul")
    __truediv__ = _binary("div")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__ = _binary("remainder")
    __rmod__ = _reflected("remainder")
    __pow__ = _binary("pow")
    __rpow__ = _reflected("pow")
    __matmul__ = _binary("matmul")
    __rmatmul__ = _reflected("matmul")
    __and__ = __rand__ = _binary("bitwise_and")
    __or__ = __ror__ = _binary("bitwise_or")
    __xor__ = __rxor__ = _binary("bitwise_xor")
    __lshift__ = _binary("bitwise_left_shift")
    __rlshift__ = _reflected("bitwise_left_shift")
    __rshift__ = _binary("bitwise_right_shift")
    __rrshift__ = _reflected("bitwise_right_shift")
    __lt__ = _binary("lt")
    __le__ = _binary("le")
    __gt__ = _binary("gt")
    __ge__ = _binary("ge")
    __eq__ = _compared("eq")  # type: ignore[assignment]
    __ne__ = _compared("ne")  # type: ignore[assignment]
    __hash__ = object.__hash__
    __neg__ = _unary("neg")
    __abs__ = _unary("abs")
    __invert__ = _unary("bitwise_not")
    __iadd__ = _binary("add_")
    __isub__ = _binary("sub_")
    __imul__ = _binary("mul_")
    __itruediv__ = _binary("div_")
    __ifloordiv__ = _binary("floor_divide_")
    __imod__ = _binary("remainder_")
    __ipow__ = _binary("pow_")
    __iand__ = _binary("bitwise_and_")
    __ior__ = _binary("bitwise_or_")
    __ixor__ = _binary("bitwise_xor_")
    __ilshift__ = _binary("bitwise_left_shift_")
    __irshift__ = _binary("bitwise_right_shift_")

    def __rtruediv__(self, other: object) -> Self:
        return self.reciprocal() * other

    def __pos__(self) -> Self:
        return self.positive()

    # --- the inverses of broadcasting and promotion, for gradients
    def sum_to(self, shape: Sequence[int]) -> Self:
        """The sum over the dimensions that broadcasting from `shape` added or expanded."""
        shape = tuple(shape)
        extra = self.ndim - len(shape)
        pairs = zip(range(extra, self.ndim), shape, self.shape[extra:], strict=True)
        differ = [(i, n, have) for i, n, have in pairs if not sizes.always_equal(n, have)]
        # The sum over a dimension of size 1 is right, too: whether it is one, nobody asks (DYN-4).
        kept = [i for i, n, have in differ if sizes.always_equal(n, 1) or (n != have and n == 1)]
        summed = self._do("sum", (*range(extra), *kept), True) if extra or kept else self
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
