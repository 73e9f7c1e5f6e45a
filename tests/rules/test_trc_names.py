"""TRC-8: names of parameters are those of the user's code, and no two parameters have one name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import aotlite as al
from aotlite import nn
from aotlite.descriptors import Descriptors, ParamInput, descriptors_of, parameters_with_gradients
from aotlite.export import program
from tests.python_export.comparison import module_of


class Inner(NamedTuple):
    x: Any
    y: Any


class Pair(NamedTuple):
    inner: Inner
    z: Any


@dataclasses.dataclass
class Held:
    rows: Any


def parts(held: Any) -> Any:
    return (held.rows,), None, ("rows",)


def whole(_: object, children: Any) -> Any:
    return Held(*children)


HELD: Any = Held
GLOBAL: Any = vars(optree.registry)["__GLOBAL_NAMESPACE"]
optree.register_pytree_node(HELD, parts, whole, namespace=GLOBAL)


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


def joined(pair: Pair, held: Held) -> Pair:
    return Pair(Inner(pair.inner.x * 2, held.rows * 3), pair.z * KEPT.y)


KEPT = Inner(al.ones(2), al.ones(2))


@pytest.mark.rules("TRC-8")
def test_fields_of_named_tuples_and_dataclasses_are_named_everywhere():
    """They were numbers: `pair[0][1]`."""
    pair, held = Pair(Inner(al.ones(2), al.ones(2)), al.ones(2)), Held(al.ones(2))
    found = descriptors_of(joined, pair, held)
    places = ["pair.inner.x", "pair.inner.y", "pair.z", "held.rows"]
    inputs = [str(each) for each in found.joint.inputs]
    assert [f"argument {each}" for each in places] + ["KEPT.y"] == inputs
    values = *pair.inner, pair.z, held.rows, KEPT.y
    for each, value in zip(found.joint.inputs, values, strict=True):
        assert value is found.read(each, (pair, held))
    outputs = [str(each) for each in found.joint.outputs]
    assert ["result.inner.x", "result.inner.y", "result.z"] == outputs

    made = program(joined, pair, held)
    assert places == [*made.records.arguments.names] and ["KEPT.y"] == [*made.state]
    with pytest.raises(al.ArgumentError, match=r"program: pair\.inner\.x is f32\[3\], expected"):
        made(pair._replace(inner=Inner(al.ones(3), al.ones(2))), held)
    with pytest.raises(al.ArgumentError, match=r"argument 0\.z is <object"):
        al.compile(lambda pair: pair.z)(Pair(Inner(1, 2), object()))
    with pytest.raises(al.ArgumentError, match=r"for dimension 0 of pair\.z, expected a Dim"):
        al.compile(joined, dynamic_shapes={"pair": Pair(Inner(None, None), {0: 3})})(pair, held)
    for text in (al.compile(joined).to_python(args=(pair, held)), made.to_python()):
        file = module_of(text)
        arrays = Pair(Inner(np.ones(2, "f4"), np.ones(2, "f4")), np.ones(2, "f4"))
        result = file.joined(arrays, Held(np.ones(2, "f4")))
        assert [2.0, 3.0, 1.0] == [result.inner.x[0], result.inner.y[0], result.z[0]]
        assert ["KEPT.y"] == [*file.STATE]


@pytest.mark.rules("DYN-6")
def test_results_in_a_dataclass_note_which_sizes_are_symbols():
    """The call failed: `'Held' object is not subscriptable`."""
    found = al.compile(lambda x: Held(x * 2), dynamic=True)(al.ones(3))
    assert {0} == found.rows._dynamic_dims
