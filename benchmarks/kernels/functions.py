"""The actions of rows that are functions: each makes one call and returns its results.

Actions of libraries are called in turn. An action returns a flat list: the result, then the
gradients (or the new parameters) in the order of the inputs. Inputs are made once; outputs and
gradients are made anew at each call, by each library in its own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels.libraries import Jax, TorchLike
from benchmarks.kernels.rows import BOTH, FORWARD, STEP, Row

Action = Callable[[], list[Any]]
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A function that compiles a function, or returns it."""


@attrs.define
class Aside:
    """The seconds of the benchmark's own work in an action."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A block whose time is added."""
        start, cpu_start = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu_start


ASIDE = Aside()
"""The time of this process that first calls do not count."""


def tangent_like(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The tangent of a backward: 1 for a number, else normal numbers."""
    if not shape:
        return np.ones((), dtype)
    return np.random.default_rng(11).standard_normal(shape, np.float32).astype(dtype)


# --------------------------------------------------------------------------- aotlite and PyTorch
def tensor_action(
    row: Row, direction: str, module: Any, wrap: Wrap, arrays: Sequence[np.ndarray]
) -> Action:
    """The action in aotlite or PyTorch."""
    lib = TorchLike(import_module(f"{module.__name__}.nn.functional"))

    def function(*xs: Any) -> Any:
        return row.body(lib, *xs)

    run = wrap(function)
    tensors = [module.tensor(each) for each in arrays]
    if direction == FORWARD:
        return lambda: [run(*tensors)]
    wanted = [tensors[place].requires_grad_() for place in row.with_grad]
    if direction == BOTH:
        return _with_gradients(module, run, tensors, wanted, row.dtype_of(arrays))
    return _descent(module, run, (tensors, wanted, row.rate), wrap)


def _with_gradients(module: Any, run: Any, tensors: Any, wanted: Any, dtype: str) -> Action:
    grad = module.autograd.grad
    tangents: list[Any] = []

    def action() -> list[Any]:
        result = run(*tensors)
        if not tangents:  # only now is its shape known
            with ASIDE.counted():
                tangents.append(module.from_numpy(tangent_like(tuple(result.shape), dtype)))
        return [result, *grad(result, wanted, tangents[0])]

    return action


def _descent(module: Any, run: Any, given: tuple[Any, Any, float], wrap: Wrap) -> Action:
    """Gradients of the loss, and a function that writes the parameters."""
    (tensors, wanted, rate), grad = given, module.autograd.grad

    def update(parameters: Any, gradients: Any) -> None:
        with module.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=rate)

    run_update = wrap(update)

    def action() -> list[Any]:
        loss = run(*tensors)
        run_update(wanted, grad(loss, wanted))
        return [loss, *wanted]

    return action


# -------------------------------------------------------------------------------------------- JAX
def jax_action(row: Row, direction: str, arrays: Sequence[np.ndarray]) -> Action:
    """The action by `jax.jit`; a step gives its parameters' memory away."""
    lib = Jax()
    jax, jnp = lib.jax, lib.jnp
    values = [jnp.array(each) for each in arrays]
    wanted = row.with_grad

    def function(*xs: Any) -> Any:
        return row.body(lib, *xs)

    if direction == FORWARD:
        run = jax.jit(function)
        return lambda: [run(*values).block_until_ready()]
    if direction == STEP:
        return _jax_descent(jax, function, (values, wanted, row.rate))
    shape = jax.eval_shape(function, *values).shape
    tangent = jnp.array(tangent_like(shape, row.dtype_of(arrays)))
    both = jax.jit(lambda xs, t: _pulled(jax, function, xs, wanted, t))
    return lambda: jax.block_until_ready(both(values, tangent))


def _pulled(jax: Any, function: Any, xs: list[Any], wanted: list[int], tangent: Any) -> list[Any]:
    """The result, then its gradients by the wanted ones of its arguments."""

    def of_wanted(*some: Any) -> Any:
        every = list(xs)
        for place, value in zip(wanted, some, strict=True):
            every[place] = value
        return function(*every)

    result, pull = jax.vjp(of_wanted, *[xs[place] for place in wanted])
    return [result, *pull(tangent)]


def _jax_descent(jax: Any, function: Any, given: tuple[Any, list[int], float]) -> Action:
    values, wanted, rate = given
    fixed = [value for place, value in enumerate(values) if place not in wanted]

    def step(parameters: list[Any], fixed: list[Any]) -> Any:
        loss, gradients = jax.value_and_grad(lambda ps: function(*fixed, *ps))(parameters)
        return loss, [p - rate * g for p, g in zip(parameters, gradients, strict=True)]

    run = jax.jit(step, donate_argnums=0)
    state = [values[place] for place in wanted]

    def action() -> list[Any]:
        loss, state[:] = jax.block_until_ready(run(state, fixed))
        return [loss, *state]

    return action
