"""The interfaces of modes for their parts.

    OuterMode        a `ModeRecorder`, for `mode_state` and `state_changes`
    FunctionalMode   a `FunctionalRecorder`, for `input_memory` and `view_program`

Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.func.functional.memory import OutsideValues, TensorAlias, WrittenMemory
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op, RandomOp, ViewOp


class OuterMode(Protocol):
    """A mode that computes on tensors outside."""

    outer: tuple[Any, Any]
    """The recorder and the watch where the mode began."""
    given: dict[int, Tensor]
    """By the id of a stand-in of a tensor from outside: that tensor."""
    unrecorded: bool
    """Whether a hook is registered now."""
    storages: dict[int, tuple[Storage, Storage]]
    """By the id of a storage outside: it, and the one of its stand-ins."""
    eager_values: Any
    """The mode, if Python may ask for values; else None."""

    def outside(self, grad_mode: bool | None = None) -> AbstractContextManager[None]:
        """A block in which ops run outside."""

    def emit(self, op: Op, args: tuple[Any, ...], grad_mode: bool | None = None) -> Any:
        """The result of an op outside."""

    def here(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor."""

    def outer_of(self, tensor: Tensor) -> Tensor:
        """The tensor outside with the value of a stand-in."""

    def outer_args(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with tensors outside."""

    def drawn(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """The record of a draw."""

    def refuse(self, what: str, advice: str) -> Exception:
        """The error for what the mode cannot do."""


class FunctionalMode(OuterMode, Protocol):
    """The functional mode."""

    object_changes: dict[int, list[Any]]
    """By the id of a stand-in: the changes of that object."""
    versions: dict[int, int]
    """By the id of a storage outside: its version at entry."""

    first: dict[int, tuple[Tensor, TensorAlias, Storage]]
    """By the id of a stand-in that was given other memory: it, its first alias and storage."""
    grown: list[Tensor]
    """Tensors whose `resize_` made their memory longer."""

    @property
    def values(self) -> OutsideValues:
        """The ops that read and write values."""

    @property
    def input_memory(self) -> Any:
        """The memory of tensors from outside."""

    def alias(self, memory: WrittenMemory, chain: Any, start: int, meta: TensorMeta) -> TensorAlias:
        """A new alias of a memory."""

    def first_alias(self, stand_in: Tensor) -> TensorAlias:
        """The alias with which a tensor was made."""

    def first_storage(self, stand_in: Tensor) -> Storage:
        """The storage with which a tensor was made."""

    def moved(self, view: ViewOp, target: Tensor, rest: Any, meta: TensorMeta) -> TensorAlias:
        """The alias of a tensor that becomes this view of itself."""

    def note(self, change: Any) -> None:
        """Notes a change that is replayed on the object when the function has returned."""

    def count(self, storage: Storage, more: int = 1) -> None:
        """Counts a write outside."""

    def here_outside(self, tensor: Tensor) -> Tensor:
        """A tensor of the caller's as ops outside see it."""
