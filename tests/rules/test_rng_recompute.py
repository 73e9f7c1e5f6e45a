"""RNG-8 to RNG-10: what is drawn in the forward and computed again in the backward is the same."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.op import Cost
from aotlite.partition import cut, default_partition, min_cut_rematerialization_partition
from aotlite.stages.s8_partition import Partition
from tests.rules.helpers.rng_programs import DRAWS


def save_inputs_only(graph):
    """Nothing is kept that can be computed again: draws are drawn again."""
    forward = [n for n in graph.placeholders if n.phase.value == "forward"]
    return cut(graph, forward)


PARTITIONS = {
    "default": default_partition,
    "min_cut": min_cut_rematerialization_partition,
    "inputs only": save_inputs_only,
}


def network(draws):
    def function(x, w):
        for name in draws:
            x = (x * DRAWS[name](x)).sin() * w
        return x

    return function


def leaves():
    return [(al.arange(6.0).view(2, 3) / 7 + 0.1).requires_grad_() for _ in range(2)]


def grads(tensors):
    return [t.grad.tolist() for t in tensors]


def random_ops(graph):
    return [n for n in graph.calls if n.target.cost is Cost.RANDOM]


@pytest.mark.draws(long=200)
@settings(max_examples=20)
@pytest.mark.rules("RNG-8", "RNG-10", "RNG-11")
@pytest.mark.parametrize("partition", PARTITIONS)
@given(
    draws=st.lists(st.sampled_from(sorted(DRAWS)), min_size=1, max_size=3),
    between=st.sampled_from(["nothing", "draw", "reseed"]),
)
@example(draws=["dropout"], between="reseed")
def test_what_is_drawn_again_is_what_was_drawn(partition, draws, between):
    function = network(draws)
    compiled = al.compile(function, partition=PARTITIONS[partition], backend="reference")
    found = []
    for run in (function, compiled):
        inputs = leaves()
        al.manual_seed(9)
        y = run(*inputs)
        if between == "draw":
            al.rand(3)
        elif between == "reseed":
            al.manual_seed(4)
        y.sum().backward()
        found.append((y.tolist(), grads(inputs), al.get_rng_state()))
    assert found[0] == found[1]
    again = random_ops(compiled.backward_graph)
    assert bool(again) == (partition == "inputs only")


@pytest.mark.rules("RNG-8")
@pytest.mark.parametrize("backend", ["cpu", "loops"])
def test_masks_that_are_drawn_again_are_equal_in_compiled_code_too(backend):
    function = network(["dropout", "bernoulli", "rand64"])
    compiled = al.compile(function, partition=save_inputs_only, backend=backend)
    found = []
    for run in (function, compiled):
        inputs = leaves()
        al.manual_seed(2)
        y = run(*inputs)
        y.sum().backward()
        masks = [[v == 0 for row in each for v in row] for each in (y.tolist(), *grads(inputs))]
        found.append((masks, al.get_rng_state()))
    assert found[0] == found[1]


@pytest.mark.rules("RNG-9")
@pytest.mark.parametrize("partition", PARTITIONS)
@given(order=st.permutations(range(3)), retain=st.booleans())
@settings(max_examples=12)
def test_backwards_run_in_any_order_after_their_forwards(partition, order, retain):
    function = network(["dropout", "rand"])
    compiled = al.compile(function, partition=PARTITIONS[partition], backend="reference")
    found = []
    for run in (function, compiled):
        al.manual_seed(3)
        calls = []
        for _ in range(3):
            inputs = leaves()
            calls.append((inputs, run(*inputs)))
        for k in order:
            calls[k][1].sum().backward(retain_graph=retain)
        if retain:  # all of them again, in another order
            for _, y in calls:
                y.sum().backward()
        found.append(([grads(inputs) for inputs, _ in calls], al.get_rng_state()))
    assert found[0] == found[1]


@pytest.mark.rules("RNG-9")
def test_calls_and_backwards_may_be_mixed_in_any_way():
    """All six orders of two forwards and two backwards in which each backward is behind its own."""
    function = network(["dropout"])
    compiled = al.compile(function, partition=save_inputs_only, backend="reference")
    for order in itertools.permutations(["f0", "f1", "b0", "b1"]):
        if order.index("f0") > order.index("b0") or order.index("f1") > order.index("b1"):
            continue
        found = []
        for run in (function, compiled):
            al.manual_seed(3)
            inputs = {"0": leaves(), "1": leaves()}
            results = {}
            for step in order:
                if step[0] == "f":
                    results[step[1]] = run(*inputs[step[1]])
                else:
                    results[step[1]].sum().backward()
            found.append((grads(inputs["0"]), grads(inputs["1"]), al.get_rng_state()))
        assert found[0] == found[1], order


@pytest.mark.rules("RNG-10")
def test_a_draw_reads_the_state_of_the_call_in_both_graphs():
    """It is in both, and nothing is shared but a seed and an offset of 8 bytes each."""
    compiled = al.compile(network(["dropout"]), partition=save_inputs_only, backend="reference")
    compiled(*leaves())
    made: Partition = compiled.partition
    (forward,), (backward,) = map(random_ops, (made.forward, made.backward))
    assert ["seed", "offset"] == [str(n.role) for n in forward.args[:2]]
    assert ["seed", "offset"] == [n.role.name for n in backward.args[:2]]
    assert forward.args[2:] == backward.args[2:]
