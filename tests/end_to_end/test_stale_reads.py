"""What a function reads without its being an argument is never stale: found by hostile review.

Each case compiles, changes one thing that Python can see, and calls again.
"""

import gc
import operator
import types
import weakref
from typing import ClassVar

import numpy as np
import pytest

import aotlite as al
from aotlite import nn

X = al.ones(2)


class Times(nn.Module):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Twice(nn.Module):
    def __init__(self):
        self.a = self.b = Times(2)

    def forward(self, x):
        return self.a(x) + self.b(x)


class Acting(nn.Module):
    def __init__(self):
        self.act = al.Tensor.relu

    def forward(self, x):
        return self.act(x)


class Plain:
    """No Module: its numbers and tensors are reached through the bound method alone."""

    weight = 5

    def __init__(self):
        self.w = al.full((2,), 3.0)
        self.n = 2

    def scaled(self, x):
        return x * self.w * self.n


def nines():
    return al.full((2,), 9.0)


@pytest.mark.rules("DUP-5")
def test_an_argument_that_is_also_in_the_closure_must_stay_it():
    w = al.ones(2)
    compiled = al.compile(lambda x: x * w)
    compiled(w)
    assert [9.0, 9.0] == compiled(nines()).tolist()


@pytest.mark.rules("DUP-5")
def test_one_tensor_at_two_places_may_become_two():
    shared = al.ones(2)
    pair = [shared, shared]
    compiled = al.compile(lambda x: x * pair[0] + pair[1])
    compiled(X)
    pair[1] = nines()
    assert [10.0, 10.0] == compiled(X).tolist()


weight = al.ones(2)
PLAIN = Plain()


def test_a_variable_that_only_has_the_name_of_an_attribute_is_not_read():
    params = [weight]
    compiled = al.compile(lambda x: x * params[0] * (PLAIN.weight - 4))
    compiled(X)
    params[0] = nines()
    assert [9.0, 9.0] == compiled(X).tolist()


@pytest.mark.parametrize("first", [None, 3, al.ones(2)])
def test_a_variable_may_become_another_kind_of_thing(first):
    b = first

    def f(x):
        return x if b is None else x + b

    compiled = al.compile(f)
    for value in (first, al.full((2,), 4.0), None, 5, first):
        b = value
        assert f(X).tolist() == compiled(X).tolist()


def test_a_list_of_modules_may_grow_and_a_module_may_get_a_child():
    several = [Times(2)]
    compiled = al.compile(lambda x: sum((each(x) for each in several), x))
    compiled(X)
    several.append(Times(3))
    assert [6.0, 6.0] == compiled(X).tolist()
    module = nn.Sequential(Times(2), Times(3))
    compiled = al.compile(lambda m, x: m(x))
    compiled(module, X)
    module.add_module("2", Times(5))
    assert [30.0, 30.0] == compiled(module, X).tolist()


def test_a_shared_submodule_may_be_split():
    module = Twice()
    compiled = al.compile(lambda m, x: m(x))
    compiled(module, X)
    module.b = Times(5)
    assert [7.0, 7.0] == compiled(module, X).tolist()


@pytest.mark.parametrize(
    ("before", "after"),
    [(np.float32(2), np.float32(3)), (np.int64(2), 2.0), (0.0, -0.0), (complex(0, 0), 0.0)],
)
def test_numbers_of_every_kind_are_guarded(before, after):
    module = Times(before)
    compiled = al.compile(lambda m, x: m(x))
    compiled(module, X)
    module.factor = after
    assert str(module(X)) == str(compiled(module, X))


def test_a_function_held_by_a_module_is_guarded():
    module = Acting()
    compiled = al.compile(lambda m, x: m(x))
    compiled(module, X)
    module.act = al.Tensor.tanh
    assert X.tanh().tolist() == compiled(module, X).tolist()


def test_a_module_that_is_found_nowhere_is_refused():
    holder = Plain()
    holder.module = Times(2)
    with pytest.raises(al.UnsupportedError, match="attribute 'factor' of a Times that is neither"):
        al.compile(lambda x: holder.module(x))(X)


