"""Saved values that are copied on write: memory that eager's backward does not read (PART-37).

The caller may write it before the backward, in whatever way; the backward reads the old values.
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Hidden, Output, Primal
from aotlite.partition import cut
from aotlite.stages.records.backward.partition import Partition

# Eager saves `x * 2`; the compiled backward computes it again from `x`.
Way = Callable[[Any], object]


def doubled(x: Any) -> Any:
    return (x * 2.0).sin().sum()


def summed(w: Any, b: Any) -> Any:
    return (w + b).sin().sum()


def keep_inputs(graph: Graph) -> Partition:
    return cut(graph, [node for node in graph.placeholders if isinstance(node.role, Primal)])


def leaf(*values: float) -> Any:
    return al.tensor(values or (1.0, 2.0, 3.0)).requires_grad_()


def written_by(way: Way, x: Any) -> None:
    with al.no_grad():
        way(x)


def _in_place(x: Any) -> None:
    x.mul_(5.0)


def _by_a_view(x: Any) -> None:
    x[1:].zero_()


def _by_another_dtype(x: Any) -> None:
    x.view(al.int32).zero_()


def _as_out(x: Any) -> None:
    al.exp(al.ones(3), out=x.detach())


def _by_random_numbers(x: Any) -> None:
    x.uniform_()


def _by_its_ndarray(x: Any) -> None:
    x.detach().numpy()[:] = 7.0


def _by_a_compiled_function(x: Any) -> None:
    al.compile(lambda t: t.zero_())(x)


def _by_a_compiled_view(x: Any) -> None:
    al.compile(lambda t: t[1:].mul_(9.0))(x.detach())


class Clearing(al.autograd.Function):
    """Its backward writes the second argument."""

    @staticmethod
    def forward(ctx: Any, x: Any, memory: Any) -> Any:
        ctx.memory = memory
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.memory.zero_()
        return grad, None


def _by_a_compiled_backward(x: Any) -> None:
    with al.enable_grad():
        al.compile(lambda t, memory: Clearing.apply(t, memory).sum())(leaf(), x.detach()).backward()


def _by_a_compiled_function_that_lets_it_grow(x: Any) -> None:
    al.compile(lambda t: t.resize_(50).zero_())(x.detach())


def _by_other_memory(x: Any) -> None:
    x.detach().set_(al.zeros(3))


def _by_growing(x: Any) -> None:
    x.detach().resize_(50).zero_()


def _by_its_storage(x: Any) -> None:
    al.empty(3).set_(x.detach()).zero_()


WAYS = [
    _in_place,
    _by_a_view,
    _by_another_dtype,
    _as_out,
    _by_random_numbers,
    _by_its_ndarray,
    _by_a_compiled_function,
    _by_a_compiled_view,
    _by_a_compiled_backward,
    _by_a_compiled_function_that_lets_it_grow,
    _by_other_memory,
    _by_growing,
    _by_its_storage,
]


STAYING = (_by_other_memory, _by_growing, _by_a_compiled_function_that_lets_it_grow)
"""They leave the tensor's first memory as it is."""


