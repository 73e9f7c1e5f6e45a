"""Gradients of wrappers that are not of the expected form: what the errors say."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ProtocolError, TangentError
from aotlite.subclasses import MaskedTensor, TwoTensor
from tests.stages.wrappers.helpers.classes import One, Tagged


def ones() -> Any:
    return al.ones(2)


def pair() -> Any:
    return TwoTensor(ones(), ones())


class Pair(TwoTensor):
    """A pair that becomes what its class attribute says, as a tangent."""

    becomes: Any = None

    def __coerce_same_metadata_as_tangent__(self, spec: Any, kind: Any = None) -> Any:
        return type(self).becomes


class Named(One):
    """Its flatten gives what its class attribute says."""

    flat: Any = (["inner"], None)

    def __tensor_flatten__(self) -> Any:
        return type(self).flat


ARRIVALS: list[tuple[Any, Any, str, str]] = [
    (lambda: ones(), pair, r"a TwoTensor of spec None", "a Tensor, with memory of its own"),
    (pair, lambda: ones(), "a Tensor", "a TwoTensor of spec None"),
    (pair, lambda: One(ones()), "a One of spec None", "a TwoTensor of spec None"),
    (lambda: Tagged(ones(), 1), lambda: Tagged(ones(), 2), "a Tagged of spec 2", "a Tagged .* 1"),
]


@pytest.mark.rules("TAN-5")
@pytest.mark.parametrize(("argument", "gradient", "found", "expected"), ARRIVALS)
def test_a_gradient_of_another_class_names_both(
    argument: Any, gradient: Any, found: str, expected: str
) -> None:
    """TAN-5: whichever of the two is a wrapper."""
    x = argument().requires_grad_()
    out = al.compile(lambda x: x * 2)(x)
    with pytest.raises(TangentError, match=f"output_0 is {found}, expected {expected}") as caught:
        out.backward(gradient())
    assert "(TAN-5)" in caught.value.__notes__[0]
    assert x.grad is None


@pytest.mark.rules("TAN-5")
@pytest.mark.parametrize(
    ("becomes", "message"),
    [
        (3, "a Pair of spec None, which becomes 3, expected a Tensor, with"),
        (One(al.ones(2)), "which becomes a One of spec None, f32.2., expected a Tensor, with"),
        (al.ones(3), r"becomes a Tensor, f32.3., expected a Tensor, with .*, of shape \(2,\)"),
    ],
)
def test_what_a_gradient_becomes_is_told(becomes: Any, message: str) -> None:
    """TAN-5: a method that gives something else is told from one that is not there."""
    kind = type("Pair", (Pair,), {"becomes": becomes})
    x = ones().requires_grad_()
    out = al.compile(lambda x: x * 2)(x)
    with pytest.raises(TangentError, match=message):
        out.backward(kind(ones(), ones()))


@pytest.mark.rules("TAN-4")
@pytest.mark.parametrize(
    ("part", "message"),
    [
        (pair(), r"a TwoTensor of spec None, f32\[2\], expected a Tensor, f32\[2\]"),
        (al.ones(3), r"a Tensor, f32\[3\], expected a Tensor, f32\[2\]"),
        (al.ones(2).long(), r"a Tensor, i64\[2\], expected a Tensor, f32\[2\]"),
    ],
)
def test_a_part_of_another_class_names_both(part: Any, message: str) -> None:
    """TAN-4."""
    x = TwoTensor(ones(), ones(), requires_grad=True)
    out = al.compile(lambda x: x * 2)(x)
    gradient = pair()
    gradient.b = part
    with pytest.raises(TangentError, match=f"a TwoTensor, attribute 'b' is {message}"):
        out.backward(gradient)
    assert x.grad is None


@pytest.mark.rules("TAN-4", "SUB-1")
@pytest.mark.parametrize(
    ("flat", "error", "message"),
    [
        (3, ProtocolError, "Named: it flattens to 3"),
        ((None, None), ProtocolError, "Named: it flattens to the names None"),
        (["inner"], ProtocolError, "Named: it flattens to"),
        ((["other"], None), ProtocolError, "names attribute 'other', which is absent"),
        ((["inner", "twin"], None), TangentError, r"parts \['inner', 'twin'\], expected a Named"),
    ],
)
def test_a_gradient_that_does_not_flatten_is_named(flat: Any, error: Any, message: str) -> None:
    """SUB-1: the class did as it should when the backward was compiled."""
    kind: Any = type("Named", (Named,), {})
    x = kind(ones()).requires_grad_()
    out = al.compile(lambda x: x * 2)(x)
    gradient = kind(ones())
    gradient.twin = ones()
    kind.flat = flat
    with pytest.raises(error, match=message):
        out.backward(gradient)
    assert x.grad is None


@pytest.mark.rules("TAN-4", "TAN-5")
def test_a_part_of_another_class_may_become_a_dense_one() -> None:
    """Its class says what it is, as it would of a whole gradient."""
    found = []
    for function in (lambda x: x * 2, al.compile(lambda x: x * 2)):
        x = TwoTensor(ones(), ones(), requires_grad=True)
        part = MaskedTensor(ones(), al.tensor([True, False]))
        gradient = TwoTensor(ones(), ones())
        gradient.b = part
        function(x).backward(gradient)
        found.append(x.grad.b)  # type: ignore[union-attr]
    assert found[0].tolist() == found[1].tolist() == [2.0, 0.0]
