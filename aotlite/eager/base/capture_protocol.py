"""`Recorder`: the interface of a running capture, which the eager engine calls.

Stage 1 implements it, as `CaptureRecorder`; the eager engine imports no stage. Later stages know
the same object as a `Trace` (`stages/records/trace.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import DataOp, Op, RandomOp

Tensor = Any
"""An eager tensor. Its class imports this module, and so cannot be imported here."""


class InputChanges(Protocol):
    """Is notified of changes to tensors that are not ops, as they may be inputs (FUN-36)."""

    def made_leaf(self, tensor: Tensor, *, requires_grad: bool) -> bool:
        """The tensor is about to become, or cease to be, a leaf that requires grad.

        Returns whether it stands for a view, whose own views keep their history (TEN-23).
        """

    def detached(self, tensor: Tensor) -> bool:
        """The tensor is detached in place. Returns whether it stands for a view."""

    def put_onto(self, tensor: Tensor, window: Tensor) -> None:
        """`set_`: gives the tensor the memory and geometry of `window` (TEN-26)."""

    def resize(self, tensor: Tensor, meta: TensorMeta) -> None:
        """`resize_`: the tensor is about to get this meta, with the same first element (TEN-25)."""


class RngState(Protocol):
    """Tracks the default generator's state while a function is captured (RNG-6)."""

    def draw(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """Records a draw; gives the graph value of its result."""

    def get(self) -> Any:
        """The present state, for `put`; it is (seed, offset) only where that is known."""

    def put(self, state: Any) -> None:
        """Sets a state of `get`, or (seed, offset)."""

    def knows(self, state: Any) -> bool:
        """Whether `get` returned this state. Raises UnsupportedError for another capture's."""

    def seed(self) -> int:
        """The present seed. Raises UnsupportedError where it differs from call to call."""

    def replaying(self, state: object) -> AbstractContextManager[None]:
        """A block in which draws start from a state of `get`."""


class Grads(Protocol):
    """Stands for the `.grad` of tensors while a function is captured (CAP-4, DBL-3)."""

    def read(self, tensor: Tensor) -> Tensor | None:
        """The `.grad` of a tensor."""

    def write(self, tensor: Tensor, value: Tensor | None) -> None:
        """Sets the `.grad` of a tensor from outside."""

    def add(self, leaf: Tensor, grads: list[Any]) -> None:
        """Adds the gradient in `grads` to the `.grad` of a leaf from outside (TEN-29)."""


class HookProtocol(Protocol):
    """Tracks the hooks that a captured function registers, and calls them (HOOK-1 to HOOK-4)."""

    def placed(self, kind: str, tensor: Tensor, edge: Any, handle: Any) -> None:
        """A hook was registered on the tensor's gradient, or on its AccumulateGrad node."""

    def retained(self, tensor: Tensor) -> None:
        """The tensor retains its gradient from now on."""

    def removing(self, handle: Any) -> None:
        """A hook that the function registered is about to be removed."""

    def call(self, hook: Callable[..., Any], grad: Any) -> Any:
        """Calls a hook of a tensor while a backward is recorded."""

    def call_of_node(self, hook: Callable[..., Any], *grads: Any) -> Any:
        """Calls a hook of a tape node while a backward is recorded."""


class ScopeProtocol(Protocol):
    """Tracks the Module in which ops run, and the user's tags (SEQ-5)."""

    def region(self, name: str) -> Any:
        """A function that is marked as a region is called (REG-21). Returns the argument for
        `leave`."""

    def enter(self, module: Any) -> Any:
        """A Module is called. Returns the argument for `leave`."""

    def tag(self, tags: Mapping[str, object]) -> Any:
        """Adds tags to the present ones. Returns the argument for `leave`."""

    def leave(self, before: Any) -> None:
        """Returns to the Module and tags before `enter` or `tag`."""

    @property
    def state(self) -> Any:
        """The present Module and tags, as an argument for `leave`."""


class DataProtocol(Protocol):
    """The symbols of a capture, of which some depend on values (DYN-30)."""

    def count(self, op: DataOp, args: tuple[Any, ...]) -> int:
        """The size of an op's results that depends on values, as a symbol."""

    def number(self, tensor: Tensor) -> int:
        """The only element of a tensor of integers, as a symbol."""

    def keep(self, function: Callable[..., object]) -> None:
        """Later calls run this hook or callback, which must hold no symbol (DYN-23)."""

    def read(self, text: object) -> object:
        """The text of an error that the function reads, whose numbers are assumed (DYN-23)."""


class ValueMode(Protocol):
    """A mode whose ops run on tensors outside, so that Python may ask for values."""

    def known(self, tensor: Tensor) -> object:
        """The object whose `tolist` gives the elements of this tensor."""

    def apply(self, function: object, args: tuple[object, ...], kwargs: object) -> object:
        """The results of a custom function, which runs outside."""

    def drawn_from(self, generator: object, op: RandomOp, args: tuple[object, ...]) -> object:
        """The result of a draw from a generator of the user's own, which is outside."""


class Recorder(Protocol):
    """Records the ops of this thread into a graph, while `STATE` holds it."""

    origin: Any
    """The graph node whose gradient is being computed."""
    refusal: BaseException | None
    """The first refusal raised in users' code, which may have caught it (CAP-13)."""
    failed: Any
    """The tape node that failed to run, if one did."""
    recompute: bool | None
    """The `recompute` of nodes that are recorded now (PART-17)."""
    unrecorded: bool
    """Whether autograd state changed without an op: custom functions, requires_grad_, detach_."""

    @property
    def eager_values(self) -> ValueMode | None:
        """The mode that computes values all the same, as functionalize does; None in a capture."""

    @property
    def grads(self) -> Grads:
        """The `.grad` of tensors."""

    @property
    def hooks(self) -> HookProtocol:
        """The tracker of hooks."""

    @property
    def streams(self) -> RngState:
        """The tracker of the default generator."""

    @property
    def changes(self) -> InputChanges:
        """The tracker of changes to tensors that are not ops."""

    def admit(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with each tensor from outside the capture replaced by its fake."""

    def here(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for this one during the capture: itself, or its fake."""

    def record(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        """Records a call; returns the graph value of its result, a tuple for several results."""

    def record_wrapped(
        self, op: Op, args: tuple[Any, ...], outs: tuple[Tensor, ...], meta: Any
    ) -> tuple[Any, ...]:
        """Records a call that returns or writes wrappers; returns the graph values of its results.

        The ops that computed their parts were recorded before, when the class ran them.
        """

    def refuse(self, what: str, advice: str) -> Exception:
        """The UnsupportedError, with the user's line, for something that cannot be captured."""

    def is_outside(self, tensor: Tensor) -> bool:
        """Whether the tensor, or the one it stands for, existed before the capture."""

    def is_one_memory(self, a: Tensor, b: Tensor) -> bool:
        """Whether two fakes stand for tensors on the same memory, maybe with separate storages."""

    def ask_gradients(self, inputs: Sequence[Any]) -> None:
        """Refuses gradients of inputs with hooks, which would have to run in each call (TEN-41)."""

    def check_paths(self, starts: Sequence[Any], sinks: Sequence[Any]) -> None:
        """Refuses gradients whose path passes through an input's history outside (CAP-6)."""

    def note_offset_read(self, tensor: Tensor) -> None:
        """The program read this tensor's storage offset, which must become a guard."""

    def run_before(self, node: Any) -> None:
        """A tape node is about to run: the ops recorded next are its backward (SEQ-4)."""

    def backward_inside(self) -> AbstractContextManager[None]:
        """A block that is a backward inside the captured function (SEQ-1, DBL-3)."""

    def summed(self, add: Callable[..., Any], *args: Any) -> Any:
        """The result of `add`; its nodes are recorded as sums of gradients (SEQ-5)."""

    @property
    def data(self) -> DataProtocol:
        """The tracker of symbols, and of sizes that depend on values."""

    @property
    def scopes(self) -> ScopeProtocol:
        """The tracker of Modules and tags."""

    def count_tape_node(self) -> None:
        """The last recorded op made a tape node; increments the sequence number (SEQ-1)."""

    def read_attribute(self, owner: Any, name: str, value: Any) -> Any:
        """The value that a read of an attribute of a Module or optimizer returns (CAP-5)."""

    def read_absent(self, owner: Any, name: str) -> None:
        """The program tried to read an attribute that a Module or optimizer lacks (CAP-5)."""

    def created(self, thing: Any) -> None:
        """A Module or optimizer was made during the capture; its attributes may be written."""

    def is_created(self, thing: Any) -> bool:
        """Whether a Module or optimizer was made during this capture."""

    def constant(self, data: object, tensor: Tensor) -> Any:
        """Records a tensor made from Python data during the capture; returns its graph value."""