def test_a_bound_method_of_a_plain_object_reads_it_again():
    plain = Plain()
    compiled = al.compile(plain.scaled)
    assert [6.0, 6.0] == compiled(X).tolist()
    plain.n = 5
    assert [15.0, 15.0] == compiled(X).tolist()
    plain.w = al.ones(2)
    assert [5.0, 5.0] == compiled(X).tolist()


def test_the_order_of_a_dict_is_seen():
    compiled = al.compile(lambda d: (next(iter(d.values())) * 1, dict(d)))
    zero, one = al.zeros(1), al.ones(1)
    assert [0.0] == compiled({"a": zero, "b": one})[0].tolist()
    value, copied = compiled({"b": one, "a": zero})
    assert ([1.0], ["b", "a"]) == (value.tolist(), list(copied))
    named = al.compile(lambda **k: al.cat(list(k.values())))
    named(a=zero, b=one)
    assert [1.0, 0.0] == named(b=one, a=zero).tolist()


@pytest.mark.rules("ALI-1", "GRD-2")
def test_two_storages_on_one_buffer_are_one_memory():
    """Windows on one ndarray, and hidden aliases: each storage counts its own writes."""
    memory = np.ones(4)
    compiled = al.compile(lambda p, q: (p.mul_(2.0), q * 1.0)[1])
    assert [2.0, 2.0, 1.0] == compiled(al.from_numpy(memory)[:3], memory[1:]).tolist()
    assert [2.0, 2.0, 2.0, 1.0] == memory.tolist()
    x = al.ones(2)
    hidden = x.hidden_alias()
    assert [2.0, 2.0] == compiled(x, hidden).tolist()
    assert ([2.0, 2.0], 1, 0) == (x.tolist(), x.version, hidden.version)
    assert [1.0, 1.0] == compiled(x, al.ones(2)).tolist()


@pytest.mark.rules("ALI-1", "GRD-2")
def test_two_buffers_on_one_memory_are_refused():
    memory = np.ones(4)
    compiled = al.compile(lambda p, q: (p.mul_(2.0), q * 1.0)[1])
    with pytest.raises(al.AliasError, match="overlap in memory"):
        compiled(al.from_numpy(memory)[:3], al.from_numpy(memory[1:]))
    assert [1.0] * 4 == memory.tolist()


@pytest.mark.rules("ALI-8", "GRD-2")
def test_slices_at_any_distance_share_an_entry_where_nothing_is_written():
    data = al.arange(100.0).view(50, 2)
    compiled = al.compile(lambda a, b: (a * b).sum())
    for i in range(10):
        a, b = data[i : i + 1], data[3 * i : 3 * i + 1]
        assert (a * b).sum().item() == compiled(a, b).item()
    assert 1 == len(compiled.entries)


def test_an_entry_keeps_no_parameter_of_a_module_argument_alive():
    module = nn.Linear(2, 2)
    compiled = al.compile(lambda m, x: m(x).sum())
    compiled(module, al.ones(1, 2))
    alive = weakref.ref(module.weight)
    del module
    gc.collect()
    assert alive() is None


def test_a_compiled_function_in_another_brings_its_closure_along():
    w = al.ones(2)
    inner = al.compile(lambda x: x * w)
    outer = al.compile(lambda x: inner(x) + 1.0)
    assert [2.0, 2.0] == outer(X).tolist()
    w = nines()
    assert [10.0, 10.0] == outer(X).tolist()


def test_a_function_that_changes_a_module_it_is_given_is_refused_and_leaves_no_entry():
    class Logging(nn.Module):
        def __init__(self):
            self.log = []

        def forward(self, x):
            self.log.append(1)
            return x

    compiled = al.compile(lambda m, x: m(x))
    with pytest.raises(al.UnsupportedError, match="a change of what argument 0 holds"):
        compiled(Logging(), X)
    assert [] == compiled.entries


def test_an_op_that_fails_while_captured_names_the_users_line():
    with pytest.raises(al.ShapeError) as caught:
        al.compile(lambda x: x @ al.ones(3, 3))(al.ones(2, 2))
    assert any("al.compile(lambda x: x @ al.ones(3, 3))" in n for n in caught.value.__notes__)


