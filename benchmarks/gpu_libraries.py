"""The libraries that `benchmarks/gpu.py` compares: rows and train steps as actions of each.

All compute in the precision of their inputs: none of them rounds float32 to TF32.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

import aotlite as al
from benchmarks.gpu_clocks import Action, EventClock, HostClock, Timed
from benchmarks.gpu_programs import Row
from benchmarks.gpu_training import Model, step_of

SETS = 2
"""The number of input sets that calls use in turn; at full size each is larger than the cache."""


@cache
def _drawn(size: int, seed: int, number: int) -> np.ndarray:
    """Random numbers for the largest input, drawn once for all rows."""
    return np.random.default_rng((seed, number)).standard_normal(1 << size, np.float32)


def random_arrays(row: Row, size: int, seed: int) -> list[np.ndarray]:
    """The inputs of a row, and for a backward the tangent."""
    shapes = list(row.shapes(size))
    if row.backward:
        shapes.append(shapes[0])
    arrays: list[Any] = [
        _drawn(size, seed, number)[: math.prod(shape)].reshape(shape)
        for number, shape in enumerate(shapes)
    ]
    if row.labels:
        arrays[-1] = np.random.default_rng(seed).integers(0, shapes[0][-1], shapes[-1])
    return arrays


def of_row(t: Any, row: Row) -> Callable[..., Any]:
    """The row's function of tensors, as a new function."""

    def function(*given: Any) -> Any:
        return row.function(t, *given)

    return function


def action_of(t: Any, row: Row, function: Callable[..., Any], sets: Sequence[Any]) -> Action:
    """Calls with one set of inputs after the other."""
    if row.backward:
        return backward_of(t, function, sets)
    return in_turn(function, sets)


