"""BOX-1 to BOX-3: each value lives from where it is made to its last use, and no longer."""

import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.backends.reference import REFERENCE
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.run.interpreter import Interpreter
from aotlite.stages.s7_simplify.common_subexpressions import eliminate_dead_code

SIZE = 1 << 16
BYTES = 4 * SIZE


@st.composite
def plans(draw: Any) -> list[tuple[int, int]]:
    """For each op the two values that it reads, by how far back they were made."""
    count = draw(st.integers(3, 25))
    return [(draw(st.integers(1, 4)), draw(st.integers(1, 6))) for _ in range(count)]


def graph_of(plan: list[tuple[int, int]]) -> Any:
    build = Builder()
    values = [build.placeholder(tensor_meta((SIZE,))) for _ in range(2)]
    values.append(values[0] + values[1])
    for one, other in plan:
        values.append(values[-min(one, len(values))] + values[-min(other, len(values))])
    return eliminate_dead_code(build.finish([values[-1]]))


def most_alive(graph: Any) -> int:
    """How many values are needed at once, at least: operands and result of one op included."""
    last = {value: i for i, node in enumerate(graph.nodes) for value in node.inputs()}
    alive = {node for node in graph.placeholders if node in last}
    most = len(alive)
    for i, node in enumerate(graph.nodes[:-1]):
        if node.op == "call":
            alive.add(node)
            most = max(most, len(alive))
            alive = {value for value in alive if last.get(value, -1) > i}
    return most


def peak(run: Any, make: Any) -> float:
    """Values that are there at once, at most, while the graph is run on inputs of its own."""
    gc.collect()
    tracemalloc.start()
    try:
        values = [make(np.ones(SIZE, np.float32)) for _ in range(2)]
        run(values)
        return tracemalloc.get_traced_memory()[1] / BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.rules("BOX-1", "BOX-2")
@pytest.mark.draws(long=12)
@settings(max_examples=4)
@given(plan=plans())
def test_a_graph_holds_no_more_values_than_it_needs_at_once(plan: list[tuple[int, int]]) -> None:
    """By the interpreter, whose kernels may make two values besides, and from the third call on
    by straight-line Python.
    """
    graph = graph_of(plan)
    run: Any = REFERENCE.compile(graph)
    least = most_alive(graph)
    assert peak(run, lambda array: (array, 0)) < least + 2.5
    for _ in range(3):
        assert peak(run.call, lambda array: array) < least + 2.5
    assert peak(run.call, lambda array: array) < least + 0.5


@pytest.mark.rules("BOX-2")
@settings(max_examples=12)
@given(plan=plans())
def test_an_interpreter_drops_each_value_after_its_last_use(plan: list[tuple[int, int]]) -> None:
    graph = graph_of(plan)
    calls = list(graph.calls)
    last = {value: i for i, node in enumerate(calls) for value in node.inputs()}
    made: dict[Any, weakref.ref[Any]] = {}

    class Watching(Interpreter):
        """Looks at each op at what is left of the results before."""

        def call(self, target: Any, args: tuple[Any, ...]) -> Any:
            here = len(made)
            for place, node in enumerate(calls[:here]):
                needed = last.get(node, -1) >= here or node in graph.outputs
                assert needed == (made[node]() is not None), (here, place)
            result = super().call(target, args)
            made[calls[here]] = weakref.ref(result.buffer)
            return result

    Watching(graph).run(*[np.ones(SIZE, np.float32) for _ in range(2)])
    assert len(made) == len(calls)


@pytest.mark.rules("BOX-3")
@pytest.mark.parametrize("retain", [True, False])
def test_a_backward_takes_what_is_saved_and_the_gradients_as_one_list(retain):
    """It may empty the list; what was saved is kept for a next backward if the graph is."""
    given, left = [], []

    def compiler(graph, inputs):
        inner = al.compilers.nop(graph, inputs)
        if "backward" not in graph.name:
            return inner

        def run(arrays):
            given.append(len(arrays))
            results = list(Interpreter(graph).run(*arrays))
            arrays.clear()
            left.append(len(arrays))
            return results

        run._boxed_call = True
        return run

    x = al.linspace(0, 1, 4).requires_grad_()
    y = al.aot_function(lambda x: (x.exp() * x.sin()).sum(), compiler)(x)
    y.backward(retain_graph=retain)
    if retain:
        y.backward()
        assert given[0] == given[1]
    else:
        with pytest.raises(al.AutogradError, match="are freed"):
            y.backward()
    assert set(left) == {0}
    assert y.grad_fn.saved is None
