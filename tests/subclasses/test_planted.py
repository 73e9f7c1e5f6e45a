"""Each law of wrapper subclasses is broken by a class that is wrong in its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.op_functions import function_of
from aotlite.subclasses import (
    MaskedTensor,
    SemiStructuredSparseTensor,
    TwoTensor,
    leaves_of,
)
from aotlite.subclasses.masked_ops import MaskedData, rule_of
from aotlite.testing import subclass_laws
from aotlite.testing.laws import LawError
from aotlite.testing.subclasses import SHIPPED, SubclassKind
from aotlite.testing.subclasses.wrapper_models import mask_for, turned
from tests.samples import samples_of
from tests.subclasses.helpers.toys import Boxed, Labeled, Scaled, scaled

OF_SCALED: Any = lambda x: x.inner * x.by
OF_BOXED: Any = lambda x: x.inner
SHIPPED_KINDS = {kind.name: kind for kind in SHIPPED}


class ForgetsScale(Scaled):
    """A product of two has the scale of one."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.mul and all(isinstance(each, Scaled) for each in args):
            return cls(args[0].inner * args[1].inner, args[0].by)
        return super().__tensor_dispatch__(func, types, args, kwargs)


class CopiesViews(Scaled):
    """Its views have memory of their own."""

    def _viewed(self, view: Callable[..., Any], rest: tuple[Any, ...]) -> Any:
        return type(self)(view(self.inner, *rest).clone(), self.by)


class WrongView(Scaled):
    """A row of it is the first one."""

    def _viewed(self, view: Callable[..., Any], rest: tuple[Any, ...]) -> Any:
        rest = (rest[0], 0) if view.__name__ == "select" else rest
        return super()._viewed(view, rest)


class DropsSpec(Labeled):
    """Rebuilt, it has no label."""

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], "")


class Reads(Scaled):
    """Its spec differs from time to time."""

    def __tensor_flatten__(self) -> Any:
        self.times = getattr(self, "times", 0) + 1
        return ["inner"], (self.by, self.times)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], spec[0])


class WritesOnePart(SemiStructuredSparseTensor):
    """An in-place op leaves the places as they were."""

    def _encode(self, value: Tensor) -> None:
        before = self.metadata.clone()
        super()._encode(value)
        self.metadata.copy_(before)


class WritesFirst(TwoTensor):
    """An in-place op writes the first of a pair."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        second = args[0].b.clone() if func.op.writes else None
        found = super().__tensor_dispatch__(func, types, args, kwargs)
        if second is not None:
            args[0].b.copy_(second)
        return found


class Unmasked(MaskedTensor):
    """Its ops are right, and autograd differentiates them as those of dense tensors."""

    __tensor_function__ = None  # type: ignore[assignment]
    __tensor_coerce_gradient__ = None  # type: ignore[assignment]
    __tensor_gradient_form__ = None  # type: ignore[assignment]

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = rule_of(func.op)
        if func.op.views or func.op.writes or rule is None:
            return super().__tensor_dispatch__(func, types, args, kwargs)
        kept = [MaskedData(x.data, x.mask) if isinstance(x, MaskedTensor) else x for x in args]
        return cls(*rule(function_of(func.op), tuple(kept), kwargs))


class StraightGradient(Scaled):
    """The gradient of its negative is that of itself."""

    @classmethod
    def __tensor_function__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.neg:
            return args[0] - args[0].decode() * 2
        return NotImplemented


class FirstLeaf(Boxed):
    """Around a pair it is the pair's first."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.neg:
            first = next(leaves_of(args[0]))
            return cls(TwoTensor(-first, -first) if _of_pair(args[0]) else -first)
        return super().__tensor_dispatch__(func, types, args, kwargs)


def _of_pair(x: Any) -> bool:
    return isinstance(x.inner, TwoTensor)


class Remembers(Scaled):
    """What it stands for is computed once, and not again after a write."""

    def decode(self) -> Tensor:
        if not hasattr(self, "found"):
            self.found = super().decode()
        return self.found.clone()


class Counts(Boxed):
    """What a sum gives depends on how often one was computed."""

    times = 0

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = super().__tensor_dispatch__(func, types, args, kwargs)
        if func in (al.ops.add, al.ops.mul, al.ops.neg, al.ops.clone):
            cls.times += 1
            return cls(found.inner * float(1 + cls.times % 2))
        return found


