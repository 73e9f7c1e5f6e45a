"""Mutations of tensors that are not ops: `detach_`, `requires_grad_`, `set_`, `resize_`.

They change autograd state or storage, and leave no node. Each is recorded with the number of nodes
before it; stage 2 orders them among the writes (`s2_analyze/mutation_order.py`).
Rules: FUN-18, FUN-36. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

import attrs

from aotlite.eager.autograd.differentiable_views import accumulator, root_of
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import take_place, tell_apart
from aotlite.ir.graph import Node, Phase
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.records.metadata.function_facts import StateStep
from aotlite.stages.records.metadata.metadata_mutation import (
    MemoryReplacement,
    MetadataMutation,
    StorageGrowth,
)
from aotlite.stages.records.version_counts import CountStep
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.s1_capture.storage_resize import resized


@attrs.define(eq=False, repr=False)
class VersionCounts:
    """Writes to storages between `set_` calls, from which the final version counters follow.

    At `set_` the version of the new storage becomes at least that of the old one. So the final
    version depends on those of both at entry: a maximum, not a constant (TEN-26).
    """

    storages: list[Storage] = attrs.field(factory=list)
    steps: list[CountStep] = attrs.field(factory=list)
    _known: list[int] = attrs.field(factory=list)

    def put(self, old: Storage, new: Storage) -> None:
        """Records that a tensor moved from storage `old` to `new`."""
        places = self._place(old), self._place(new)
        writes = [self._since(place) for place in places]
        tell_apart(old, new)
        for place in places:
            self._known[place] = self.storages[place].version
        self.steps.append(CountStep(*places, writes[0], writes[1] if old is not new else 0))

    def rest(self) -> tuple[int, ...]:
        """The number of writes to each storage since the last step."""
        return tuple([self._since(place) for place in range(len(self.storages))])

    def _since(self, place: int) -> int:
        return self.storages[place].version - self._known[place]

    def _place(self, storage: Storage) -> int:
        for place, known in enumerate(self.storages):
            if known is storage:
                return place
        self.storages.append(storage)
        self._known.append(0)
        return len(self.storages) - 1


@attrs.define(eq=False, repr=False)
class MetadataMutations:
    """The metadata mutations of one capture, by input, in order. The eager layer reports them."""

    _recorder: CaptureTrace
    of: dict[InputRole, list[MetadataMutation]] = attrs.field(factory=dict)
    puts: dict[Node, MemoryReplacement] = attrs.field(factory=dict)
    """`set_` and growing `resize_` of inputs, by the graph value that the input had then."""
    moved: dict[int, Tensor] = attrs.field(factory=dict)
    """Tensors made by the function that were given another storage, by id."""
    counts: VersionCounts = attrs.field(factory=VersionCounts)
    growths: list[StorageGrowth] = attrs.field(factory=list)
    sizes: dict[InputRole, int] = attrs.field(factory=dict)
    """The size in bytes, at entry, of the storages of inputs that grow."""
    viewed: set[InputRole] = attrs.field(factory=set)
    """Inputs of which it mattered whether they are views: guards pin that."""

    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """Records `requires_grad_()`, which makes a tensor a leaf, or `requires_grad_(False)`.

        Returns whether the tensor stands for a view: its own views keep their history (TEN-23).
        """
        self._recorder.unrecorded = True
        given = self._recorder.input_of(tensor)
        if given is None:
            return False
        self._note(given, StateStep.TRACK if requires_grad else StateStep.UNTRACK)
        node = accumulator(tensor)
        if requires_grad and (given.entry is None or given.entry[0] is not node):
            later = attrs.evolve(given, leaf_entry=(node, 0))
            self._recorder.replace_input(given, later)
        is_view = self._is_view(given)
        if is_view:
            root_of(tensor)
        return is_view

    def _is_view(self, given: CapturedInput) -> bool:
        """Whether the input is a view: after `set_` it is none."""
        self.viewed.add(given.role)
        put = any(p.role == given.role and not p.grows for p in self.puts.values())
        return not put and self._recorder.real_of(given.fake)._base is not None

    def detached(self, tensor: Tensor) -> bool:
        """Records `detach_()`; returns whether the tensor stands for a view."""
        self._recorder.unrecorded = True
        given = self._recorder.input_of(tensor)
        if given is None:
            return False
        self._note(given, StateStep.DETACH)
        return self._is_view(given)

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """Executes `set_`: gives the tensor the storage and geometry of `window`."""
        recorder = self._recorder
        recorder.check_is_argument(tensor, "set_")
        recorder.unrecorded = True
        given = recorder.input_of(tensor)
        if given is not None:
            self._note(given, window.value)
            left = tensor._root
            node = None if left is None else left.node
            self.puts[window.value] = MemoryReplacement(
                given.role, window.storage, left=left, history=node, before=tensor.value
            )
        else:
            self.moved[id(tensor)] = tensor
        before = tensor.storage
        take_place(tensor, window)
        self.counts.put(before, window.storage)
        tensor.value = window.value

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """Executes `resize_`: gives the tensor the geometry `meta`, on larger memory if needed."""
        recorder = self._recorder
        recorder.check_is_argument(tensor, "resize_")
        tensor.value, growth = resized(recorder, tensor, meta)
        if growth is None:
            return
        recorder.unrecorded = True
        self.growths.append(growth)
        given = recorder.input_of(tensor)
        if given is not None:
            self._note(given, growth.value)
            self.puts[growth.value] = MemoryReplacement(given.role, tensor.storage, grows=True)

    def check_old(self, root: Node, name: str) -> None:
        """Refuses `as_strided` on memory that grew since: its node has the old elements only."""
        if any(growth.old is root for growth in self.growths):
            raise self._recorder.refuse(
                f"{name} on memory that resize_ made grow", "take the window of what was resized"
            )

    def _note(self, given: CapturedInput, step: StateStep | Node) -> None:
        if self._recorder.phase is Phase.BACKWARD:
            raise self._recorder.refuse(
                "a change of the state of a tensor from outside in a backward",
                "do it in a hook that uses nothing of the compiled function, or outside",
            )
        self.of.setdefault(given.role, []).append(MetadataMutation(step, len(self._recorder.nodes)))