@pytest.mark.parametrize("backend", ["reference", "loops", "auto"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_a_value_that_is_copied_on_write_is_read_as_it_was(way: Way, backend: str) -> None:
    x, expected = leaf(), leaf()
    compiled = al.compile(doubled, partition=keep_inputs, backend=backend)
    y = compiled(x)
    (each,) = compiled.partition.saved
    assert (Primal(0), True) == (each.owner, each.copied_on_write)
    before = x.detach().clone()
    written_by(way, x)
    y.backward()
    doubled(expected).backward()
    assert np.allclose(expected.grad.numpy(), x.grad.numpy(), rtol=1e-6)
    assert way in STAYING or before.tolist() != x.detach().tolist()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("array_of", [lambda x: x.numpy(), np.asarray], ids=["numpy", "asarray"])
def test_what_an_ndarray_shows_is_copied_at_once(array_of: Any, known: bool) -> None:
    """By the forward, if it is known when that is compiled; else at the end of each call."""
    compiled = al.compile(summed, partition=keep_inputs)
    if not known:
        compiled(leaf(), al.ones(3))
    w, x = leaf(), al.tensor([1.0, 2.0, 3.0])
    array = array_of(x)
    y = compiled(w, x)
    assert [True, not known] == [each.copied_on_write for each in compiled.partition.saved]
    array[:] = 9.0
    y.backward()
    v = leaf()
    summed(v, al.tensor([1.0, 2.0, 3.0])).backward()
    assert v.grad.tolist() == w.grad.tolist()


@pytest.mark.parametrize("adding", [lambda f: f, al.compile], ids=["eager", "compiled"])
def test_a_saved_gradient_is_read_as_it_was_before_more_was_added(adding: Any) -> None:
    """Gradients are added in place; those of a compiled call by a way that no dispatch sees."""
    p, w = leaf(), leaf()
    (p * 3.0).sum().backward()
    y = al.compile(lambda g, w: (w + g).sin().sum(), partition=keep_inputs)(p.grad, w)
    adding(lambda p: (p * 4.0).sum())(p).backward()
    assert [7.0] * 3 == p.grad.tolist()
    y.backward()
    v = leaf()
    (v + 3.0).sin().sum().backward()
    assert v.grad.tolist() == w.grad.tolist()


def result_is_read(x: Any) -> Any:
    y = x * 2.0
    return y, (y * 3.0).sin()


def test_results_are_copied_on_write_too() -> None:
    def keep_the_result(graph: Graph) -> Partition:
        return cut(graph, [graph.outputs_with(Output)[0][1]])

    x, expected = leaf(), leaf()
    compiled = al.compile(result_is_read, partition=keep_the_result)
    for function, each in ((compiled, x), (result_is_read, expected)):
        first, second = function(each)
        with al.no_grad():
            first.zero_()
        second.sum().backward()
    assert [(Output(0), True)] == [(s.owner, s.copied_on_write) for s in compiled.partition.saved]
    assert expected.grad.tolist() == x.grad.tolist()


def test_variables_outside_are_copied_on_write_too() -> None:
    outside = al.tensor([1.0, 2.0, 3.0])

    def keep_all_inputs(graph: Graph) -> Partition:
        roles = (Primal, Hidden)
        return cut(graph, [node for node in graph.placeholders if isinstance(node.role, roles)])

    w, v = leaf(), leaf()
    compiled = al.compile(lambda w: (w + outside).sin().sum(), partition=keep_all_inputs)
    y = compiled(w)
    (v + outside).sin().sum().backward()
    outside.zero_()
    y.backward()
    assert any(s.copied_on_write and isinstance(s.owner, Hidden) for s in compiled.partition.saved)
    assert v.grad.tolist() == w.grad.tolist()


# ----------------------------------------------------------------------------- how long, how often
def copies_of(node: Any) -> list[bool]:
    """Whether each saved value is memory of its own by now."""
    values = [v[0] if type(v) is tuple else v for v in node.saved]
    return [not any(np.shares_memory(v, s.buffer) for s in node.observed_storages) for v in values]


def test_nothing_is_copied_unless_something_is_written() -> None:
    x = leaf()
    y = al.compile(doubled, partition=keep_inputs)(x)
    assert [False] == copies_of(y.grad_fn)
    x.sin()
    assert [False] == copies_of(y.grad_fn)
    with al.no_grad():
        x.zero_()
    assert [True] == copies_of(y.grad_fn)


def test_what_is_released_or_dropped_is_not_copied() -> None:
    x = leaf()
    compiled = al.compile(doubled, partition=keep_inputs)
    kept, dropped = compiled(x), compiled(x)
    kept.backward()
    del dropped
    gc.collect()
    assert [kept.grad_fn, None] == [each() for each in x.storage.write_observers]
    with al.no_grad():
        x.zero_()
    assert x.storage.write_observers is None
    assert kept.grad_fn.saved is None


def test_write_observers_of_many_calls_do_not_pile_up() -> None:
    x = leaf()
    compiled = al.compile(doubled, partition=keep_inputs)
    first = compiled(x)
    for _ in range(1000):
        compiled(x).backward()
    assert len(x.storage.write_observers) < 40
    assert first.grad_fn in [each() for each in x.storage.write_observers]
    gc.collect()
    kept = [compiled(x) for _ in range(100)]
    assert {y.grad_fn for y in kept} <= {each() for each in x.storage.write_observers}


@pytest.mark.parametrize("function", [summed, al.compile(summed, partition=keep_inputs)])
def test_observed_memory_is_free_after_the_backward(function: Any) -> None:
    """As what eager saves is, though the result is still there."""
    w, b = leaf(), al.ones(3)
    memory = weakref.ref(b.untyped_storage())
    y = function(w, b)
    del b
    y.backward()
    gc.collect()
    assert memory() is None
    assert y.grad_fn is not None


def test_each_call_has_the_values_of_its_time() -> None:
    x, expected = leaf(), leaf()
    compiled = al.compile(doubled, partition=keep_inputs)
    for function, each in ((compiled, x), (doubled, expected)):
        results = []
        for _ in range(3):
            results += [function(each), function(each)]
            with al.no_grad():
                each.add_(1.0)
        for y in results:
            y.backward(retain_graph=True)
        results[0].backward()
    assert expected.grad.tolist() == x.grad.tolist()


def test_a_backward_may_be_run_before_and_after_a_write() -> None:
    grads = []
    for function in (doubled, al.compile(doubled, partition=keep_inputs)):
        x = leaf()
        y = function(x)
        y.backward(retain_graph=True)
        with al.no_grad():
            x.zero_()
        y.backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


@pytest.mark.parametrize("layout", ["transposed", "expanded", "sliced"])
def test_copies_lie_as_the_values_lay(layout: str) -> None:
    base = al.arange(12, dtype=al.float32).view(3, 4)
    shapes = {
        "transposed": lambda t: t.t(),
        "expanded": lambda t: t[0].expand(3, 4),
        "sliced": lambda t: t[1:, 1:],
    }

    def function(b: Any, w: Any) -> Any:
        return (w + b).sin().sum()

    grads = []
    for called in (function, al.compile(function, partition=keep_inputs)):
        memory = base.clone()
        b = shapes[layout](memory)
        w: Any = al.ones(*b.shape).requires_grad_()
        y = called(b, w)
        memory.mul_(3.0)
        y.backward()
        grads.append(w.grad.tolist())
    assert grads[0] == grads[1]


# ------------------------------------------------------------------------------- other company
def test_saved_tensor_hooks_are_given_copies() -> None:
    """What they keep, in the place of values that eager does not save, nobody else writes."""
    x, expected = leaf(), leaf()
    with al.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = al.compile(doubled, partition=keep_inputs)(x)
    with al.no_grad():
        x.zero_()
    y.backward()
    doubled(expected).backward()
    assert expected.grad.tolist() == x.grad.tolist()


def test_a_tensor_with_write_observers_can_be_copied_and_pickled() -> None:
    x = leaf()
    y = al.compile(doubled, partition=keep_inputs)(x)
    assert x.tolist() == copy.deepcopy(x).tolist()
    assert x.tolist() == pickle.loads(pickle.dumps(x)).tolist()
    y.backward()


def test_backwards_and_writes_in_two_threads() -> None:
    """A write waits for the backward that reads the memory; a later one finds a copy."""
    compiled = al.compile(lambda b, w: (w + b).sin().sum(), partition=keep_inputs)
    size = 1 << 18
    b: Any = al.ones(size)
    w: Any = al.ones(size).requires_grad_()
    for _ in range(20):
        b.fill_(1.0)
        w.grad = None
        y = compiled(b, w)
        writer = threading.Thread(target=b.fill_, args=(50.0,))
        writer.start()
        y.backward()
        writer.join()
        assert np.allclose(np.cos(2.0), w.grad.numpy())


def test_a_node_is_not_released_while_another_thread_copies() -> None:
    """Else the copy would be kept by a node that nobody asks any more, or fail half-way."""
    node = al.compile(doubled, partition=keep_inputs)(leaf()).grad_fn
    releaser = threading.Thread(target=node.release)
    with node._lock:
        releaser.start()
        releaser.join(0.05)
        assert node.saved is not None
    releaser.join()
    assert node.saved is None
