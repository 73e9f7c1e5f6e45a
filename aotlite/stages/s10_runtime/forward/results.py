"""Generated lines that make the results: new tensors, wrappers, and views.

Used by `s10_runtime` alone. Rules: RT-6, META-8, SUB-5, SUB-6. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.autograd.nodes.gradient_forms import keep_form
from aotlite.ir.graph.role import IntermediateBase, Role
from aotlite.stages.records.capture import ArgumentLeaf
from aotlite.stages.records.metadata.function_facts import (
    Alias,
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    Fixed,
    IsInput,
    OutputMeta,
    Plain,
    Repeated,
    ViewFacts,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s10_runtime.forward.metadata_updates import MetadataUpdateWriter, hide
from aotlite.stages.s10_runtime.forward.variables import Variables
from aotlite.stages.s10_runtime.guards.guard_sources import name_of
from aotlite.stages.s10_runtime.plan import RuntimePlan
from aotlite.stages.s10_runtime.source import FunctionSource, chain_words
from aotlite.stages.s10_runtime.subclass_code import SubclassWriter
from aotlite.stages.s10_runtime.support import (
    QuickView,
    as_leaf,
    detached_view,
    is_detached,
    is_simple,
    linked_view,
    plain_view,
    rebuilt,
    rebuilt_after,
    with_own_history,
)


@attrs.define(eq=False, repr=False)
class ResultWriter:
    """Adds the lines that make the results."""

    plan: RuntimePlan
    source: FunctionSource
    variables: Variables
    changes: MetadataUpdateWriter
    meta: FunctionMeta = attrs.field(init=False)
    wraps: SubclassWriter = attrs.field(init=False)
    _places: dict[object, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.meta = self.plan.meta
        self.wraps = SubclassWriter(self.source)
        backward = self.plan.backward
        tangents = () if backward is None else backward.tangents
        self._places = {of: place for place, (of, _) in enumerate(tangents)}

    def give_history(self, role: Role) -> None:
        """Adds the lines that make the call's tape node a differentiable result's history."""
        index = self._places.get(role)
        if index is not None:
            name = self.variables.tensor(role)
            self.source.add(f"{name}._node = node", f"{name}.facts = None")
            if index:
                self.source.add(f"{name}._index = {index}")
            wrapping = self.meta.wrappers.get(role)
            if wrapping is not None and wrapping.kind.__tensor_gradient_form__ is not None:
                self.source.use(keep_form)
                self.source.add(f"keep_form({name})")

    def rebuild_early(self, index: int, output: AliasOfInput) -> None:
        """Rebuilds a view with ops: its history depends on the input's state at that time."""
        self._rebuild(index, name_of(output.role), output.view, output.role, quick=False)
        if output.outdated:
            self.source.add(f"{self.variables.results[index]}._seen = -1")

    def write(self) -> None:
        """Adds the lines of all results; each comes after the results from which it is made."""
        # A result that the function made a leaf comes before its views, whose history starts at it.
        for index, _ in sorted(enumerate(self.meta.outputs), key=rebuilt_after):
            self._result(index)

    def _result(self, index: int) -> str:
        """The variable of a result, which is made first if it does not exist yet."""
        if not self.variables.results[index] and index in self.meta.inside:
            of, name = self.meta.inside[index]
            self.variables.results[index] = f"r{index}"
            self.source.add(f"r{index} = {self._result(of)}.{name}")
        if not self.variables.results[index]:
            self.variables.results[index] = self._made(index, self.meta.outputs[index])
        return self.variables.results[index]

    def _made(self, index: int, output: OutputMeta) -> str:
        match output:
            case Plain(is_leaf=is_leaf):
                name = self._whole(self.meta.role_of(index), output.version)
                if is_leaf:
                    self.source.add(f"{name}._leaf, {name}.facts = True, None")
                return name
            case IsInput(role):
                return name_of(role)
            case AliasOfInput(role, view):
                return self._rebuild(index, name_of(role), view, role)
            case AliasOfBase(base, view):
                origin = self._whole(IntermediateBase(base), self.meta.bases[base].version)
                return self._rebuild(index, origin, view, IntermediateBase(base))
            case AliasOfOutput(of, view):
                return self._rebuild(index, self._result(of), view, self.meta.role_of(of))
            case Repeated(of):
                return self._result(of)
            case Fixed(ArgumentLeaf(leaf)):
                return f"a{leaf}"
            case Fixed(value):
                return self.source.literal(value)

    def _whole(self, role: Any, version: int) -> str:
        """The variable of a result or base that is no view; a wrapper is made from its parts."""
        if not self.variables.has_tensor(role):
            wrapping = self.meta.wrappers[role]
            own = len(self.variables.results) - len(self.meta.parts)
            places = {part: own + k for k, part in enumerate(self.meta.parts)}
            parts = [self._result(places[of]) for _, of, _ in wrapping.parts]
            self.variables.set_tensor(role, self.wraps.made(wrapping, parts))
            self.changes.set_version(role, version)
            self.give_history(role)
        return self.variables.tensor(role)

    def _rebuild(
        self, index: int, origin: str, view: ViewFacts, of: Role, *, quick: bool = True
    ) -> str:
        """The variable of a result that is a view of the tensor with role `of` (RT-6)."""
        name = self.variables.results[index] = f"r{index}"
        quick = quick and of not in self.meta.wrappers
        if quick and self.plan.fast_paths and self._is_quick(view):
            self.source.add(f"{name} = {self._quick_view(origin, view)}")
            return name
        self.changes.note_detached()
        self.source.use(rebuilt)
        how = self.source.record(view, "V", chain_words(view.chain))
        self.source.add(f"{name} = rebuilt({origin}, {how}, detached)")
        if view.version is not None:
            self.source.use(hide)
            self.source.add(f"hide({name}, {self.changes.count(view.version)})")
        if view.is_leaf:
            self.source.use(as_leaf)
            self.source.add(f"{name} = as_leaf({name})")
        if view.own_history:
            self._own_history(index, name, view)
        return name

    def _own_history(self, index: int, name: str, view: ViewFacts) -> None:
        """Sends the gradient of a view through the compiled backward (META-8)."""
        backward = self.plan.backward
        assert backward is not None
        number = [role for role, _ in backward.tangents].index(self.meta.role_of(index))
        kind = self.source.constant(view.kind, "K") if view.kind else "None"
        self.source.use(with_own_history)
        self.source.add(f"with_own_history({name}, node, {number}, {kind})")

    def _is_quick(self, view: ViewFacts) -> bool:
        """Whether the view is simple, or detached and shares no family, and no memory moves."""
        if is_detached(view):
            last = view.chain[-1]
            results = [output.view for output in self.meta.outputs if isinstance(output, Alias)]
            alone = [each is view or last not in each.chain.steps for each in results]
            return all(alone) and not any(each.changes for each in self.meta.inputs)
        return is_simple(view) and len(view.chain) > 0

    def _quick_view(self, origin: str, view: ViewFacts) -> str:
        quick = QuickView.of(view)
        make = linked_view if quick.nodes else plain_view
        if is_detached(view) or view.is_inference:
            make = detached_view
        self.source.use(make)
        text = f"{chain_words(view.chain)} -> {quick.meta}"
        return f"{make.__name__}({origin}, {self.source.record(quick, 'V', text)})"
