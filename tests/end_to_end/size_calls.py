"""What calls of a random program with sizes do, compiled and eager, and ways of calling it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.subclass.protocol import flatten, is_wrapper

TURNS = ("once", "once", "again", "late", "no_grad", "detached")
"""`again`: each call is followed by a second one with the same arguments. `late`: gradients are
computed after the next call, of other sizes. `no_grad` and `detached`: every second call is in a
block without gradients, or with arguments that require none."""

OPTIONS: tuple[dict[str, Any], ...] = (
    *({},) * 6,
    {"partition": "min_cut"},
    {"fast_paths": False},
    {"instance_limit": 2},
)


class Arguments(list[al.Tensor]):
    """Arguments, with the tensors whose gradients are compared."""

    leaves: tuple[al.Tensor, ...] = ()


@attrs.frozen
class Way:
    """How a program is compiled and called."""

    dynamic: bool | None = True
    turns: str = "once"
    options: dict[str, Any] = attrs.field(factory=dict)
    named: bool = False
    """Whether sizes have names: those of one name are one symbol then."""

    @classmethod
    def drawn(cls, seed: int) -> Way:
        dice = random.Random(seed)
        dynamic = dice.choice((True, True, True, None, None))
        named = dynamic is True and dice.random() < 0.15
        return cls(dynamic, dice.choice(TURNS), dice.choice(OPTIONS), named)


PLAINLY = Way()


class Call:
    """One call: what it has done, to be looked at later."""

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[al.Tensor], *, draws: bool = False
    ) -> None:
        self.arguments = arguments
        self.error: tuple[str, str] | None = None
        self.results: list[al.Tensor] = []
        self.form: Any = None
        self.state: Any = None
        if draws:
            al.manual_seed(11)
        try:
            self.form = _form(function(*arguments), self.results)
        except Exception as error:
            self.error = type(error).__name__, str(error).partition("\n")[0]
        if draws:
            self.state = al.get_rng_state()

    def facts(self) -> Any:
        """Results, strides, aliases, writes; or the error."""
        if self.error is not None:
            return self.error
        tensors = [*self.arguments, *self.results]
        seen = [_seen(each) for each in self.arguments]
        seen += [_seen(each, _is_alone(each, tensors)) for each in self.results]
        shared = [a.storage is b.storage for a, b in itertools.combinations(tensors, 2)]
        same = [a is b for a, b in itertools.combinations(tensors, 2)]
        bases = [next((k for k, t in enumerate(tensors) if t is x._base), -1) for x in tensors]
        return seen, self.form, shared, same, bases, self.state

    def gradients(self) -> Any:
        """Those of all results and arguments, or the error of their backward."""
        if self.error is not None:
            return None
        return _gradients([*self.arguments, *self.results], self.arguments)


class Caller:
    """Calls a function in a way: eager's, or a compiled one."""

    def __init__(self, function: Callable[..., Any], way: Way, *, draws: bool = False) -> None:
        self.function, self.way, self.draws = function, way, draws
        self.earlier: Call | None = None

    def observe(self, arguments: Sequence[al.Tensor], turn: int) -> list[Any]:
        """What the call of a turn does, and what is seen of an earlier one."""
        turns = self.way.turns
        with al.no_grad() if turns == "no_grad" and turn % 2 else nullcontext():
            call = Call(self.function, arguments, draws=self.draws)
        found = [call.facts()]
        if turns == "late":
            if self.earlier is not None:
                found += [self.earlier.facts(), self.earlier.gradients()]
            self.earlier = call
            return found
        found.append(call.gradients())
        if turns == "again" and call.error is None:
            second = Call(self.function, arguments, draws=self.draws)
            found += [second.facts(), second.gradients()]
        return found


def observed(function: Callable[..., Any], arguments: Sequence[al.Tensor]) -> Any:
    """What a call does: results, strides, aliases, writes, gradients; or its error."""
    call = Call(function, arguments)
    facts = call.facts()
    return facts if call.error is not None else (*facts, call.gradients())


def written(arguments: Sequence[al.Tensor]) -> list[Any]:
    """What arguments are, to be compared with what they were."""
    return [_seen(each) for each in arguments]


def _form(value: Any, tensors: list[al.Tensor]) -> Any:
    """The containers and plain values of results, whose tensors are taken out in order."""
    if isinstance(value, al.Tensor):
        tensors.append(value)
        return "tensor"
    if isinstance(value, dict):
        return "dict", [(key, _form(each, tensors)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_form(each, tensors) for each in value]
    return type(value).__name__, value


def _is_alone(result: al.Tensor, tensors: Sequence[al.Tensor]) -> bool:
    """Whether a result shares no memory: its offset is not observable then (META-10)."""
    return all(each is result or each.storage is not result.storage for each in tensors)


def _seen(tensor: al.Tensor, alone: bool = False) -> Any:
    try:
        return _facts(tensor, alone)
    except al.AotliteError as error:  # of a view that was written since
        return type(error).__name__, str(error).partition("\n")[0]


def _facts(tensor: al.Tensor, alone: bool = False) -> Any:
    offset = None if alone else tensor.storage_offset()
    geometry = tuple(tensor.shape), tensor.stride(), offset, tensor._version
    return (*geometry, str(tensor.dtype), tensor.requires_grad, _numbers(tensor))


def _numbers(tensor: al.Tensor) -> Any:
    """The numbers; of a wrapper its class, spec, and what its parts are."""
    if is_wrapper(tensor):
        names, spec = flatten(tensor)
        return type(tensor).__name__, str(spec), [_facts(getattr(tensor, name)) for name in names]
    return np.array(tensor.detach().tolist(), dtype=np.float64)


def _gradients(tensors: Sequence[al.Tensor], arguments: Sequence[al.Tensor]) -> Any:
    leaves = [each for each in arguments if each.requires_grad and each.is_leaf]
    leaves += arguments.leaves if isinstance(arguments, Arguments) else ()
    try:
        roots = [each for each in tensors if each.requires_grad and not each.is_leaf]
        if not leaves or not roots:
            return None
        found = al.autograd.grad([(each * each).sum() for each in roots], leaves, allow_unused=True)
    except al.AotliteError as error:  # of several written operands it may name another one
        return type(error).__name__, str(error).partition("\n")[0]
    return [None if each is None else (tuple(each.shape), _values(each)) for each in found]


def _values(gradient: al.Tensor) -> Any:
    """The numbers alone: strides of gradients are the engine's matter."""
    if is_wrapper(gradient):
        names, spec = flatten(gradient)
        parts = [_values(getattr(gradient, name)) for name in names]
        return type(gradient).__name__, str(spec), parts
    return _numbers(gradient)


def is_same(a: Any, b: Any) -> bool:
    """Whether two observations are equal, numbers up to rounding."""
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
    if isinstance(a, (list, tuple)):
        return isinstance(b, type(a)) and len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b) and type(a) is type(b)
