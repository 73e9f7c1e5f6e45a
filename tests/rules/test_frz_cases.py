"""FRZ-1 to FRZ-3, FRZ-6 to FRZ-8: what folds, what does not and why, and what is noticed."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.ir.graph.verify import verify
from aotlite.subclasses import TwoTensor


def freeze(*args: Any, **options: Any) -> Any:
    """A frozen function whose results have eager's bits."""
    return al.freeze(*args, **{"backend": "reference", **options})


def numbers(*shape: int) -> al.Tensor:
    return al.arange(1, int(np.prod(shape)) + 1).reshape(shape).to(al.float64)


class Scaled(nn.Module):
    """A product with a parameter, scaled by a function of a buffer."""

    scale: nn.Buffer

    def __init__(self, start: float = 0.0) -> None:
        self.weight = nn.Parameter(numbers(3, 2) / 8 + start, requires_grad=False)
        self.register_buffer("scale", al.full((2,), start, dtype=al.float64))

    def forward(self, x: al.Tensor) -> al.Tensor:
        return x @ (self.weight * self.scale.exp())


# ------------------------------------------------------------------------------------------ FRZ-1
@pytest.mark.rules("FRZ-1")
def test_a_frozen_function_is_the_partial():
    def f(w, b, x, *, scale, power=1):
        return (x @ w.t().tanh() + b) * scale.cos() ** power

    w, b, scale = numbers(2, 3), numbers(2), numbers(2)
    frozen = freeze(f, w, b, kwargs={"scale": scale})
    partial = functools.partial(f, w, b, scale=scale)
    for options in ({}, {"power": 2}, {"scale": numbers(2) * 2}):
        grads = []
        for each in (frozen, partial):
            x = numbers(4, 3).requires_grad_()
            y = each(x, **options)
            (first,) = al.autograd.grad((y * y * y).sum(), x, create_graph=True)
            (second,) = al.autograd.grad((first * first).sum(), x)
            grads.append([y.tolist(), first.tolist(), second.tolist()])
        assert grads[1] == grads[0]


@pytest.mark.rules("FRZ-1", "FRZ-6")
def test_fixed_containers_and_ndarrays_are_read_anew():
    def f(weights, table, x):
        return x * weights["a"].exp() * weights["b"][0].exp() * table["t"].exp()

    array = np.zeros(2)
    weights: dict[str, Any] = {"a": numbers(2) * 0, "b": [numbers(2) * 0, "text"]}
    frozen = freeze(f, weights, {"t": al.from_numpy(array)})
    x = numbers(2)
    assert [1.0, 2.0] == frozen(x).tolist()
    weights["b"][0] = numbers(2)
    assert f(weights, {"t": numbers(2) * 0}, x).tolist() == frozen(x).tolist()
    assert 1 == frozen.refolded  # exp of the new item
    array[:] = 1.0
    assert f(weights, {"t": al.from_numpy(array)}, x).tolist() == frozen(x).tolist()


@pytest.mark.rules("FRZ-1", "FRZ-6")
def test_a_frozen_ndarray_is_folded_and_compared():
    array = np.zeros(2)
    frozen = freeze(lambda a, x: x * al.from_numpy(a).exp(), array)
    assert [1.0, 2.0] == frozen(numbers(2)).tolist()
    assert 1 == frozen.refolded
    array[0] = 1.0
    assert (numbers(2).numpy() * np.exp(array)).tolist() == frozen(numbers(2)).tolist()
    assert 1 == frozen.refolded


CASES = {
    "the function writes it": lambda w, x: (w.exp() + x, w.add_(1.0).sum()),
    "result 0 is it, or a view of it": lambda w, x: (w.t(), w.exp() + x),
    "another argument overlaps it": lambda w, x: (w.exp() * 2 + x, x.add_(1.0).sum()),
}


@pytest.mark.rules("FRZ-1")
@pytest.mark.parametrize("reason", CASES)
def test_what_cannot_be_folded_has_a_reason_and_is_right(reason):
    f = CASES[reason]
    for number in range(2):
        w, its = numbers(2, 2), numbers(2, 2)
        frozen = freeze(f, w)
        for _ in range(2 + number):
            x, y = (w[:], its[:]) if "overlaps" in reason else (numbers(2, 2), numbers(2, 2))
            found, expected = frozen(x), f(its, y)
            assert [each.tolist() for each in expected] == [each.tolist() for each in found]
            assert its.tolist() == w.tolist()
        assert frozen.report().not_folded["argument 0"].startswith(reason)
        assert 0 == frozen.report().ops_run