class Timid(Boxed):
    """It refuses sums."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is al.ops.add:
            return NotImplemented
        return super().__tensor_dispatch__(func, types, args, kwargs)


def unmasked(x: Any) -> Any:
    return Unmasked(x, mask_for(x))


def sparse(x: Any) -> Any:
    made: Any = SHIPPED_KINDS["SemiStructuredSparseTensor"].make(x)
    return WritesOnePart(made.values, made.metadata, made.sparse_dim)


def firsts(x: Any) -> Any:
    return WritesFirst(x, turned(x))


def of_kind(name: str, cls: Any, make: Any) -> SubclassKind:
    """The kind of a class that ships, for one derived from it."""
    import attrs

    return attrs.evolve(SHIPPED_KINDS[name], cls=cls, make=make)


PLANTS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "mul forgets the scale": ("S2", lambda x: scaled(x, ForgetsScale), OF_SCALED, {"ops": ["mul"]}),
    "a view copies": ("S5", lambda x: scaled(x, CopiesViews), OF_SCALED, {"laws": ["S5"]}),
    "a view is of another place": (
        "S5", lambda x: scaled(x, WrongView), OF_SCALED, {"laws": ["S5"], "samples": samples_of},
    ),
    "unflatten drops the spec": ("S1", lambda x: DropsSpec(x, "a"), OF_BOXED, {"laws": ["S1"]}),
    "a spec differs from time to time": (
        "S1", lambda x: scaled(x, Reads), OF_SCALED, {"laws": ["S1"]},
    ),
    "an in-place op writes one part": (
        "S4", of_kind("SemiStructuredSparseTensor", WritesOnePart, sparse), None,
        {"ops": ["copy_"]},
    ),
    "an in-place op writes one half": (
        "S4", of_kind("TwoTensor", WritesFirst, firsts), None, {"ops": ["mul_"]},
    ),
    "a gradient is not masked": (
        "S3", of_kind("MaskedTensor", Unmasked, unmasked), None, {"ops": ["sum"]},
    ),
    "a mean's gradient is of all": (
        "S3", of_kind("MaskedTensor", Unmasked, unmasked), None, {"ops": ["mean"]},
    ),
    "a gradient is another op's": (
        "S3", lambda x: scaled(x, StraightGradient), OF_SCALED, {"ops": ["neg"]},
    ),
    "nesting is broken": ("S8", FirstLeaf, OF_BOXED, {"ops": ["neg"]}),
    "a value is remembered": (
        "S6", lambda x: scaled(x, Remembers), OF_SCALED, {"laws": ["S6"], "programs": 40},
    ),
    "results depend on the time": ("S7", Counts, OF_BOXED, {"laws": ["S7"], "compiled": 30}),
    "what it says that it knows it refuses": (
        "S2", Timid, OF_BOXED, {"ops": ["add"], "knows": ["add"]},
    ),
}  # fmt: skip


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", PLANTS)
def test_a_class_that_is_wrong_breaks_the_law_that_is_meant_for_it(name: str) -> None:
    law, subject, meaning, how = PLANTS[name]
    with pytest.raises(LawError) as caught:
        subclass_laws(subject, meaning, **how)
    assert law == caught.value.law, str(caught.value)


def test_a_broken_program_is_shown_small() -> None:
    with pytest.raises(LawError, match="^S6 .*subclass 'Remembers', program") as caught:
        subclass_laws(lambda x: scaled(x, Remembers), OF_SCALED, laws=["S6"], programs=40)
    (note,) = [each for each in caught.value.__notes__ if each.startswith("the program: ")]
    assert note.count("Step(") <= 6


@pytest.mark.slow("the laws of fourteen classes")
def test_without_its_fault_each_class_obeys() -> None:
    """The classes that the plants derive from, on the same ops."""
    for make in (scaled, lambda x: Labeled(x, "a"), Boxed):
        meaning = OF_SCALED if make is scaled else OF_BOXED
        found = subclass_laws(make, meaning, ops=["mul", "t", "add", "mul_"])
        assert not found.refused
