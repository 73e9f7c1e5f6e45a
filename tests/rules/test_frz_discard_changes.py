"""FRZ-4, FRZ-6: what takes the place of a discarded tensor is noticed; tied tensors stay tied."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn


class Scaled(nn.Module):
    """Two cones that do not meet, and a parameter that is read as it is."""

    shift: nn.Buffer

    def __init__(self) -> None:
        self.w = nn.Parameter(al.ones(2))
        self.bias = nn.Parameter(al.full((2,), 0.5))
        self.register_buffer("shift", al.full((2,), 0.25))

    def forward(self, x: al.Tensor) -> al.Tensor:
        return x * self.w.exp() + self.shift.sin() + self.bias


def freeze(*args: Any, **options: Any) -> Any:
    return al.freeze(*args, freezing_discard_parameters=True, backend="reference", **options)


def put(name: str, made: Callable[[al.Tensor], Any]) -> Callable[[Any, float], object]:
    return lambda module, start: setattr(module, name, made(al.full((2,), start)))


CHANGES: dict[str, Callable[[Any, float], object]] = {
    "another parameter": put("w", nn.Parameter),
    "another bias": put("bias", nn.Parameter),
    "another buffer": put("shift", nn.Buffer),
    "a parameter that needs no gradient": put("w", lambda t: nn.Parameter(t, requires_grad=False)),
    "other memory": lambda module, start: module.w.set_(al.full((2,), start)),
    "a write": lambda module, start: module.w.add_(start),
    "nothing": lambda module, start: None,
}


@pytest.mark.rules("FRZ-4", "FRZ-6")
@example(["another parameter"])
@example(["another bias"])
@example(["other memory", "another buffer", "a write"])
@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4))
def test_what_takes_the_place_of_a_discarded_tensor_is_frozen_in_its_place(names):
    module, twin, x = Scaled(), Scaled(), al.full((2,), 3.0)
    with al.no_grad():
        frozen = freeze(module)
        frozen(x)
        for number, name in enumerate(names):
            for each in (module, twin):
                try:
                    CHANGES[name](each, number + 0.125)
                except al.FreezeError:  # it is erased: the twin is not changed either
                    assert name in ("a write", "other memory")
                    break
            assert twin(x).tolist() == frozen(x).tolist()
            frozen(x)
            assert 0 == frozen.refolded
    assert {"w", "bias", "shift"} == {*frozen.report().discarded}
    assert len(frozen.compiled.entries) <= 2  # another where the parameter needs no gradient


@pytest.mark.rules("FRZ-4", "FRZ-6")
def test_a_module_compiled_with_discarding_notices_another_parameter():
    module = Scaled()
    compiled = al.compile(
        module, freezing=True, freezing_discard_parameters=True, backend="reference"
    )
    with al.no_grad():
        compiled(al.ones(2))
        module.w = nn.Parameter(al.zeros(2))
        assert Scaled()(al.ones(2)).tolist() != compiled(al.ones(2)).tolist()
        assert (1 + Scaled().shift.sin() + 0.5).tolist() == compiled(al.ones(2)).tolist()


@pytest.mark.rules("FRZ-4", "FRZ-6")
def test_a_fixed_list_beside_a_discarded_module_is_read_anew():
    module, items, x = Scaled(), [al.ones(2)], al.full((2,), 3.0)
    with al.no_grad():
        frozen = freeze(lambda module, items, x: module(x) + items[0].cos(), module, items)
        frozen(x)
        items[0] = al.zeros(2)
        assert (Scaled()(x) + 1.0).tolist() == frozen(x).tolist()


@pytest.mark.rules("FRZ-4", "FRZ-6")
def test_an_attribute_that_comes_after_discarding_is_read():
    module, x = Scaled(), al.full((2,), 3.0)
    with al.no_grad():
        frozen = freeze(lambda module, x: module(x) * getattr(module, "gain", 1.0), module)
        frozen(x)
        module.gain = nn.Buffer(al.full((2,), 2.0))
        assert (Scaled()(x) * 2.0).tolist() == frozen(x).tolist()
        assert {"argument 0.w", "argument 0.bias", "argument 0.shift"} == {
            *frozen.report().discarded
        }


@pytest.mark.rules("FRZ-4", "FRZ-8")
def test_requires_grad_of_an_erased_parameter_is_that_of_the_frozen_one():
    module = Scaled()
    frozen = freeze(module)
    with al.no_grad():
        frozen(al.ones(2))
    with pytest.raises(al.FreezeError, match="w requires grad in grad mode"):
        frozen(al.ones(2))
    module.requires_grad_(False)
    x = al.ones(2).requires_grad_()
    frozen(x).sum().backward()
    assert Scaled().w.exp().tolist() == x.grad.tolist()


class Branching(nn.Module):
    def __init__(self) -> None:
        self.w = nn.Parameter(al.full((2,), 0.5))

    def forward(self, x: al.Tensor) -> Any:
        if x.dim() == 2:
            return self.w
        if x.dim() == 3:
            return x + self.w.add_(1.0)
        return x * self.w.exp()


@pytest.mark.rules("FRZ-4")
@pytest.mark.parametrize(("dims", "reason"), [(2, "result 0 is it"), (3, "the function writes it")])
def test_a_call_that_needs_the_memory_of_a_discarded_tensor_is_an_error(dims, reason):
    """It has none: a result or a write would be in the memory of others."""
    module, x = Branching(), al.ones(2)
    with al.no_grad():
        frozen = freeze(module)
        expected = frozen(x).tolist()
        lost, other = module.w, nn.Parameter(al.zeros(2))
        for _ in range(2):
            with pytest.raises(al.FreezeError, match=rf"need w \({reason}.*which was discarded"):
                frozen(al.ones(*[1] * dims))
            assert expected == frozen(x).tolist()
        module.w = other
        frozen(al.ones(*[1] * dims))
        module.w = lost  # now an entry for such a call is there
        with pytest.raises(al.FreezeError, match="which was discarded"):
            frozen(al.ones(*[1] * dims))


@pytest.mark.rules("FRZ-4")
def test_tied_parameters_stay_tied():
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x: al.Tensor) -> al.Tensor:
            return self.b(self.a(x)) + self.b.weight.exp()

    module, x = Tied(), al.ones(2, 2)
    with al.no_grad():
        expected, names = module(x).tolist(), [name for name, _ in module.named_parameters()]
        frozen = freeze(module)
        assert expected == frozen(x).tolist() == frozen(x).tolist()
        assert names == [name for name, _ in module.named_parameters()]
        assert module.a.weight is module.b.weight
        assert 1 == len(frozen.compiled.entries)  # stand-ins are tied, too
        assert 4 == len(frozen.report().discarded)
        with pytest.raises(al.FreezeError, match=r"parameter 'a\.weight'"):
            module.b.weight + 1


@pytest.mark.rules("FRZ-4")
def test_first_calls_of_several_threads_discard_once():
    module, x, before = Scaled(), al.ones(2), sys.getswitchinterval()
    expected, found = (Scaled()(x)).tolist(), list[Any]()
    frozen, start = freeze(module), threading.Barrier(4)

    def call() -> None:
        start.wait()
        with al.no_grad():
            found.append(frozen(x).tolist())

    threads = [threading.Thread(target=call) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert [expected] * 4 == found
    assert 3 == len(frozen.report().discarded)


class Tied(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: al.Tensor) -> al.Tensor:
        return self.second(self.first(x))


@pytest.mark.rules("FRZ-4", "FRZ-6")
def test_a_discarded_tied_weight_serves_a_later_size():
    """A capture takes both places of the erased tensor for one: it saw a change of the Module."""
    module = Tied().requires_grad_(False)
    its = [module(al.ones(size, 3)) for size in (1, 2)]
    frozen = freeze(module, dynamic=False)
    for size, expected in zip((1, 2), its, strict=True):
        assert expected.tolist() == frozen(al.ones(size, 3)).tolist()
