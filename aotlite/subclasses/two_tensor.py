"""`TwoTensor`: a pair of tensors of one geometry; each op runs on both. For tests.

It stands for the pair: a program on it must do the same as on the first and on the second alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import tangent_form
from aotlite.ir.errors import SubclassError, noted
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import same_meta
from aotlite.subclasses.encoded import wrong


class TwoTensor(Tensor):
    """Two tensors of the same shape, strides, dtype and device as one.

    >>> import aotlite as al
    >>> pair = TwoTensor(al.ones(2), al.zeros(2))
    >>> (pair + 1).b.tolist()
    [1.0, 1.0]
    """

    a: Tensor
    b: Tensor

    def __new__(cls, a: Tensor, b: Tensor, *, requires_grad: bool = False) -> TwoTensor:
        for name, part in {"a": a, "b": b}.items():
            if not isinstance(part, Tensor):
                raise wrong(cls, name, repr(part), "a tensor")
        if not same_meta(a.meta, b.meta):
            raise wrong(cls, "b", b.meta, f"the geometry of a, {a.meta}")
        meta = a.meta
        made: TwoTensor = Tensor._make_wrapper_subclass(
            cls, meta.shape, meta.stride, dtype=meta.dtype, device=meta.device
        )
        made.a, made.b = a, b
        return made.requires_grad_() if requires_grad else made  # type: ignore[return-value]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: None, outer_size: object, outer_stride: Any
    ) -> TwoTensor:
        made = cls(inner["a"], inner["b"])
        if made.meta.stride != outer_stride and made.meta.shape == outer_size:
            made.meta = tensor_meta(outer_size, outer_stride, made.dtype, made.device)
        return made

    def __coerce_tangent_metadata__(self) -> TwoTensor:
        forms = [tangent_form(self.a), tangent_form(self.b)]
        if not same_meta(forms[0].meta, forms[1].meta):  # of different classes, of other layouts
            forms = [x.restride(x.meta.as_contiguous().stride) for x in forms]
        return type(self)(*forms)

    @classmethod
    def __tensor_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...],
        kwargs: dict[str, object],
    ) -> object:
        if not all(issubclass(kind, TwoTensor) for kind in types):
            return NotImplemented
        written = args[0] if func.op.writes else None  # type: ignore[attr-defined]
        if written is not None and not isinstance(written, TwoTensor):
            raise noted(
                SubclassError(
                    f"{func.__name__}: the tensor that is written is a {type(written).__name__}, "
                    f"expected a {cls.__name__}, which a {cls.__name__} is written to"
                ),
                "A plain tensor cannot hold both parts: write a part, .a or .b. (SUB-15)",
            )
        a, b = (func(*_part(args, name), **_part(kwargs, name)) for name in ("a", "b"))
        if written is not None:
            return written
        if isinstance(a, tuple):
            return tuple([cls(*pair) for pair in zip(a, b, strict=True)])
        return cls(a, b)


def _part(value: object, name: str) -> Any:
    """The first or the second of every pair."""
    if isinstance(value, TwoTensor):
        return getattr(value, name)
    if isinstance(value, tuple):
        return tuple([_part(each, name) for each in value])
    if isinstance(value, dict):
        return {key: _part(each, name) for key, each in value.items()}
    return value
