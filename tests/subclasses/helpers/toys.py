"""Small wrapper classes for tests: scaled, logarithmic, boxed, labeled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import DTypeError, SubclassError
from aotlite.subclasses import EncodedTensor, TwoTensor


def wrapper(cls: type[Any], like: Tensor, **parts: Any) -> Any:
    """An instance in the geometry of a tensor, with these attributes."""
    geometry: Any = {"dtype": like.dtype, "device": like.device}
    made: Any = Tensor._make_wrapper_subclass(cls, like.shape, like.stride(), **geometry)
    for name, value in parts.items():
        setattr(made, name, value)
    return made


class Scaled(EncodedTensor):
    """A tensor times a number, which is the spec: a product with a number changes it alone."""

    inner: Tensor
    by: float

    def __new__(cls, inner: Tensor, by: float) -> Scaled:
        return wrapper(cls, inner, inner=inner, by=by)

    def __tensor_flatten__(self) -> tuple[list[str], float]:
        return ["inner"], self.by

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: float, size: Any, stride: Any) -> Scaled:
        return cls(inner["inner"], spec)

    def decode(self) -> Tensor:
        return self.inner * self.by

    def _encode(self, value: Tensor) -> None:
        self.inner.copy_(value / self.by)

    def _viewed(self, view: Callable[..., Any], rest: tuple[Any, ...]) -> Any:
        recasts = getattr(view.op, "recasts", False)  # type: ignore[attr-defined]
        return NotImplemented if recasts else type(self)(view(self.inner, *rest), self.by)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.mul and isinstance(args[0], Scaled) and type(args[1]) is float:
            return cls(args[0].inner.clone(), args[0].by * args[1])
        return super().__tensor_dispatch__(func, types, args, kwargs)


def scaled(x: Tensor, cls: Any = Scaled) -> Any:
    """A tensor as twice its half."""
    if not x.dtype.is_floating_point:
        raise DTypeError(f"Scaled: dtype is {x.dtype}, expected floats")
    return cls(x / 2, 2.0)


class Log(EncodedTensor):
    """Positive numbers as their logarithms: products are sums."""

    log: Tensor

    def __new__(cls, log: Tensor) -> Log:
        return wrapper(cls, log, log=log)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["log"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: None, size: Any, stride: Any) -> Log:
        return cls(inner["log"])

    def decode(self) -> Tensor:
        return self.log.exp()

    def _encode(self, value: Tensor) -> None:
        self.log.copy_(value.log())

    def _viewed(self, view: Callable[..., Any], rest: tuple[Any, ...]) -> Any:
        recasts = getattr(view.op, "recasts", False)  # type: ignore[attr-defined]
        return NotImplemented if recasts else type(self)(view(self.log, *rest))

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        both = len(args) > 1 and all(isinstance(each, Log) for each in args[:2])
        if func is al.ops.mul and both:
            return cls(args[0].log + args[1].log)
        if func is al.ops.div and both:
            return cls(args[0].log - args[1].log)
        return super().__tensor_dispatch__(func, types, args, kwargs)


class Boxed(Tensor):
    """Any tensor, wrapped: each op is the op on what is inside."""

    inner: Tensor

    def __new__(cls, inner: Tensor) -> Boxed:
        return wrapper(cls, inner, inner=inner)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: None, size: Any, stride: Any) -> Boxed:
        return cls(inner["inner"])

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.op.writes and not isinstance(args[0], Boxed):
            return NotImplemented
        found = func(*_unboxed(args), **_unboxed(kwargs))
        if func.op.writes:
            return args[0]
        return tuple(map(cls, found)) if isinstance(found, tuple) else cls(found)


def _unboxed(value: Any) -> Any:
    if isinstance(value, Boxed):
        return value.inner
    if isinstance(value, tuple):
        return tuple(map(_unboxed, value))
    return {k: _unboxed(v) for k, v in value.items()} if isinstance(value, dict) else value


class Labeled(Boxed):
    """A boxed tensor with a name, which its results have too; names that differ do not mix."""

    label: str

    def __new__(cls, inner: Tensor, label: str = "") -> Labeled:
        return wrapper(cls, inner, inner=inner, label=label)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], ("label", self.label)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Labeled:
        return cls(inner["inner"], spec[1])

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        labels = {each.label for each in _labeled(args)}
        if len(labels) > 1:
            raise SubclassError(f"{func.__name__}: labels are {sorted(labels)}, expected one")
        found = super().__tensor_dispatch__(func, types, args, kwargs)
        for each in found if isinstance(found, tuple) else (found,):
            each.label = next(iter(labels))
        return found


def _labeled(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [each for item in value for each in _labeled(item)]
    return [value] if isinstance(value, Labeled) else []


def pair(x: Tensor) -> TwoTensor:
    """A tensor, and it with the other sign."""
    return TwoTensor(x, -x)
