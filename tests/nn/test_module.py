"""Modules: what they hold, walk, load and print."""

import copy

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.ir.errors import ArgumentError, UnsupportedError


class Inner(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(al.ones(2))
        self.seen = nn.Buffer(al.zeros(2))
        self.scratch = nn.Buffer(al.zeros(1), persistent=False)


class Outer(nn.Module):
    def __init__(self):
        self.first = Inner()
        self.bias = nn.Parameter(al.zeros(3))
        self.second = Inner()
        self.tied = self.first


def test_a_module_is_its_attributes_by_class():
    outer = Outer()
    assert [n for n, _ in outer.named_parameters()] == ["bias", "first.weight", "second.weight"]
    assert [n for n, _ in outer.named_parameters(recurse=False)] == ["bias"]
    assert [n for n, _ in outer.named_buffers("net")] == [
        "net.first.seen",
        "net.first.scratch",
        "net.second.seen",
        "net.second.scratch",
    ]
    assert [n for n, _ in outer.named_modules()] == ["", "first", "second"]
    assert list(outer.children()) == [outer.first, outer.second]


def test_a_tied_tensor_is_named_once_and_saved_under_each_name():
    outer = Outer()
    outer.second.weight = outer.first.weight
    outer.second.seen = outer.first.seen
    assert [n for n, _ in outer.named_parameters()] == ["bias", "first.weight"]
    assert [n for n, _ in outer.named_buffers()] == [
        "first.seen",
        "first.scratch",
        "second.scratch",
    ]
    assert {"first.weight", "second.weight", "second.seen"} <= set(outer.state_dict())


def test_registration_is_assignment_with_a_check():
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(al.ones(1)))
    module.register_parameter("absent", None)
    module.register_buffer("b", al.ones(1), persistent=False)
    module.add_module("child", Inner())
    assert list(vars(module)) == ["w", "absent", "b", "child"]
    assert [n for n, _ in module.named_parameters()] == ["w", "child.weight"]
    with pytest.raises(ArgumentError, match=r"register: the name is 'a\.b', expected one without"):
        module.add_module("a.b", Inner())
    with pytest.raises(ArgumentError, match=r"register: 'w' is .*, expected a Parameter"):
        module.register_parameter("w", al.ones(1))


def test_a_plain_tensor_in_the_place_of_a_parameter_is_refused():
    module = Inner()
    message = r"Inner: attribute 'weight' is a Parameter and the value a plain tensor, expected"
    with pytest.raises(ArgumentError, match=message):
        module.weight = al.ones(2)
    with pytest.raises(ArgumentError, match=r"expected Buffer\(value\), or a write in place: seen"):
        module.seen = al.ones(2)
    module.weight = nn.Parameter(al.zeros(2))
    module.weight = None
    assert [*module.parameters()] == []


def test_a_parameter_shares_the_memory_of_its_data_without_its_history():
    data = al.ones(2, requires_grad=True) * 2
    parameter = nn.Parameter(data)
    with al.no_grad():
        parameter.add_(1)
    assert data.tolist() == [3.0, 3.0]
    assert parameter.is_leaf and parameter.requires_grad
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert type(parameter * 1) is al.Tensor
    assert repr(parameter) == "Parameter containing:\ntensor([3., 3.], requires_grad=True)"


def test_deepcopy_keeps_kinds_values_and_ties():
    outer = Outer()
    twin = copy.deepcopy(outer)
    assert twin.tied is twin.first and twin.first is not outer.first
    assert type(twin.first.scratch) is type(outer.first.scratch)
    assert list(twin.state_dict()) == list(outer.state_dict())
    with al.no_grad():
        twin.bias.add_(1)
    assert outer.bias.tolist() == [0.0, 0.0, 0.0]


def test_state_dict_has_every_name_and_no_transient_buffer():
    assert list(Outer().state_dict()) == [
        "bias",
        "first.weight",
        "first.seen",
        "second.weight",
        "second.seen",
        "tied.weight",
        "tied.seen",
    ]


def test_state_dict_is_on_the_modules_own_memory():
    inner = Inner()
    inner.state_dict()["weight"].fill_(5)
    assert inner.weight.tolist() == [5.0, 5.0]
    assert not inner.state_dict()["weight"].requires_grad


def test_loading_writes_in_place():
    inner = Inner()
    weight = inner.weight
    inner.load_state_dict({"weight": np.array([1, 2]), "seen": al.tensor([3.0, 4.0])})
    assert inner.weight is weight and weight.is_leaf
    assert (weight.tolist(), inner.seen.tolist()) == ([1.0, 2.0], [3.0, 4.0])


def test_a_state_that_does_not_fit_is_listed_and_nothing_is_written():
    inner = Inner()
    with pytest.raises(ArgumentError) as caught:
        inner.load_state_dict({"weight": np.zeros(2), "seen": np.zeros(3), "other": 1})
    assert str(caught.value) == (
        "load_state_dict: the state does not fit Inner, expected its names and shapes; "
        "unexpected: other; mismatched: seen has shape (3,), expected (2,)"
    )
    with pytest.raises(ArgumentError, match="missing: seen; mismatched: weight is 3, expected a"):
        inner.load_state_dict({"weight": 3})
    assert inner.weight.tolist() == [1.0, 1.0]


def test_a_lenient_load_tells_the_names_without_a_match():
    problems = Inner().load_state_dict({"weight": np.zeros(2), "other": 1}, strict=False)
    assert (problems.missing_keys, problems.unexpected_keys) == (["seen"], ["other"])
    with pytest.raises(ArgumentError, match="mismatched"):
        Inner().load_state_dict({"weight": np.zeros(3)}, strict=False)


def test_a_module_inside_itself_is_walked_once():
    inner = Inner()
    inner.itself = inner
    assert list(inner.state_dict()) == ["weight", "seen"]
    assert len(list(inner.modules())) == 1


def test_train_and_eval_reach_every_module():
    outer = Outer()
    assert outer.eval() is outer
    assert [module.training for module in outer.modules()] == [False] * 3
    outer.train()
    assert [module.training for module in outer.modules()] == [True] * 3


def test_apply_visits_children_before_their_parent():
    visited = []
    outer = Outer()
    assert outer.apply(lambda module: visited.append(type(module).__name__)) is outer
    assert visited == ["Inner", "Inner", "Outer"]


def test_zero_grad_clears_or_zeroes():
    inner = Inner()
    (inner.weight * 2).sum().backward()
    gradient = inner.weight.grad
    inner.zero_grad(set_to_none=False)
    assert inner.weight.grad is gradient and gradient.tolist() == [0.0, 0.0]
    inner.zero_grad()
    assert inner.weight.grad is None


def test_requires_grad_is_set_of_every_parameter():
    outer = Outer().requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in outer.parameters())


def test_a_module_prints_as_a_tree():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Dropout()))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): Sequential(\n"
        "    (0): Dropout(p=0.5, inplace=False)\n"
        "  )\n"
        ")"
    )


def test_a_module_without_forward_says_so():
    with pytest.raises(UnsupportedError, match="Inner: the class has no method forward"):
        Inner()()
