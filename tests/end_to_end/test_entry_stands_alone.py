"""A compiled entry stands alone: after the first call only the partitioned graphs run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.stages.s9_lower import lower


def loss(x: Any, w: Any) -> Any:
    x.mul_(2.0)
    y = x * w * 3.0
    return y.view(-1), y.sum(), x[0]


def inputs() -> tuple[Any, Any]:
    return al.tensor([[1.0, 2.0]]), al.tensor([[3.0, 4.0]], requires_grad=True)


def outcome(function: Callable[..., Any]) -> Any:
    """All values after a call and a backward."""
    x, w = inputs()
    flat, total, row = function(x, w)
    al.autograd.backward([total, flat], [None, al.ones(2)])
    assert w.grad is not None
    return [each.detach().tolist() for each in (x, flat, total, row, w.grad)]


def refuses(*_: Any, **__: Any) -> Any:
    raise AssertionError("the user's function ran again")


def test_later_calls_do_not_run_the_users_function() -> None:
    compiled = al.compile(loss)
    first = outcome(compiled)
    compiled.function = refuses
    assert first == outcome(compiled)
    assert first == outcome(loss)


def test_later_calls_do_not_run_the_users_code() -> None:
    """Not even where the function keeps its identity and gets another body."""

    def body(x: Any, w: Any) -> Any:
        return loss(x, w)

    compiled = al.compile(body)
    first = outcome(compiled)
    body.__code__ = (lambda x, w: 1 / 0).__code__
    assert first == outcome(compiled)


def test_the_imperative_graph_and_the_fakes_are_freed_without_a_backward() -> None:
    """The result of the call and the compiled function stay; the capture does not."""
    alive: list[weakref.ref[Any]] = []

    def body(x: Any, w: Any) -> Any:
        hidden = x * w
        alive.extend([weakref.ref(x), weakref.ref(hidden), weakref.ref(x.storage)])
        return loss(hidden, w)

    imperative = ("1 capture", "4 joint")

    def observer(stage: str, made: Any) -> None:
        if stage in imperative:
            alive.append(weakref.ref(made))
            alive.extend(weakref.ref(node) for node in made.calls if node.target.writes)

    compiled = al.compile(body, observer=observer)
    results = compiled(*[each.detach() for each in inputs()])
    gc.collect()
    assert len(alive) >= 3 + len(imperative)
    assert [None] * len(alive) == [each() for each in alive]
    assert len(results) == 3
    assert compiled.forward_graph is not None


def tripled(graph: Graph) -> Graph:
    """The graph with the constant 3.0 changed to 30.0 wherever it is an argument."""
    edit = graph.edit()
    changed = False
    for node in list(edit.nodes):
        if node.op == "call" and any(type(a) is float and a == 3.0 for a in node.args):
            node.args = tuple(30.0 if type(a) is float and a == 3.0 else a for a in node.args)
            changed = True
    assert changed, f"{graph.name} has no constant 3.0"
    result: Graph = edit.graph()
    return result


@pytest.mark.rules("GEN-4")
@pytest.mark.parametrize("half", ["forward", "backward"])
def test_what_runs_is_the_partitioned_graphs(half: str) -> None:
    """One constant changed in either, just before it is lowered, changes what it computes."""

    def lower_changed(graph: Graph, backend: Any) -> Any:
        return lower(tripled(graph) if graph.name.endswith(half) else graph, backend)

    expected = outcome(al.compile(loss))
    changed = outcome(al.compile(loss, stages={"lower": lower_changed}))
    differs = [a != b for a, b in zip(expected, changed, strict=True)]
    # x, flat, total, row, the gradient of w
    assert {"forward": [False, True, True, False, False], "backward": [False] * 4 + [True]}[
        half
    ] == differs
