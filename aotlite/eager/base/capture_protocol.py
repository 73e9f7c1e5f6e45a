"""What the dispatcher asks of a running capture. Stage 1 implements it; eager knows no stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op, RandomOp

Tensor = Any
"""An eager tensor: its class stands on a floor above, and has the recorder asked."""


class InputChanges(Protocol):
    """Is told what happens to tensors besides ops, since inputs may be among them (FUN-36)."""

    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """The tensor is about to be a leaf that requires grad, or one no longer; whether it stands
        for a view, which its own views do not follow (TEN-23).
        """

    def detached(self, tensor: Tensor) -> bool:
        """The tensor is taken out of its history; whether it stands for a view."""

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """Puts the tensor where the window is, on other memory (TEN-26)."""

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """The tensor is about to be this window from its first element on (TEN-25)."""


class RngState(Protocol):
    """Keeps track of where the default generator stands while a function is captured (RNG-6)."""

    def draw(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """Records a draw; gives the graph value of its result."""

    def get(self) -> Any:
        """The present state: what `put` takes, and (seed, offset) only where that is known."""

    def put(self, state: Any) -> None:
        """Goes to a state of `get`, or to (seed, offset)."""

    def knows(self, state: Any) -> bool:
        """Whether this is a state that `get` gave. UnsupportedError for one of another capture."""

    def seed(self) -> int:
        """The present seed. UnsupportedError where each call has another."""

    def replaying(self, state: Any) -> AbstractContextManager[None]:
        """A block in which draws are made from a state of `get`."""


class Grads(Protocol):
    """What the `.grad` of tensors is while a function is captured (CAP-4, DBL-3)."""

    def read(self, tensor: Tensor) -> Tensor | None:
        """The `.grad` of a tensor."""

    def write(self, tensor: Tensor, value: Tensor | None) -> None:
        """Puts another tensor there, or None: that of a tensor from outside."""

    def add(self, leaf: Tensor, grads: list[Any]) -> None:
        """Adds the gradient, which `grads` holds, to that of a leaf from outside (TEN-29)."""


class HookProtocol(Protocol):
    """Is told of hooks that a captured function registers, and calls them (HOOK-1 to HOOK-4)."""

    def placed(self, kind: str, tensor: Tensor, edge: Any, handle: Any) -> None:
        """A hook was put at the edge of the tensor: on its gradient, or on what accumulates it."""

    def retained(self, tensor: Tensor) -> None:
        """The tensor retains its gradient from now on."""

    def removing(self, handle: Any) -> None:
        """A hook that the function registered is about to be removed."""

    def call(self, hook: Callable[..., Any], grad: Any) -> Any:
        """Calls a hook of a tensor while a backward is recorded."""

    def call_of_node(self, hook: Callable[..., Any], *grads: Any) -> Any:
        """Calls a hook of a tape node while a backward is recorded."""


class ScopeProtocol(Protocol):
    """Keeps track of the Module in which ops are run, and of the user's tags (SEQ-5)."""

    def enter(self, module: Any) -> Any:
        """A Module is called; gives what `leave` takes."""

    def tag(self, tags: Mapping[str, Any]) -> Any:
        """Adds tags, which nobody else holds, to those around; gives what `leave` takes."""

    def leave(self, before: Any) -> None:
        """Goes back to where the caller was."""

    @property
    def state(self) -> Any:
        """Where the program is now: `leave` goes there."""


class Recorder(Protocol):
    """Records the ops that run while it is the thread's recorder."""

    origin: Any
    """The node whose gradient is being computed."""
    refusal: BaseException | None
    """The first refusal that users' Python has met, and may have caught (CAP-13)."""
    failed: Any
    """The tape node that could not be run, if one could not."""
    recompute: bool | None
    """What is recorded now is to be computed again, in the place where it stands (PART-17)."""
    unrecorded: bool
    """Autograd state changed by what no op says: custom functions, requires_grad_, detach_."""

    @property
    def grads(self) -> Grads:
        """What is asked for gradients, and told of them."""

    @property
    def hooks(self) -> HookProtocol:
        """What is told of hooks."""

    @property
    def streams(self) -> RngState:
        """What is told of draws, and of changes of the generator."""

    @property
    def changes(self) -> InputChanges:
        """What is told of changes that are no ops."""

    def admit(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with each tensor from outside the capture replaced by its fake."""

    def here(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for this one during the capture: itself, or its fake."""

    def record(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        """Records a call; gives the graph value of its result, a tuple for several results."""

    def record_wrapped(
        self, op: Op, args: tuple[Any, ...], outs: tuple[Tensor, ...], meta: Any
    ) -> tuple[Any, ...]:
        """Notes a call that gives or writes wrappers; the graph value of each of its results.

        What their parts come of was recorded when the class computed it.
        """

    def refuse(self, what: str, advice: str) -> Exception:
        """An UnsupportedError about something that a capture cannot do, with the user's line."""

    def is_outside(self, tensor: Tensor) -> bool:
        """Whether the tensor, or the one it stands for, existed before the capture."""

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        """Whether two fakes stand for tensors on one memory, with storages of their own perhaps."""

    def ask_gradients(self, inputs: Sequence[Any]) -> None:
        """Refuses gradients of inputs with hooks, which would have to run at each call (TEN-41)."""

    def check_paths(self, starts: Sequence[Any], sinks: Sequence[Any]) -> None:
        """Refuses gradients on whose way lies the history that an input has outside (CAP-6)."""

    def note_offset_read(self, tensor: Tensor) -> None:
        """The program depends on where this tensor starts in its storage: guard it."""

    def run_before(self, node: Any) -> None:
        """A tape node is about to run: what is recorded next is its backward (SEQ-4)."""

    def backward_inside(self) -> AbstractContextManager[None]:
        """A block that is a backward which the captured function runs itself (SEQ-1, DBL-3)."""

    def summed(self, add: Callable[..., Any], *args: Any) -> Any:
        """What `add` gives, whose nodes add up gradients of several uses (SEQ-5)."""

    @property
    def scopes(self) -> ScopeProtocol:
        """What is told in which part of the user's program ops are run."""

    def count_tape_node(self) -> None:
        """The op recorded last made a tape node: the next one has another number (SEQ-1)."""

    def read_attribute(self, owner: Any, name: str, value: Any) -> Any:
        """The value to use for an attribute of a Module or optimizer that is read (CAP-5)."""

    def read_absent(self, owner: Any, name: str) -> None:
        """An attribute of a Module or optimizer was asked for that it does not have (CAP-5)."""

    def created(self, thing: Any) -> None:
        """A Module or optimizer was made during the capture: it may be written."""

    def is_created(self, thing: Any) -> bool:
        """Whether a Module or optimizer was made during this capture."""

    def constant(self, data: Any, tensor: Tensor) -> Any:
        """Records a tensor made from Python data during the capture; gives its graph value."""
