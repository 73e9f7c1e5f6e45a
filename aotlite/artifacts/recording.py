"""Makes the kept entry of a compilation that has just ended, or says why there is none.

Rules: CACHE-1, CACHE-3, CACHE-4, CACHE-7, CACHE-8. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

import attrs

from aotlite.artifacts.entry_records import decoded_entry
from aotlite.artifacts.files.guard_words import words_of_guards
from aotlite.artifacts.files.kept_entry import KeptEntry, facts_in_words, records_written
from aotlite.artifacts.files.symbol_words import KeptSymbols
from aotlite.artifacts.reads.access_path_words import words_of_path
from aotlite.artifacts.reads.capture_watch import CaptureWatch
from aotlite.artifacts.reads.changes import Surroundings
from aotlite.artifacts.reads.code_digests import digest_of, nested
from aotlite.artifacts.reads.function_names import function_named, name_of_code
from aotlite.artifacts.reads.read_set import CallContext, ReadSet, read_places
from aotlite.artifacts.reads.value_images import Images, NoImage
from aotlite.artifacts.symbolic_records import check_is_kept, sized_arguments, written_root
from aotlite.ir.errors import AotliteError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Hidden, Primal
from aotlite.ir.ops import BUILT_IN
from aotlite.ir.provenance.purity import handed_on
from aotlite.ir.symbols.assumption import Assumption
from aotlite.pipeline.record_files import Document, at_rest, encoded
from aotlite.pipeline.record_files.containers import has_class_of_user
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.pipeline.size_regions.tensor_marks import notes_of
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.guards.guard_records import (
    EnvironmentGuard,
    HiddenInputGuard,
    ValueGuard,
    hidden_places,
)
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts


@attrs.define(eq=False, repr=False)
class Recording:
    """The watch on one compilation, and the kept entry that it gives."""

    name: str
    call: CallContext
    watch: CaptureWatch = attrs.field(factory=CaptureWatch)
    kept: KeptEntry | None = None
    reason: str = "the compilation has not ended"
    """Why nothing is kept, where `kept` is None."""
    _around: Surroundings = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._around = Surroundings(self.call.function, list(self.call.leaves))

    def take(
        self, captured: Captured, cut: StageRecords, guards: Sequence[Assumption] | None
    ) -> None:
        """Makes the kept entry of a compilation, before its capture is closed. `guards` are those
        on sizes; None where all are numbers."""
        try:
            self.kept = self._made(captured, cut, guards)
        except NoImage as error:
            self.reason = str(error)
        except UnsupportedError as error:  # what is no data
            self.reason = f"{error}".partition("\n")[0]

    def _made(
        self, captured: Captured, cut: StageRecords, conditions: Sequence[Assumption] | None
    ) -> KeptEntry:
        self.watch.finish()
        for reason in self._reasons(captured, cut):
            raise NoImage(reason)
        facts = GuardedFacts.of(captured, cut.meta)
        guards = words_of_guards(facts.guards)
        sizes = captured.recorder.sizes
        symbols = None
        if sizes is not None and conditions is not None:
            check_is_kept(cut, sizes)
            symbols = KeptSymbols.of(sizes, conditions, tuple(notes_of(captured)))
        sized = () if symbols is None or sizes is None else sized_arguments(sizes)
        reads = self._reads(facts, sized)
        tape = cut.joint.kept_tape
        higher = None if tape is None else tuple(sorted(tape.higher_order_inputs, key=str))
        words = facts_in_words(facts)
        of = self.name, reads, guards, words
        if symbols is None or sizes is None:
            document = encoded((at_rest(cut), higher), with_headers=True)
            return KeptEntry(*of, records_written(document), document.headers)
        if facts.offset_read or facts.sizes:
            raise NoImage("the function reads where an input lies in memory, and sizes are symbols")
        root = written_root(at_rest(cut), higher, sizes)
        document = encoded(root, guards=sizes.table.log, checks=False)
        kept = KeptEntry(*of, records_written(document), symbols=symbols)
        _check_again(kept, document)
        return kept

    def _reasons(self, captured: Captured, cut: StageRecords) -> Iterator[str]:
        """Why this compilation is not kept."""
        yield from self.watch.reasons
        if self.watch.runs != 1:
            yield f"the function ran {self.watch.runs} times"
        changed = self._around.change()
        if changed is not None:
            yield f"the function changes {changed}"
        recorder = captured.recorder
        if cut.joint.runs_user_code:
            yield "users' Python runs in the backward"
        if captured.hooks or recorder.hooks.kept:
            yield "the function registers hooks"
        if recorder.wrapped or cut.meta.wrappers:
            yield "a tensor is a wrapper subclass"
        if cut.convention.tokens or cut.joint.backward.effects:
            yield "the function has effects"
        spec = cut.containers.spec
        if spec is not None and (kind := has_class_of_user(spec)):
            yield f"a result is a {kind}, whose class no file holds"
        for name in sorted(_own_ops(captured.graph, cut.partition.forward, cut.partition.backward)):
            yield f"the op {name} is a user's own, whose rules may differ"

    # --- the reads
    def _reads(self, facts: GuardedFacts, sized: tuple[int, ...]) -> ReadSet:
        ran = frozenset(map(digest_of, [*self.watch.codes, *self.watch.of_python]))
        names = self.watch.names
        leaves = list(self.call.leaves)
        root = AccessPath(None, self.call.function)
        places = [root, *read_places(list(_places(facts)), leaves, ran)]
        # Those of arguments first: they are compared alone where there is no function (CACHE-18).
        places.sort(key=lambda place: place.argument is None)
        found = self._found(ran)
        draft = ReadSet(
            (),
            ran,
            None if names is None else frozenset(names),
            tuple([words_of_path(place) for place in places]),
            found,
            tuple(self.watch.environment),
            tuple(_inputs(facts)),
            tuple([str(role) for role in facts.offset_read | facts.sizes.keys()]),
            tuple(self.watch.states),
            sized,
        )
        images = Images(draft.ran, draft.names)
        lines = tuple(draft.lines_now(self.call, images))
        self._check_covered(images)
        self._check_handed_on(images)
        for name, value in self.watch.environment.items():
            if value is None and name == "":
                raise NoImage("the environment changed")
        return attrs.evolve(draft, lines=lines)

    def _found(self, ran: frozenset[str]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """The functions that ran and that no access path leads to, by name."""
        reached = {_known(c) for f in self._around.functions for c in nested(f.__code__)}
        unknown = [code for code in self.watch.codes if _known(code) not in reached]
        names = dict.fromkeys(map(_name, unknown))
        found = []
        for name in names:
            function = function_named(name)
            roots = AccessPathIndex(function, []).roots()
            paths = [words_of_path(at) for at in read_places(roots, [], ran)]
            found.append((name, tuple(paths)))
        return tuple(found)

    def _check_covered(self, images: Images) -> None:
        """Raises NoImage if code ran that no image compares: another process would not see a change
        of it."""
        for code in self.watch.codes:
            if digest_of(code) not in images.covered:
                raise NoImage(f"the code of {code.co_qualname} ran, and is not found again")

    def _check_handed_on(self, images: Images) -> None:
        """Raises NoImage if code that ran hands an impure function on to C: the watch sees its own
        calls alone."""
        left = {_known(code): code for code in self.watch.codes}
        for function in self._around.functions:
            for code in nested(function.__code__):
                if left.pop(_known(code), None) is not None:
                    _check_code(code, function, images)
        for code in left.values():
            around = function_named(_name(code))
            if around is not None:
                _check_code(code, around, images)


def _check_code(code: CodeType, function: FunctionType, images: Images) -> None:
    variables = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if cell != _EMPTY:
            variables[name] = cell.cell_contents
    for name, line in handed_on(code, variables, images.modules):
        at = f"{code.co_filename}:{line}"
        raise NoImage(f"{code.co_qualname} hands on {name}, which C may call unseen ({at})")


_EMPTY = CellType()


def _check_again(kept: KeptEntry, document: Document) -> None:
    """Raises NoImage unless the records with symbols, read back, are the same document: what a
    table knows by heart in the capture, another has to find in the guards."""
    try:
        back = decoded_entry(kept)
        assert back.symbols is not None
        root = written_root(back.cut, back.higher, back.symbols.sizes)
        again = encoded(root, guards=back.symbols.sizes.table.log, checks=False)
    except (AotliteError, LookupError, TypeError, ValueError) as error:
        raise NoImage(f"its sizes cannot be read back ({f'{error}'[:160]})") from None
    if again != document:
        raise NoImage("its sizes are others when they are read back")


def _own_ops(*graphs: Graph | None) -> set[str]:
    """The names of ops in graphs that a user has registered: in another process the same name may
    have other rules and another gradient."""
    calls = [node for graph in graphs if graph is not None for node in graph.calls]
    return {node.target.name for node in calls if node.target not in BUILT_IN}


def _known(code: Any) -> tuple[str, str]:
    """What is equal of two codes of one file iff they are equal: a capture with symbols may have
    run another object (DYN-39)."""
    return code.co_filename, digest_of(code)


def _name(code: Any) -> str:
    name = name_of_code(code)
    if name is None:
        raise NoImage(f"the code of {code.co_qualname} ran, and is not found by name")
    return name


def _places(facts: GuardedFacts) -> Iterator[AccessPath]:
    """The access paths of all values that guards compare."""
    for guard in facts.guards:
        match guard:
            case ValueGuard(place) | HiddenInputGuard(_, place):
                yield place
            case EnvironmentGuard(places):
                yield from places


def _inputs(facts: GuardedFacts) -> Iterator[tuple[str, Any]]:
    hidden = hidden_places(facts.guards)
    for role in facts.inputs:
        if isinstance(role, Primal):
            yield str(role), role.index
        elif isinstance(role, Hidden):
            yield str(role), words_of_path(hidden[role.index])
        else:
            raise NoImage(f"an input {role}, a part of a wrapper")
