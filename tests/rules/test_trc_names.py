"""TRC-8: names of parameters are those of the user's code, and no two parameters have one name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.descriptors import Descriptors, ParamInput, descriptors_of, parameters_with_gradients


def named(found: Descriptors) -> dict[str, Any]:
    """The parameters of the joint graph with their values, each read by its descriptor."""
    inputs = [each for each in found.joint.inputs if isinstance(each, ParamInput)]
    return {each.name: each for each in inputs}


def nets(*sizes: int) -> tuple[nn.Linear, ...]:
    return tuple(nn.Linear(2, size) for size in sizes)


def closed(net: nn.Module) -> Callable[[al.Tensor], al.Tensor]:
    return lambda x: net(x)


@pytest.mark.rules("TRC-8")
def test_parameters_of_two_modules_have_two_names():
    a, b = nets(2, 1)
    found = descriptors_of(lambda x: b(a(x)).sum(), al.ones(1, 2))
    pairs = parameters_with_gradients(found.names, found.joint_graph)
    assert ["a.weight", "a.bias", "b.weight", "b.bias"] == [*pairs]
    assert all(gradient is not None for _, gradient in pairs.values())
    given = [node for node, _ in pairs.values()]
    assert len(given) == len({*given})
    for name, each in named(found).items():
        module, _, attribute = name.partition(".")
        assert getattr({"a": a, "b": b}[module], attribute) is found.read(each, (al.ones(1, 2),))
    assert {"input 1: parameter a.weight", "output 2: gradient of parameter b.weight"} < {
        *str(found).splitlines()
    }


@pytest.mark.rules("TRC-8")
def test_a_variable_of_two_functions_is_named_after_them():
    first, second = map(closed, nets(2, 1))
    found = descriptors_of(lambda x: second(first(x)).sum(), al.ones(1, 2))
    assert {f"{f}.net.{name}" for f in ("first", "second") for name in ("weight", "bias")} == {
        *parameters_with_gradients(found.names, found.joint_graph)
    }


@pytest.mark.rules("TRC-8")
def test_modules_in_containers_defaults_partials_and_methods_are_named():
    a, b = nets(2, 1)

    class Trainer:
        def __init__(self, parts: Any) -> None:
            self.parts = parts

        def loss(self, x: al.Tensor) -> al.Tensor:
            return self.parts["b"][0](self.parts["a"](x)).sum()

    def chained(x: al.Tensor, first: nn.Module = a, *, last: nn.Module = b) -> al.Tensor:
        return last(first(x)).sum()

    def of_modules(parts: Any, x: al.Tensor) -> al.Tensor:
        return parts["b"][0](parts["a"](x)).sum()

    x, parts = al.ones(1, 2), {"a": a, "b": [b]}
    for function, args, expected in (
        (Trainer(parts).loss, (x,), {"parts['a'].weight", "parts['b'][0].weight"}),
        (of_modules, (parts, x), {"parts['a'].weight", "parts['b'][0].weight"}),
        (functools.partial(of_modules, parts), (x,), {"parts['a'].weight", "parts['b'][0].weight"}),
        (chained, (x,), {"first.weight", "last.weight"}),
        (a, (x,), {"weight"}),
        (a.forward, (x,), {"weight"}),
    ):
        names = named(descriptors_of(function, *args))
        assert expected == {name for name in names if name.endswith("weight")}


@pytest.mark.rules("TRC-8")
def test_parameters_that_are_tied_over_modules_have_both_names():
    a, b = nets(2, 2)
    b.weight = a.weight
    found = named(descriptors_of(lambda x: b(a(x)).sum(), al.ones(1, 2)))
    assert ["a.weight", "a.bias", "b.bias"] == [*found]
    assert ("b.weight",) == found["a.weight"].also


@pytest.mark.rules("TRC-8")
@pytest.mark.parametrize("is_given", [False, True])
def test_parameters_of_an_optimizer_are_those_of_the_model(is_given):
    model = nn.Sequential(nn.Linear(2, 1))
    opt = al.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(model: Any, opt: Any, x: al.Tensor) -> al.Tensor:
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss

    x = al.ones(1, 2)
    if is_given:
        found, args = descriptors_of(step, model, opt, x), (model, opt, x)
    else:
        found, args = descriptors_of(lambda x: step(model, opt, x), x), (x,)
    names = named(found)
    assert ["model.0.weight", "model.0.bias"] == [*names]
    assert model[0].weight is found.read(names["model.0.weight"], args)
    texts = [*map(str, (*found.forward.inputs, *found.forward.outputs))]
    assert ".grad of parameter model.0.weight" in texts
    assert "opt.momentum_buffers[0]" in texts
    assert not any(".params[" in text or "argument 1" in text for text in texts)


@pytest.mark.rules("TRC-8")
def test_what_a_frozen_function_fixes_has_the_name_of_its_parameter():
    w, model, x = al.ones(2), nn.Linear(2, 2).requires_grad_(False), al.ones(1, 2)
    frozen = al.freeze(lambda w, model, x: model(x) * w["a"].exp(), {"a": w}, model)
    for function, before in ((frozen, ""), (lambda x: frozen(x), "frozen.")):
        found = descriptors_of(function, x)
        assert {"argument x", f"{before}w['a']"} < {*map(str, found.forward.inputs)}
        assert [f"{before}model.weight", f"{before}model.bias"] == [*named(found)]
    assert ["argument input", "parameter weight", "parameter bias"] == [
        *map(str, descriptors_of(al.freeze(model), x).forward.inputs)
    ]
