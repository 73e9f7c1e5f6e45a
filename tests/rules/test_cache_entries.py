"""A restored entry is what a compilation makes: values, gradients of any order, graphs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.artifacts.files import store
from tests.artifacts.looked_up import cached, outcomes

SCALE = 2.0


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


class Net(al.nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.w = al.nn.Parameter(al.full((size,), 2.0))
        self.seen: Any = al.nn.Buffer(al.zeros(()))
        self.rate = 0.5

    def forward(self, x: Any) -> Any:
        self.seen.add_(1)
        return (x.sin() * self.w * self.rate * SCALE).sum()


def called(model: Any, x: Any) -> Any:
    return model(x)


def with_views(x: Any, y: Any) -> Any:
    x[0].mul_(y)
    return x.t(), x, x[1:].sum(), [y, None, 3]


def dropped(x: Any) -> Any:
    return al.nn.functional.dropout(x, 0.5).sum()


def step(model: Any, x: Any) -> Any:
    loss = model(x)
    grad: Any = al.autograd.grad(loss, model.w)[0]
    with al.no_grad():
        model.w.sub_(grad * 0.1)
    return loss


def on_arrays(a: Any) -> Any:
    a[0] = 5.0
    return a * 2


@pytest.mark.rules("CACHE-1", "CACHE-5")
@pytest.mark.parametrize(
    ("function", "make"),
    [
        (called, lambda: (Net(), al.ones(3))),
        (with_views, lambda: (al.ones(2, 3), al.full((3,), 2.0, requires_grad=True))),
        (dropped, lambda: (al.ones(8, requires_grad=True),)),
        (step, lambda: (Net(), al.ones(3))),
        (on_arrays, lambda: (np.ones(3, np.float32),)),
    ],
    ids=["module", "views", "dropout", "step", "arrays"],
)
def test_a_restored_entry_does_what_a_new_one_does(function, make):
    def run(compiled):
        al.manual_seed(3)
        args = make()
        found = compiled(*args)
        again = compiled(*make())  # and once more: the entry serves later calls
        leaves = [found, again]
        state = [v for a in args if isinstance(a, Net) for v in a.state_dict().values()]
        (entry,) = compiled.entries
        graphs = str(entry.partition.forward), str(entry.partition.backward), str(entry.meta)
        return [repr(each) for each in (*leaves, *args, *state)], graphs

    fresh = run(al.compile(function, backend="reference"))
    with outcomes() as found:
        cold, warm = run(cached(function)), run(cached(function))
    assert ["miss", "kept", "hit"] == found
    assert fresh[1] == cold[1] == warm[1]
    strip = [
        [each for each in one[0] if not each.startswith("Net(")] for one in (fresh, cold, warm)
    ]
    assert strip[0] == strip[1] == strip[2]


@pytest.mark.rules("CACHE-14", "DBL-2")
def test_gradients_of_gradients_of_a_restored_entry_are_those_of_a_new_one():
    def run(compiled):
        model, x = Net(), al.tensor([0.1, 0.2, 0.3], requires_grad=True)
        first = al.autograd.grad(compiled(model, x), (x, model.w), create_graph=True)
        second = al.autograd.grad((first[0] * first[0]).sum(), (x, model.w), create_graph=True)
        (third,) = al.autograd.grad(second[0].sum(), x)
        return [each.tolist() for each in (*first, *second, third)]

    fresh = run(al.compile(called, backend="reference"))
    with outcomes() as found:
        assert fresh == run(cached(called)) == run(cached(called))
    assert "hit" == found[-1]


@pytest.mark.rules("CACHE-14")
def test_a_derivative_after_a_change_of_what_was_read_is_an_error(monkeypatch):
    cached(called)(Net(), al.ones(3, requires_grad=True))
    restored, model = cached(called), Net()
    x = al.ones(3, requires_grad=True)
    loss = restored(model, x)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    with pytest.raises(al.AutogradError, match="what it read has changed since, expected it"):
        al.autograd.grad(loss, x, create_graph=True)


@pytest.mark.rules("GEN-9", "CACHE-1")
def test_each_restored_entry_has_the_next_number():
    first = cached(called)
    first(Net(), al.ones(3))
    second, third = cached(called), cached(called)
    second(Net(), al.ones(3))
    third(Net(), al.ones(3))
    numbers = [each.entries[0].number for each in (first, second, third)]
    assert [numbers[0], numbers[0] + 1, numbers[0] + 2] == numbers


def test_a_restored_entry_keeps_no_argument_alive():
    run = cached(called)
    run(Net(), al.ones(3))
    restored, model = cached(called), Net()
    restored(model, al.ones(3))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_other_metadata_makes_another_variant():
    with outcomes() as found:
        cached(called)(Net(), al.ones(3))
        cached(called)(Net(1), al.ones(3))
        cached(called)(Net(), al.ones(3))
        cached(called)(Net(1), al.ones(3))
    assert ["miss", "kept", "miss", "kept", "hit", "hit"] == found
    assert 2 == len(list(store.variants(f"{called.__module__}:called")))


@pytest.mark.rules("CACHE-20")
def test_a_second_size_compiles_with_symbols_and_is_kept_too():
    with outcomes() as found:
        run = cached(called)
        run(Net(), al.ones(2, 3))
        run(Net(), al.ones(4, 3))
    assert ["miss", "kept", "miss", "kept"] == found


def placed_on_itself(x: Any) -> Any:
    x.set_(x)
    bits = x.view(al.int32)
    return bits, bits.alias()


@pytest.mark.rules("CACHE-6", "REC-1")
def test_views_of_a_restored_entry_are_on_the_base_that_eager_has():
    """Program 1923 of tests.artifacts.random_programs, made small."""
    for run in (placed_on_itself, cached(placed_on_itself), cached(placed_on_itself)):
        bits, alias = run(al.ones(2))
        assert alias._base is bits
