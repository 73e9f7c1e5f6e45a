"""What users supply touches nothing but what it is given, and limits hold for all faces."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.partition import min_cut_rematerialization_partition
from aotlite.stages.s8_partition import default_partition


def sigmoid_with(effect):
    return lambda x: (effect(), ((-x).exp() + 1).reciprocal())[1]


@pytest.mark.parametrize(
    "effect",
    [
        lambda x: x.mul_(2),
        lambda x: x + 1,
        lambda x: al.rand(1),
        lambda x: x.sum().backward(),
        lambda x: al.tensor(1.0),
    ],
    ids=["write", "read", "draw", "backward", "constant"],
)
def test_a_decomposition_may_not_touch_tensors_from_outside(effect):
    """TRC-2: it would be done once, when the function is compiled."""
    x, outside = al.ones(2), al.ones(2).requires_grad_()
    table = {"sigmoid": sigmoid_with(lambda: effect(outside))}
    state = al.get_rng_state()
    with pytest.raises(
        al.ArgumentError,
        match="^decomposition of 'sigmoid': it calls on a tensor from outside, expected values of",
    ):
        al.compile(lambda x: x.sigmoid(), decompositions=table)(x)
    assert ([1.0, 1.0], 0, None) == (outside.tolist(), outside.version, outside.grad)
    assert state == al.get_rng_state()


@pytest.mark.rules("GEN-6")
def test_grad_mode_is_what_it_was_whatever_is_called():
    def off(value):
        al.set_grad_enabled(False)
        return value

    x = al.ones(2).requires_grad_()
    al.compile(
        lambda x: x.sigmoid().sum(),
        decompositions={"sigmoid": sigmoid_with(lambda: off(None))},
        partition=lambda graph: off(default_partition(graph)),
        passes=[off],
        fw_compiler=lambda graph: off(graph),
    )(x).backward()
    assert al.is_grad_enabled()
    assert x.grad is not None


@pytest.mark.rules("GRD-4")
def test_static_arguments_have_the_limit_and_the_face():
    scaled = al.aot_function(
        lambda x, n: x * n,
        al.compilers.nop,
        static_argnums=1,
        recompile_limit=3,
        recompile_limit_is_error=True,
    )
    with pytest.raises(al.ArgumentError, match="there is no variant yet, expected a call first"):
        scaled.source  # noqa: B018
    for n in range(3):
        scaled(al.ones(2), n)
    with pytest.raises(
        al.GuardError, match=r"^aot_function: there are 3 variants by static arguments, expected at"
    ) as caught:
        scaled(al.ones(2), 3)
    assert "variant 2" in caught.value.__notes__[2]
    assert "def call(leaves)" in scaled.source
    assert (3, "mul") == (len(scaled.entries), scaled.forward_graph.calls[0].target.name)
    with pytest.raises(AttributeError, match="has no attribute 'sauce'"):
        scaled.sauce  # noqa: B018


def test_the_limit_says_what_changed_in_a_container():
    sizes = [1, 2]
    compiled = al.compile(lambda x: x * sizes[0], recompile_limit=1, recompile_limit_is_error=True)
    compiled(al.ones(2))
    sizes[0] = 5
    with pytest.raises(al.GuardError) as caught:
        compiled(al.ones(2))
    assert "entry 0: sizes is [5, 2], not [1, 2], expected as it was" in str(
        caught.value.__notes__
    ).replace("closure of <lambda>, cell 0", "sizes")
    keyed = al.compile(lambda d: d["a"] * 2, recompile_limit=1, recompile_limit_is_error=True)
    keyed({"a": al.ones(2)})
    with pytest.raises(al.GuardError) as caught:
        keyed({"a": al.ones(2), "b": 1})
    assert "the form of the arguments is PyTreeSpec((({'a': *, 'b': *}" in caught.value.__notes__[0]


@pytest.mark.parametrize("solver", ["nope", 3, ()])
def test_a_solver_is_looked_at_where_there_is_nothing_to_solve(solver):
    def partition(graph):
        return min_cut_rematerialization_partition(graph, solver=solver)

    with pytest.raises(
        al.ArgumentError, match=r"min-cut: the solver is .*, expected a function or"
    ):
        al.compile(lambda x: x.sin().sum(), partition=partition)(al.ones(2).requires_grad_())


def test_nop_gives_what_takes_arrays_one_by_one_or_as_a_list():
    compiled = al.compile(lambda x, y: x * y)
    compiled(al.ones(2), al.ones(2))
    run = al.compilers.nop(compiled.forward_graph, [])
    arrays = [np.full(2, 3.0, np.float32), np.full(2, 2.0, np.float32)]
    assert [[6.0, 6.0]] == [r.tolist() for r in run(*arrays)] == [r.tolist() for r in run(arrays)]
    assert [] == arrays


def test_modules_of_the_ground_floor_are_reached_by_name():
    assert al.ir.serialize.dumps is not None
    with pytest.raises(AttributeError, match=r"'aotlite.ir' has no attribute 'serialise'"):
        al.ir.serialise  # noqa: B018
