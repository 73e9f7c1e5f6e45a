"""`FakeMode`: tensors without data, of which Modules too large for memory are made and exported.

In its block every op computes a meta and no values, as in a capture: its recorder is that of
stage 1, whose graph nobody reads. Rules: EXP-18, EXP-19. Spec: `specs/export.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError, ExportError, noted
from aotlite.ir.graph import Constant, Node
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.pipeline.size_regions.tensor_marks import mark_dynamic
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder

__all__ = ["FakeMode", "check_one_mode"]


class _FakeRecorder(CaptureRecorder):
    """The recorder behind a mode; it keeps no node, and takes no tensor from outside."""

    is_fake_mode = True

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


class FakeMode:
    """A block in which tensors have a shape, dtype, strides and history, and no data.

    Modules that are made inside have fake parameters. `aot_export_module` takes such Modules and
    tensors; a value that is asked of one raises UnsupportedError. A mode can be entered again.

    >>> import aotlite as al
    >>> from aotlite.export import FakeMode, aot_export_module
    >>> mode = FakeMode()
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

    def __init__(self) -> None:
        self._recorder = _FakeRecorder(_nothing, [], HookDryRun)
        self._recorder.note_surroundings()
        self._before: list[tuple[Any, Any]] = []

    def __enter__(self) -> FakeMode:
        if STATE.recorder is not None and STATE.recorder is not self._recorder:
            raise ArgumentError(
                "FakeMode: a function is captured, or another fake mode is active, expected neither"
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

        `dynamic` lists dimensions whose sizes are symbols where the fake is exported (EXP-19).
        Raises ArgumentError for a wrapper or anything but a tensor.
        """
        if not isinstance(tensor, Tensor) or is_wrapper(tensor):
            raise ArgumentError(f"FakeMode: from_tensor got {tensor!r}, expected a plain tensor")
        made = Tensor(Storage(None, capture=self._recorder), tensor.meta, tensor.offset)
        made.value = Node("get_attr", Constant("fake", None), meta=tensor.meta)
        kinds: dict[type[Tensor], Callable[..., Tensor]] = {Parameter: Parameter, Buffer: Buffer}
        make, requires_grad = kinds.get(type(tensor)), tensor.requires_grad
        with self:
            if make is Parameter:
                made = Parameter(made, requires_grad=requires_grad)
            elif make is not None:
                made = make(made)
            elif requires_grad:
                made.requires_grad_()
        if dynamic:
            mark_dynamic(made, list(dynamic))
        return made


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
