"""`Names`: the descriptors of one entry's roles, by the paths of a call.

Roles count: `Hidden(3)`. A call and the entry that takes it know what is behind the numbers: the
containers of the arguments, the Modules that the function reaches, the containers of the results.
Rules: TRC-8. Spec: `specs/descriptors.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import attrs

from aotlite.descriptors import kinds
from aotlite.descriptors.kinds import AnyDescriptor, Key
from aotlite.descriptors.place_words import parameter_names, words_of
from aotlite.eager.tracked_objects import own_attributes
from aotlite.ir.graph import Graph
from aotlite.ir.graph import role as roles
from aotlite.ir.graph.symbolic.binding import parameters_of
from aotlite.nn.module import Module, state_places
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.pipeline.arguments import FlatArguments, call_of
from aotlite.pipeline.containers.argument_writes import writes_containers
from aotlite.pipeline.containers.leaf_paths import leaf_paths, paths_in
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Containers
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.records.metadata.function_facts import AliasOfBase
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.synthetic_base import BaseInput
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex


@attrs.frozen(eq=False)
class GraphDescriptors:
    """The descriptors of one graph's inputs and outputs, in order."""

    inputs: tuple[AnyDescriptor, ...]
    outputs: tuple[AnyDescriptor, ...]
    sizes: Mapping[str, AnyDescriptor] = attrs.field(factory=dict)
    """The symbols that no input binds, by name: parameters behind the inputs (GRA-16)."""

    def __str__(self) -> str:
        lines = [f"input {i}: {each}" for i, each in enumerate(self.inputs)]
        lines += [f"size {name}: {each}" for name, each in self.sizes.items()]
        lines += [f"output {i}: {each}" for i, each in enumerate(self.outputs)]
        return "\n".join(lines)


_Owner = tuple[AccessPath, str]
"""The way to a Module, and a qualified name in it."""


class EntryRecords(Protocol):
    """The records of a compiled entry, or of an export, of which roles are described."""

    @property
    def meta(self) -> FunctionMeta:
        """The function's metadata."""

    @property
    def convention(self) -> Convention | None:
        """The inputs in order, with synthetic bases."""

    @property
    def partition(self) -> Partition:
        """The graphs, with the saved values."""

    @property
    def containers(self) -> Containers:
        """The containers of the results."""

    @property
    def hidden(self) -> Mapping[int, AccessPath]:
        """Where the hidden inputs are found, by number."""


