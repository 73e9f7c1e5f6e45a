"""`OneTapes`: the tapes that are one graph, by structure, and the reasons of those that are not.

Rules: CAG-6, CAG-25, CAG-27, CAG-28. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from aotlite.compiled_autograd.dynamic.templates import Templates
from aotlite.compiled_autograd.execution import Tape, order_of
from aotlite.compiled_autograd.node_signatures import CLOSED
from aotlite.compiled_autograd.one_tape.custom_backwards import Again
from aotlite.compiled_autograd.one_tape.execution import OneTapeRun
from aotlite.compiled_autograd.one_tape.forms import TapeForms, stale_among
from aotlite.compiled_autograd.one_tape.program import Learned, NotOneGraph, OneTape
from aotlite.compiled_autograd.one_tape.recording import OneTapeRecorder
from aotlite.compiled_autograd.segment import SegmentCompiler, may_share
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph

_MOST_PROGRAMS = 256
_MOST_LESSONS = 4
"""How often a tape is recorded anew, since a hook gave other gradients than before."""


class OneTapeCompiler(SegmentCompiler, Protocol):
    """What `OneTapes` needs of `compiler.CompiledAutograd`."""

    counters: Any

    def capture_one(self, tape: Tape, record: Callable[[], OneTape]) -> OneTape:
        """Calls `record`, and counts the capture."""

    def count_one(self, reason: str) -> None:
        """Counts a backward that was one graph; or one that was not, if there is a reason."""


class OneTapes:
    """The graphs of one compiler."""

    def __init__(self) -> None:
        self.forms = TapeForms()
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
        if all(form[0] != CLOSED for form in tape.look.forms):
            return None
        while True:
            run = OneTapeRun(tape, compiler, templates)
            key = self._key_of(run)
            learned = self._learned.setdefault(key, {})
            one = self.programs.get(key)
            if one is not None:
                break
            if len(self.programs) >= _MOST_PROGRAMS:
                oldest = next(iter(self.programs))
                for kept in (self.programs, self._learned, self._lessons):
                    kept.pop(oldest, None)
            try:
                one = self.programs[key] = _captured(run, learned, compiler)
                return self._run(run, one, key, compiler)
            except Again:
                del self._learned[key]
        if type(one) is OneTape:
            compiler.counters.hits += 1
        return self._run(run, one, key, compiler)

    def _key_of(self, run: OneTapeRun) -> Hashable:
        """The key of a tape's graph; the forms of its nodes are noted in the run."""
        look, forms = run.tape.look, self.forms
        run.forms, run.bare = forms, list(map(forms.of, look.nodes))
        run.stale = frozenset(stale_among(look.nodes, run.bare))
        pairs = zip(look.nodes, look.forms, run.bare, strict=True)
        rest = [forms.key_of(node, bare) for node, form, bare in pairs if form[0] == CLOSED]
        return look.key, tuple(rest), run.stale

    def _run(
        self, run: OneTapeRun, one: OneTape | str, key: Hashable, compiler: OneTapeCompiler
    ) -> list[Tensor | None] | None:
        if isinstance(one, str):
            compiler.count_one(one)
            return None
        run.begin(one, self._learned[key])
        try:
            return run.go()
        finally:
            compiler.count_one(run.reason)
            if run.is_new and self._lessons[key] < _MOST_LESSONS:
                self._lessons[key] += 1
                self.programs.pop(key, None)


def _captured(run: OneTapeRun, learned: Learned, compiler: OneTapeCompiler) -> OneTape | str:
    """The tape as one graph, or why it is none. Raises Again."""
    try:
        return compiler.capture_one(run.tape, lambda: _recorded(run, learned, compiler))
    except NotOneGraph as reason:
        return str(reason)


def _recorded(run: OneTapeRun, learned: Learned, compiler: SegmentCompiler) -> OneTape:
    one = OneTapeRecorder(run, order_of(run.tape.look, run.tape.roots)).record(learned)
    one.pure = compiler.pure(one.graph)
    one.run = compiler.lowered(one.pure, None)
    one.shared = may_share(one.pure)
    return one
