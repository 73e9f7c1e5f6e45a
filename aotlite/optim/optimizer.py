"""`Optimizer`: the base of optimizers, whose steps can be compiled.

Everything that changes from step to step is a tensor made at construction: the learning rates, the
state, the count of steps. A step writes these in place, and no Python attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import tensor
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.ir.dtypes import float64
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.nn.module import clear_gradients
from aotlite.nn.state import Problems, load_state


class ParamGroup(TrackedObject):
    """A parameter group with a learning rate: the optimizer's parameters at `places`."""

    def __init__(self, owner: str, places: range, lr: float | Tensor) -> None:
        self.owner = owner
        self.places = places
        self._lr = tensor(_checked_lr(owner, lr), dtype=float64)

    @property
    def lr(self) -> Tensor:
        """The learning rate, a 0-d tensor that compiled steps read at each call."""
        return self._lr

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        self.set_lr(value)

    def set_lr(self, value: float | Tensor) -> None:
        """Writes the learning rate in place."""
        value = _checked_lr(self.owner, value)
        with no_grad():
            self._lr.copy_(value) if isinstance(value, Tensor) else self._lr.fill_(value)


class Optimizer(TrackedObject):
    """The base of optimizers: define `step` and `state`."""

    params: tuple[Tensor, ...]
    param_groups: tuple[ParamGroup, ...]

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor,
        param_groups: Sequence[ParamGroup] | None = None,
    ) -> None:
        name = type(self).__name__
        self.params = _checked(name, params)
        if param_groups is None:
            param_groups = [ParamGroup(name, range(len(self.params)), lr)]
        self.param_groups = tuple(param_groups)

    @property
    def lr(self) -> Tensor:
        """The learning rate, a 0-d tensor that compiled steps read at each call.

        Raises ArgumentError where several groups have their own.
        """
        return self._only_group().lr

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        self.set_lr(value)

    def set_lr(self, value: float | Tensor) -> None:
        """Writes the learning rate in place."""
        self._only_group().set_lr(value)

    def _only_group(self) -> ParamGroup:
        if len(self.param_groups) > 1:
            raise ArgumentError(
                f"{type(self).__name__}: lr is that of {len(self.param_groups)} groups, expected "
                "that of one: param_groups[i].lr"
            )
        return self.param_groups[0]

    def step(self) -> None:
        """Updates every parameter that has a gradient, in place and without history."""
        raise UnsupportedError(f"{type(self).__name__}: the class has no method step, expected one")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the parameters: None, or zeros in place."""
        clear_gradients(iter(self.params), set_to_none=set_to_none)

    def state(self) -> dict[str, Tensor]:
        """The tensors besides parameters that steps read and write, by name."""
        groups = self.param_groups
        names = ["lr"] if len(groups) == 1 else [f"lr.{i}" for i in range(len(groups))]
        return {name: group.lr for name, group in zip(names, groups, strict=True)}

    def state_dict(self) -> dict[str, Tensor]:
        """The detached tensors of `state`, on the optimizer's own memory.

        The other hyperparameters are arguments of the constructor and not part of it.
        """
        return {name: value.detach() for name, value in self.state().items()}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> Problems:
        """Copies a state into the optimizer's own memory.

        Raises ArgumentError that lists missing, unexpected and mismatched names, before anything is
        written.
        """
        return load_state(type(self).__name__, self.state(), state_dict, strict=True)


def _checked(name: str, params: Iterable[Tensor]) -> tuple[Tensor, ...]:
    if isinstance(params, Tensor):
        raise ArgumentError(f"{name}: params is one tensor, expected several, e.g. [tensor]")
    checked = tuple(params)
    if not checked:
        raise ArgumentError(f"{name}: params is empty, expected at least one tensor")
    for i, param in enumerate(checked):
        if not isinstance(param, Tensor):
            raise ArgumentError(f"{name}: params[{i}] is {param!r}, expected a tensor")
        if not param.is_leaf:
            raise ArgumentError(f"{name}: params[{i}] is the result of an op, expected a leaf")
    if len({id(param) for param in checked}) < len(checked):
        raise ArgumentError(f"{name}: a tensor is twice in params, expected each once")
    return checked


def _checked_lr(name: str, lr: object) -> float | Tensor:
    if isinstance(lr, Tensor):
        if lr.ndim:
            raise ArgumentError(
                f"{name}: lr has shape {lr.shape}, expected a number or 0 dimensions"
            )
        if STATE.recorder is None:  # values of captured tensors are not known
            not_negative(name, "lr", lr.item())
        return lr
    return not_negative(name, "lr", lr)


def not_negative(name: str, argument: str, value: object) -> float:
    """The value as a Python number, finite and at least 0. Raises ArgumentError."""
    return _number(name, argument, value, 0.0, "a finite number of at least 0")


def finite(name: str, argument: str, value: object) -> float:
    """The value as a finite Python number. Raises ArgumentError."""
    return _number(name, argument, value, -math.inf, "a finite number")


def _number(name: str, argument: str, value: Any, least: float, expected: str) -> float:
    """The value as a float, at least `least`; accepts NumPy's numbers, refuses bools."""
    try:
        known = isinstance(value, Real) and not isinstance(value, bool)
        number = float(value) if known else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < least:
        raise ArgumentError(f"{name}: {argument} is {value!r}, expected {expected}")
    return value if type(value) is int else number
