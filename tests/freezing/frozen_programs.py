"""Random programs with frozen arguments, and random changes of these.

A program is a function of four tensors of 3 by 3 doubles, of which the first ones are frozen: a
chain of ops, each on two earlier values. Its twin has equal tensors and is called eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite import nn

SIZE = 3
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "matmul": lambda a, b: a @ b * 0.25,
    "tanh": lambda a, b: a.tanh(),
    "sin": lambda a, b: a.sin() - b,
    "turned": lambda a, b: a.t() * b,
    "summed": lambda a, b: (a * 0.5).sum(0, keepdim=True) + b,
    "first": lambda a, b: a[0] * b[:, 1:2],
    "ones": lambda a, b: a + al.ones(SIZE, dtype=al.float64),
    "even": lambda a, b: al.where(b > 0, a, b),
}


@attrs.frozen
class Chain:
    """A program as data: the op and operands of each step, a write, and the results."""

    steps: tuple[tuple[str, int, int], ...]
    results: tuple[int, ...]
    written: int | None
    """The number of an argument that the program writes at its end, if any."""

    @classmethod
    def of(cls, rng: Random, arguments: int, frozen: int) -> Chain:
        """A random program: its first half mostly reads frozen arguments alone."""
        count = rng.randint(4, 10)
        steps = []
        fixed = [*range(frozen)]
        for i in range(arguments, arguments + count):
            is_fixed = i < arguments + count // 2 and rng.random() < 0.85
            earlier = fixed if is_fixed else range(i)
            late = rng.choice([*earlier][-3:])
            a, b = rng.choice([late, rng.choice(earlier)]), rng.choice(earlier)
            steps.append((rng.choice([*OPS]), a, b))
            if is_fixed:
                fixed.append(i)
        last = arguments + count - 1
        results = (last, *rng.sample(range(arguments, last), rng.randint(0, 2)))
        return cls(tuple(steps), results, rng.choice([*[None] * 5, rng.randrange(arguments)]))

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The results for these arguments."""
        known = list(values)
        for name, a, b in self.steps:
            known.append(OPS[name](known[a], known[b]))
        if self.written is not None:
            with al.no_grad():
                known[self.written].mul_(0.5)
        return [known[i] for i in self.results]


class Holder(nn.Module):
    """A module with the frozen arguments as parameters and buffers."""

    def __init__(self, chain: Chain, tensors: Sequence[al.Tensor]) -> None:
        self.chain = chain
        self.count = len(tensors)
        for i, tensor in enumerate(tensors):
            if i % 2:
                self.register_buffer(f"w{i}", tensor)
            else:
                setattr(self, f"w{i}", nn.Parameter(tensor, requires_grad=False))

    def forward(self, *rest: al.Tensor) -> list[al.Tensor]:
        return self.chain([*[getattr(self, f"w{i}") for i in range(self.count)], *rest])


