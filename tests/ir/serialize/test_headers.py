"""SER-19: a graph that is read later is the graph that is read at once, whatever is asked first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from aotlite.backends.calling_convention import is_read, returned_as_arrays
from aotlite.backends.cpu.backend import is_of_cpu
from aotlite.ir.errors import FormatError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import digest_of
from aotlite.ir.graph.effect_chains import first_effect
from aotlite.ir.graph.files import dumps, header_text, loads, loads_later, reader
from aotlite.ir.meta import tensor_meta
from aotlite.pipeline.logs.artifact_text import call_count
from aotlite.stages.s10_runtime.backward.writer import share_memory
from tests.ir.helpers.strategies import graphs
from tests.ir.serialize.test_serialize import difference
from tests.stages.helpers.journeys import journeys

pytestmark = pytest.mark.rules("SER-19")

QUESTIONS: dict[str, Callable[[Graph], Any]] = {
    "placeholders": lambda graph: [
        (repr(n.role), n.meta, n.grad_mode, n.phase, n.sequence, n.location, n.scope, n.recompute)
        for n in graph.placeholders
    ],
    "roles": lambda graph: list(map(repr, graph.output_roles)),
    "metas": lambda graph: graph.output_metas,
    "metas with": lambda graph: graph.output_metas_with(object),
    "reads": is_read,
    "arrays": returned_as_arrays,
    "roots": lambda graph: graph.output_roots,
    "memory": share_memory,
    "calls": call_count,
    "effect": first_effect,
    "CPU": is_of_cpu,
    "digest": digest_of,
    "name": lambda graph: graph.name,
}


def is_unread(graph: Graph) -> bool:
    """Whether its nodes are not read yet: the slot has no value."""
    try:
        object.__getattribute__(graph, "nodes")
    except AttributeError:
        return True
    return False


def check(graph: Graph) -> bool:
    """Compares a graph that is read later with one that is read at once. Returns whether it has an
    header."""
    text, header = dumps(graph), header_text(graph)
    if not header:
        return False
    assert header == header_text(loads(text))
    later, at_once = loads_later(text, header), loads(text)
    for question, ask in QUESTIONS.items():
        assert ask(at_once) == ask(later), question
    assert is_unread(later)
    inputs = later.placeholders
    assert text == dumps(later)
    assert not is_unread(later)
    assert difference(at_once, later) is None
    kept = [node for node in later.nodes if node.op == "placeholder"]
    assert all(map(lambda x, y: x is y, inputs, kept)) and len(inputs) == len(kept)
    for question, ask in QUESTIONS.items():
        assert ask(at_once) == ask(later), question
    return True


@given(graphs())
def test_a_graph_that_is_read_later_is_the_one_that_is_read_at_once(graph: Graph) -> None:
    check(graph)


def test_graphs_of_every_stage_are_read_later_as_at_once() -> None:
    with_header = 0
    for journey in journeys(60):
        halves = journey.partition
        stages = journey.captured, journey.joint, journey.pure, halves.forward, halves.backward
        with_header += sum([check(graph) for graph in stages if graph is not None])
    assert with_header > 150


def product(factor: float = 2.0, *, swapped: bool = False, name: str = "f") -> Graph:
    build = Builder(name)
    x, y = [build.placeholder(tensor_meta((2,))) for _ in range(2)]
    return build.finish([y * factor, x] if swapped else [x * factor, y])


OTHERS = {
    "another op": product(3.0),
    "other results": product(swapped=True),
    "another name": product(name="g"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_header_of_another_graph_is_noticed_when_nodes_are_read(other: str) -> None:
    later = loads_later(dumps(product()), header_text(OTHERS[other]))
    for _ in range(2):
        with pytest.raises(FormatError, match="expected its header's"):
            later.nodes  # noqa: B018
    assert is_unread(later)


def test_a_text_with_a_fault_is_noticed_when_nodes_are_read() -> None:
    text, header = dumps(product()), header_text(product())
    for before, now in (('"mul"', '"no_op"'), ('"arg_1"', '"arg_2"'), ("[2]", "[3]"), ("{", "")):
        later = loads_later(text.replace(before, now, 1), header)
        assert 2 == len(later.placeholders)
        with pytest.raises(FormatError):
            str(later)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name":3}', header_text(product())[:-9]])
def test_a_header_that_is_none_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="a header is not as it is written"):
        loads_later(dumps(product()), text)


def test_threads_read_the_nodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    whole = reader._NodeReader.nodes

    def counted(self: Any, entries: Any) -> Any:
        made.append(entries)
        return whole(self, entries)

    monkeypatch.setattr(reader._NodeReader, "nodes", counted)
    later, found = loads_later(dumps(product()), header_text(product())), list[Any]()
    threads = [threading.Thread(target=lambda: found.append(later.nodes)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 == len(made)
    assert 1 == len(set(map(id, found)))


def test_a_graph_of_nodes_has_no_header() -> None:
    assert product().header is None
    with pytest.raises(AttributeError, match="no attribute 'nods'"):
        product().nods  # type: ignore[attr-defined]  # noqa: B018
