"""Modules whose parameters are wrappers, by the wrappers' parts (SUB-22)."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError, SubclassError
from aotlite.subclasses import TwoTensor, unwrap_subclass_parameters


def pair(a: float, b: float) -> TwoTensor:
    return TwoTensor(al.full((2,), a), al.full((2,), b))


class Scale(al.nn.Module):
    """One pair, and one pair of pairs."""

    def __init__(self) -> None:
        self.by = al.nn.Parameter(pair(1.0, 3.0))
        self.off = al.nn.Parameter(TwoTensor(pair(1.0, 2.0), pair(3.0, 4.0)))
        self.kept = al.nn.Buffer(pair(0.5, 0.25))
        self.plain = al.nn.Parameter(al.ones(2))

    def forward(self, x: Any) -> Any:
        first = (x * self.by + self.kept).sin()
        return first, self.off * 2, self.plain * 3


class Net(al.nn.Module):
    """With a module inside."""

    def __init__(self) -> None:
        self.scale = Scale()

    def forward(self, x: Any) -> Any:
        return self.scale(x)


def gradients(model: Any, function: Any) -> dict[str, Any]:
    """Of each parameter, with wrappers told by their parts."""
    found = function(pair(1.0, 2.0))
    al.autograd.backward(list(found), [al.ones_like(each) for each in found])
    return {name: each.grad for name, each in model.named_parameters()}


def flat(name: str, grad: Any) -> dict[str, Any]:
    if not isinstance(grad, TwoTensor):
        return {name: grad.tolist()}
    return {**flat(f"{name}__a", grad.a), **flat(f"{name}__b", grad.b)}


@pytest.mark.rules("SUB-22")
def test_gradients_of_parts_are_parts_of_gradients() -> None:
    """Eager and compiled; parameters are the dense parts, buffers stay buffers."""
    whole = Net()
    expected: dict[str, Any] = {}
    for name, grad in gradients(whole, whole).items():
        expected |= flat(name, grad)
    for compiled in (False, True):
        model = unwrap_subclass_parameters(Net())
        function = al.compile(model) if compiled else model
        found = {name: grad.tolist() for name, grad in gradients(model, function).items()}
        assert found == expected
        assert [name for name, _ in model.named_buffers()] == ["scale.kept__a", "scale.kept__b"]


@pytest.mark.rules("SUB-22")
def test_steps_on_parts_are_seen_by_the_wrapper() -> None:
    model: Any = unwrap_subclass_parameters(Scale())
    optimizer = al.optim.SGD(model.parameters(), lr=0.5)
    (model.by * 2).sum().backward(TwoTensor(al.tensor(1.0), al.tensor(2.0)))
    optimizer.step()
    assert (model.by.a.tolist(), model.by.b.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert set(model.state_dict()) >= {"by__a", "by__b", "off__a__a", "off__b__b", "kept__a"}
    other: Any = unwrap_subclass_parameters(Scale())
    other.load_state_dict(model.state_dict())
    assert other.by.b.tolist() == [1.0, 1.0]


def test_modules_without_wrappers_stay_as_they_are() -> None:
    model = al.nn.Linear(2, 3)
    assert unwrap_subclass_parameters(model) is model
    assert type(model) is al.nn.Linear


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the module is a list, expected a Module"):
        unwrap_subclass_parameters([])  # type: ignore[arg-type]


def test_a_gradient_of_another_class_names_both() -> None:
    model: Any = unwrap_subclass_parameters(Scale())
    with pytest.raises(SubclassError, match="gradient of 'by' is a Tensor, expected a TwoTensor"):
        model.by.backward(al.ones(2))


def test_names_that_are_taken_are_refused_before_anything_changes() -> None:
    for taken in (al.nn.Parameter(al.ones(2)), al.nn.Buffer(al.ones(2)), 3):
        model: Any = Scale()
        model.by__a = taken
        with pytest.raises(ArgumentError, match="Scale has an attribute 'by__a', expected none"):
            unwrap_subclass_parameters(model)
        assert type(model.by) is TwoTensor
        assert type(model) is Scale


def test_tied_parameters_stay_tied() -> None:
    model: Any = Scale()
    model.again = model.by
    unwrap_subclass_parameters(model)
    assert model.again__a is model.by__a
    names = [name for name, _ in model.named_parameters()]
    assert not {"by__a", "again__a"} <= set(names)
