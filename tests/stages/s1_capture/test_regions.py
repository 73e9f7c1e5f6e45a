"""Marked regions: a mark names ops in all graphs, and changes nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.inspect import stages_of
from aotlite.ir.graph import Graph, Node
from aotlite.ir.provenance.location import place_of

MASK, OTHER = al.tensor([1.0, 0.0]), al.tensor([1.0, 0.0])
SEEN: list[int] = []


def unmarked(function: Any) -> Any:
    return function


def image(graph: Graph) -> list[tuple[Any, ...]]:
    """All that nodes say, but the mark."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}

    def of(value: object) -> object:
        if type(value) is Node:
            return numbers[value]
        return tuple(map(of, value)) if type(value) is tuple else (type(value), repr(value))

    return [
        (
            *(node.op, getattr(node.target, "name", "") or str(node.target), of(node.args)),
            *(str(node.meta), str(node.role), node.grad_mode, node.phase, node.sequence),
            *(node.location and place_of(node.location), node.module, node.recompute),
            *(node.is_backward, node.is_sum),
            {name: tag for name, tag in node.tags.items() if name != "region"},
        )
        for node in graph.nodes
    ]


# ------------------------------------------------------------------------------------ no result
def by_identity(mark: Any) -> Any:
    @mark
    def block(x: Any, m: Any) -> Any:
        return x * m + 5.0 if m is MASK else x * m

    return lambda x: block(x, OTHER) + block(x, MASK)


def late_binding(mark: Any) -> Any:
    @mark
    def call(x: Any, function: Any) -> Any:
        return function(x)

    def steps(x: Any) -> Any:
        scale: float
        scaled = lambda t: t * scale
        for scale in (1.0, 2.0, 3.0):  # noqa: B007
            x = call(x, scaled)
        return x

    return steps


def draws_of_python(mark: Any) -> Any:
    @mark
    def call(x: Any, function: Any) -> Any:
        return function(x)

    def steps(x: Any) -> Any:
        random.seed(0)
        for function in (lambda t: t, lambda t: t * random.random()) * 3:
            x = call(x, function)
        return x

    return steps


def written_lists(mark: Any) -> Any:
    @mark
    def call(x: Any, out: list[int]) -> Any:
        SEEN.append(1)
        return x + 1.0, out

    def steps(x: Any) -> Any:
        SEEN.clear()
        count = 0
        for _ in range(4):
            mine: list[int] = []
            x, got = call(x, mine)
            got.append(1)
            count += len(mine)
        return x * count * len(SEEN)

    return steps


def dropout_and_writes(mark: Any) -> Any:
    @mark
    def block(x: Any, scale: float) -> Any:
        x = x.clone()
        x[0].mul_(scale)
        return nn.functional.dropout(x, 0.5).sin()

    return lambda x: block(block(block(x, 2.0), 2.0), 3.0)


BODIES = [by_identity, late_binding, draws_of_python, written_lists, dropout_and_writes]


def outcome(body: Any, mark: Any, *, compiles: bool) -> tuple[Any, ...]:
    """The result, and the gradients of first and second order."""
    al.manual_seed(3)
    function = body(mark)
    x = al.tensor([0.5, 2.0], requires_grad=True)
    found = (al.compile(function, backend="reference") if compiles else function)(x)
    first: Any
    (first,) = al.autograd.grad((found * found).sum(), [x], create_graph=True)
    second: Any = None
    if first.requires_grad:
        (second,) = al.autograd.grad((first * first).sum(), [x], allow_unused=True)
    return found.tolist(), first.tolist(), None if second is None else second.tolist()


@pytest.mark.rules("REG-20")
@pytest.mark.parametrize("body", BODIES)
def test_a_mark_changes_no_result_and_no_graph(body: Any) -> None:
    expected = outcome(body, unmarked, compiles=False)
    for compiles in (False, True):
        assert outcome(body, al.nested_compile_region, compiles=compiles) == expected
    x = al.tensor([0.5, 2.0], requires_grad=True)
    marked, plain = (
        stages_of(al.compile(body(mark), backend="reference"), x)
        for mark in (al.nested_compile_region, unmarked)
    )
    graphs = [name for name in plain.names if isinstance(plain[name], Graph)]
    assert len(graphs) > 3
    for name in graphs:
        assert image(marked[name]) == image(plain[name])


