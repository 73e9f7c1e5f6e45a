"""Classes that did as they should when a function was compiled, and do not in a later call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import SubclassError
from aotlite.subclasses import TwoTensor, unflatten
from tests.stages.wrappers.helpers.classes import One, opened


class Fickle(One):
    """Two tensors and a spec; what it unflattens to is made by `lie`, once that is set."""

    other: al.Tensor
    tag: Any
    lie: Any = None

    def __new__(cls, inner: Any, other: Any, tag: Any = None) -> Any:
        made = One.__new__(cls, inner)
        made.other, made.tag = other, tag
        return made

    def __tensor_flatten__(self) -> Any:
        return ["inner", "other"], self.tag

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, spec: Any, size: Any, stride: Any) -> Any:
        made = cls(inner["inner"], inner["other"], spec)
        return made if cls.lie is None else cls.lie(made)

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        first = next(each for each in args if isinstance(each, Fickle))
        inner = func(*opened(args), **kwargs)
        others = [each.other if isinstance(each, Fickle) else each for each in args]
        other = func(*others, **kwargs)
        return first if func.op.writes else cls(inner, other, first.tag)


def with_tag(tag: Any) -> Any:
    return lambda made: type(made)(made.inner, made.other, tag)


def of(change: Any) -> Any:
    def lie(made: Any) -> Any:
        change(made)
        return made

    return lie


LIES: list[tuple[Any, str]] = [
    (with_tag("another"), "the spec 'another', expected the spec"),
    (with_tag(True), "the spec True, expected the spec"),
    (with_tag(-0.0), "the spec -0.0, expected the spec"),
    (lambda made: type(made)(made.other, made.inner, made.tag), "'inner' is another tensor"),
    (lambda made: type(made)(made.inner.detach(), made.other, made.tag), "'inner' is another ten"),
    (of(lambda made: setattr(made, "other", made.inner)), "'other' is another tensor"),
    (of(lambda made: setattr(made, "other", None)), "'other', which is None, expected a tensor"),
    (of(lambda made: delattr(made, "other")), "'other', which is absent, expected a tensor"),
    (lambda made: made.inner, "gives a Tensor, f32.*, expected a"),
    (lambda made: TwoTensor(made.inner, made.other), "gives a TwoTensor"),
    (lambda made: None, "gives a NoneType, no tensor, expected"),
    (lambda made: type(made)(made.inner[:1], made.other, made.tag), r"f32\[1\], expected a"),
]

TAGS = [None, 1, 0.0, "tag", (1, 2.0), [1], {"a": 1}]


def twice(x: Any) -> Any:
    return x * 2


def nested(x: Any) -> Any:
    return TwoTensor(x * 2, x * 3)


def bases(x: Any) -> Any:
    y = x * 2
    return y.view(2, 1), y.t()


@pytest.mark.rules("SUB-1", "SUB-5")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("function", [twice, nested, bases])
@given(lie=st.sampled_from(LIES), tag=st.sampled_from(TAGS))
def test_what_a_class_makes_of_parts_is_compared_at_each_call(
    function: Any, lie: Any, tag: Any
) -> None:
    """SUB-1: class, geometry, parts and spec."""
    kind: Any = type("Kind", (Fickle,), {})
    compiled = al.compile(function, backend="reference")
    x = kind(al.ones(2), al.zeros(2), tag)
    compiled(x)
    kind.lie, message = staticmethod(lie[0]), lie[1]
    with pytest.raises(SubclassError, match=f"Kind.*{message}") as caught:
        compiled(x)
    assert "(SUB-1)" in "".join(caught.value.__notes__)
    kind.lie = None
    compiled(x)
    assert len(compiled.entries) == 1


@pytest.mark.rules("SUB-1", "SUB-11")
@given(lie=st.sampled_from(LIES), tag=st.sampled_from(TAGS))
def test_gradients_that_a_class_makes_are_compared_too(lie: Any, tag: Any) -> None:
    """SUB-11: and none is stored."""
    kind: Any = type("Kind", (Fickle,), {})
    x = kind(al.ones(2), al.zeros(2), tag).requires_grad_()
    compiled = al.compile(twice, backend="reference")
    compiled(x).backward(kind(al.ones(2), al.ones(2), tag))
    x.grad = None
    out = compiled(x)
    kind.lie, message = staticmethod(lie[0]), lie[1]
    with pytest.raises(SubclassError, match=f"Kind.*{message}"):
        out.backward(kind(al.ones(2), al.ones(2), tag))
    assert x.grad is None


@pytest.mark.rules("SUB-1")
@given(lie=st.sampled_from(LIES), tag=st.sampled_from(TAGS))
def test_unflatten_and_captures_compare_the_same(lie: Any, tag: Any) -> None:
    """SUB-1: in eager, and before anything ran."""
    kind: Any = type("Kind", (Fickle,), {})
    x = kind(al.ones(2), al.zeros(2), tag)
    kind.lie = staticmethod(lie[0])
    with pytest.raises(SubclassError, match="Kind: it|Kind: __tensor_unflatten__"):
        unflatten(kind, {"inner": x.inner, "other": x.other}, tag, (2,), (1,))
    with pytest.raises(SubclassError, match="Kind: it|Kind: __tensor_unflatten__"):
        al.compile(lambda x: x.add_(1), backend="reference")(x)
    assert (x.version, x.inner.version, x.inner.tolist()) == (0, 0, [1.0, 1.0])
