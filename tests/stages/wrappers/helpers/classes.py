"""Wrapper classes that do unusual things, all of them legal."""

from __future__ import annotations

from typing import Any

import aotlite as al


def opened(value: Any) -> Any:
    """An operand with the inner tensors in the place of wrappers."""
    if isinstance(value, tuple):
        return tuple([opened(each) for each in value])
    return value.inner if isinstance(value, One) else value


class One(al.Tensor):
    """A tensor inside a wrapper: `made` says what becomes of a new result."""

    inner: al.Tensor

    def __new__(cls, inner: al.Tensor, *, requires_grad: bool = False) -> Any:
        made: Any = al.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype
        )
        made.inner = inner
        return made.requires_grad_() if requires_grad else made

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"])

    @classmethod
    def made(cls, out: al.Tensor) -> Any:
        return cls(out)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = func(*opened(args), **kwargs)
        if func.op.writes:
            return args[0]
        if isinstance(out, tuple):
            return tuple([cls(each) for each in out])
        return cls(out) if func.op.views else cls.made(out)


class Noisy(One):
    """Every new result has noise of its own, those of backwards too."""

    @classmethod
    def made(cls, out: al.Tensor) -> Any:
        return cls(out + al.rand(out.shape)) if out.dtype.is_floating_point else cls(out)


class Odd(One):
    """Writes what it computes, and computes with constants; copies are copies (SUB-24)."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in ("clone", "restride"):
            return cls(func(*opened(args), **kwargs))
        return super().__tensor_dispatch__(func, types, args, kwargs)

    @classmethod
    def made(cls, out: al.Tensor) -> Any:
        with al.enable_grad():
            new = out.clone().mul_(2)
        return cls(new + al.tensor(1.0)) if out.dtype.is_floating_point else cls(out)


class NoCosine(One):
    """Its backward of a sine raises."""

    error: type[Exception] = ValueError

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.cos:
            raise cls.error("no cosine")
        return super().__tensor_dispatch__(func, types, args, kwargs)


class Unsliced(One):
    """Knows views by several ops at once, and none of the ops that take one of them."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in ("slice", "select"):
            return NotImplemented
        return super().__tensor_dispatch__(func, types, args, kwargs)


class Tagged(One):
    """A tensor and a spec."""

    tag: Any

    def __new__(cls, inner: al.Tensor, tag: Any = None) -> Any:
        made = One.__new__(cls, inner)
        made.tag = tag
        return made

    def __tensor_flatten__(self) -> Any:
        return ["inner"], self.tag

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], spec)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return cls(func(*opened(args), **kwargs), args[0].tag)
