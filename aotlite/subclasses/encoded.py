"""`EncodedTensor`: a base for wrappers whose parts encode one dense tensor, such as quantized ones.

A subclass defines how its parts are decoded, how a dense value is encoded into them, and which
views of the dense tensor are views of the parts. All ops follow from these: they decode, compute,
and return dense results; an in-place op also encodes. Rules: SUB-15, SUB-17, SUB-23.
Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import FUNCTIONS as ops
from aotlite.eager.subclass.op_functions import function_of
from aotlite.ir.errors import AotliteError, ProtocolError, SubclassError, noted
from aotlite.ir.geometry.overlap import has_internal_overlap
from aotlite.ir.op import MultiViewOp, Op, ViewOp, op_named

View = Callable[..., Any]


def _absent(wrapper: Tensor, name: str) -> Exception:
    """The error for a class derived from `EncodedTensor` that lacks one of its three methods."""
    kind = type(wrapper).__name__
    return noted(
        ProtocolError(f"{kind}: it has no method {name!r}, expected a class with it"),
        "A class derived from EncodedTensor has decode, _encode and _viewed. (SUB-1)",
    )


class EncodedTensor(Tensor):
    """A tensor in an encoded form. Subclasses define `decode`, `_encode` and `_viewed`.

    It is differentiable: its gradients are dense, and are those of the decoded tensor. An in-place
    op passes gradients straight through the encoding, as if that did not round.

    >>> import aotlite as al
    >>> class Halved(EncodedTensor):
    ...     '''Numbers stored as their halves.'''
    ...     def __new__(cls, half):
    ...         make = al.Tensor._make_wrapper_subclass
    ...         made = make(cls, half.shape, half.stride(), dtype=half.dtype)
    ...         made.half = half
    ...         return made
    ...     def __tensor_flatten__(self):
    ...         return ["half"], None
    ...     @staticmethod
    ...     def __tensor_unflatten__(inner, spec, outer_size, outer_stride):
    ...         return Halved(inner["half"])
    ...     def decode(self):
    ...         return self.half * 2
    ...     def _encode(self, value):
    ...         self.half.copy_(value / 2)
    ...     def _viewed(self, view, rest):
    ...         return Halved(view(self.half, *rest))
    >>> x = Halved(al.tensor([1.0, 2.0]))
    >>> x[0].add_(6.0).item(), x + 0
    (8.0, tensor([8., 4.]))
    """

    def decode(self) -> Tensor:
        """The dense tensor that it stands for, in new memory."""
        raise _absent(self, "decode")

    def _encode(self, value: Tensor) -> None:
        """Writes a dense tensor of this shape into the parts, in place."""
        raise _absent(self, "_encode")

    def _viewed(self, view: View, rest: tuple[object, ...]) -> object:
        """An instance on views of the parts, for a view op and its canonical arguments after the
        first; NotImplemented where views of the parts cannot express it."""
        raise _absent(self, "_viewed")

    def __coerce_tangent_metadata__(self) -> Tensor:
        return self.decode()  # gradients are dense

    def item(self) -> Any:
        """The number of a tensor of one element."""
        return self.decode().item()

    def tolist(self) -> object:
        """The numbers as nested lists."""
        return self.decode().tolist()

    def __bool__(self) -> bool:
        return bool(self.decode())

    def __int__(self) -> int:
        return int(self.decode())

    def __float__(self) -> float:
        return float(self.decode())

    def __complex__(self) -> complex:
        return complex(self.decode())

    @classmethod
    def __tensor_dispatch__(
        cls, func: View, types: object, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> object:
        op: Op = func.op  # type: ignore[attr-defined]
        first = args[0]
        if op.views:
            return first._view_of(op, op.bind(args, kwargs)[1:])
        dense = [_decoded(value) for value in args]
        named = {name: _decoded(value) for name, value in kwargs.items()}
        if op.writes and isinstance(first, EncodedTensor):
            if op.name == "copy_" and args[1] is first:
                return first
            if op.name == "fill_":
                first._fill(*dense[1:])
            else:
                first._encode(function_of(op.functional)(*dense, **named))  # type: ignore[attr-defined]
            return first
        return func(*dense, **named)

    def _fill(self, number: object) -> None:
        """Writes a number to all elements; some may share an address (TEN-7)."""
        x = self._once()
        if not has_internal_overlap(x.shape, x.stride()):
            x._encode(ops.fill(x.decode(), number))
            return
        for place in range(x.shape[0]):
            x._view_of(op_named("select"), (0, place))._fill(number)

    def _once(self) -> EncodedTensor:
        """The tensor without expanded dimensions."""
        x = self
        for dim, (size, stride) in enumerate(zip(self.shape, self.stride(), strict=True)):
            if size > 1 and not stride:
                x = x._view_of(op_named("slice"), (dim, 0, 1, 1))
        return x

    def _view_of(self, op: Op, rest: tuple[object, ...]) -> Any:
        """The results of a view op; raises unless they consist of views of the parts."""
        if isinstance(op, MultiViewOp):
            return tuple([self._view_of(view, args) for view, args in op.parts((self, *rest))])
        assert isinstance(op, ViewOp)
        try:
            found = self._viewed(function_of(op), rest)
        except ProtocolError:
            raise
        except AotliteError as error:
            raise self._unseen(op, rest) from error
        if found is NotImplemented:
            raise self._unseen(op, rest)
        return found

    def _unseen(self, op: Op, rest: tuple[object, ...]) -> Exception:
        shown = ", ".join(map(repr, rest))
        return noted(
            SubclassError(
                f"{op.name}: {op.name}({shown}) of a {type(self).__name__} of shape {self.shape} "
                "is no view of its parts, expected one that is"
            ),
            "Take the view of decode(), which is dense and has memory of its own. (SUB-17)",
        )


def _decoded(value: object) -> object:
    if isinstance(value, EncodedTensor):
        return value.decode()
    if isinstance(value, tuple):
        return tuple([_decoded(each) for each in value])
    return value


def wrong(cls: type[Tensor], attribute: str, found: object, expected: str) -> Exception:
    """The error for an invalid part of a wrapper (SUB-1)."""
    return noted(
        SubclassError(f"{cls.__name__}: {attribute} is {found}, expected {expected}"),
        f"What {cls.__name__} is made of is said by its docstring. (SUB-1)",
    )