@pytest.mark.rules("FRZ-1")
def test_a_frozen_wrapper_is_an_argument_like_any_other():
    pair = TwoTensor(numbers(2), numbers(2) * 2)
    frozen = freeze(lambda w, x: (w.exp() * x).b, pair)
    assert (pair.b.exp() * numbers(2)).tolist() == frozen(numbers(2)).tolist()
    pair.b.add_(1.0)
    assert (pair.b.exp() * numbers(2)).tolist() == frozen(numbers(2)).tolist()
    assert "wrapper subclass" in frozen.report().not_folded["argument 0"]


@pytest.mark.rules("FRZ-1")
def test_a_module_that_replaces_its_buffer_is_refused():
    class Counting(nn.Module):
        count: nn.Buffer

        def __init__(self) -> None:
            self.register_buffer("count", al.zeros(()))

        def forward(self, x: al.Tensor) -> al.Tensor:
            self.count = nn.Buffer(self.count + 1)
            return x * self.count

    module = Counting()
    with pytest.raises(al.UnsupportedError, match=r"freeze: the function writes attribute 'count'"):
        freeze(module)(al.ones(2))
    assert 0.0 == module.count.item()


@pytest.mark.rules("FRZ-1")
def test_a_result_on_folded_memory_is_the_callers():
    frozen = freeze(lambda w, x: (w.exp(), w.exp().t(), w.exp()[0], x), numbers(2, 2) * 0)
    for _ in range(3):
        a, b, c, _ = frozen(numbers(1))
        assert [[1.0, 1.0], [1.0, 1.0]] == a.tolist() == b.tolist()
        a.fill_(7.0)
        b.mul_(2.0)
        c.mul_(3.0)
    assert 0 == frozen.refolded


@pytest.mark.rules("FRZ-1")
def test_two_results_on_one_folded_memory_share_the_copy():
    def f(w, x):
        made = w.exp()
        return made, made[0], x + made

    frozen, its = freeze(f, numbers(2, 2)), functools.partial(f, numbers(2, 2))
    for each in (frozen, frozen, its):
        a, b, _ = each(numbers(2, 2))
        b.fill_(0.0)
        assert [0.0, 0.0] == a[0].tolist()


# ----------------------------------------------------------------------------------- FRZ-2, FRZ-3
@pytest.mark.rules("FRZ-2")
def test_the_split_is_after_decompositions_and_passes():
    seen = []

    def spy(graph):
        seen.append([node.target.name for node in graph.calls])
        return graph

    def as_two(self):
        return self.exp() / (self.exp() + 1.0)

    frozen = freeze(
        lambda w, x: x * w.sigmoid(), numbers(2), decompositions={"sigmoid": as_two}, passes=[spy]
    )
    frozen(numbers(2))
    assert [["exp", "add", "div", "mul"]] == seen
    (graph,), (rest,) = frozen.fold_graphs, frozen.rest_graphs
    assert ["exp", "add", "div"] == [node.target.name for node in graph.calls]
    assert ["mul"] == [node.target.name for node in rest.calls]
    verify(graph, functional=True)
    verify(rest, functional=True)


@pytest.mark.rules("FRZ-3")
def test_random_ops_run_at_each_call():
    frozen = freeze(lambda w, x: al.rand(2) * w.asinh().exp() + x, al.zeros(2))
    al.manual_seed(3)
    found = [frozen(al.zeros(2)).tolist() for _ in range(2)]
    al.manual_seed(3)
    assert [al.rand(2).tolist() for _ in range(2)] == found
    assert found[0] != found[1]
    assert 2 == frozen.report().ops_run


@pytest.mark.rules("FRZ-3")
def test_effects_happen_at_each_call():
    seen = []

    def f(w, x):
        al.effects.callback(lambda value: seen.append(value.tolist()), w.exp())
        return x + 1

    frozen = freeze(f, al.zeros(1))
    frozen(al.ones(1))
    frozen(al.ones(1))
    assert [[1.0], [1.0]] == seen


