"""Plain Python wrappers of tensors, right ones and wrong ones, for the laws of wrappers."""

from __future__ import annotations

from typing import Any

import aotlite as al
from aotlite.eager.base.tensor import Tensor

METHODS = (
    "__add__ __mul__ __rsub__ __neg__ __matmul__ __getitem__ relu sum clone t view unsqueeze mul_ "
    "add_ zero_"
).split()


class Boxed:
    """A tensor in a box: every method is that of the tensor."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[Any, Any]:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["inner"])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    @property
    def dtype(self) -> Any:
        return self.inner.dtype

    def stride(self) -> tuple[int, ...]:
        return self.inner.stride()

    def like(self, inner: Any) -> Any:
        """A wrapper of the same kind of another tensor."""
        return type(self)(inner)

    def call(self, name: str, *args: Any) -> Any:
        """The result of the method of this name; the wrapper itself if it writes."""
        plain = [arg.inner if isinstance(arg, Boxed) else arg for arg in args]
        result = getattr(self.inner, name)(*plain)
        return self if result is self.inner else self.like(result)

    def unwrap(self) -> Tensor:
        """The tensor in the box."""
        return self.inner.unwrap() if isinstance(self.inner, Boxed) else self.inner


def _method(name: str) -> Any:
    return lambda self, *args: self.call(name, *args)


for _name in METHODS:
    setattr(Boxed, _name, _method(_name))


class Tagged(Boxed):
    """A box with a label, which is its context."""

    def __init__(self, inner: Any, label: str = "mine") -> None:
        super().__init__(inner)
        self.label = label

    def __tensor_flatten__(self) -> tuple[Any, Any]:
        return ["inner"], self.label

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["inner"], context)

    def like(self, inner: Any) -> Any:
        return type(self)(inner, self.label)


def nested(tensor: Tensor) -> Boxed:
    """A box in a box."""
    return Boxed(Tagged(tensor, "inside"))


class Shy(Boxed):
    """A box that refuses views."""

    def call(self, name: str, *args: Any) -> Any:
        if name in ("t", "view", "unsqueeze", "__getitem__"):
            raise NotImplementedError(f"{name} of a Shy")
        return super().call(name, *args)


# ------------------------------------------------------------------------------------- wrong ones
class NamesNoTensor(Boxed):
    def __tensor_flatten__(self) -> tuple[Any, Any]:
        return ["inner", "shape"], None


class ForgetsItsContext(Tagged):
    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["inner"], "another")


class CopiesWhenRebuilt(Boxed):
    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["inner"].clone())


class SaysDenseStrides(Boxed):
    def stride(self) -> tuple[int, ...]:
        return self.inner.contiguous().stride()


class LosesTheSign(Boxed):
    def unwrap(self) -> Tensor:
        return self.inner.abs().as_strided(self.inner.shape, self.inner.stride())


class AddsTwice(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        result = super().call(name, *args)
        return super().call(name, result) if name == "__add__" else result


class SumsToATensor(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        result = super().call(name, *args)
        return result.inner if name == "sum" else result


class NegatesInPlace(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        return self.like(self.inner.neg_()) if name == "__neg__" else super().call(name, *args)


class ClonesNothing(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        return (
            self.like(self.inner.view_as(self.inner))
            if name == "clone"
            else super().call(name, *args)
        )


class TransposesACopy(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        result = super().call(name, *args)
        return self.like(result.inner.clone()) if name == "t" else result


class WritesAreLate(Boxed):
    """A write is kept back until somebody looks at this wrapper, and no view of it hears of it."""

    factor = 1.0

    def call(self, name: str, *args: Any) -> Any:
        if name == "mul_":
            self.factor *= args[0]
            return self
        return super().call(name, *args)

    def unwrap(self) -> Tensor:
        return self.inner * self.factor


class MakesAnother(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        result = super().call(name, *args)
        return self.like(self.inner) if name.endswith("l_") else result


class ReplacesItsPart(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        if name == "zero_":
            self.inner = self.inner * 0.0
            return self
        return super().call(name, *args)


class Detaches(Boxed):
    def unwrap(self) -> Tensor:
        return self.inner.detach()


class IsAlwaysSingle(Boxed):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner.to(al.float32) if isinstance(inner, Tensor) else inner)


class AddsItselfOnce(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        if name == "__add__" and args[0] is self:
            return self.like(self.inner.clone())
        return super().call(name, *args)


class RemembersItsRelu(Boxed):
    kept: Any = None

    def call(self, name: str, *args: Any) -> Any:
        if name != "relu":
            return super().call(name, *args)
        self.kept = super().call(name, *args) if self.kept is None else self.kept
        return self.kept


class WritesBehindAutograd(Boxed):
    def call(self, name: str, *args: Any) -> Any:
        if name != "mul_":
            return super().call(name, *args)
        self.inner.copy_(self.inner.detach() * args[0])
        return self


WRONG = {
    NamesNoTensor: "W1",
    ForgetsItsContext: "W2",
    CopiesWhenRebuilt: "W2",
    SaysDenseStrides: "W3",
    LosesTheSign: "W4",
    AddsTwice: "W5",
    SumsToATensor: "W6",
    NegatesInPlace: "W7",
    ClonesNothing: "W7",
    TransposesACopy: "W8",
    WritesAreLate: "W9",
    MakesAnother: "W10",
    ReplacesItsPart: "W10",
    Detaches: "W11",
    IsAlwaysSingle: "W3",
    AddsItselfOnce: "W5",
    RemembersItsRelu: "W7",
    WritesBehindAutograd: "W11",
}
"""Each wrong wrapper, and its law."""
