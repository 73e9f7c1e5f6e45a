"""What a captured function does to its inputs that is no op: changes of autograd state and memory.

The recorder notes each change with its place among the recorded nodes; stage 2 asks for them
(`timeline.py`). Rules: FUN-18, FUN-36. Spec: `specs/s1_capture.md`.
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


class MetadataMutations:
    """The changes of one capture, in order, by input. The eager layer tells them."""

    def __init__(self, recorder: CaptureTrace) -> None:
        self._recorder = recorder
        self.of: dict[InputRole, list[MetadataMutation]] = {}
        self.puts: dict[Node, MemoryReplacement] = {}
        """The inputs that were put onto other memory, by the values that they then had."""
        self.moved: dict[int, Tensor] = {}
        """The tensors of the function's own that were put onto other memory, by their id."""
        self.counts = VersionCounts()
        self.growths: list[StorageGrowth] = []
        self.sizes: dict[InputRole, int] = {}
        """The bytes of the storages of inputs that grow."""
        self.viewed: set[InputRole] = set()
        """Inputs that were asked whether they are views."""

    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """The tensor is about to be a leaf that requires grad, or one no longer; whether it stands
        for a view, which its own views do not follow (TEN-23).
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
        """Whether the input is a view: on other memory it is none."""
        self.viewed.add(given.role)
        put = any(p.role == given.role and not p.grows for p in self.puts.values())
        return not put and self._recorder.real_of(given.fake)._base is not None

    def detached(self, tensor: Tensor) -> bool:
        """The tensor is taken out of its history; whether it stands for a view."""
        self._recorder.unrecorded = True
        given = self._recorder.input_of(tensor)
        if given is None:
            return False
        self._note(given, StateStep.DETACH)
        return self._is_view(given)

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """Puts the tensor where the window is, on other memory."""
        recorder = self._recorder
        recorder.check_is_argument(tensor, "set_")
        recorder.unrecorded = True
        given = recorder.input_of(tensor)
        if given is not None:
            self._note(given, window.value)
            left = tensor._root
            node = None if left is None else left.node
            self.puts[window.value] = MemoryReplacement(
                given.role, window.storage, left=left, history=node
            )
        else:
            self.moved[id(tensor)] = tensor
        before = tensor.storage
        take_place(tensor, window)
        self.counts.put(before, window.storage)
        tensor.value = window.value

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """The tensor is about to be this window from its first element on."""
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
        """Refuses a window on memory that has grown since, of which the graph has the old part."""
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


class VersionCounts:
    """How often storages were written before and after tensors were put from one onto another.

    Then the one's count becomes at least the other's: what a count is in the end depends on what
    both were at entry (TEN-26).
    """

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.steps: list[CountStep] = []
        self._known: list[int] = []

    def put(self, old: Storage, new: Storage) -> None:
        """A tensor is put from the old storage onto the new one."""
        places = self._place(old), self._place(new)
        writes = [self._since(place) for place in places]
        tell_apart(old, new)
        for place in places:
            self._known[place] = self.storages[place].version
        self.steps.append(CountStep(*places, writes[0], writes[1] if old is not new else 0))

    def rest(self) -> tuple[int, ...]:
        """The writes of each storage since the last step."""
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