@pytest.mark.rules("FRZ-3")
def test_a_result_much_larger_than_what_it_is_made_of_is_not_kept():
    def f(w, x):
        return (w.expand(300, 1000) * 2.0).sum() * x + (w * 2).sum()

    frozen = freeze(f, numbers(1000))
    assert f(numbers(1000), numbers(1)).tolist() == frozen(numbers(1)).tolist()
    (refused,) = frozen.report().refused
    assert ("mul", "its result has 2400000 bytes, made of 8000 bytes") == refused
    assert all(each.bytes < 1 << 20 for each in frozen.report().folded)


# ----------------------------------------------------------------------------------- FRZ-6, FRZ-7
@pytest.mark.rules("FRZ-6")
def test_a_write_in_inference_mode_is_noticed():
    with al.inference_mode():
        w = numbers(2) * 0
        frozen = freeze(lambda w, x: x * w.exp(), w)
        assert [1.0, 2.0] == frozen(numbers(2)).tolist()
        w.add_(1.0)
        assert (numbers(2) * w.exp()).tolist() == frozen(numbers(2)).tolist()


ARRAYS = {
    "numpy()": lambda w: w.numpy(),
    "array": lambda w: w.array,
    "numpy.asarray": np.asarray,
    "a view's": lambda w: w[:1].numpy(),
    "DLPack": lambda w: al.from_dlpack(w).numpy(),
}


@pytest.mark.rules("FRZ-6")
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_write_by_numpy_is_noticed(name, is_earlier):
    w = numbers(2) * 0
    array = ARRAYS[name](w) if is_earlier else None
    frozen = freeze(lambda w, x: x * w.exp(), w)
    assert [1.0, 2.0] == frozen(numbers(2)).tolist()
    array = ARRAYS[name](w) if array is None else array
    for number in (1.0, 2.0):
        array[0] = number
        assert number == w[0].item()
        assert (numbers(2) * w.exp()).tolist() == frozen(numbers(2)).tolist()
        assert 1 == frozen.refolded


WRITERS = {
    "a compiled write": lambda w: al.compile(lambda w: w.add_(1.0), backend="reference")(w),
    "a compiled write of a hidden alias": lambda w: al.compile(
        lambda w: w.hidden_alias().add_(1.0), backend="reference"
    )(w),
    "out=": lambda w: al.add(w.clone(), 1.0, out=w),
    "an optimizer": lambda w: _step(w),
    "resize_": lambda w: w.resize_(3).resize_(2).fill_(2.0),
    "detach": lambda w: w.detach().fill_(2.0),
}


def _step(w: al.Tensor) -> None:
    w.requires_grad_()
    with al.enable_grad():
        (w * 2.0).sum().backward()
    al.optim.SGD([w], lr=0.5).step()
    w.requires_grad_(False)


@pytest.mark.rules("FRZ-6")
@pytest.mark.parametrize("name", WRITERS)
def test_a_write_by_other_code_is_noticed(name):
    w = numbers(2) * 0
    frozen = freeze(lambda w, x: x * w.exp(), w)
    with al.no_grad():
        for _ in range(3):
            assert (numbers(2) * w.exp()).tolist() == frozen(numbers(2)).tolist()
            before = w.tolist()
            WRITERS[name](w)
            assert (numbers(2) * w.exp()).tolist() == frozen(numbers(2)).tolist()
            assert (before != w.tolist()) == frozen.refolded


@pytest.mark.rules("FRZ-6")
def test_state_that_moves_in_a_module_is_noticed():
    class Optional(nn.Module):
        scale: nn.Parameter | nn.Buffer | None

        def __init__(self) -> None:
            self.scale = None
            self.below = nn.ModuleList([Scaled()])

        def forward(self, x: al.Tensor) -> al.Tensor:
            y = x * 2 if self.scale is None else x * self.scale.exp()
            return self.below[0](y)

    module = Optional()
    frozen = freeze(module)

    def same() -> bool:
        x = numbers(2, 3)
        return bool(module(x).tolist() == frozen(x).tolist())

    assert same()
    module.scale = nn.Parameter(numbers(1) * 0, requires_grad=False)
    assert same()
    module.scale = None
    assert same()
    module.register_buffer("scale", numbers(1))
    assert same()
    module.below[0].weight = nn.Parameter(numbers(3, 2) / 3, requires_grad=False)
    assert same()
    first = module.below[0]
    module.below.append(Scaled(0.5))
    assert same()
    del module.scale
    module.scale = None
    assert same()
    first.scale = nn.Buffer(numbers(2) / 5)
    assert same()