@pytest.mark.rules("REG-20", "REG-21")
def test_an_exception_leaves_the_region() -> None:
    @al.nested_compile_region
    def failing(x: Any) -> Any:
        x.sin()
        raise KeyError("mine")

    def catching(x: Any) -> Any:
        try:
            failing(x)
        except KeyError:
            return x.exp()

    tags = [node.tags.get("region") for node in stages_of(catching, al.ones(2))["capture"].calls]
    assert tags == ["failing[0]", None]


# ----------------------------------------------------------------------------------------- marks
class Block(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(2, 2)

    @al.nested_compile_region
    def forward(self, x: Any) -> Any:
        return attention(self.linear(x).relu())


@al.nested_compile_region
def attention(x: Any) -> Any:
    return x.softmax(-1)


def model() -> tuple[Any, Any]:
    blocks = nn.ModuleList([Block(), Block()])

    def called(x: Any) -> Any:
        for block in blocks:
            x = block(x)
        return attention(x.double()).sum()

    return called, al.ones(3, 2)


@pytest.mark.rules("REG-21")
def test_ops_of_all_graphs_have_the_marks_of_their_calls() -> None:
    stages = stages_of(*model())
    marks = dict.fromkeys(node.tags.get("region") for node in stages["joint"].calls)
    assert list(marks)[:4] == [
        *("Block[0]", "Block[0]/attention[0]", "Block[1]", "Block[1]/attention[1]")
    ]
    backward = [node for node in stages["joint"].calls if node.is_backward]
    assert {"Block[0]", "Block[1]", "attention[2]"} <= {n.tags.get("region") for n in backward}
    assert "    # region: Block[1]/attention[1]\n" in str(stages["capture"])


@pytest.mark.rules("REG-22", "REG-23")
def test_the_report_says_which_calls_are_alike() -> None:
    report = stages_of(*model())["regions"]
    assert str(report).splitlines() == [
        "Region Block, 2 calls of 1 form:",
        f"  Block[0]: {report.calls[0].ops} ops.",
        "  Block[1]: as Block[0].",
        "Region attention, 3 calls of 2 forms:",
        "  attention[0]: 1 op.",
        "  attention[1]: as attention[0].",
        "  attention[2]: 1 op.",
    ]


@pytest.mark.rules("REG-22")
@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (lambda f, x, y: f(x, y, 2), lambda f, x, y: f(y, x, 2), True),
        (lambda f, x, y: f(x, y, 2), lambda f, x, y: f(x, x, 2), False),
        (lambda f, x, y: f(x, y, 2), lambda f, x, y: f(x, y, 2.0), False),
        (lambda f, x, y: f(x, y, 0.0), lambda f, x, y: f(x, y, -0.0), False),
        (lambda f, x, y: f(x, y, 2), lambda f, x, y: f(x.double(), y.double(), 2), False),
    ],
)
def test_calls_are_alike_up_to_their_operands(one: Any, other: Any, alike: bool) -> None:
    @al.nested_compile_region
    def block(x: Any, y: Any, number: Any) -> Any:
        return (x * y) * number

    def both(x: Any, y: Any) -> Any:
        return one(block, x, y).sum() + other(block, x, y).sum()

    report = stages_of(both, al.ones(2), al.ones(2))["regions"]
    assert [bool(call.of) for call in report.calls] == [False, alike]


@pytest.mark.rules("REG-23")
def test_what_is_no_function_is_refused_and_no_region_is_no_report() -> None:
    decorator: Any = al.nested_compile_region
    with pytest.raises(al.ArgumentError, match="without brackets"):
        decorator(None)
    assert "1 capture, regions" not in stages_of(lambda x: x.sin(), al.ones(2)).names
    assert "1 capture, regions" in stages_of(*model()).names
