"""Generated lines that change an input's autograd state (`detach_`) or memory (`set_`, `resize_`).

Used by stage 10 alone. A result that the function took before a change is rebuilt before it.
Rules: FUN-18, FUN-36, RT-5, TEN-5, TEN-26. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import grow_to, take_place, tell_apart
from aotlite.ir.graph.role import IntermediateBase, Role, is_given
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    InputMeta,
    MemoryStep,
    Plain,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s10_runtime.forward.variables import Variables
from aotlite.stages.s10_runtime.guards.guard_sources import name_of
from aotlite.stages.s10_runtime.source import FunctionSource
from aotlite.stages.s10_runtime.support import rebuilt, take_history


@attrs.define(eq=False, repr=False)
class MetadataUpdateWriter:
    """Adds the lines of the changes in order, and of the results that were taken in between."""

    source: FunctionSource
    meta: FunctionMeta
    variables: Variables
    storages: Mapping[Any, Storage]
    """The storages of the inputs at entry."""
    _has_detached: bool = False
    put: list[InputMeta] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.put = [e for e in self.meta.inputs if e.writes_storage or e.resizes_storage]

    def write(
        self, rebuild: Callable[[int, AliasOfInput], None], write_data: Callable[[InputMeta], None]
    ) -> None:
        """Adds the lines of all changes; old memory is written before an input leaves it (RT-5)."""
        self._counts()
        self._take_from_bases()
        windows = iter(self._windows())
        for each in self.put:
            if each.writes_data and not each.in_graph:
                write_data(each)
        for each in self.meta.inputs:
            for number, change in enumerate(each.changes):
                for index, view in _taken(self.meta, each, number):
                    rebuild(index, view)
                name = name_of(each.role)
                if isinstance(change, MemoryStep):
                    move = grow_to if change.grows else take_place
                    self.source.use(move)
                    self.source.add(f"{move.__name__}({name}, {next(windows)})")
                    self._hand_over(each, name)
                else:
                    self.source.add(f"{name}.{change.value}")

    def _take_from_bases(self) -> None:
        """Keeps the history of bases that inputs take over: other tensors on them have none."""
        for index, base in enumerate(self.meta.bases):
            if base.holder is not None:
                name = self.variables.tensor(IntermediateBase(index))
                self.source.add(f"h{index} = {name}._node, {name}._index")
                self.source.add(f"{name}._node, {name}._index, {name}.facts = None, 0, None")

    def _hand_over(self, each: InputMeta, name: str) -> None:
        """Gives the input the history of the base whose memory it takes over."""
        for index, base in enumerate(self.meta.bases):
            if base.holder == each.role:
                self.source.use(take_history)
                self.source.add(f"take_history({name}, *h{index})")

    def _windows(self) -> list[str]:
        """Variables for the views of the new memory, all made before an input moves."""
        changes = [c for each in self.put for c in each.changes if isinstance(c, MemoryStep)]
        if changes:
            self.source.use(rebuilt)
            self.note_detached()
        names: list[str] = []
        for change in changes:
            names.append(f"m{len(names)}")
            how = self.source.record(change.window.view, "V", "other memory")
            origin = self._origin(change.window)
            self.source.add(f"{names[-1]} = rebuilt({origin}, {how}, detached)")
            if change.window.view.version is not None:
                self.source.use(hide)
                self.source.add(f"hide({names[-1]}, {change.window.view.version})")
        return names

    def note_detached(self) -> None:
        """Adds the table of detached aliases, once."""
        if not self._has_detached:
            self._has_detached = True
            self.source.add("detached = {}")

    def _origin(self, window: Alias) -> str:
        match window:
            case AliasOfInput(role):
                return name_of(role)
            case AliasOfBase(base):
                return self.variables.tensor(IntermediateBase(base))
            case AliasOfOutput(index):
                return self.variables.tensor(self.meta.role_of(index))

    # --- counts of writes
    def _counts(self) -> None:
        """Adds the lines that set versions of memory that tensors move to or from (TEN-26)."""
        plan = self.meta.count_plan
        if plan is None:
            return
        self.source.use(Storage, tell_apart)
        for number, owner in enumerate(plan.owners):
            self.source.add(f"c{number} = {self._storage(owner)}")
            before = plan.totals[number]
            given = is_given(owner)
            if before and given:  # new memory is not counted yet
                self.source.add(f"c{number}.version -= {before}")
            if type(before) is not int and not given:  # made in inference mode (TEN-22)
                self.source.add(f"c{number}.version = {self.count(before)}")
        for step in plan.steps:
            old, new = f"c{step.old}", f"c{step.new}"
            for name, writes in ((old, step.old_writes), (new, step.new_writes)):
                if writes:
                    self.source.add(f"{name}.version += {writes}")
            self.source.add(f"tell_apart({old}, {new})")
        for number, rest in enumerate(plan.rest):
            if rest:
                self.source.add(f"c{number}.version += {rest}")

    def _storage(self, owner: object) -> str:
        if owner is None:
            return "Storage(None)"
        return f"{self.variables.new_or_input(owner)}.storage"

    def set_versions(self) -> None:
        """Sets the versions of new storages to their number of writes in the function (TEN-10)."""
        made: list[tuple[Any, int]] = [
            (self.meta.role_of(i), o.version)
            for i, o in enumerate(self.meta.outputs)
            if isinstance(o, Plain)
        ]
        made += [(IntermediateBase(i), base.version) for i, base in enumerate(self.meta.bases)]
        for role, version in made:
            if role not in self.meta.wrappers:  # wrappers are made later
                self.set_version(role, version)
        keep_in_place(self.source, self.meta, self.variables)

    def set_version(self, role: Role, version: int) -> None:
        """Sets the version of one new storage."""
        name = self.variables.tensor(role)
        if type(version) is not int:  # made in inference mode (TEN-22)
            self.source.add(f"{name}.storage.version = {self.count(version)}")
            self.source.add(f"{name}.facts = None")
        elif version and self.storage(role) is None:
            self.source.add(f"{name}.storage.version = {version}")

    def count(self, version: int) -> str:
        """A number of writes as an expression; `NO_COUNT` for inference tensors."""
        exact = type(version) is int
        return str(version) if exact else self.source.constant(version, "V", "no count")

    def storage(self, owner: Role) -> str | None:
        """The variable of an owner's storage, if the owner may have left it."""
        plan = self.meta.count_plan
        mine = self.storages.get(owner)
        for number, other in enumerate(() if plan is None else plan.owners):
            if owner == other or mine is not None and mine is self.storages.get(other):
                return f"c{number}"
        return None


def _taken(meta: FunctionMeta, each: InputMeta, number: int) -> Sequence[tuple[int, AliasOfInput]]:
    """The results that are views of an input after `number` changes."""
    return [
        (index, output)
        for index, output in enumerate(meta.outputs)
        if isinstance(output, AliasOfInput)
        and output.role == each.role
        and output.changes_before == number
    ]


def keep_in_place(source: FunctionSource, meta: FunctionMeta, variables: Variables) -> None:
    """Adds the lines that export memory with a hidden alias, which may not move (TEN-5)."""
    names = [name_of(each.role) for each in meta.inputs if each.shares_outside]
    names += [
        variables.tensor(meta.role_of(index))
        for index, output in enumerate(meta.outputs)
        if isinstance(output, Plain) and output.shares_outside
    ]
    names += [
        variables.tensor(IntermediateBase(index))
        for index, base in enumerate(meta.bases)
        if base.shares_outside
    ]
    source.add(*[f"{name}.storage.export()" for name in names])


def hide(view: Tensor, version: int) -> Tensor:
    """A rebuilt hidden alias, or view of one, with its number of writes (TEN-10)."""
    if view._seen == view.storage.version:
        view._seen = version
    view.storage.version = version
    view.facts = None
    return view
