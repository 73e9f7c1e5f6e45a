"""`aotlite.autograd.graph`: tape nodes, gradient edges, and saved-tensor hooks. Rule: TEN-42."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.autograd.gradient_edge import GradientEdge, get_gradient_edge
from aotlite.eager.base.modes import STATE, watching
from aotlite.eager.base.storage import no_data
from aotlite.eager.base.tape.hooks import RemovableHandle
from aotlite.eager.base.tape.node import TapeNode as Node
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError, AutogradError

__all__ = [
    "GradientEdge",
    "Node",
    "RemovableHandle",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "saved_tensors_hooks",
]


class saved_tensors_hooks:
    """A block in which `pack_hook(tensor)` packs each tensor that is saved for backward.

    `unpack_hook` turns its result into a tensor again when a backward needs it. The innermost block
    counts.

    >>> import aotlite as al
    >>> x = al.ones(2, requires_grad=True)
    >>> with saved_tensors_hooks(lambda t: t.tolist(), lambda kept: 3 * al.tensor(kept)):
    ...     y = x * x
    >>> y.sum().backward()
    >>> x.grad
    tensor([6., 6.])
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise ArgumentError(
                    f"saved_tensors_hooks: argument {name!r} is {hook!r}, expected a function"
                )
        self._hooks = pack_hook, unpack_hook
        self._blocks: list[Any] = []

    def __enter__(self) -> None:
        watch = STATE.watch
        if watch is not None and watch.forbidden is not None:
            raise AutogradError(watch.forbidden)
        self._blocks.append(watching(pack=self._hooks))
        self._blocks[-1].__enter__()

    def __exit__(self, *exc: object) -> None:
        self._blocks.pop().__exit__(None, None, None)


class disable_saved_tensors_hooks:
    """A block in which entering `saved_tensors_hooks` raises AutogradError with this message."""

    def __init__(self, error_message: str) -> None:
        self._message = error_message
        self._blocks: list[Any] = []

    def __enter__(self) -> None:
        watch = STATE.watch
        if watch is not None and watch.pack is not None:
            raise AutogradError(self._message)
        self._blocks.append(watching(forbidden=self._message))
        self._blocks[-1].__enter__()

    def __exit__(self, *exc: object) -> None:
        self._blocks.pop().__exit__(None, None, None)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Increments the version of tensors that were written by other means than ops.

    A backward that needs their saved values raises then. Inference tensors have no version, and are
    ignored.
    """
    recorder = STATE.recorder
    if recorder is not None:
        raise recorder.refuse("increment_version", "call it outside the compiled function")
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if each.storage.capture is not None:
            raise no_data("increment_version", each.storage)
        each.storage.version += 1