class Names:
    """Describes the roles of the graphs of one entry, for calls of one form."""

    def __init__(
        self, function: Callable[..., Any], call: FlatArguments, entry: EntryRecords
    ) -> None:
        self.function, self.call, self.entry = function, call, entry
        self.parameters = parameter_names(function)
        """The names of the parameters that positional arguments fill, in order."""
        self.owners: dict[int, _Owner] = {}
        """The ways to the Modules that hold hidden inputs, and the names in them, by the number of
        the input."""
        self._described: dict[int, Callable[..., AnyDescriptor]] | None = None
        """What makes the descriptors of hidden inputs, by number."""
        self._states: dict[int, dict[int, list[str]]] = {}
        self._places: AccessPathIndex | None = None
        whole: Any = (call.args, call.kwargs)
        self._leaf_paths = leaf_paths(whole)
        spec = entry.containers.spec
        self._result_paths = [] if spec is None else paths_in(spec)
        if writes_containers(spec):  # those of results, and of what is put into arguments
            self._result_paths = [at[1:] if at[0] == 0 else at for at in self._result_paths]

    def of_graph(self, graph: Graph) -> GraphDescriptors:
        """The descriptors of a graph of this entry, at any stage after the third."""
        inputs = tuple([self.of(node.role) for node in graph.placeholders])
        outputs = tuple([self._after(self.of(role)) for role in graph.output_roles])
        sizes = {name: role for name, role in parameters_of(graph).items() if role is not None}
        return GraphDescriptors(inputs, outputs, {name: self.of(sizes[name]) for name in sizes})

    def _after(self, descriptor: AnyDescriptor) -> AnyDescriptor:
        """The descriptor of an output: a token has one role before its effect and after it."""
        if not isinstance(descriptor, kinds.TokenInput):
            return descriptor
        return kinds.TokenOutput(descriptor.effect, descriptor.of_backward, role=descriptor.role)

    def of(self, role: Any) -> AnyDescriptor:
        """The descriptor of a role."""
        make = _MAKERS.get(type(role))
        if make is None:
            return kinds.NumberedInput(str(role).replace("_", " "), role=role)
        return make(self, role)

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat arguments of another call of this form, with tensors for ndarrays."""
        return call_of(tuple(args), dict(kwargs)).leaves

    # --- inputs
    def _argument(self, role: roles.Primal) -> AnyDescriptor:
        return kinds.PlainInput(self.argument_path(role.index), role=role)

    def argument_path(self, index: int) -> tuple[Key, ...]:
        """The path of a flat argument: the function's parameter, and the keys from there."""
        which, first, *rest = self._leaf_paths[index]
        if which == 1:
            return (first, *rest)
        if first < len(self.parameters):
            return (self.parameters[first], *rest)
        return ("args", first - len(self.parameters), *rest)

    def _hidden(self, role: roles.Hidden) -> AnyDescriptor:
        if self._described is None:
            self._described = self._of_places()
        make = self._described.get(role.index)
        return kinds.ReachedInput(role.place, role=role) if make is None else make(role=role)

    def _of_places(self) -> dict[int, Callable[..., AnyDescriptor]]:
        """What makes the descriptors of hidden inputs, by number. Each name is that of one."""
        hidden = self.entry.hidden
        names = {index: self._names(way) for index, way in hidden.items()}
        first = Counter([next(iter(found), "") for found in names.values()])
        made: dict[int, Callable[..., AnyDescriptor]] = {}
        taken: set[str] = set()
        for index, way in hidden.items():
            found = names[index]
            if not found:
                made[index] = partial(kinds.ReachedInput, self._words(way) or str(way))
                continue
            if first[next(iter(found))] > 1:  # two functions have a variable of one name
                found = self._names(way, is_whole=True)
            name, *also = found
            self.owners[index] = found[name]
            name = f"{name} ({index})" if name in taken else name
            taken.add(name)
            is_parameter = isinstance(way.resolve(self.call.leaves), Parameter)
            kind = kinds.ParamInput if is_parameter else kinds.BufferInput
            made[index] = partial(kind, name, str(way), tuple(also))
        return made

    def _names(self, way: AccessPath, *, is_whole: bool = False) -> dict[str, _Owner]:
        """The names of a parameter or buffer in the outermost Modules on the ways to it."""
        held = way.resolve(self.call.leaves)
        found: dict[str, _Owner] = {}
        if not isinstance(held, (Parameter, Buffer)):
            return found
        for each in (way, *self._index(way).all_of(held)):
            for end in range(len(each.path)):
                to_module = AccessPath(each.argument, each.function, each.path[:end])
                module = to_module.resolve(self.call.leaves)
                if isinstance(module, Module) and (names := self._state_of(module).get(id(held))):
                    before = self._words(to_module, is_whole=is_whole)
                    for name in names:
                        text = f"{before}.{name}" if before else name
                        found.setdefault(text, (to_module, name))
                    break
        return found

    def _state_of(self, module: Module) -> dict[int, list[str]]:
        """The qualified names of the parameters and buffers of a Module, by their ids."""
        if id(module) not in self._states:
            found = self._states[id(module)] = {}
            for each in state_places(module):
                held = own_attributes(each.owner)[each.name]
                found.setdefault(id(held), []).append(each.path)
        return self._states[id(module)]

    def _index(self, way: AccessPath) -> AccessPathIndex:
        if self._places is None:
            self._places = AccessPathIndex(way.function, self.call.leaves)
        return self._places

    def _words(self, way: AccessPath, *, is_whole: bool = False) -> str:
        arguments = [kinds.path_text(self.argument_path(k)) for k in range(len(self._leaf_paths))]
        return words_of(way, self.call.leaves, arguments, is_whole=is_whole)

    def base(self, role: roles.Role) -> BaseInput:
        """How the memory of a synthetic base is made from its members."""
        bases = () if self.entry.convention is None else self.entry.convention.bases
        return next(each for each in bases if each.role == role)

    def _base(self, role: roles.SyntheticBase) -> AnyDescriptor:
        of = tuple([self.of(each.role) for each in self.base(role).members])
        return kinds.SyntheticBaseInput(of, role=role)  # type: ignore[arg-type]

    def _family(self, role: roles.Family) -> AnyDescriptor:
        members = next((f.members for f in self.entry.meta.families if f.role == role), ())
        of = tuple([self.of(each) for each in members])
        return kinds.ViewBaseInput(of, role=role)  # type: ignore[arg-type]

    # --- outputs
    def _result(self, role: roles.Output) -> AnyDescriptor:
        if role.symbol:
            return kinds.ComputedSizeOutput(role.symbol, role=role)
        if role.index < len(self._result_paths):
            return kinds.PlainOutput(tuple(self._result_paths[role.index]), role=role)
        for write in self.entry.meta.grads:
            if write.result == role.index:
                return kinds.GradWriteOutput(self.of(write.role), role=role)
        return kinds.NumberedInput(str(role), role=role)

    def _intermediate(self, role: roles.IntermediateBase) -> AnyDescriptor:
        meta = self.entry.meta
        views = [
            self.of(meta.role_of(index))
            for index, output in enumerate(meta.outputs)
            if isinstance(output, AliasOfBase) and output.base == role.index
        ]
        return kinds.IntermediateBaseOutput(tuple(views), role=role)  # type: ignore[arg-type]

    # --- between the graphs
    def _saved(self, role: roles.Saved) -> AnyDescriptor:
        if role.index >= len(self.entry.partition.saved):
            return kinds.SavedValueDescriptor(str(role), None, False, role=role)
        saved = self.entry.partition.saved[role.index]
        owner = None if saved.owner is None else self.of(saved.owner)
        is_checked = owner is not None and not saved.copied_on_write
        return kinds.SavedValueDescriptor(saved.name, owner, is_checked, role=role)

    def _saved_size(self, role: roles.SavedSize) -> AnyDescriptor:
        name = self.entry.partition.saved_sizes[role.index]
        return kinds.SavedValueDescriptor(name, None, False, True, role=role)


