"""What a stacked mode leaves to the outside: generators, symbols, scopes of Modules, gradients.

Parts of `ModeRecorder`, which the eager engine asks. Rules: FNT-2, FNT-9, FNT-10.
Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aotlite.eager.autograd.nodes.accumulate_grad import adopted
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.rng.generator import GENERATOR
from aotlite.func.mode_protocol import OuterMode
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import DataOp, RandomOp


class OuterStreams:
    """The default generator: draws are ops outside (FNT-9)."""

    def __init__(self, recorder: OuterMode) -> None:
        self._recorder = recorder

    def draw(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """The record of a draw, which happens outside."""
        recorder = self._recorder
        return recorder.drawn(op, args, meta)

    def get(self) -> Any:
        """The present state."""
        with self._recorder.outside():
            return GENERATOR.get_state()

    def put(self, state: object) -> None:
        """Sets a state."""
        with self._recorder.outside():
            GENERATOR.set_state(state)

    def knows(self, state: object) -> bool:
        """Whether a state may be put: `put` checks it."""
        return True

    def seed(self) -> int:
        """The present seed."""
        with self._recorder.outside():
            return GENERATOR.initial_seed()

    @contextmanager
    def replaying(self, state: object) -> Iterator[None]:
        """A block in which draws start from a state of `get`."""
        outer = self._recorder.outer[0]
        if outer is not None:
            with outer.streams.replaying(state):
                yield
            return
        before = self.get()
        self.put(state)
        try:
            yield
        finally:
            self.put(before)


class OuterData:
    """Sizes and numbers that depend on values: they are asked outside (FNT-10)."""

    def __init__(self, recorder: OuterMode) -> None:
        self._recorder = recorder

    def count(self, op: DataOp, args: tuple[Any, ...]) -> int:
        """The size of an op's results that depends on values."""
        found: Tensor = self._recorder.emit(op.number, self._recorder.outer_args(args), False)
        return self._number(found)

    def number(self, tensor: Tensor) -> int:
        """The only element of a tensor of integers."""
        if self._recorder.eager_values is None:
            raise self._recorder.refuse(
                "item() of a tensor (whose value is not known)", "use a tensor operation"
            )
        return self._number(self._recorder.outer_of(tensor))

    def _number(self, outer: Tensor) -> int:
        with self._recorder.outside(False):
            number: int = outer.item()
        return number

    def keep(self, function: Callable[..., object]) -> None:
        """A hook or callback is registered."""
        if self._recorder.outer[0] is not None:
            self._recorder.outer[0].data.keep(function)

    def read(self, text: object) -> object:
        """The text of an error that the function reads."""
        outer = self._recorder.outer[0]
        return text if outer is None else outer.data.read(text)


class OuterScopes:
    """The Module and tags of ops, of which a capture outside takes note."""

    def __init__(self, recorder: OuterMode) -> None:
        self._recorder = recorder

    def _outer(self) -> Any:
        outer = self._recorder.outer[0]
        return None if outer is None else outer.scopes

    def region(self, name: str) -> Any:
        """A function that is marked as a region is called."""
        return None if self._outer() is None else self._outer().region(name)

    def enter(self, module: object) -> Any:
        """A Module is called."""
        return None if self._outer() is None else self._outer().enter(module)

    def tag(self, tags: Mapping[str, object]) -> Any:
        """Adds tags to the present ones."""
        return None if self._outer() is None else self._outer().tag(tags)

    def leave(self, before: object) -> None:
        """Returns to the Module and tags before."""
        if self._outer() is not None:
            self._outer().leave(before)

    @property
    def state(self) -> Any:
        """The present Module and tags."""
        return None if self._outer() is None else self._outer().state


class StandInGradients:
    """The `.grad` of tensors from outside, which is set outside when the function has returned."""

    def __init__(self, recorder: OuterMode) -> None:
        self._recorder = recorder
        self.now: dict[int, tuple[Tensor, Tensor | None]] = {}
        """By the id of a stand-in: it, and the `.grad` that the function set."""

    def read(self, tensor: Tensor) -> Tensor | None:
        """The `.grad` of a tensor, as a stand-in."""
        recorder = self._recorder
        stand_in = recorder.here(tensor)
        if id(stand_in) not in recorder.given:
            return stand_in._grad
        if id(stand_in) in self.now:
            return self.now[id(stand_in)][1]
        with recorder.outside():
            found = recorder.given[id(stand_in)].grad
        return None if found is None else recorder.here(found)

    def write(self, tensor: Tensor, value: Tensor | None) -> None:
        """Sets the `.grad` of a tensor from outside."""
        recorder = self._recorder
        stand_in = recorder.here(tensor)
        self.now[id(stand_in)] = stand_in, None if value is None else recorder.here(value)

    def add(self, leaf: Tensor, grads: list[Any]) -> None:
        """Accumulates the gradient in `grads`, a list of one, into the `.grad` of a leaf."""
        before = self.read(leaf)
        if before is None:
            self.write(leaf, adopted(grads, leaf))
        elif STATE.grad_mode:
            self.write(leaf, before + grads[0])
        else:
            before.add_(grads[0])
