"""Normalizations are written out before a graph is cut for a backend that fuses (PART-38)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.nn import functional as F
from aotlite.partition import default_partition
from aotlite.stages.s7_simplify.normalizations import (
    decompose_normalizations,
    normalization_decompositions,
)

LABELS = al.tensor([0, 3, 1, 1, 2, 0, 3, 2])


def normal(*shape: int) -> al.Tensor:
    values = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
    return al.from_numpy(values).clone().requires_grad_()


def classified(h: al.Tensor, w: al.Tensor) -> al.Tensor:
    return F.cross_entropy(h @ w, LABELS)


def layer(x: al.Tensor, w: al.Tensor, b: al.Tensor) -> al.Tensor:
    return F.layer_norm(x, (16,), w, b)


def batch(x: al.Tensor, w: al.Tensor, b: al.Tensor) -> al.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True).relu()


ROWS = [
    (classified, ((8, 6), (6, 40)), {"primals_0", "primals_1", "matmul", "amax", "log", "sum_1"}),
    (layer, ((8, 16), (16,), (16,)), {"primals_0", "primals_1", "mean", "rsqrt"}),
    (batch, ((4, 3, 5), (3,), (3,)), {"primals_0", "primals_1", "primals_2", "mean", "mean_1"}),
]


@pytest.mark.parametrize(("function", "shapes", "names"), ROWS)
def test_of_a_normalization_numbers_a_row_are_kept(
    function: Callable[..., al.Tensor], shapes: Any, names: set[str]
) -> None:
    xs = [normal(*shape) for shape in shapes]
    compiled = al.compile(function, backend="loops")
    result = compiled(*xs)
    saved = {each.name for each in compiled.partition.saved}
    # Labels are an input that the function finds in its surroundings.
    assert names == {name for name in saved if not name.startswith("hidden")}
    tangent = al.ones(*result.shape)
    ours = al.autograd.grad(result, xs, tangent)
    for mine, theirs in zip(ours, al.autograd.grad(function(*xs), xs, tangent), strict=True):
        assert mine is not None
        assert theirs is not None
        assert np.allclose(theirs.numpy(), mine.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("function", "shapes", "names"), ROWS)
def test_what_is_written_out_verifies(
    function: Callable[..., al.Tensor], shapes: Any, names: set[str]
) -> None:
    xs = [normal(*shape) for shape in shapes]
    result = al.compile(function, backend="loops", verify=2)(*xs)
    assert np.allclose(function(*xs).detach().numpy(), result.detach().numpy(), atol=1e-5)


def ops_seen_by_a_partitioner(**options: Any) -> set[str]:
    seen: set[str] = set()

    def partitioner(graph: Graph) -> Any:
        seen.update(node.target.name for node in graph.calls)
        return default_partition(graph)

    xs = normal(8, 16), normal(16), normal(16)
    al.compile(layer, partition=partitioner, **options)(*xs)
    return seen


@pytest.mark.parametrize("backend", ["loops", "reference"])
def test_partitioners_of_ones_own_see_whole_ops(backend: str) -> None:
    assert "layer_norm" in ops_seen_by_a_partitioner(backend=backend)


def test_other_backends_keep_whole_ops() -> None:
    compiled = al.compile(layer, backend="reference", partition="min_cut")
    compiled(normal(8, 16), normal(16), normal(16))
    assert "layer_norm" in {node.target.name for node in compiled.partition.forward.calls}


def test_a_graph_without_normalizations_is_itself() -> None:
    graph = al.capture(lambda x: x.sum(0).sin())(al.ones(2, 3))
    assert decompose_normalizations(graph) is graph


def test_wishes_keep_a_normalization_whole() -> None:
    graph = al.capture(lambda x: x.softmax(0))(al.ones(2, 3))
    assert [op.name for op in normalization_decompositions(graph)] == ["softmax"]
    graph.calls[0].recompute = False
    assert {} == normalization_decompositions(graph)


def test_a_write_between_the_halves_is_noticed_as_in_eager() -> None:
    """The forward's mean is the backward's, too: that the backward reads x is still known."""
    x, w, b = normal(8, 16), normal(16), normal(16)
    for function in (layer, al.compile(layer, backend="loops")):
        result = function(x, w, b)
        with al.no_grad():
            x.mul_(2.0)
        with pytest.raises(al.AutogradError, match="modified in place"):
            result.sum().backward()


def test_memory_that_eager_does_not_read_is_not_shared() -> None:
    """Eager's log_softmax keeps its result: x may be written, and the gradient does not change."""
    x = normal(8, 4)
    found = []
    for function in (F.cross_entropy, al.compile(F.cross_entropy, backend="loops")):
        copy = x.detach().clone().requires_grad_()
        result = function(copy, LABELS)
        with al.no_grad():
            copy.zero_()
        (gradient,) = al.autograd.grad(result, copy)
        assert gradient is not None
        found.append(gradient.numpy())
    assert np.allclose(found[0], found[1], atol=1e-6)
