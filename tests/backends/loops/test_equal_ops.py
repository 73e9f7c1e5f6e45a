"""Equal ops are lowered once, and the program is that which it would be without that."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.lowering.builder import ProgramBuilder
from aotlite.backends.loops.lowering.graph_lowering import _Lowering
from aotlite.backends.loops.lowering.op_templates import OpTemplates
from aotlite.backends.loops.program import BufferKind, LoopProgram, ValueCheck
from aotlite.ir.dtypes import float32
from aotlite.ir.graph import Graph
from aotlite.ir.op import OPS, PureOp
from aotlite.testing.laws import graphs, graphs_of
from tests.samples import samples_of


class Shared:
    """What lowerings remember together, and how often it served."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: dict[Any, Any] = {}
        self.served = 0
        again = OpTemplates.again

        def begin(templates: OpTemplates, builder: ProgramBuilder) -> None:
            templates.builder, templates.found = builder, self.found

        def counted(templates: OpTemplates, call: Any) -> Any:
            made = again(templates, call)
            self.served += made is not None
            return made

        patch.setattr(OpTemplates, "__init__", begin)
        patch.setattr(OpTemplates, "again", counted)


def _moved(graph: Graph) -> LoopProgram:
    """The program of a graph with other numbers of buffers and steps."""
    builder = ProgramBuilder()
    for _ in range(3):
        builder.buffer(float32, 5, BufferKind.INPUT)
    builder.steps += [ValueCheck(0), ValueCheck(1)]
    return _Lowering(graph, builder).program()


def _served(cases: list[Graph]) -> int:
    """Lowers each graph twice, the second time from what is remembered, on other buffers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpTemplates, "call", lambda *_: None)
        expected = [_moved(graph) for graph in cases]
    with pytest.MonkeyPatch.context() as patch:
        shared = Shared(patch)
        for graph in cases:
            lower(graph)
        before = shared.served
        for graph, program in zip(cases, expected, strict=True):
            found = _moved(graph)
            assert program == found and str(program) == str(found), f"{graph}"
    return shared.served - before


def test_every_ops_samples_are_lowered_again_to_the_same_program() -> None:
    has_loops = lambda op: type(op) is PureOp and (op.loops or op.scalar) is not None
    names = [name for name, op in OPS.items() if has_loops(op)]
    cases = [case.graph for name in names for case in graphs_of(name, samples_of(name)[:3])]
    assert _served(cases) > 300


def test_forwards_and_backwards_are_lowered_again_to_the_same_program() -> None:
    assert _served([case.graph for case in graphs("forward", "backward")]) > 200


@pytest.mark.parametrize(
    ("first", "second"), [(1, 1.0), (1, True), (0.0, -0.0), (2.0, 3.0)], ids=repr
)
def test_ops_with_different_numbers_are_not_equal(first: Any, second: Any) -> None:
    """1 and 1.0 are equal to Python, and so are 0.0 and -0.0."""

    def function(x: Any) -> Any:
        return al.full_like(x, first) / x, al.full_like(x, second) / x

    graph = al.capture(function)(al.ones(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpTemplates, "call", lambda *_: None)
        expected = lower(graph)
    assert str(expected) == str(lower(graph))