def _of(kind: Callable[..., AnyDescriptor]) -> Callable[[Names, Any], AnyDescriptor]:
    return lambda names, role: kind(names.of(role.of), role=role)


def _part(names: Names, role: roles.Part) -> AnyDescriptor:
    return kinds.SubclassPart(names.of(role.of), role.attr, role=role)


def _size(names: Names, role: roles.Size) -> AnyDescriptor:
    return kinds.SizeInput(names.of(role.of), role.dim, role=role)  # type: ignore[arg-type]


def _state(
    kind: Callable[..., AnyDescriptor], field: str, of_backward: bool = False
) -> Callable[[Names, Any], AnyDescriptor]:
    return lambda names, role: kind(field, of_backward, role=role)


def _token(of_backward: bool) -> Callable[[Names, Any], AnyDescriptor]:
    return lambda names, role: kinds.TokenInput(role.effect, of_backward, role=role)


_MAKERS: Mapping[type, Callable[[Names, Any], AnyDescriptor]] = {
    roles.Primal: Names._argument,
    roles.Hidden: Names._hidden,
    roles.SyntheticBase: Names._base,
    roles.Family: Names._family,
    roles.Part: _part,
    roles.Piece: _part,
    roles.Size: _size,
    roles.Token: _token(of_backward=False),
    roles.BackwardToken: _token(of_backward=True),
    roles.Seed: _state(kinds.RandomStateInput, "seed"),
    roles.Offset: _state(kinds.RandomStateInput, "offset"),
    roles.BackwardSeed: _state(kinds.RandomStateInput, "seed", of_backward=True),
    roles.BackwardOffset: _state(kinds.RandomStateInput, "offset", of_backward=True),
    roles.Tangent: _of(kinds.TangentInput),
    roles.Current: _of(kinds.CurrentInput),
    roles.Arrived: lambda names, role: kinds.ArrivedInput(role.index, role=role),
    roles.Output: Names._result,
    roles.MutatedInput: _of(kinds.InputMutationOutput),
    roles.IntermediateBase: Names._intermediate,
    roles.NextSeed: _state(kinds.RandomStateOutput, "seed"),
    roles.NextOffset: _state(kinds.RandomStateOutput, "offset"),
    roles.NextBackwardSeed: _state(kinds.RandomStateOutput, "seed", of_backward=True),
    roles.NextBackwardOffset: _state(kinds.RandomStateOutput, "offset", of_backward=True),
    roles.Gradient: _of(kinds.GradOutput),
    roles.Saved: Names._saved,
    roles.SavedSize: Names._saved_size,
    roles.Rewritten: _of(kinds.RewrittenOutput),
}