@pytest.mark.rules("FRZ-6")
def test_an_object_that_is_replaced_in_a_fixed_list_is_noticed():
    functions: list[Any] = [nn.ReLU()]
    frozen = freeze(lambda functions, w, x: functions[0](w) * x, functions, numbers(2) - 2)
    assert [0.0, 0.0] == frozen(numbers(2)).tolist()
    functions[0] = nn.Tanh()
    assert (al.tanh(numbers(2) - 2) * numbers(2)).tolist() == frozen(numbers(2)).tolist()


@pytest.mark.rules("FRZ-1", "FRZ-6")
def test_the_order_of_keys_in_a_fixed_dictionary_is_noticed():
    def f(weights, x):
        first, second = weights.values()
        return (x * first.exp()) / second.exp()

    weights = {"b": numbers(2), "a": numbers(2) * 0}
    frozen = freeze(f, weights)
    assert f(weights, numbers(2)).tolist() == frozen(numbers(2)).tolist()
    weights["b"] = weights.pop("b")
    assert ["a", "b"] == [*weights]
    assert f(weights, numbers(2)).tolist() == frozen(numbers(2)).tolist()


@pytest.mark.rules("FRZ-1", "FRZ-6")
def test_a_parameter_that_is_a_wrapper_is_no_frozen_value():
    class Paired(nn.Module):
        def __init__(self) -> None:
            self.pair = nn.Parameter(TwoTensor(numbers(2), numbers(2) * 2), requires_grad=False)

        def forward(self, x: al.Tensor) -> al.Tensor:
            return (self.pair.exp() * x).b

    module = Paired()
    frozen = freeze(module)
    for _ in range(2):
        assert module(numbers(2)).tolist() == frozen(numbers(2)).tolist()
        module.pair.b.add_(0.5)
    assert "wrapper subclass" in frozen.report().not_folded["pair"]


@pytest.mark.rules("FRZ-6")
def test_a_submodule_that_is_replaced_is_noticed():
    outer = nn.Sequential(Scaled(), nn.ReLU())
    frozen = freeze(outer)
    x = numbers(1, 3)
    for _ in range(3):
        assert outer(x).tolist() == frozen(x).tolist()
        outer[0].scale.add_(0.5)
        assert outer(x).tolist() == frozen(x).tolist()
        setattr(outer, "0", Scaled())


@pytest.mark.rules("FRZ-6")
def test_a_change_between_forward_and_backward_is_an_error_as_in_eager():
    w = numbers(2)
    for function in (freeze(lambda w, x: x * w, w), functools.partial(lambda w, x: x * w, w)):
        y = function(numbers(2).requires_grad_())
        w.mul_(2.0)
        with pytest.raises(al.AutogradError, match="modified in place"):
            y.sum().backward()


@pytest.mark.rules("FRZ-6")
def test_a_change_between_forward_and_backward_leaves_folded_values():
    w = numbers(2) * 0
    frozen = freeze(lambda w, x: x * w.exp(), w)
    x = numbers(2).requires_grad_()
    y = frozen(x)
    w.add_(1.0)
    frozen(x)
    y.sum().backward()
    assert [1.0, 1.0] == x.grad.tolist()


@pytest.mark.rules("FRZ-7")
def test_equal_content_is_folded_once():
    one, two = Scaled(0.123), Scaled(0.123)  # content that no other test folds
    first, second = freeze(one), freeze(two)
    assert first(numbers(1, 3)).tolist() == second(numbers(1, 3)).tolist()
    assert (2, 0) == (first.report().ops_run, second.report().ops_run)
    two.scale.add_(1.0)
    assert two(numbers(1, 3)).tolist() == second(numbers(1, 3)).tolist()
    assert one(numbers(1, 3)).tolist() == first(numbers(1, 3)).tolist()
    assert (2, 2) == (first.report().ops_run, second.report().ops_run)


@pytest.mark.rules("FRZ-7")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_entries_for_other_sizes_share_folded_values(backend):
    module = Scaled(0.234 if backend == "auto" else 0.345)
    frozen = freeze(module, backend=backend)
    for size in (2, 3, 4, 5, 2):
        x = numbers(size, 3)
        np.testing.assert_allclose(frozen(x).numpy(), module(x).numpy(), rtol=1e-12)
    assert len(frozen.compiled.entries) == 2
    assert 2 == frozen.report().ops_run


