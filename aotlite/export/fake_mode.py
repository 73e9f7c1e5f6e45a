"""`FakeTensorMode`: tensors without data, for Modules too large for memory, and for traces.

In its block every op computes a meta and no values, as in a capture: its recorder is that of
stage 1, whose graph nobody reads. Rules: EXP-18, EXP-19. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary, ref

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError, ExportError, noted
from aotlite.ir.graph import Constant, Node
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.pipeline.size_regions.tensor_marks import mark_dynamic
from aotlite.stages.s1_capture.as_strided_extents import check_in_storage
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder

__all__ = ["FakeMode", "FakeTensorMode", "check_one_mode"]


class _FakeRecorder(CaptureRecorder):
    """The recorder behind a mode; it keeps no node, and takes no tensor from outside."""

    is_fake_mode = True
    mode: FakeTensorMode

    def _lift(self, tensor: Tensor) -> Tensor:
        is_plain = tensor.storage.capture is None and not is_wrapper(tensor)
        if self.mode.allow_non_fake_inputs and is_plain:
            return self.mode.from_tensor(tensor)
        return super()._lift(tensor)

    def _check_geometry(self, op: Any, args: tuple[Any, ...], meta: Any) -> None:
        """A fake may show a part of its tensor's memory: windows may leave the part."""
        have = self.mode.nbytes.get(args[0].storage)
        if have is None or op is not AS_STRIDED:
            super()._check_geometry(op, args, meta)
        else:
            check_in_storage(op, meta, args[0].offset + AS_STRIDED.start(args), have)

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        buffers = [self.mode.buffer_of(each.storage) for each in (a, b)]
        shared = buffers[0] is not None and buffers[0] is buffers[1]
        return shared or super().is_one_memory(a, b)

    def add_node(self, op: Any, args: tuple[Any, ...], meta: Any) -> Node:
        node = super().add_node(op, args, meta)
        self.nodes.clear()
        return node

    def _refuse_placeless(self, tensor: Tensor) -> Exception:
        return self.refuse(
            f"a tensor {tensor.meta} with data among tensors of a fake mode",
            "take mode.from_tensor(tensor) in its place",
        )


def _nothing() -> None:
    """The function of a mode, which is none: nothing can be reached from it."""


class FakeTensorMode:
    """A block in which tensors have a shape, dtype, strides and history, and no data.

    Modules that are made inside have fake parameters. `aot_export_module` takes such Modules and
    tensors; a value that is asked of one raises UnsupportedError. A mode can be entered again.
    With `allow_non_fake_inputs`, an op that meets a tensor with data takes a fake in its place.
    `aotlite.export.FakeMode` is the same class.

    >>> import aotlite as al
    >>> from aotlite.export import FakeTensorMode, aot_export_module
    >>> mode = FakeTensorMode()
    >>> with mode:
    ...     layer = al.nn.Sequential(al.nn.Linear(1_000_000, 1_000_000))
    ...     x = al.ones(2, 1_000_000)
    >>> class Step(al.nn.Module):
    ...     def __init__(self):
    ...         self.layer = layer
    ...     def forward(self, x):
    ...         return (self.layer(x).sum(),)
    >>> graph, signature = aot_export_module(Step(), (x,))
    >>> [str(node.meta) for node in graph.placeholders]
    ['f32[1000000, 1000000]', 'f32[1000000]', 'f32[2, 1000000]']
    """

    def __init__(self, *, allow_non_fake_inputs: bool = False) -> None:
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self._recorder = _FakeRecorder(_nothing, [], HookDryRun)
        self._recorder.mode = self
        self._recorder.note_surroundings()
        self._fakes: dict[int, tuple[ref[Tensor], Tensor]] = {}
        """By the id of a tensor with data: it, and its fake."""
        self.nbytes: WeakKeyDictionary[Storage, int] = WeakKeyDictionary()
        """By the storage of a fake: the bytes of its tensor's memory."""
        self._reals: WeakKeyDictionary[Storage, ref[Storage]] = WeakKeyDictionary()
        """By the storage of a fake: its tensor's."""
        self._storages: WeakKeyDictionary[Storage, Storage] = WeakKeyDictionary()
        self._before: list[tuple[Any, Any]] = []

    def __enter__(self) -> FakeTensorMode:
        if STATE.recorder is not None and STATE.recorder is not self._recorder:
            raise ArgumentError(
                "FakeTensorMode: a function is captured, or another fake mode is active, expected "
                "neither"
            )
        self._before.append((STATE.recorder, STATE.watch))
        STATE.recorder, STATE.watch = self._recorder, None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        STATE.recorder, STATE.watch = self._before.pop()

    def from_tensor(self, tensor: Tensor, *, dynamic: Iterable[int] = ()) -> Tensor:
        """A fake like this tensor: its class, shape, dtype, strides, and whether it requires grad.

        A tensor has one fake, and fakes share memory where their tensors do. `dynamic` lists
        dimensions whose sizes are symbols where the fake is exported (EXP-19). Raises ArgumentError
        for a wrapper or anything but a tensor.
        """
        if not isinstance(tensor, Tensor) or is_wrapper(tensor):
            raise ArgumentError(
                f"FakeTensorMode: from_tensor got {tensor!r}, expected a plain tensor"
            )
        if tensor.storage.capture is self._recorder:
            return tensor
        known = self._fakes.get(id(tensor))
        if known is not None and known[0]() is tensor and not dynamic:
            return known[1]
        made = Tensor(self._storage_of(tensor.storage), tensor.meta, tensor.offset)
        made.value = Node("get_attr", Constant("fake", None), meta=tensor.meta)
        kinds: dict[type[Tensor], Callable[..., Tensor]] = {Parameter: Parameter, Buffer: Buffer}
        make, requires_grad = kinds.get(type(tensor)), tensor.requires_grad_outside()
        with self:
            if make is Parameter:
                made = Parameter(made, requires_grad=requires_grad)
            elif make is not None:
                made = make(made)
            elif requires_grad:
                made.requires_grad_()
        if dynamic:
            mark_dynamic(made, list(dynamic))
        self._fakes[id(tensor)] = ref(tensor), made
        return made

    def _storage_of(self, storage: Storage) -> Storage:
        if storage not in self._storages:
            made = self._storages[storage] = Storage(None, capture=self._recorder)
            self._reals[made] = ref(storage)
            if storage.buffer is not None:
                self.nbytes[made] = storage.buffer.nbytes
        return self._storages[storage]

    def buffer_of(self, storage: Storage) -> object:
        """The memory with data that a fake's storage stands for; None if there is none."""
        real = self._reals.get(storage)
        found = None if real is None else real()
        return None if found is None else found.buffer


FakeMode = FakeTensorMode


def check_one_mode(tensors: Iterable[object]) -> None:
    """Raises ExportError where tensors of two fake modes are among the inputs (EXP-18)."""
    modes: dict[int, Tensor] = {}
    for each in tensors:
        if isinstance(each, Tensor) and getattr(each.storage.capture, "is_fake_mode", False):
            modes.setdefault(id(each.storage.capture), each)
    if len(modes) > 1:
        first, second = list(modes.values())[:2]
        raise noted(
            ExportError(
                f"export: inputs {first.meta} and {second.meta} belong to two fake modes, expected "
                "one for the Module and its inputs"
            ),
            "Make all of them in blocks of one FakeMode, or by its from_tensor. (EXP-18)",
        )
