"""What a function reads in containers outside is guarded: another form compiles anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn

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
    *("bytes", "rename", "as other container"),
)
changes = st.tuples(st.sampled_from(CHANGES), st.integers(0, 9), st.sampled_from(LEAVES))


class Net(nn.Module):
    """A module whose attributes are what a form says."""


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


def inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a container, each with its key."""
    match value:
        case list() | tuple():
            yield from enumerate(value)
        case dict():
            yield from value.items()
        case Net():
            yield from ((k, v) for k, v in vars(value).items() if k[0] == "k")


def mutable(value: Any) -> list[Any]:
    """All lists, dictionaries and modules in a value, itself first."""
    below = [each for _, part in inside(value) for each in mutable(part)]
    return ([] if isinstance(value, tuple) else [value]) + below if _is_container(value) else []


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict, Net))


def read(value: Any, x: Any) -> Any:
    """What a function makes of all that is there: types, order, keys and numbers count."""
    match value:
        case al.Tensor():
            return x * value.sum()
        case None | str() | bool():
            return x + len(repr(value))
        case int() | float():
            return x * value + len(repr(value))
    total = x * len(type(value).__name__)
    for key, part in inside(value):
        total = total * 2.0 + read(part, x) + len(str(key))
    return total


def put(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, Net):
        setattr(owner, key, value)
    else:
        owner[key] = value


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
        case "pop" if parts and not isinstance(owner, Net):
            owner.pop(key)
        case "reverse" if isinstance(owner, list):
            owner.reverse()
        case "another" if parts:
            put(owner, key, made(leaf))
        case "equal" if isinstance(part, al.Tensor):
            put(owner, key, part.clone())
        case "as another type" if type(part) in (int, float, bool):
            put(owner, key, {int: float, float: int, bool: int}[type(part)](part))
        case "as other container" if isinstance(part, (list, tuple)):
            put(owner, key, tuple(part) if isinstance(part, list) else list(part))
        case "rename" if isinstance(owner, dict) and parts:
            owner[f"{key}_"] = owner.pop(key)
        case "bytes" if isinstance(part, al.Tensor):
            part.add_(1.0)


@pytest.mark.rules("CAP-3", "CAP-12", "GRD-1")
@settings(max_examples=150)
@given(containers, st.lists(changes, min_size=1, max_size=3))
def test_what_is_in_containers_is_read_anew(spec: Spec, steps: list[Any]) -> None:
    boxes = [made(spec), made(spec)]
    compiled = al.compile(lambda x: read(boxes[0], x))
    x = al.tensor([1.0, -1.0])
    assert read(boxes[1], x).tolist() == compiled(x).tolist()
    for how, number, leaf in steps:
        for box in boxes:
            change(box, how, number, leaf)
        assert read(boxes[1], x).tolist() == compiled(x).tolist(), how
        before = len(compiled.entries)
        assert read(boxes[1], x).tolist() == compiled(x).tolist()
        assert before == len(compiled.entries)
