"""`FrozenTensors`: what one frozen function knows of its frozen tensors, and its folded values.

A frozen tensor has a number: its place among the leading arguments of the function that is
compiled, whose role is `Primal(number)`. A call says which objects they are now; the runs of this
call read the contents of these. Rules: FRZ-1, FRZ-4, FRZ-6. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aotlite.backends.calling_convention import Value, as_value
from aotlite.freezing.erased_tensors import stand_in_storage
from aotlite.freezing.fold_graph import Fold
from aotlite.freezing.folded_values import FoldCounts, FoldedValues
from aotlite.freezing.frozen_content import FrozenContents, value_of_leaf
from aotlite.ir.errors import FreezeError, noted
from aotlite.ir.forks import lock
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Primal
from aotlite.ir.logs import current_id, timed, within
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.stages.records.metadata.function_facts import AliasOfInput, IsInput
from aotlite.stages.records.metadata.function_meta import FunctionMeta

OVERLAPS = "another argument overlaps it, and one of them is written"


class _Now(threading.local):
    """The frozen tensors of the call that this thread is in, and whose they are."""

    owner: object = None
    leaves: Sequence[object] = ()


_NOW = _Now()


def leave(before: tuple[object, Sequence[object]]) -> None:
    """Ends what `enter` began."""
    _NOW.owner, _NOW.leaves = before


class FrozenTensors:
    """The frozen tensors of one function, their contents, and the values that are made of them."""

    def __init__(
        self, places: Sequence[str], numbers: Sequence[int], *, discards: bool, is_silent: bool
    ) -> None:
        self.places = places
        """The places of the leading arguments in words, by number."""
        self.numbers = numbers
        """The numbers of those that are tensors or ndarrays."""
        self.discards = discards
        self.is_silent = is_silent
        """Whether its events are not logged."""
        self.contents = FrozenContents()
        self.counts = FoldCounts()
        self._folds: dict[tuple[str, ...], KeptFold] = {}
        self.reasons: dict[int, str] = {}
        """Why tensors are not folded, by number."""
        self.discarded: list[int] = []
        """The numbers of those that were erased."""

    @property
    def folds(self) -> list[KeptFold]:
        """The folds, each once."""
        return list(self._folds.values())

    def kept(self, fold: Fold) -> KeptFold:
        """The fold with its values, of all entries with an equal fold graph."""
        values = FoldedValues(fold.graph, self.counts)
        made = self._folds.setdefault(values.structure(), KeptFold(fold, values, self))
        made.note_reads(fold.rest)
        return made

    def foldable(self) -> set[Any]:
        """The roles of the frozen tensors that may be folded."""
        return {Primal(number) for number in self.numbers if number not in self.reasons}

    def note(self, meta: FunctionMeta) -> None:
        """Keeps the reasons that the facts of a captured function give (FRZ-1)."""
        for family in meta.families:
            for role in family.members:
                self._say(role, OVERLAPS)
        for index, output in enumerate(meta.outputs):
            if isinstance(output, (IsInput, AliasOfInput)):
                self._say(output.role, f"result {index} is it, or a view of it")
        for each in meta.inputs:
            if each.writes or each.changes:
                self._say(each.role, "the function writes it")

    def _roles(self) -> set[Any]:
        return {Primal(number) for number in self.numbers}

    def _say(self, role: Any, reason: str) -> None:
        if role in self._roles() and role.index not in self.reasons:
            self._check_memory(role.index, reason)
            self.reasons[role.index] = reason

    def check_memory(self) -> None:
        """Raises FreezeError if a tensor that this call does not fold was erased."""
        for number, reason in self.reasons.items():
            self._check_memory(number, reason)

    def _check_memory(self, number: int, reason: str) -> None:
        leaves = _NOW.leaves if _NOW.owner is self else ()
        if leaves and stand_in_storage(leaves[number]) is not None:
            raise erased_error(f"these arguments need {self.places[number]} ({reason})")

    def enter(self, leaves: Sequence[object]) -> tuple[object, Sequence[object]]:
        """Makes these the frozen tensors of this thread; returns those before, for `leave`."""
        before = _NOW.owner, _NOW.leaves
        _NOW.owner, _NOW.leaves = self, leaves
        return before

    def now(self) -> Sequence[object]:
        """The leading arguments of this thread's call."""
        if _NOW.owner is not self:
            raise noted(
                FreezeError(
                    "freeze: a compiled graph of a frozen function runs outside of its calls, "
                    "expected a call of the frozen function"
                ),
                "Call what al.freeze returned; its entries do not know the frozen tensors.",
            )
        return _NOW.leaves

    def value(self, number: int) -> ArrayValue:
        """The value of a frozen tensor that the graph of this call reads as it is (FRZ-4)."""
        leaf = self.now()[number]
        erased = stand_in_storage(leaf)
        if erased is None:
            return value_of_leaf(leaf)
        if erased.value is None:
            raise erased_error(f"these arguments read {self.places[number]}")
        return erased.value

    def digest(self, number: int, leaves: Sequence[object]) -> str:
        """The digest of frozen tensor `number`."""
        erased = stand_in_storage(leaves[number])
        return self.contents.digest(number, leaves[number]) if erased is None else erased.digest


