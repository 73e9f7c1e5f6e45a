"""`OneTapes`: the tapes that are one graph, by structure, and the reasons of those that are not.

Rules: CAG-6, CAG-25, CAG-27, CAG-28. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from aotlite.compiled_autograd.dynamic.templates import Templates
from aotlite.compiled_autograd.execution import Tape, order_of
from aotlite.compiled_autograd.node_signatures import CLOSED, Form, bare_form_of
from aotlite.compiled_autograd.one_tape.execution import OneTapeRun
from aotlite.compiled_autograd.one_tape.program import Learned, NotOneGraph, OneTape
from aotlite.compiled_autograd.one_tape.recording import OneTapeRecorder
from aotlite.compiled_autograd.segment import SegmentCompiler, may_share
from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph

_MOST_PROGRAMS = 256
_MOST_LESSONS = 4
"""How often a tape is recorded anew, since a hook gave other gradients than before."""


class OneTapeCompiler(SegmentCompiler, Protocol):
    """What `OneTapes` needs of `compiler.CompiledAutograd`."""

    counters: Any

    def capture_one(self, tape: Tape, record: Callable[[int], OneTape]) -> OneTape:
        """Calls `record` with the number of the new tape, and counts the capture."""

    def count_one(self, reason: str) -> None:
        """Counts a backward that was one graph; or one that was not, if there is a reason."""


class OneTapes:
    """The graphs of one compiler."""

    def __init__(self) -> None:
        self.programs: dict[Hashable, OneTape | str] = {}
        """By structure; a text says why there is no graph."""
        self._learned: dict[Hashable, Learned] = {}
        self._lessons: Counter[Hashable] = Counter()

    def graphs(self) -> list[Graph]:
        """The pure graphs, in the order of their captures."""
        found = [each.pure for each in list(self.programs.values()) if type(each) is OneTape]
        return [graph for graph in found if graph is not None]

    def run(
        self, tape: Tape, compiler: OneTapeCompiler, templates: Templates
    ) -> list[Tensor | None] | None:
        """Runs a backward as one graph; None if it has no calls, or cannot be one graph."""
        look = tape.look
        closed = [number for number, form in enumerate(look.forms) if form[0] == CLOSED]
        if not closed:
            return None
        bare = [bare_form_of(node) for node in look.nodes]
        key = look.key, tuple([_key_of(look.nodes[number], bare[number]) for number in closed])
        learned = self._learned.setdefault(key, {})
        run = OneTapeRun(tape, compiler, templates)
        one = self.programs.get(key)
        if one is None:
            if len(self.programs) >= _MOST_PROGRAMS:
                oldest = next(iter(self.programs))
                for kept in (self.programs, self._learned, self._lessons):
                    kept.pop(oldest, None)
            try:
                one = compiler.capture_one(
                    tape, lambda number: _recorded(run, bare, learned, number, compiler)
                )
            except NotOneGraph as reason:
                one = str(reason)
            self.programs[key] = one
        elif type(one) is OneTape:
            compiler.counters.hits += 1
        if type(one) is str:
            compiler.count_one(one)
            return None
        assert type(one) is OneTape
        run.begin(one, bare, learned)
        try:
            return run.go()
        finally:
            compiler.count_one(run.reason)
            if run.is_new and self._lessons[key] < _MOST_LESSONS:
                self._lessons[key] += 1
                self.programs.pop(key, None)


def _recorded(
    run: OneTapeRun, bare: list[Form], learned: Learned, number: int, compiler: SegmentCompiler
) -> OneTape:
    order = order_of(run.tape.look, run.tape.roots)
    one = OneTapeRecorder(run, order, bare).record(number, learned)
    one.pure = compiler.pure(one.graph)
    one.run = compiler.lowered(one.pure, None)
    one.shared = may_share(one.pure)
    return one


def _key_of(node: TapeNode, bare: Form) -> Hashable:
    """What a graph depends on beside the form of a closed node."""
    if type(node) is CustomNode:
        return bare, tuple(node._given), tuple(node.metas)
    call: Any = node.call if type(node) is OpNode and bare[0] == CLOSED else None
    return bare if call is None else (bare, call.key, call.result)
