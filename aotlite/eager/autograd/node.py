"""What a tape is made of: nodes, edges, and the tensors that nodes keep for the backward.

An edge (node, index) says whose gradient a tensor's gradient adds to: result `index` of `node`.
The nodes of ops are in `tape`, those that collect gradients in `leaf`, those of users' functions in
`function`. Rules: TEN-12, TEN-13, TEN-42. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from aotlite.eager.autograd.hooks import Changes, Extra, RemovableHandle
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.eager.wrappers import alias_of, is_wrapper
from aotlite.ir.errors import AutogradError, DTypeError, noted

if TYPE_CHECKING:
    from aotlite.eager.autograd.leaf import AccumulateGrad

Edge = tuple[Any, int]
Gradients = list[Any]

SEQUENCE = itertools.count()


def next_sequence() -> int:
    """The number of the next tape node: nodes made later have a greater one (SEQ-1)."""
    return next(SEQUENCE)


LAST = 1 << 62
"""Sequence number of gradient accumulation: as soon as it is ready, it runs (TEN-27)."""


class SavedTensor:
    """A tensor kept for the backward, with the version it had (TEN-12).

    Under saved-tensor hooks `packed` holds what the pack hook gave instead, and `tensor` is None.
    """

    __slots__ = ("packed", "tensor", "version")

    packed: Packed

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        version = self.version = tensor.storage.version
        if type(version) is not int:
            raise noted(
                AutogradError(
                    f"backward: a tensor to save, {tensor.meta}, is an inference tensor, expected "
                    "one that counts its writes"
                ),
                "clone() it outside of inference_mode, or compute it under no_grad. (TEN-22)",
            )

    @classmethod
    def of_version(cls, tensor: Tensor, version: int) -> SavedTensor:
        """The record of a tensor that was kept when it had this version."""
        made = cls(tensor)
        made.version = version
        return made

    def unpack(self, node: TapeNode) -> Tensor:
        """The tensor, for the node that saved it. Raises AutogradError if it was written since."""
        tensor = self.tensor
        if tensor is None:
            return self.packed.unpack()
        if tensor.storage.version != self.version:
            raise noted(
                AutogradError(
                    f"{node.name()}: a saved tensor {tensor.meta} is at version "
                    f"{tensor.storage.version}, expected version {self.version}: it was modified "
                    "in place"
                ),
                "Its values at the time of the forward are needed for the gradient. Write to a "
                "clone(), or write before the value is used. (TEN-12)",
            )
        return tensor

    def register_hooks(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        """From now on keeps what `pack_hook` gives for the tensor; `unpack_hook` undoes it."""
        if self.tensor is None:
            raise AutogradError(
                "register_hooks: the saved tensor has hooks already, expected one without"
            )
        Changes.count += 1
        self.packed = Packed.of(self.tensor, pack_hook, unpack_hook)
        self.tensor = None  # type: ignore[assignment]


class Held:
    """What is kept of a tensor that is computed again when it is asked for (CKP-1)."""

    __slots__ = ()

    def checked(self) -> list[SavedTensor]:
        """What is read then, and checked for writes."""
        raise AssertionError("each kind says what it reads")

    def regions(self) -> list[Any]:
        """What is computed again for it: a region, and those around it."""
        raise AssertionError("each kind says what it is part of")


def checked(records: Iterable[SavedTensor]) -> list[SavedTensor]:
    """What is checked for writes when these are unpacked: not what users' hooks have packed."""
    found = []
    for each in records:
        if each.tensor is not None:
            found.append(each)
        elif isinstance(each.packed.value, Held):
            found += each.packed.value.checked()
    return found


def computed_again(records: Iterable[SavedTensor]) -> list[Any]:
    """The regions that are computed again when these are unpacked."""
    held = [each.packed.value for each in records if each.tensor is None]
    return [region for each in held if isinstance(each, Held) for region in each.regions()]


def saved(tensor: Tensor) -> SavedTensor:
    """The tensor as it is saved now: packed where saved-tensor hooks are at work (TEN-42)."""
    kept = SavedTensor(tensor)
    watch = STATE.watch
    if watch is not None and watch.pack is not None:
        kept.register_hooks(*watch.pack)
    return kept


@attrs.frozen(eq=False)
class Packed:
    """What saved-tensor hooks keep of a tensor, and the history that it had (TEN-42)."""

    value: Any
    unpack_hook: Callable[[Any], Tensor]
    edge: Edge | None

    @classmethod
    def of(
        cls, tensor: Tensor, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]
    ) -> Packed:
        """What `pack` gives for the tensor, which it must not write."""
        from aotlite.eager.autograd.history import edge_of

        before, mode = tensor.storage.version, STATE.grad_mode
        STATE.grad_mode = False
        try:
            value = pack(tensor)
        finally:
            STATE.grad_mode = mode
        if tensor.storage.version != before:
            raise AutogradError(
                "saved_tensors_hooks: the pack hook modified its argument in place, expected a "
                "hook that does not write it"
            )
        return cls(value, unpack, edge_of(tensor))

    def unpack(self) -> Tensor:
        """What the unpack hook gives, with the history of what was packed."""
        value = self.unpack_hook(self.value)
        if not isinstance(value, Tensor):
            raise DTypeError(
                f"saved_tensors_hooks: the unpack hook returned {type(value).__name__}, expected "
                "a tensor"
            )
        tensor = detached_alias(value)
        if self.edge is not None:
            tensor._node, tensor._index, tensor.facts = *self.edge, None
        return tensor


