"""CACHE-13: a miss names the part of a Module or value that differs, by its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import aotlite as al
from aotlite.artifacts.files.image_paths import inner_difference
from tests.artifacts.looked_up import cached, outcomes


class Limits(NamedTuple):
    least: float
    most: float


class Block(al.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.lin = al.nn.Linear(3, size)
        self.config = {"kind": "relu, (", "scales": [1, (2, 3)]}
        self.act = al.sin
        self.limits = Limits(0.0, 2.0)

    def forward(self, x: Any) -> Any:
        kind, scales = self.config["kind"], self.config["scales"]
        x = x.clamp(max=self.limits.most)
        return self.act(self.lin(x)) * scales[1][0] * len(kind)  # type: ignore[index]


class Net(al.nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.blocks = al.nn.ModuleList([Block(3), Block(size)])
        self.head: Any = al.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def called(model: Any, x: Any) -> Any:
    return model(x)


def one(model: Any) -> Any:
    return model.blocks[1]


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "shape": (
        lambda m: setattr(one(m), "lin", al.nn.Linear(3, 5)),
        "argument 0.blocks.1.lin.weight is aotlite.nn.parameter.Parameter float32[5, 3] ",
    ),
    "flag": (
        lambda m: one(m).lin.bias.requires_grad_(False),
        "argument 0.blocks.1.lin.bias is aotlite.nn.parameter.Parameter float32[4] strides [1] on "
        "cpu, Parameter, f32[4], was aotlite",
    ),
    "text": (
        lambda m: one(m).config.update(kind="relu, )"),
        "argument 0.blocks.1.config['kind'] is 'relu, )', was 'relu, (' when",
    ),
    "item": (
        lambda m: one(m).config["scales"].__setitem__(0, 4),
        "argument 0.blocks.1.config['scales'][0] is 4, was 1 when it was compiled",
    ),
    "field": (
        lambda m: setattr(one(m), "limits", Limits(0.0, 3.0)),
        "argument 0.blocks.1.limits.most is 3.0, was 2.0 when it was compiled",
    ),
    "function": (
        lambda m: setattr(one(m), "act", al.cos),
        "argument 0.blocks.1.act is function cos of aotlite, was function sin of aotlite when ",
    ),
}


@pytest.mark.rules("CACHE-13")
@pytest.mark.parametrize("change", CHANGES)
def test_a_miss_names_the_part_that_differs(change, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))
    act, words = CHANGES[change]
    cached(called)(Net(), al.ones(2, 3))
    model = Net()
    act(model)
    with outcomes() as found:
        cached(called)(model, al.ones(2, 3))
    assert ["miss", "kept"] == found
    assert found.why.startswith(words), found.why


@pytest.mark.rules("CACHE-13")
def test_what_has_no_path_is_shown_as_a_whole():
    assert ("", "int 1", "int 2") == inner_difference("int 1", "int 2")
    assert ("", "int 1", "int 12") == inner_difference("int 1", "int 12")
    assert (".a", "int 1", "str") == inner_difference("#0 m.N(a: int 1)", "#0 m.N(a: str)")
    whole = "m.N(a: int 1)", "m.N(b: int 1)"
    assert ("", *whole) == inner_difference(*[f"#0 {each}" for each in whole])