class FrozenProgram:
    """A program, its frozen form, and its eager twin."""

    ARGUMENTS = 4

    def __init__(self, seed: int, *, in_module: bool | None = None, **options: Any) -> None:
        self.rng = rng = Random(seed)
        count = rng.randint(1, 3)
        self.chain = chain = Chain.of(rng, self.ARGUMENTS, count)
        self.in_module = rng.random() < 0.5 if in_module is None else in_module
        self.tracked = [rng.random() < 0.7 for _ in range(self.ARGUMENTS - count)]
        self.mine = [self.tensor() for _ in range(count)]
        self.its = [each.clone() for each in self.mine]
        self.arrays: dict[int, list[np.ndarray]] = {}
        self.holders: list[Holder] = []
        options = {"backend": "reference", **options}
        if self.in_module:
            self.holders = [Holder(chain, each) for each in (self.mine, self.its)]
            self.frozen = al.freeze(self.holders[0], **options)
            self.eager: Callable[..., Any] = self.holders[1]
        else:
            mine, its = self.mine, self.its
            self.frozen = al.freeze(_chained, chain, *mine, **options)
            self.eager = lambda *rest: chain([*its, *rest])

    def tensor(self) -> al.Tensor:
        """A random tensor."""
        numbers = [[self.rng.uniform(-1, 1) for _ in range(SIZE)] for _ in range(SIZE)]
        return al.tensor(numbers, dtype=al.float64)

    def pair(self, index: int) -> tuple[al.Tensor, al.Tensor]:
        """Frozen tensor number `index` and its twin, as they are now."""
        if not self.holders:
            return self.mine[index], self.its[index]
        return tuple([getattr(holder, f"w{index}") for holder in self.holders])

    def contents(self) -> list[bytes]:
        """The bytes of the frozen tensors."""
        return [repr(self.pair(i)[0].tolist()).encode() for i in range(len(self.mine))]

    def rest(self) -> tuple[list[al.Tensor], list[al.Tensor]]:
        """Random other arguments, twice: some require grad, mostly the same at each call."""
        tracked = self.tracked if self.rng.random() < 0.9 else [not each for each in self.tracked]
        mine = [self.tensor() for _ in range(self.ARGUMENTS - len(self.mine))]
        its = [each.clone() for each in mine]
        for a, b, is_tracked in zip(mine, its, tracked, strict=True):
            if is_tracked:
                a.requires_grad_()
                b.requires_grad_()
        return mine, its

    # --- changes
    def change(self) -> str:
        """Changes a random frozen tensor, and its twin, in a random way; returns the way."""
        way = self.rng.choice([*CHANGES, *(IN_MODULES if self.holders else {})])
        index = self.rng.randrange(len(self.mine))
        number = self.rng.uniform(-1, 1)
        with al.no_grad():
            if way in CHANGES:
                for tensor in self.pair(index):
                    CHANGES[way](tensor, number, self.arrays.setdefault(id(tensor), []))
            else:
                fresh = self.tensor()
                for holder in self.holders:
                    IN_MODULES[way](holder, f"w{index}", fresh)
        return way


def _chained(chain: Chain, *values: al.Tensor) -> list[al.Tensor]:
    return chain(values)


def _numpy(tensor: al.Tensor, number: float, kept: list[np.ndarray]) -> None:
    kept.append(tensor.numpy())
    kept[-1][1, 1] = number


def _kept_array(tensor: al.Tensor, number: float, kept: list[np.ndarray]) -> None:
    if kept:  # of an earlier change; the tensor may lie elsewhere by now
        kept[0][0, 2] = number


def _other_memory(tensor: al.Tensor, number: float, kept: list[np.ndarray]) -> None:
    kept.clear()
    tensor.set_(al.full((SIZE, SIZE), number, dtype=al.float64).add(al.eye(SIZE, dtype=al.float64)))


def _nothing(tensor: al.Tensor, number: float, kept: list[np.ndarray]) -> None:
    pass


CHANGES: dict[str, Callable[[al.Tensor, float, list[np.ndarray]], object]] = {
    "nothing": _nothing,
    "a write": lambda tensor, number, kept: tensor.mul_(0.5).add_(number),
    "a write through a view": lambda tensor, number, kept: tensor[0].add_(number),
    "a write of one element": lambda tensor, number, kept: tensor.t()[1:, 2].fill_(number),
    "a write of the same numbers": lambda tensor, number, kept: tensor.mul_(1.0),
    "a write through a hidden alias": lambda tensor, number, kept: tensor.hidden_alias().add_(
        number
    ),
    "a write by NumPy": _numpy,
    "a write by an earlier array": _kept_array,
    "other memory": _other_memory,
}
"""Ways to change a tensor, the same for the frozen one and its twin."""


def _swapped(holder: Holder, name: str, fresh: al.Tensor) -> None:
    held = getattr(holder, name)
    value = nn.Parameter(fresh, requires_grad=False) if isinstance(held, nn.Parameter) else None
    setattr(holder, name, nn.Buffer(fresh.clone()) if value is None else value)


def _loaded(holder: Holder, name: str, fresh: al.Tensor) -> None:
    holder.load_state_dict({name: fresh}, strict=False)


IN_MODULES: dict[str, Callable[[Holder, str, al.Tensor], object]] = {
    "another parameter": lambda holder, name, fresh: _swapped(holder, name, fresh.clone()),
    "load_state_dict": _loaded,
}