@pytest.mark.rules("FRZ-7")
def test_the_artifact_cache_keeps_no_frozen_function(monkeypatch, tmp_path):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path))

    def f(w, x):
        return x * w.exp()

    for number in (0.0, 1.0):
        w = al.full((2,), number, dtype=al.float64)
        found = freeze(f, w, artifact_cache=True)(numbers(2))
        assert f(w, numbers(2)).tolist() == found.tolist()
    with pytest.raises(al.UnsupportedError, match="cannot be kept in the artifact cache"):
        freeze(f, w, artifact_cache=True, strict_cache=True)(numbers(2))


@pytest.mark.rules("FRZ-7")
def test_numbers_with_other_bits_are_other_content():
    w = al.zeros(1)
    frozen = freeze(lambda w, x: x / w.neg(), w)
    assert -np.inf == frozen(al.ones(1)).item()
    w.neg_()
    assert np.inf == frozen(al.ones(1)).item()


# ------------------------------------------------------------------------------------------ FRZ-8
@pytest.mark.rules("FRZ-8")
def test_a_frozen_tensor_that_requires_grad_is_named():
    module = Scaled()
    module.weight.requires_grad_()
    frozen = freeze(module)
    message = "freeze: weight requires grad in grad mode, expected frozen tensors that do not"
    with pytest.raises(al.FreezeError, match=message) as raised:
        frozen(numbers(1, 3))
    assert "under no_grad()" in raised.value.__notes__[0]
    with al.no_grad():
        assert module(numbers(1, 3)).tolist() == frozen(numbers(1, 3)).tolist()
    with pytest.raises(al.FreezeError, match="argument 0 requires grad"):
        freeze(lambda w, x: w * x, numbers(2).requires_grad_())(numbers(2))


# ---------------------------------------------------------------------------------------- options
@pytest.mark.rules("FRZ-1")
def test_compile_has_the_option_freezing():
    module = Scaled(0.456)
    frozen = al.compile(module, freezing=True, backend="reference")
    assert module(numbers(1, 3)).tolist() == frozen(numbers(1, 3)).tolist()
    assert 2 == frozen.refolded
    with pytest.raises(al.ArgumentError, match="freezing is 1, expected True or False"):
        al.compile(module, freezing=1)
    with pytest.raises(al.ArgumentError, match="given without freezing, expected freezing=True"):
        al.compile(module, freezing_discard_parameters=True)
    with pytest.raises(al.ArgumentError, match="freeze: argument 'fn' is 3, expected a function"):
        al.freeze(3)
    with pytest.raises(al.ArgumentError, match="num_params_buffers is 2, expected 0"):
        al.freeze(module, num_params_buffers=2)
    with pytest.raises(al.ArgumentError, match="nothing is compiled yet, expected a call first"):
        al.freeze(module).report()


@pytest.mark.rules("FRZ-1")
def test_inside_a_compiled_function_it_is_the_function():
    module = Scaled()
    frozen = freeze(module)
    outer = al.compile(lambda x: frozen(x) * 2, backend="reference")
    assert (module(numbers(1, 3)) * 2).tolist() == outer(numbers(1, 3)).tolist()
    module.scale.add_(1.0)
    assert (module(numbers(1, 3)) * 2).tolist() == outer(numbers(1, 3)).tolist()


@pytest.mark.rules("FRZ-1")
def test_saved_folded_values_are_not_donated():
    seen = []

    def compiler(graph, inputs):
        seen.extend([(str(each.role), each.donated) for each in inputs])
        return al.compilers.nop(graph, inputs)

    x = numbers(2).requires_grad_()
    freeze(lambda w, x: x * w.exp() * x, numbers(2), backend=compiler)(x).sum().backward()
    assert any(role.startswith("folded") for role, _ in seen)
    assert any(role.startswith("saved") for role, _ in seen)
    assert not any(donated for _, donated in seen)


@pytest.mark.rules("FRZ-6")
def test_threads_see_the_content_at_their_calls():
    """One thread changes between rounds; in a round, all results are those of one content."""
    module = Scaled()
    frozen = freeze(module)
    wrong: list[object] = []
    for _ in range(8):
        with al.no_grad():
            module.scale.add_(0.25)
        expected = module(numbers(2, 3)).tolist()

        def check(expected: object = expected) -> None:
            for _ in range(5):
                found = frozen(numbers(2, 3)).tolist()
                if found != expected:
                    wrong.append(found)

        threads = [threading.Thread(target=check) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [] == wrong
