"""Passes and stages that know nothing of effects keep them: order is an operand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.decompositions import core_table
from aotlite.ir.effects import TOKEN
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.effect_chains import effects_of
from aotlite.ir.graph.role import BackwardToken, Token
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.op import OPS
from aotlite.ir.run.transform import Transformer
from aotlite.ir.serialize import dumps, loads
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import apply_window_rules, simplify
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
)
from aotlite.stages.s7_simplify.decompositions import decompose
from aotlite.stages.s7_simplify.normalizations import decompose_normalizations
from tests.rules.helpers.tok_programs import (
    Compute,
    Give,
    Loudly,
    Note,
    Program,
    alike,
    function,
    programs,
    registered,
    story,
)

EQUAL_CALLS = Program((Note("log", 0), Note("log", 0), Give("callback", 0), Give("callback", 0)))
"""Each of two effects on the same values happens."""
UNUSED = Program((Give("log", 0), Give("callback", 3), Loudly(4, "print", "log")), (0,))
"""Nobody reads what they give."""


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        yield


def rebuilt(graph: Graph) -> Graph:
    return Transformer(graph).transform()


def edited(graph: Graph) -> Graph:
    edit = graph.edit()
    edit.eliminate_dead_code()
    result: Graph = edit.graph()
    return result


def printed(graph: Graph) -> Graph:
    return graph_from_source(graph.code)


def filed(graph: Graph) -> Graph:
    """Through a file, where one can hold the graph."""
    held = any(kind == "callback" for kind, _ in effects_of(graph))
    return graph if held else loads(dumps(graph))


def decomposed(graph: Graph) -> Graph:
    return decompose(graph, core_table())


def reversed_where_free(graph: Graph) -> Graph:
    """The calls as late as their readers allow: whatever is not held by an operand moves."""
    waiting = [node for node in graph.nodes if node.op in ("call", "get_attr")]
    placed: list[Node] = []
    done: set[Node] = set()
    readers = graph.users
    while waiting:  # from the end: a node all of whose readers are placed, the first such
        node = next(n for n in waiting if all(r in done or r.op == "output" for r in readers[n]))
        waiting.remove(node)
        placed.append(node)
        done.add(node)
    return Graph((*graph.placeholders, *reversed(placed), graph.output_node), graph.name)


PASSES: dict[str, Any] = {
    "nothing": lambda graph: graph,
    "rebuild": rebuilt,
    "edit": edited,
    "print": printed,
    "file": filed,
    "decompose": decomposed,
    "open": decompose_normalizations,
    "dead code": eliminate_dead_code,
    "subexpressions": eliminate_common_subexpressions,
    "windows": apply_window_rules,
    "simplify": simplify,
    "reorder": reversed_where_free,
}


@pytest.mark.draws(long=240)
@pytest.mark.rules("TOK-1", "TOK-6", "TOK-7")
@settings(max_examples=25)
@given(programs(), st.lists(st.sampled_from(sorted(PASSES)), min_size=1, max_size=3), st.booleans())
@example(EQUAL_CALLS, ["subexpressions", "dead code", "simplify"], True)
@example(UNUSED, ["edit", "dead code", "rebuild"], True)
@example(UNUSED, ["reorder"], False)
def test_passes_that_know_nothing_of_effects_keep_them(
    program: Program, names: list[str], unlifts: bool
) -> None:
    """All of aotlite's own, and one that moves whatever operands let it: each type keeps its order,
    and across types, where a pass reorders, the story may be another one.
    """
    f = al.compile(
        function(program),
        backend="reference",
        passes=[PASSES[name] for name in names],
        unlift_tokens=unlifts,
    )
    expected, seen = story(program), story(program, f)
    if "reorder" in names:
        for each in (expected, seen):
            each["log"] = sorted(each["log"], key=lambda entry: entry[0])  # stable
    assert alike(expected, seen)


@pytest.mark.draws(long=240)
@pytest.mark.rules("TOK-1", "TOK-6")
@settings(max_examples=30)
@given(programs())
@example(EQUAL_CALLS)
@example(UNUSED)
def test_stages_leave_threaded_graphs_as_they_are(program: Program) -> None:
    """Functionalizing and simplifying once more changes nothing; captured graphs have no tokens."""
    seen: dict[str, Any] = {}
    story(program, al.compile(function(program), observer=seen.__setitem__, backend="reference"))
    if "7 simplify" not in seen:
        return
    pure = seen["6 functionalize"]
    assert structurally_equal(pure, functionalize(pure)) is None
    assert effects_of(pure) == effects_of(seen["7 simplify"]) == effects_of(seen["4 joint"])
    for stage in ("1 capture", "4 joint"):
        roles = [node.role for node in seen[stage].placeholders]
        assert not any(isinstance(role, (Token, BackwardToken)) for role in roles)


def test_programs_without_effects_have_no_tokens() -> None:
    """Nothing is put into their graphs, whichever form is wanted."""
    for unlifts in (True, False):
        f = al.compile(lambda x: x.sin() * 2, backend="reference", unlift_tokens=unlifts)
        f(al.ones(2).requires_grad_()).sum().backward()
        assert ["sin", "mul"] == [node.target.name for node in f.forward_graph.calls]
        assert "token" not in f.forward_graph.code + f.backward_graph.code  # type: ignore[union-attr]
        assert "token" not in f.source


def test_a_chain_orders_what_nothing_else_does() -> None:
    """A pass that reverses a graph of calls without operands cannot reverse its effects."""
    build = Builder("free")
    token = build.placeholder(TOKEN, Token("print")).node
    for k in range(4):
        token = build.emit(OPS["with_effect_print_tensors"], (token, k, str(k), ()))
    graph = build.finish([token], [Token("print")])
    found = reversed_where_free(graph)
    assert list("0123") == [node.args[2] for node in found.calls]


@pytest.mark.rules("TOK-7")
def test_what_is_computed_twice_is_told_once() -> None:
    """An effect between two equal computations sees the value of both, and merges neither."""
    steps = (Compute("add", 0, 1), Note("log", 3), Compute("add", 0, 1), Note("log", 4))
    program = Program(steps, (3, 4))
    f = al.compile(function(program), backend="reference")
    assert story(program) == story(program, f)
    names = [node.target.name for node in f.forward_graph.calls]
    assert (1, 2) == (names.count("add"), names.count("with_effect_tok_note"))
