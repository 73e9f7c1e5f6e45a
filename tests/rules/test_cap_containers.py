"""What a function reads in containers outside is guarded: another form compiles anew."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.stages.records.guards.snapshots import snapshot_of_all

Spec = Any
"""A form: "tensor", a plain value, or ("list" | "tuple" | "dict" | "module", forms)."""

LEAVES = ("tensor", "tensor", "small", 1, 2, 2.0, True, 0.0, -0.0, None, "a")
leaves = st.sampled_from(LEAVES)
containers = st.recursive(
    st.tuples(st.sampled_from(["list", "dict"]), st.lists(leaves, max_size=3)),
    lambda inner: st.tuples(
        st.sampled_from(["list", "list", "tuple", "dict", "module"]),
        st.lists(leaves | inner, max_size=3),
    ),
    max_leaves=6,
)
CHANGES = (
    *("nothing", "append", "pop", "reverse", "another", "equal", "as another type"),
    *("bytes", "rename", "as other container", "share", "one tensor"),
)
changes = st.tuples(st.sampled_from(CHANGES), st.integers(0, 9), st.sampled_from(LEAVES))


class Net(nn.Module):
    """A module whose attributes are what a form says."""


class Slotted(nn.Module):
    """A module with an attribute in a slot."""

    __slots__ = ("k0",)


Read = Callable[[Any], dict[str, Any]]
NAMES = [f"k{i}{'_' * renamed}" for i in range(8) for renamed in range(4)]
READS: dict[str, Read] = {
    "vars": vars,
    "__dict__": lambda net: net.__dict__,
    "getattr": lambda net: {name: getattr(net, name) for name in NAMES if hasattr(net, name)},
    "dir": lambda net: {name: getattr(net, name) for name in dir(net) if name in NAMES},
    "state": lambda net: net.__getstate__() or {},
    "copy": lambda net: vars(copy.copy(net)),
    "deepcopy": lambda net: vars(copy.deepcopy(net)),
    "reduce": lambda net: net.__reduce_ex__(4)[2] or {},
}
"""How a program can ask what a module has."""


def made(spec: Spec) -> Any:
    """The value of a form; whoever asks twice gets two that are equal."""
    match spec:
        case "tensor":
            return al.tensor([1.0, 2.0])
        case "small":
            return al.tensor(3.0)
        case ("list", parts):
            return [made(part) for part in parts]
        case ("tuple", parts):
            return tuple([made(part) for part in parts])
        case ("dict", parts):
            return {f"k{i}": made(part) for i, part in enumerate(parts)}
        case ("module", parts):
            net = Net()
            for i, part in enumerate(parts):
                setattr(net, f"k{i}", made(part))
            return net
    return spec


def inside(value: Any, attributes: Read = vars) -> Iterator[tuple[Any, Any]]:
    """The parts of a container, each with its key."""
    match value:
        case list() | tuple():
            yield from enumerate(value)
        case dict():
            yield from value.items()
        case Net():
            yield from ((k, v) for k, v in attributes(value).items() if k[0] == "k")


def mutable(value: Any) -> list[Any]:
    """All lists, dictionaries and modules in a value, itself first."""
    below = [each for _, part in inside(value) for each in mutable(part)]
    return ([] if isinstance(value, tuple) else [value]) + below if _is_container(value) else []


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict, Net))


def read(value: Any, x: Any, attributes: Read = vars) -> Any:
    """What a function makes of all that is there: types, order, keys and numbers count."""
    match value:
        case al.Tensor():
            return x * value.sum()
        case None | str() | bool():
            return x + len(repr(value))
        case int() | float():
            return x * value + len(repr(value))
    total = x * len(type(value).__name__)
    for key, part in inside(value, attributes):
        total = total * 2.0 + read(part, x, attributes) + len(str(key))
    return total


def put(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, Net):
        setattr(owner, key, value)
    else:
        owner[key] = value


def take(owner: Any, key: Any) -> Any:
    """Takes a part out."""
    if isinstance(owner, Net):
        part = getattr(owner, key)
        delattr(owner, key)
        return part
    return owner.pop(key)


def change(box: Any, how: str, number: int, leaf: Spec) -> None:
    """Changes a part of a box."""
    owners = mutable(box)
    if not owners:
        return
    owner = owners[number % len(owners)]
    parts = list(inside(owner))
    key, part = parts[number % len(parts)] if parts else (None, None)
    match how:
        case "append" if isinstance(owner, list):
            owner.append(made(leaf))
        case "append":
            put(owner, f"k{len(parts)}", made(leaf))
        case "pop" if parts:
            take(owner, key)
        case "reverse" if isinstance(owner, list):
            owner.reverse()
        case "reverse":
            for name, _ in reversed(parts):
                put(owner, name, take(owner, name))
        case "another" if parts:
            put(owner, key, made(leaf))
        case "equal" if isinstance(part, al.Tensor):
            put(owner, key, part.clone())
        case "as another type" if type(part) in (int, float, bool):
            put(owner, key, {int: float, float: int, bool: int}[type(part)](part))
        case "as other container" if isinstance(part, (list, tuple)):
            put(owner, key, tuple(part) if isinstance(part, list) else list(part))
        case "rename" if isinstance(owner, (dict, Net)) and parts:
            put(owner, f"{key}_", take(owner, key))
        case "share" if parts and not any(each is owner for each in mutable(owners[-1])):
            put(owner, key, owners[-1])
        case "one tensor" if parts:
            put(owner, key, next(_tensors(box), None))
        case "bytes" if isinstance(part, al.Tensor):
            part.add_(1.0)


@pytest.mark.slow("150 programs, each compiled several times")
@pytest.mark.draws(long=600)
@pytest.mark.rules("CAP-3", "CAP-5", "CAP-12", "GRD-1")
@settings(max_examples=150)
@given(containers, st.lists(changes, min_size=1, max_size=3), st.sampled_from([*READS]))
@example(("module", [("list", [1, 2])]), [("reverse", 1, "tensor")], "vars")
def test_what_is_in_containers_is_read_anew(spec: Spec, steps: list[Any], way: str) -> None:
    boxes, attributes = [made(spec), made(spec)], READS[way]
    compiled = al.compile(lambda x: read(boxes[0], x, attributes))
    x = al.tensor([1.0, -1.0])
    assert read(boxes[1], x, attributes).tolist() == compiled(x).tolist()
    for how, number, leaf in steps:
        for box in boxes:
            change(box, how, number, leaf)
        assert read(boxes[1], x, attributes).tolist() == compiled(x).tolist(), how
        before = len(compiled.entries)
        assert read(boxes[1], x, attributes).tolist() == compiled(x).tolist()
        assert before == len(compiled.entries)


@pytest.mark.rules("CAP-5")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("how", ["another", "reverse", "append", "rename", "pop"])
@pytest.mark.parametrize("owner", [0, 1], ids=["the module", "a list in it"])
def test_a_module_is_read_anew_however_it_is_asked(way: str, how: str, owner: int) -> None:
    net, attributes = made(("module", [("list", [1, 2]), 3])), READS[way]
    compiled = al.compile(lambda net, x: read(net, x, attributes))
    x = al.tensor([1.0, -1.0])
    compiled(net, x)
    change(net, how, owner, 2.0)
    assert read(net, x, attributes).tolist() == compiled(net, x).tolist()


@pytest.mark.rules("CAP-5", "CAP-12")
@pytest.mark.parametrize("as_tensor", [False, True])
def test_what_is_in_a_slot_is_read_anew(as_tensor: bool) -> None:
    class Scale:
        __slots__ = ("by",)
        by: Any

        def __call__(self, x: Any) -> Any:
            return x * self.by

    net, scale, x = Slotted(), Scale(), al.tensor([1.0])
    of_module = al.compile(lambda x: x * getattr(net, "k0", 5.0))
    of_object = al.compile(scale)
    assert of_module(x).tolist() == [5.0]
    for value in (2.0, 3.0):
        net.k0 = scale.by = al.tensor([value]) if as_tensor else value
        assert of_module(x).tolist() == of_object(x).tolist() == [value]
    assert len(of_object.entries) == (1 if as_tensor else 2)


@pytest.mark.rules("CAP-12")
@settings(max_examples=150)
@given(containers, st.lists(changes, min_size=1, max_size=3), st.integers(0, 2))
def test_a_snapshot_holds_iff_one_made_now_is_equal(
    spec: Spec, steps: list[Any], known: int
) -> None:
    _check_that_they_agree(spec, steps, known)


KINDS = ("list", "tuple", "dict", "module")


@pytest.mark.rules("CAP-12")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("outer", KINDS)
def test_a_snapshot_holds_iff_one_made_now_is_equal_after_each_change(
    outer: str, inner: str, how: str
) -> None:
    below = (inner, ["tensor", 1, None, 2.0])
    for spec in ((outer, [below, "tensor", 1, None]), (outer, [1, "tensor", (inner, []), below])):
        for number, leaf in itertools.product(range(10), ("tensor", "small", 1, None)):
            _check_that_they_agree(spec, [(how, number, leaf)], number % 3)


def _check_that_they_agree(spec: Spec, steps: list[Any], known: int) -> None:
    """Checks it after each step; as many of the tensors are arguments as are known."""
    box = made(spec)
    tensors = list(_tensors(box))[:known]
    before = snapshot_of_all((box,), tensors, deep=True)
    assert before.first_change((box,), tensors) is None
    for step in steps:
        change(box, *step)
        is_as_it_was = snapshot_of_all((box,), tensors, deep=True) == before
        assert (before.first_change((box,), tensors) is None) == is_as_it_was, step


def _tensors(value: Any) -> Iterator[Any]:
    for _, part in inside(value):
        if isinstance(part, al.Tensor):
            yield part
        yield from _tensors(part)


def test_what_a_custom_backward_changes_is_not_guarded():
    """As what the function itself changes (CAP-14): each compiled call finds it as it was left."""
    names = {"forward": 1}

    class Noting(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            names["backward"] = 2
            return grad * 2

    compiled = al.compile(lambda x: Noting.apply(x))
    for _ in range(2):
        x = al.ones(2).requires_grad_()
        compiled(x).sum().backward()
        assert [2.0, 2.0] == x.grad.tolist()
    assert 1 == len(compiled.entries)
