"""SEQ on programs that are drawn: numbers, Modules and tags of every node."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.inspect import stages_of
from aotlite.ir.graph import Graph, Node, Phase
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Aotlite, Program, execute


# ---------------------------------------------------------------------------------------- checks
def halves(graph: Graph) -> tuple[list[Node], list[Node]]:
    forward = [node for node in graph.calls if node.phase is Phase.FORWARD]
    return forward, [node for node in graph.calls if node.phase is Phase.BACKWARD]


def check_numbers(graph: Graph) -> None:
    """SEQ-1, of a graph as it was recorded."""
    forward, backward = halves(graph)
    rising = [node.sequence for node in forward if node.sequence >= 0 and not node.is_backward]
    assert sorted(rising) == rising and min(rising, default=0) == 0
    inner = [node for node in forward if node.is_backward]
    if not inner:  # gradients of gradients have the numbers of the ops that these are of
        falling = [node.sequence for node in backward]
        assert sorted(falling, reverse=True) == falling
    own = {node.sequence for node in (*inner, *backward) if not node.is_sum}
    assert own <= set(rising)


def check_records(graph: Graph) -> None:
    """SEQ-5: what a backward node knows, some forward node of its number does."""
    forward, backward = halves(graph)
    known = {(n.sequence, n.module, n.tags.get("step")) for n in forward}
    for node in backward:
        if node.is_sum:
            assert ("", {}) == (node.module, dict(node.tags))
        else:
            assert (node.sequence, node.module, node.tags.get("step")) in known


def check_table(graph: Graph) -> None:
    rows = [row.split("|") for row in graph.sequence_table(print_output=False).splitlines()]
    assert ["SeqNr", "OrigAten", "SrcFn"] == rows[0]
    numbers = ["" if node.sequence < 0 else str(node.sequence) for node in graph.calls]
    assert numbers == [number for number, _, _ in rows[1:]]
    assert [n.target.name for n in graph.calls] == [op for _, op, _ in rows[1:]]
    for node, (_, _, name) in zip(graph.calls, rows[1:], strict=True):
        assert node.is_backward <= (name == "")
        assert not node.module or name in ("", node.module)


# ------------------------------------------------------------------- programs of views and writes
@pytest.mark.draws(long=300)
@pytest.mark.rules("SEQ-1", "SEQ-2", "SEQ-3", "SEQ-5")
@settings(max_examples=35)
@given(programs(max_steps=8))
def test_numbers_of_any_program_rise_and_fall_and_are_the_same_again(program: Program) -> None:
    def body(*args: Any) -> Any:
        values = list(args)
        execute(Aotlite(), program.body, values)
        return [values[i] for i in program.outputs]

    setup: list[Any] = []
    try:
        execute(Aotlite(), program.setup, setup)
        stages = stages_of(body, *[setup[i] for i in program.inputs])
        again = stages_of(body, *[setup[i] for i in program.inputs])
    except (al.AotliteError, IndexError):
        assume(False)
    check_numbers(stages["joint"])
    check_records(stages["joint"])
    for record in stages:
        if isinstance(record.made, Graph):
            check_table(record.made)
            table = again[record.name].sequence_table(print_output=False)
            assert record.made.sequence_table(print_output=False) == table


# ---------------------------------------------------------------------------- programs of Modules
class Leaf(nn.Module):
    """Does a step of the program."""

    def forward(self, run: Any) -> Any:
        return run()


class Inner(nn.Module):
    def __init__(self) -> None:
        self.one, self.two = Leaf(), Leaf()

    def forward(self, run: Any) -> Any:
        return run()


class Outer(nn.Module):
    """Modules as attributes, in a container of ours, in a list and in a dictionary."""

    def __init__(self) -> None:
        self.first = Inner()
        self.rows = nn.ModuleList([Leaf(), Inner()])
        self.plain = [Leaf(), {"key": Leaf()}]

    def forward(self, program: Any) -> Any:
        return program(self)


WAYS: dict[str, Any] = {
    "": (),
    "first": ("first",),
    "first.one": ("first", "one"),
    "first.two": ("first", "two"),
    "rows.0": ("rows", 0),
    "rows.1.two": ("rows", 1, "two"),
    "plain.0": ("plain", 0),
    "plain.1.key": ("plain", 1, "key"),
}
"""The way to each Module by its path."""


class Doubled(al.autograd.Function):
    """Ops of a user's backward, which notes a tag of its own, and one that the forward has."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        return a * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        with al.annotate({"step": "of the backward", "mine": True}):
            return grad + grad


