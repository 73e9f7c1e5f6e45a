"""`functional_call`: other tensors in a module's places."""

import pytest

import aotlite as al
from aotlite import nn
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.errors import ArgumentError
from tests.nn.helpers.listener import Listener


class Tied(nn.Module):
    def __init__(self):
        self.one = nn.Linear(2, 2, bias=False)
        self.two = nn.Linear(2, 2, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x, *, scale=1.0):
        return self.two(self.one(x)) * scale


def test_the_tensors_given_are_used_and_get_the_gradients():
    layer = nn.Linear(2, 1)
    own = layer.weight.tolist()
    weight = al.ones(1, 2, requires_grad=True)
    y = nn.functional_call(layer, {"weight": weight, "bias": al.zeros(1)}, al.ones(3, 2))
    y.sum().backward()
    assert y.tolist() == [[2.0]] * 3
    assert weight.grad.tolist() == [[3.0, 3.0]]
    assert layer.weight.grad is None and layer.weight.tolist() == own


def test_all_names_of_a_tied_tensor_are_replaced():
    double = al.tensor([[2.0, 0.0], [0.0, 2.0]])
    y = nn.functional_call(Tied(), {"two.weight": double}, (al.ones(2),), {"scale": 10.0})
    assert y.tolist() == [40.0, 40.0]


@pytest.mark.parametrize("how", ["closure", "argument"])
def test_ties_are_guarded_in_a_compiled_function(how):
    """Which places are tied is read from the modules, not from the tensors given."""
    net, double, x = Tied(), al.full((2, 2), 2.0), al.ones(2)

    @al.compile
    def called(module, weight, x):
        chosen = net if module is None else module
        return nn.functional_call(chosen, {"one.weight": weight}, x)

    given = net if how == "argument" else None
    assert [16.0, 16.0] == called(given, double, x).tolist()
    net.two.weight = nn.Parameter(al.ones(2, 2))
    assert [8.0, 8.0] == called(given, double, x).tolist()
    net.two.weight = net.one.weight
    assert [16.0, 16.0] == called(given, double, x).tolist()


def test_two_tensors_for_one_tied_place_are_refused():
    given = {"one.weight": al.zeros(2, 2), "two.weight": al.zeros(2, 2)}
    module, x = Tied(), al.ones(2)
    with pytest.raises(ArgumentError, match=r"'two\.weight' is tied to a name with another tensor"):
        nn.functional_call(module, given, x)


def test_buffers_given_are_written_instead_of_the_modules_own():
    layer = nn.BatchNorm2d(1)
    mean = al.zeros(1)
    nn.functional_call(layer, {"running_mean": mean}, al.ones(2, 1, 1, 1))
    assert mean.tolist() != [0.0]
    assert layer.running_mean.tolist() == [0.0]


def test_what_does_not_fit_is_refused():
    layer = nn.Linear(2, 1)
    message = (
        "functional_call: 'w' is no parameter or buffer of Linear, expected one of weight, bias"
    )
    with pytest.raises(ArgumentError, match=message):
        nn.functional_call(layer, {"w": al.ones(1, 2)}, al.ones(2))
    with pytest.raises(ArgumentError, match="functional_call: 'bias' is 3, expected a tensor"):
        nn.functional_call(layer, {"bias": 3}, al.ones(2))


def test_an_error_inside_leaves_the_module_as_it_was():
    layer = nn.Linear(2, 1)
    with pytest.raises(ValueError):
        nn.functional_call(layer, {"weight": al.ones(1, 3)}, al.ones(2))
    assert layer.weight.shape == (1, 2)
    assert "__getattribute__" not in vars(TrackedObject)


def test_under_a_capture_the_tensors_given_are_not_looked_up_in_the_module(monkeypatch):
    layer, listener = Reader(), Listener()
    weight = al.ones(2)
    monkeypatch.setattr("aotlite.eager.tracked_objects.STATE.recorder", listener)
    assert nn.functional_call(layer, {"weight": weight}) is weight
    assert listener.reads == []


class Reader(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(al.zeros(2))

    def forward(self):
        return self.weight
