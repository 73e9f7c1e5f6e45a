"""Names of graphs go into file names and programs, which hold no NUL and no surrogate."""

from __future__ import annotations

import json
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.serialize import dumps, loads

NAMES = ("a\0b", "\ud800", "\0", "a\nb", "ü")


def named(name: str) -> Any:
    def function(x: Any) -> Any:
        return x.sin().sum()

    function.__name__ = name
    return function


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["reference", "loops", "cpu"])
def test_a_function_of_any_name_is_compiled(name: str, backend: str, tmp_path: Any) -> None:
    x: Any = al.zeros(2).requires_grad_()
    compiled = al.compile(named(name), backend=backend, dump=str(tmp_path))
    for _ in range(4):  # the reference backend writes a program after a few calls
        x.grad = None
        compiled(x).backward()
    assert [1.0, 1.0] == x.grad.tolist()
    assert [] != list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_graph_of_such_a_name_is_refused(name: str) -> None:
    graph = al.capture(named("f"))(al.zeros(2))
    with pytest.raises(al.ArgumentError) as caught:
        Graph(graph.nodes, name)
    assert str(caught.value) == (
        f"graph: its name is {name!r}, expected a text without NUL and surrogates"
    )


def test_a_file_with_such_a_name_is_refused() -> None:
    document = json.loads(dumps(al.capture(named("f"))(al.zeros(2))))
    document["name"] = "a\0b"
    with pytest.raises(al.FormatError, match="expected a name without NUL"):
        loads(json.dumps(document))