def hooked(a: Any) -> Any:
    made = a * 3
    made.register_hook(noted)
    return made


def noted(grad: Any) -> Any:
    with al.annotate({"mine": True}):
        return grad.sin()


def without(a: Any) -> Any:
    with al.no_grad():
        made = a.exp()
    return a * made


def written(a: Any) -> Any:
    made = a * 1
    made[0].mul_(2)
    return made


def second(a: Any) -> Any:
    """A derivative within the function."""
    (found,) = al.autograd.grad((a * a * a).sum(), a, create_graph=True)
    return found


STEPS: dict[str, Any] = {
    "sin": lambda a, b: a.sin(),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a.t() @ b,
    "no_grad": lambda a, b: without(a),
    "write": lambda a, b: written(a),
    "custom": lambda a, b: Doubled.apply(a),
    "hook": lambda a, b: hooked(a),
    "again": lambda a, b: al.checkpoint(lambda x: x.sin().exp(), a),
    "second": lambda a, b: second(a),
    "parts": lambda a, b: al.stack(a.unbind(0)[::-1]),
}
steps = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)),
        st.sampled_from(sorted(WAYS)),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=6,
)


def at(module: Any, way: tuple[Any, ...]) -> Any:
    for name in way:
        is_held = isinstance(module, (list, dict)) or type(name) is int
        module = module[name] if is_held else getattr(module, name)
    return module


def calling(net: Any, way: tuple[Any, ...], run: Any) -> Any:
    """What `run` gives, called in the Module at the end of a way, and in those on the way."""
    for length in range(len(way), 0, -1):
        module = at(net, way[:length])
        if isinstance(module, (Leaf, Inner)):
            run = partial(module, run)
    return run()


def drawn_program(taken: list[tuple[str, str, int, int]], w: Any) -> Any:
    def program(net: Any) -> Any:
        values = [w]
        for number, (name, path, i, k) in enumerate(taken):
            a, b = values[-1 - i % len(values)], values[-1 - k % len(values)]
            with al.annotate({"step": number}):
                values.append(calling(net, WAYS[path], partial(STEPS[name], a, b)))
        with al.annotate({"step": len(taken)}):
            return sum([value.sum() for value in values[1:]])

    return program


@pytest.mark.draws(long=300)
@pytest.mark.rules("SEQ-1", "SEQ-2", "SEQ-4", "SEQ-5")
@settings(max_examples=35)
@given(steps)
@example([("again", "first.one", 0, 0), ("custom", "rows.0", 0, 0)])
@example([("hook", "plain.0", 0, 0), ("hook", "first", 1, 0), ("mul", "", 0, 1)])
@example([("hook", "", 0, 0), ("second", "", 0, 0)])
@example([("second", "first", 0, 0), ("write", "rows.1.two", 0, 0)])
def test_nodes_know_the_module_and_the_tags_of_their_step(
    taken: list[tuple[str, str, int, int]],
) -> None:
    net = Outer()
    stages = stages_of(lambda w: net(drawn_program(taken, w)), al.ones(2, 2, requires_grad=True))
    joint = stages["joint"]
    check_numbers(joint)
    check_records(joint)
    paths = [path for _, path, _, _ in taken] + [""]
    for record in stages:
        if isinstance(record.made, Graph):
            check_table(record.made)
            known = [node for node in record.made.calls if not node.is_sum]
            assert [paths[n.tags["step"]] for n in known] == [n.module for n in known]
    _, backward = halves(joint)
    assert steps_of(taken, "again") == {n.tags["step"] for n in backward if n.recompute}
    mine = {n.tags["step"] for n in backward if "mine" in n.tags}
    inside = steps_of(taken, "second")  # hooks and backwards that run in the forward are of that
    assert steps_of(taken, "custom", "hook") == mine - inside


def steps_of(taken: list[tuple[str, str, int, int]], *names: str) -> set[int]:
    return {number for number, step in enumerate(taken) if step[0] in names}