def detached_alias(tensor: Tensor) -> Tensor:
    """A tensor on the same storage without history (TEN-4, TEN-13)."""
    if is_wrapper(tensor):
        made: Tensor = alias_of(tensor)
        return made
    alias = Tensor(tensor.storage, tensor.meta, tensor.offset)
    alias.value = tensor.value
    return alias


class TapeNode:
    """Base of tape nodes: what `grad_fn` gives."""

    __slots__ = ("__weakref__", "edges", "extra", "origin", "sequence")

    edges: tuple[Edge | None, ...]
    sequence: int
    origin: Any
    """The graph node whose op made this, while a function is captured."""
    extra: Extra | None
    """What few nodes have: hooks, and where they were made (TEN-39, TEN-43)."""
    hears_absent: ClassVar = True
    """Whether hooks on results are called with None where the gradients of others arrived."""

    # --- for users
    def name(self) -> str:
        """The op's name in the form of a class: `MulBackward`."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[TapeNode | None, int], ...]:
        """Where the gradients go: a node and the number of its result for each operand."""
        return tuple([(None, 0) if edge is None else edge for edge in self.spread(self.edges)])

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for whatever users want to note about the node."""
        return self.extras().metadata

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)` after the node ran; a tuple replaces the former."""
        self._forbid_outside("register_hook")
        return RemovableHandle.of(self.extras().post, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before the node runs; a tuple that it gives replaces them."""
        self._forbid_outside("register_prehook")
        return RemovableHandle.of(self.extras().pre, fn)

    def is_outside(self) -> bool:
        """Whether it stands, in a captured function, for the history of a tensor from outside."""
        return False

    def _forbid_outside(self, what: str) -> None:
        if STATE.recorder is None:
            return
        STATE.recorder.unrecorded = True  # no op is left behind that says so
        if self.is_outside():
            raise STATE.recorder.refuse(
                f"{what} of the node of a tensor from outside",
                "register the hook outside the compiled function",
            )

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    # --- for the engine
    def extras(self) -> Extra:
        """The node's `extra`, made if it has none."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """Values for the edges as users see them: None for operands that have no edge."""
        return list(values)

    def gathered(self, values: Sequence[Any]) -> list[Any]:
        """What belongs to the edges of values as users see them."""
        return list(values)

    @property
    def served(self) -> Sequence[Edge | None]:
        """The edges in the order in which the nodes behind them are told of this one."""
        return self.edges

    def results(self) -> int:
        """Number of results of the op, that is of gradients `run` takes."""
        return 1

    def formed(self, index: int, grad: Any) -> Any:
        """A gradient of result `index` in the form that those of such a tensor have (SHD-15)."""
        form = None if self.extra is None else self.extra.forms.get(index)
        return grad if form is None else form(grad)

    def leaf_nodes(self) -> list[AccumulateGrad | None] | None:
        """Where the edges lead, if each leads to a leaf of its own: no engine is needed (`single`).

        None where it is otherwise, or not known.
        """
        return None

    def gradients(self, grads: Gradients) -> list[Any]:
        """`run` for a node with `leaf_nodes`: without a history, whatever the grad mode."""
        raise AssertionError(f"{self.name()} has an engine run it")

    def run(self, grads: Gradients) -> Sequence[Any]:
        """Gradients for the edges, None where nothing flows."""
        raise AssertionError(f"{self.name()} says how it runs")

    def run_for(self, grads: Gradients, wanted: Sequence[bool]) -> Sequence[Any]:
        """`run` where gradients are asked for at some of the edges; others may be None."""
        return self.run(grads)

    def look_inside(self, grads: Gradients, wanted: Sequence[bool] | None) -> bool:
        """Raises, in anomaly mode, what an op that this is made of raises, or a nan that it gives.

        Where it is True, there is nothing left to look at. `wanted` is None where all is. (JNT-8)
        """
        return False

    def kept_records(self) -> list[SavedTensor]:
        """What `run` unpacks."""
        return []

    def kept_tensors(self) -> list[SavedTensor]:
        """What `run` unpacks, checking versions; not what hooks have packed."""
        return checked(self.kept_records())

    def release(self) -> None:
        """Drops what was saved; a second backward then raises."""

    def is_spent_once(self) -> bool:
        """Whether a second backward through it raises, once it has released what it had saved."""
        return bool(self.kept_records())


def refuse_outside() -> Exception:
    """The error of a backward, while a function is captured, that leaves it (CAP-6)."""
    assert STATE.recorder is not None
    return STATE.recorder.refuse(
        "backward() into the .grad of a tensor from outside",
        "call backward outside the compiled function, or use autograd.grad inside it",
    )


def released(name: str) -> AutogradError:
    """The error of a second backward through a freed node (TEN-12)."""
    return noted(
        AutogradError(
            f"{name}: the values saved for the backward are freed, expected the first backward "
            "through this graph"
        ),
        "Pass retain_graph=True to the first backward to go through the graph again. (TEN-12)",
    )