def in_turn(function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Action:
    """Calls with one set of inputs after the other."""
    return lambda number: function(*sets[number % len(sets)])


def backward_of(t: Any, function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Action:
    """The backward alone, repeated through retained graphs."""
    ready = []
    for *arrays, tangent in sets:
        leaves = [each.requires_grad_() for each in arrays]
        ready.append((function(*leaves), leaves, tangent))

    def action(number: int) -> Any:
        result, leaves, tangent = ready[number % len(ready)]
        return t.autograd.grad(result, leaves, tangent, retain_graph=True)

    return action


class Ours:
    """aotlite, compiled for the device."""

    name = "ours"
    trains = True

    def __init__(self, clock: Any, step_clock: Any = None) -> None:
        self.clock, self.step_clock = clock, step_clock or clock

    def tensor(self, array: np.ndarray) -> Any:
        return al.from_numpy(array).to("cuda")

    def compiled(self, function: Callable[..., Any], **options: Any) -> Any:
        return al.compile(function, backend="cuda", **options)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed:
        """The action of a row."""
        given = [[self.tensor(array) for array in arrays] for arrays in sets]
        return Timed(action_of(al, row, self.compiled(of_row(al, row)), given), self.clock)

    def step(self, model: Model, dtype: str) -> Timed:
        """A train step."""
        kind = getattr(al, dtype)
        return Timed(step_of(al, model, kind, self.tensor, self.compiled), self.step_clock)


class Torch:
    """PyTorch, eager or compiled."""

    trains = True

    def __init__(self, name: str, clock: Any, step_clock: Any = None, device: str = "cuda") -> None:
        self.name, self.clock, self.step_clock = name, clock, step_clock or clock
        self.device = device
        self.torch = importlib.import_module("torch")
        if device == "cuda" and not self.torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no GPU")
        self.torch.set_float32_matmul_precision("highest")

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.tensor(array, device=self.device)

    def compiled(self, function: Callable[..., Any], **options: Any) -> Any:
        """The compiled function, after a reset.

        PyTorch compiles one code only a few times, and from the second time on for any sizes.
        """
        if self.name == "torch":
            return function
        self.torch._dynamo.reset()
        return self.torch.compile(function, fullgraph=True, dynamic=False, **options)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed:
        """The action of a row."""
        given = [[self.tensor(array) for array in arrays] for arrays in sets]
        function = self.compiled(of_row(self.torch, row))
        return Timed(action_of(self.torch, row, function, given), self.clock)

    def step(self, model: Model, dtype: str) -> Timed:
        """A train step."""
        kind = getattr(self.torch, dtype)
        return Timed(step_of(self.torch, model, kind, self.tensor, self.compiled), self.step_clock)

    def difference(self, row: Row, arrays: Sequence[np.ndarray], found: Any) -> float:
        """How far ours are from float64, relative to the largest result."""
        narrow = [self.tensor(array) for array in arrays]
        wide = [each.double() if each.is_floating_point() else each for each in narrow]
        exact = action_of(self.torch, row, of_row(self.torch, row), [wide])(0)
        pairs = zip(*[x if row.backward else [x] for x in (exact, found)], strict=True)
        return max([self._apart(e.detach(), f.detach()) for e, f in pairs])

    def shared(self, x: Any) -> Any:
        """Twice the tensor, by this library, on memory that it shares both ways."""
        theirs = self.torch.from_dlpack(x)
        assert theirs.data_ptr() == x.data_ptr(), "a copy was made"
        return al.from_dlpack(theirs * 2)

    def _apart(self, exact: Any, found: Any) -> float:
        there = self.torch.from_dlpack(found).double()
        if there.shape != exact.shape:
            return math.inf
        worst = (there - exact).abs_().max() / exact.abs().max()
        return float(worst) if math.isfinite(worst) else math.inf


class Cupy:
    """CuPy, eager or fused."""

    trains = False

    def __init__(self, name: str, clock: Any) -> None:
        self.name, self.clock = name, clock
        self.cupy = importlib.import_module("cupy")

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed | None:
        """The action of a row; None if there is none."""
        if row.numpy is None:
            return None
        given = [[self.cupy.asarray(array) for array in arrays] for arrays in sets]
        return Timed(in_turn(self._function(row.numpy, len(sets[0])), given), self.clock)

    def _function(self, written: Callable[..., Any], count: int) -> Callable[..., Any]:
        """The function with `count` positional parameters, which CuPy can fuse."""
        names = ", ".join([f"a{k}" for k in range(count)])
        scope = {"written": written, "cupy": self.cupy}
        function: Callable[..., Any] = eval(f"lambda {names}: written(cupy, {names})", scope)
        if self.name == "cupy":
            return function
        fused: Callable[..., Any] = self.cupy.fuse(kernel_name="fused")(function)
        return fused


class Jax:
    """JAX, compiled."""

    name = "jax"
    trains = False

    def __init__(self, platform: str = "gpu") -> None:
        self.jax = importlib.import_module("jax")
        if self.jax.default_backend() != platform:
            raise RuntimeError(f"JAX computes on {self.jax.default_backend()}")
        self.clock = HostClock(self.jax.block_until_ready)

    def row(self, row: Row, sets: Sequence[Sequence[np.ndarray]]) -> Timed | None:
        """The action of a row; None if there is none."""
        written = row.numpy
        if written is None:
            return None
        function = self.jax.jit(lambda *given: written(self.jax.numpy, *given))
        given = [[self.jax.device_put(array) for array in arrays] for arrays in sets]
        return Timed(in_turn(function, given), self.clock)

    def shared(self, x: Any) -> Any:
        """Twice the tensor, by this library, on memory that it shares both ways."""
        return al.from_dlpack(self.jax.dlpack.from_dlpack(x) * 2)


def libraries(dry: bool) -> tuple[list[Any], dict[str, str]]:
    """aotlite and the other installed libraries, PyTorch first; and why some are missing.

    Without a GPU, aotlite alone.
    """
    if dry:
        return [Ours(HostClock())], {}
    cupy = importlib.import_module("cupy")
    clock, steps = EventClock(cupy, ahead=True), EventClock(cupy)
    makers: dict[str, Callable[[], Any]] = {
        "torch": lambda: Torch("torch", clock, steps),
        "torch.compile": lambda: Torch("torch.compile", clock, steps),
        "cupy": lambda: Cupy("cupy", clock),
        "cupy.fuse": lambda: Cupy("cupy.fuse", clock),
        "jax": Jax,
    }
    found: list[Any] = [Ours(clock, steps)]
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            found.append(make())
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"[:200]
    return found, missing
