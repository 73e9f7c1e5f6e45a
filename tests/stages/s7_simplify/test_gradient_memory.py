"""Gradients that were two memories stay two: what a caller writes into one is not in the other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Gradient, Output, Primal, Role, Tangent
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import tensor_meta
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s7_simplify.gradient_memory import with_separate_gradients

pytestmark = pytest.mark.rules("SIM-8")

Function = Callable[..., Any]


class TwoCopies(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        return a + b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.clone(), grad.clone()


def gradients(function: Function, inputs: int) -> list[Any]:
    """Gradients of leaves, for a gradient of ones."""
    leaves = [al.tensor([2.0, 3.0]).requires_grad_() for _ in range(inputs)]
    result = function(*leaves)
    found = al.autograd.grad(result, leaves, al.ones(2), allow_unused=True)
    return [each for each in found if each is not None]


def written_one_by_one(function: Function, inputs: int) -> list[list[Any]]:
    """All gradients, after each write into one of them."""
    found, seen = gradients(function, inputs), []
    for number, each in enumerate(found):
        each.add_(10.0**number)
        seen.append([grad.tolist() for grad in found])
    return seen


@pytest.mark.parametrize("backend", ["reference", "loops", "cpu"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * 2.0 + y * 2.0,
        lambda x, y: -x - y,
        lambda x, y: TwoCopies.apply(x, y),
        lambda x, y: (x * y + x * y).sin(),
        lambda x, y: x + y,
        lambda x, y: x[0:2] + y,
        lambda x, y: x.clone() + y,
    ],
)
def test_a_write_into_one_gradient_is_not_in_another(function: Function, backend: str) -> None:
    compiled = al.compile(function, backend=backend)
    assert written_one_by_one(function, 2) == written_one_by_one(compiled, 2)


TERMS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * 2.0,
    lambda x: -x,
    lambda x: x.exp(),
    lambda x: x.view(1, 2).mul(3.0).view(2),
    lambda x: (x * 2.0).flip(0),
    lambda x: al.cat([x, x])[1:3],
    lambda x: x.clone() * 2.0,
    lambda x: x,  # from here on the gradient is the tangent, or a view of it
    lambda x: x[0:2],
    lambda x: x.clone(),
    lambda x: x.view(2, 1).view(2),
    lambda x: x.flip(0).flip(0),
    lambda x: al.cat([x, x])[2:],
)


@given(st.lists(st.sampled_from(range(len(TERMS))), min_size=2, max_size=4))
@settings(max_examples=60)
@example([0, 0])
@example([3, 3])
@example([7, 7])
@example([7, 8])
@example([8, 7, 8])
@example([9, 7, 10])
@example([7, 12])
def test_gradients_share_memory_only_where_eagers_do(terms: list[int]) -> None:
    def function(*leaves: Any) -> Any:
        parts = [TERMS[term](leaf) for term, leaf in zip(terms, leaves, strict=True)]
        return sum(parts[1:], parts[0])

    def sharing(function: Function) -> set[tuple[int, int]]:
        arrays = [each.numpy() for each in gradients(function, len(terms))]
        pairs = combinations(range(len(arrays)), 2)
        return {(i, j) for i, j in pairs if np.shares_memory(arrays[i], arrays[j])}

    assert sharing(al.compile(function, backend="reference")) <= sharing(function)


def joint(share: bool) -> Any:
    """A joint graph with two gradients: two products, or one product twice."""
    build = Builder("joint")
    x = build.placeholder(tensor_meta((2,)), Primal(0))
    tangent = build.placeholder(tensor_meta((2,)), Tangent(Output(0)))
    first = tangent * 2.0
    second = first if share else tangent * 2.0
    roles: list[Role] = [Output(0), Gradient(Primal(0)), Gradient(Primal(1))]
    return build.finish([x.exp().node, first.node, second.node], roles)


def test_a_gradient_that_is_computed_once_is_copied_for_the_second() -> None:
    _, first, second = simplify(joint(share=False)).outputs
    assert (first.target.name, second.target.name) == ("mul", "clone")
    assert second.args == (first,)


def test_gradients_that_shared_memory_share_it() -> None:
    graph = joint(share=True)
    simplified = simplify(graph)
    _, first, second = simplified.outputs
    assert storage_root(first) is storage_root(second)
    assert with_separate_gradients(simplified, graph) is simplified


@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_the_gradients_of_a_sum_are_one_copy_of_the_tangent(partition: str) -> None:
    compiled = al.compile(lambda x, y: x + y, backend="reference", partition=partition)
    first, second = gradients(compiled, 2)
    backward: Any = compiled.backward_graph
    assert ["clone"] == [node.target.name for node in backward.calls]
    assert np.shares_memory(first.numpy(), second.numpy())


def test_leaves_that_get_one_gradient_have_their_own() -> None:
    """Accumulated gradients never share memory, though the backward's results do."""
    leaves: list[Any] = [al.ones(2).requires_grad_() for _ in range(3)]
    given = al.ones(2)
    al.compile(lambda x, y, z: x + y + z)(*leaves).backward(given)
    leaves[0].grad.add_(1.0)
    assert [[2.0, 2.0], [1.0, 1.0], [1.0, 1.0]] == [leaf.grad.tolist() for leaf in leaves]
    assert [1.0, 1.0] == given.tolist()