def test_a_coroutine_method_is_refused_before_the_call():
    class Waits(nn.Module):
        async def forward(self, x):
            return x

    with pytest.raises(al.UnsupportedError, match="an async function"):
        al.compile(Waits())


FACTOR = 2.0
settings = types.ModuleType("settings")
settings.FACTOR = 2.0  # type: ignore[attr-defined]


class Helping(nn.Module):
    """Reads a global and a class attribute in a method other than forward."""

    sizes: ClassVar = [2.0]

    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return x * FACTOR * self.sizes[0]


class Callable:
    n = 2.0

    def __init__(self):
        self.m = 3.0

    def __call__(self, x):
        return x * self.n * self.m * FACTOR


def test_a_builtin_or_module_bound_to_a_name_may_be_replaced():
    op = operator.add
    compiled = al.compile(lambda x: op(x, 3.0))
    compiled(X)
    op = operator.mul
    assert [3.0, 3.0] == compiled(X).tolist()


def test_what_other_methods_read_is_guarded(monkeypatch):
    compiled = al.compile(lambda m, x: m(x))
    module = Helping()
    compiled(module, X)
    monkeypatch.setattr(Helping, "sizes", [5.0])
    assert [10.0, 10.0] == compiled(module, X).tolist()
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert [15.0, 15.0] == compiled(module, X).tolist()


def test_the_attributes_of_a_compiled_object_are_guarded(monkeypatch):
    thing = Callable()
    compiled = al.compile(thing)
    compiled(X)
    thing.m = 4.0
    assert thing(X).tolist() == compiled(X).tolist()
    monkeypatch.setattr(Callable, "n", 5.0)
    assert thing(X).tolist() == compiled(X).tolist()
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert thing(X).tolist() == compiled(X).tolist()


def test_the_shape_of_a_tensor_that_no_op_reads_is_guarded():
    w = al.ones(3)
    compiled = al.compile(lambda x: x * w.shape[0])
    compiled(X)
    w = al.ones(5)
    assert [5.0, 5.0] == compiled(X).tolist()
    by_argument = al.compile(lambda m, x: x * m.factor.shape[0])
    by_argument(Times(nn.Parameter(al.ones(3))), X)
    assert [5.0, 5.0] == by_argument(Times(nn.Parameter(al.ones(5))), X).tolist()


def test_numbers_of_a_module_of_ones_own_are_guarded(monkeypatch):
    compiled = al.compile(lambda x: x * settings.FACTOR)
    compiled(X)
    monkeypatch.setattr(settings, "FACTOR", 7.0)
    assert [7.0, 7.0] == compiled(X).tolist()


def test_a_name_that_is_not_there_yet_is_guarded(monkeypatch):
    def f(x):
        try:
            return x * LATER
        except NameError:
            return x

    compiled = al.compile(f)
    compiled(X)
    monkeypatch.setitem(globals(), "LATER", 5.0)
    assert [5.0, 5.0] == compiled(X).tolist()


def test_containers_that_hold_themselves_are_no_trouble():
    looped = [4.0]
    looped.append(looped)
    module = Times(looped)
    assert [4.0, 4.0] == al.compile(lambda m, x: x * m.factor[0])(module, X).tolist()
    assert [4.0, 4.0] == al.compile(lambda x: x * looped[0])(X).tolist()


def test_an_attribute_that_a_module_does_not_have_yet_is_guarded():
    module = Times(2.0)
    by_default = al.compile(lambda m, x: m(x) * getattr(m, "extra", 1.0))
    by_asking = al.compile(lambda m, x: m(x) if hasattr(m, "extra") else x)
    assert ([2.0, 2.0], [1.0, 1.0]) == (
        by_default(module, X).tolist(),
        by_asking(module, X).tolist(),
    )
    module.extra = 5.0
    assert ([10.0, 10.0], [2.0, 2.0]) == (
        by_default(module, X).tolist(),
        by_asking(module, X).tolist(),
    )
    by_default(module, X)
    assert (2, 2) == (len(by_default.entries), len(by_asking.entries))
