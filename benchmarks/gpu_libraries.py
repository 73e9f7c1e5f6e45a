"""The libraries that `benchmarks/gpu.py` compares: rows and train steps as actions of each."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import aotlite as al
from benchmarks.gpu_clocks import Action, EventClock, HostClock, Timed
from benchmarks.gpu_programs import Row
from benchmarks.gpu_training import Model, step_of

SETS = 2
"""Sets of inputs that calls take in turn: at full size each is larger than the cache."""


def random_arrays(row: Row, size: int, seed: int) -> list[np.ndarray]:
    """Inputs of a row, and behind them the tangent where it is a backward."""
    generator = np.random.default_rng(seed)
    shapes = row.shapes(size)
    arrays: list[Any] = [generator.standard_normal(shape, np.float32) for shape in shapes]
    if row.labels:
        arrays[-1] = generator.integers(0, shapes[0][-1], shapes[-1])
    return arrays


def in_turn(function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Action:
    """Calls with one set of inputs after the other."""
    return lambda number: function(*sets[number % len(sets)])


class Ours:
    """aotlite, compiled for the device."""

    name = "ours"

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def tensor(self, array: np.ndarray) -> Any:
        return al.tensor(array).to("cuda")

    def compiled(self, function: Callable[..., Any], **options: Any) -> Any:
        return al.compile(function, backend="cuda", **options)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed:
        """The action of a row."""
        given = [[self.tensor(array) for array in arrays] for arrays in sets]
        compiled = self.compiled(partial(row.function, al))
        if row.backward:
            return Timed(backward_of(al, compiled, given), self.clock)
        return Timed(in_turn(compiled, given), self.clock)

    def step(self, model: Model, dtype: str) -> Timed:
        """A train step."""
        return Timed(step_of(al, model, getattr(al, dtype), self.tensor, self.compiled), self.clock)


class Torch:
    """PyTorch, eager or compiled."""

    def __init__(self, name: str, clock: Any) -> None:
        self.name, self.clock = name, clock
        self.torch = importlib.import_module("torch")

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).cuda()

    def compiled(self, function: Callable[..., Any]) -> Any:
        return function if self.name == "torch" else self.torch.compile(function)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed:
        """The action of a row."""
        given = [[self.tensor(array) for array in arrays] for arrays in sets]
        compiled = self.compiled(partial(row.function, self.torch))
        if row.backward:
            return Timed(backward_of(self.torch, compiled, given), self.clock)
        return Timed(in_turn(compiled, given), self.clock)

    def step(self, model: Model, dtype: str) -> Timed:
        """A train step."""
        kind = getattr(self.torch, dtype)
        return Timed(step_of(self.torch, model, kind, self.tensor, self.compiled), self.clock)


def backward_of(t: Any, function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Action:
    """The backward alone, again and again through graphs that stay."""
    ready = []
    for arrays in sets:
        leaves = [each.requires_grad_() for each in arrays]
        result = function(*leaves)
        ready.append((result, leaves, t.randn_like(result.detach())))

    def action(number: int) -> Any:
        result, leaves, tangent = ready[number % len(ready)]
        return t.autograd.grad(result, leaves, tangent, retain_graph=True)

    return action


class Cupy:
    """CuPy, eager or fused."""

    def __init__(self, name: str, clock: Any) -> None:
        self.name, self.clock = name, clock
        self.cupy = importlib.import_module("cupy")

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed | None:
        """The action of a row; None where there is none."""
        if row.numpy is None:
            return None
        function: Any = partial(row.numpy, self.cupy)
        if self.name == "cupy.fuse":
            written = row.numpy
            # What is fused takes positional arguments of known number.
            count = len(sets[0])
            names = ", ".join([f"a{k}" for k in range(count)])
            scope = {"written": written, "cupy": self.cupy}
            made = eval(f"lambda {names}: written(cupy, {names})", scope)
            function = self.cupy.fuse()(made)
        given = [[self.cupy.asarray(array) for array in arrays] for arrays in sets]
        return Timed(in_turn(function, given), self.clock)


class Jax:
    """JAX, compiled."""

    name = "jax"

    def __init__(self) -> None:
        self.jax = importlib.import_module("jax")
        self.clock = HostClock(self.jax.block_until_ready)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed | None:
        """The action of a row; None where there is none."""
        if row.numpy is None:
            return None
        function = self.jax.jit(partial(row.numpy, self.jax.numpy))
        given = [[self.jax.device_put(array) for array in arrays] for arrays in sets]
        return Timed(in_turn(function, given), self.clock)


def libraries(dry: bool) -> Iterator[Any]:
    """Ours, and the others that are here; without a GPU ours alone."""
    if dry:
        yield Ours(HostClock())
        return
    clock = EventClock(importlib.import_module("cupy"))
    yield Ours(clock)
    makers: dict[str, Callable[[], Any]] = {
        "cupy": lambda: Cupy("cupy", clock),
        "cupy.fuse": lambda: Cupy("cupy.fuse", clock),
        "torch": lambda: Torch("torch", clock),
        "torch.compile": lambda: Torch("torch.compile", clock),
        "jax": Jax,
    }
    for name, make in makers.items():
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            try:
                yield make()
            except (ImportError, RuntimeError) as error:
                warnings.warn(f"{name} is left out: {error}", stacklevel=1)