class KeptFold:
    """A fold with its values, as they were at the last call. Entries with equal fold graphs, such
    as those for other sizes, have one."""

    def __init__(self, fold: Fold, values: FoldedValues, frozen: FrozenTensors) -> None:
        self.fold = fold
        """That of the first of these entries."""
        self.values = values
        self.frozen = frozen
        self.numbers = [number_of(role) for role in values.roles]
        self.withheld = frozen.foldable() if frozen.discards else set()
        """The roles of inputs that the call does not give, as they may be erased."""
        self.read_as_is: set[int] = set()
        """The numbers of such frozen tensors that a rest reads."""
        self.compile_id = current_id()
        self._lock = lock()
        self._ready: tuple[list[str], list[Value]] | None = None

    def note_reads(self, rest: Graph) -> None:
        """Keeps which of the withheld inputs an entry reads themselves."""
        for node in rest.placeholders:
            if node.role in self.withheld and rest.users[node]:
                self.read_as_is.add(number_of(node.role))

    def current(self) -> list[Value]:
        """The folded values for the frozen tensors of this call, in order."""
        frozen = self.frozen
        leaves = frozen.now()
        digests = [frozen.digest(number, leaves) for number in self.numbers]
        ready = self._ready
        if ready is not None and ready[0] == digests:
            return ready[1]
        with self._lock:
            return self._computed(digests, leaves)

    def _computed(
        self,
        digests: list[str],
        leaves: Sequence[object],
        done: Callable[[Any], None] | None = None,
    ) -> list[Value]:
        by_role = dict(zip(self.values.roles, digests, strict=True))
        self._check_known(by_role, leaves)
        before = [""] * len(digests) if self._ready is None else self._ready[0]
        self._ready = None  # outdated values are freed before new ones are made
        silent = within(self.compile_id, is_silent=self.frozen.is_silent)
        counts = self.frozen.counts
        run, shared = counts.run, counts.shared
        with silent, timed("refold", graph=self.fold.rest.name) as facts:
            found = self.values.compute(
                by_role, lambda role: value_of_leaf(leaves[number_of(role)]), done
            )
            values = [as_value((each.buffer, each.start), each.meta) for each in found]
            facts |= {
                "changed": self._changed(before, digests),
                "ran": counts.run - run,
                "shared": counts.shared - shared,
                "bytes": sum([each.meta.span * each.meta.dtype.itemsize for each in found]),
            }
        self._ready = digests, values
        return values

    def _changed(self, before: list[str], digests: list[str]) -> list[str]:
        """The places of the frozen tensors with other content than before."""
        pairs = zip(self.numbers, before, digests, strict=True)
        return [self.frozen.places[number] for number, then, now in pairs if then != now]

    def _check_known(self, digests: Mapping[Any, str], leaves: Sequence[object]) -> None:
        """Raises FreezeError if a value is missing that is made of an erased tensor."""
        erased = [role for role in digests if stand_in_storage(leaves[number_of(role)]) is not None]
        for node in self.values.missing(digests, erased) if erased else ():
            raise erased_error(f"these arguments need {node.target.name} of frozen tensors")

    def discard(self, leaves: Sequence[object], done: Callable[[int], None]) -> None:
        """Computes the values; `done(number)` is called when a frozen tensor is read no more."""
        digests = [self.frozen.digest(number, leaves) for number in self.numbers]
        self._computed(digests, leaves, lambda role: done(number_of(role)))


def number_of(role: Any) -> int:
    """The number of the frozen tensor that is the input with this role, a `Primal`."""
    index: int = role.index
    return index


def erased_error(what: str) -> FreezeError:
    """The error for a graph that needs a tensor which was erased from its module."""
    return noted(
        FreezeError(
            f"freeze: {what}, which was discarded, expected arguments whose graph needs the folded "
            "values of the first call"
        ),
        "Freeze without freezing_discard_parameters for several kinds of arguments. (FRZ-4)",
    )
