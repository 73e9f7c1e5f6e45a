"""CAG-5, CAG-11: backwards of functions that are compiled with symbols, in tapes of many sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from tests.compiled_autograd.helpers.resized import checked
from tests.compiled_autograd.test_sized_kernels import TEN, nothing_asked_late
from tests.compiled_autograd.test_structures import leaf

pytestmark = pytest.mark.rules("CAG-5", "CAG-11")


def two_results(x: al.Tensor, w: al.Tensor) -> Any:
    y = x @ w
    return y.sin(), (y * x).cos()


def long_ones(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    return (x @ w).exp() if x.shape[0] > 8 else (x @ w).sin()


LAYERS: dict[str, Callable[..., Any]] = {
    "product": lambda x, w: (x @ w).relu(),
    "sum": lambda x, w: x.sum() * w,
    "softmax": lambda x, w: (x @ w).softmax(-1),
    "turned": lambda x, w: (x.t() @ x) * w,
    "flat": lambda x, w: (x.reshape(-1) * 2).view(x.shape[0], x.shape[1]) @ w,
    "joined": lambda x, w: al.cat([x.sin(), w, x]),
    "but the last": lambda x, w: x[:-1].cos() @ w,
    "mean": lambda x, w: (x.mean(0) * w).mean(1),
    "of a constant": lambda x, w: x * al.ones(3) @ w,
}


def gradients(layer: Any, size: int, tapes: CompiledAutograd | None) -> list[np.ndarray]:
    x, w = leaf(size, 3), leaf(3, 3)
    result = layer(x.sin() * 2, w)
    parts = result if isinstance(result, tuple) else (result,)
    total = sum([part.exp().sum() for part in parts[:1]], parts[-1].mean())
    with disable() if tapes is None else enable(tapes):
        total.backward()
    return [np.array(each.grad.tolist()) for each in (x, w) if each.grad is not None]


def agree(eager: Any, compiled: Any, size: int, tapes: CompiledAutograd) -> None:
    """The gradients of a compiled layer in a compiled tape are those of eager."""
    pairs = zip(gradients(eager, size, None), gradients(compiled, size, tapes), strict=True)
    for expected, found in pairs:
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5, err_msg=str(size))


@pytest.mark.parametrize("name", LAYERS)
def test_ten_sizes_of_a_region_are_two_captures(name: str) -> None:
    layer = al.compile(LAYERS[name], dynamic=True, backend="loops")
    tapes = CompiledAutograd.of("loops")
    for size in TEN:
        agree(LAYERS[name], layer, size, tapes)
    more = name == "but the last"  # of two rows one is left
    counters = tapes.counters
    assert (2 + more, 8 - more) == (counters.captures, counters.resized)
    assert counters.compiles == counters.captures
    assert 1 == len(layer.entries)
    assert nothing_asked_late(tapes)


@pytest.mark.parametrize("name", LAYERS)
def test_templates_are_what_is_recorded_of_each_size(name: str) -> None:
    layer = al.compile(LAYERS[name], dynamic=True, backend="reference")
    tapes, templates = checked()
    for size in (4, 6, 5, 2, 4, 7):
        agree(LAYERS[name], layer, size, tapes)
    assert templates.compared >= 3


def test_results_without_a_gradient() -> None:
    """Each set of results that get one is a structure of its own."""
    layer = al.compile(two_results, dynamic=True, backend="loops")
    for pick in (lambda found: found[:1], lambda found: found[1:], lambda found: found):
        tapes = CompiledAutograd.of("loops")
        for size in TEN:
            agree(
                lambda x, w, pick=pick: pick(two_results(x, w)),
                lambda x, w, pick=pick: pick(layer(x, w)),
                size,
                tapes,
            )
        assert (2, 8) == (tapes.counters.captures, tapes.counters.resized)


def test_each_region_has_templates_of_its_own() -> None:
    layer = al.compile(long_ones, dynamic=True, backend="loops")
    tapes = CompiledAutograd.of("loops")
    for size in (4, 12, 5, 9, 7, 16, 3, 10, 8, 11):
        agree(long_ones, layer, size, tapes)
    assert 2 == len(layer.entries)
    assert (4, 6) == (tapes.counters.captures, tapes.counters.resized)
    logs = [
        [assumption.text for assumption in family.template.log]
        for outline in tapes._templates.outlines
        for family in outline.families
        if family.template is not None
    ]
    assert [["s0 <= 8"], ["s0 > 8"]] == sorted(logs)


def test_a_size_that_is_seen_to_change() -> None:
    """The first entry is one of numbers; the second one serves the rest, as its tape does."""
    layer = al.compile(LAYERS["product"], dynamic=None, backend="loops")
    tapes = CompiledAutograd.of("loops")
    for size in TEN:
        agree(LAYERS["product"], layer, size, tapes)
    assert 2 == len(layer.entries)
    assert tapes.counters.captures <= 3


def test_two_layers_of_one_region() -> None:
    layer = al.compile(LAYERS["product"], dynamic=True, backend="loops")
    tapes = CompiledAutograd.of("loops")
    twice = LAYERS["product"]
    for size in TEN:
        agree(lambda x, w: twice(twice(x, w), w), lambda x, w: layer(layer(x, w), w), size, tapes)
    assert (2, 8) == (tapes.counters.captures, tapes.counters.resized)


CHAINED = ("product", "softmax", "of a constant", "flat")


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.sampled_from(CHAINED), st.booleans()), min_size=1, max_size=4),
    st.lists(st.integers(1, 40), min_size=5, max_size=8, unique=True),
)
def test_chains_of_compiled_and_eager_layers(picked: Any, sizes: list[int]) -> None:
    """At most three captures: of the first size, of one with a symbol, and of size 1."""
    layers = [LAYERS[name] for name, _ in picked]
    mixed = [
        al.compile(LAYERS[name], dynamic=True, backend="loops") if is_compiled else LAYERS[name]
        for name, is_compiled in picked
    ]

    def chain(of: list[Any]) -> Callable[..., Any]:
        def run(x: al.Tensor, w: al.Tensor) -> al.Tensor:
            for layer in of:
                x = layer(x, w) * 0.1
            return x

        return run

    tapes = CompiledAutograd.of("loops")
    for size in sizes:
        agree(chain(layers), chain(mixed), size, tapes)
    assert tapes.counters.captures <= 3
    assert tapes.counters.compiles == tapes.counters.captures
