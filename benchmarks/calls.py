"""The calls that the overhead benchmark times: each case, for each library, as an action.

An action is a function without arguments that makes one call, with gradients if the case has them.
Every library starts from the same eight float32 numbers for each input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import attrs
import numpy as np

Action = Callable[[], Any]
SIZE = 8


@attrs.frozen(kw_only=True)
class Case:
    """A call to time, in each library."""

    name: str
    inputs: int
    function: Callable[..., Any]
    """The module of aotlite or PyTorch -> the function of tensors that is compiled."""
    bare: Callable[..., Any]
    """The function of arrays that makes the NumPy calls of the compiled code."""
    jax: Callable[..., Any]
    """The function of `jax.numpy` and arrays, without gradients; writes become results."""
    with_grad: bool = False
    asked: float | None = None
    """The limit in microseconds above the bare NumPy calls."""


# ------------------------------------------------------------------------------------ the functions
def _plain(library: Any) -> Any:
    def plain(*xs: Any) -> Any:
        return xs[0].sin() * xs[-1] + 1

    return plain


def _mutating(library: Any) -> Any:
    def mutating(a: Any, b: Any) -> Any:
        a.neg_()
        return a.sin() * b + 1

    return mutating


def _aliasing(library: Any) -> Any:
    def aliasing(a: Any, b: Any) -> Any:
        return a.sin() * b + 1, a.view(4, 2)

    return aliasing


def _joined(library: Any) -> Any:
    cat = library.cat

    def joined(*xs: Any) -> Any:
        return cat(xs).sin()

    return joined


def _bare_plain(*xs: Any) -> Any:
    return np.add(np.multiply(np.sin(xs[0]), xs[-1]), 1)


def _bare_mutating(a: Any, b: Any) -> Any:
    np.negative(a, out=a)
    return _bare_plain(a, b)


def _bare_aliasing(a: Any, b: Any) -> Any:
    return _bare_plain(a, b), a.reshape(4, 2)


def _bare_gradients(*xs: Any) -> Any:
    """Three calls forward, four backward: the gradients of the first and the last input."""
    a, b, tangent = xs[0], xs[-1], _TANGENT
    sine = np.sin(a)
    result = np.add(np.multiply(sine, b), 1)
    return result, np.multiply(np.multiply(tangent, b), np.cos(a)), np.multiply(tangent, sine)


def _bare_joined(*xs: Any) -> Any:
    """Two calls forward, two backward and a slice for each gradient."""
    joined = np.concatenate(xs)
    result = np.sin(joined)
    gradient = np.multiply(_LONG_TANGENT[: result.size], np.cos(joined))
    return result, *[gradient[start : start + SIZE] for start in range(0, gradient.size, SIZE)]


def _jax_plain(jnp: Any, *xs: Any) -> Any:
    return jnp.sin(xs[0]) * xs[-1] + 1


_TANGENT = np.ones(SIZE, np.float32)
_LONG_TANGENT = np.ones(100 * SIZE, np.float32)


def _plain_case(name: str, inputs: int, asked: float) -> Case:
    return Case(
        name=name, inputs=inputs, function=_plain, bare=_bare_plain, jax=_jax_plain, asked=asked
    )


CASES: tuple[Case, ...] = (
    _plain_case("plain", 2, 1.5),
    Case(
        name="input mutation",
        inputs=2,
        function=_mutating,
        bare=_bare_mutating,
        jax=lambda jnp, a, b: (_jax_plain(jnp, -a, b), -a),
        asked=2.5,
    ),
    Case(
        name="output aliases an input",
        inputs=2,
        function=_aliasing,
        bare=_bare_aliasing,
        jax=lambda jnp, a, b: (_jax_plain(jnp, a, b), a.reshape(4, 2)),
        asked=2.5,
    ),
    Case(
        name="forward+backward",
        inputs=2,
        function=_plain,
        bare=_bare_gradients,
        jax=_jax_plain,
        with_grad=True,
        asked=6,
    ),
    _plain_case("1 input", 1, 1.5),
    _plain_case("10 inputs", 10, 2),
    _plain_case("100 inputs", 100, 5),
    Case(
        name="100 inputs, forward+backward",
        inputs=100,
        function=_joined,
        bare=_bare_joined,
        jax=lambda jnp, *xs: jnp.sin(jnp.concatenate(xs)),
        with_grad=True,
        asked=45,
    ),
    Case(
        name="100 inputs, 2 used, forward+backward",
        inputs=100,
        function=_plain,
        bare=_bare_gradients,
        jax=_jax_plain,
        with_grad=True,
    ),
)


# -------------------------------------------------------------------------------------- the actions
def actions(case: Case, peers: Sequence[str]) -> dict[str, Action]:
    """One action for each column: ours compiled and eager, bare NumPy, and the peers'."""
    made = {
        "aotlite": _aotlite(case, compiled=True),
        "bare NumPy": _numpy(case),
        "aotlite eager": _aotlite(case, compiled=False),
    }
    if "torch" in peers:
        made["torch aot"] = _torch(case, compiled=True)
        made["torch eager"] = _torch(case, compiled=False)
    if "jax" in peers:
        made["jax.jit"] = _jax(case)
    return made


def values(case: Case) -> list[np.ndarray]:
    """The input numbers of every library."""
    draw = np.random.default_rng(0)
    return [draw.uniform(0.5, 1.5, SIZE).astype(np.float32) for _ in range(case.inputs)]


def _numpy(case: Case) -> Action:
    arrays = values(case)
    return lambda: case.bare(*arrays)


def _aotlite(case: Case, *, compiled: bool) -> Action:
    import aotlite as al

    function = case.function(al)
    run = al.compile(function, verify=0) if compiled else function
    tensors = [al.tensor(value) for value in values(case)]
    return _tensor_action(case, al, run, tensors)


def _torch(case: Case, *, compiled: bool) -> Action:
    torch, functorch = import_module("torch"), import_module("functorch.compile")
    torch.set_num_threads(1)

    function = case.function(torch)
    run = functorch.aot_function(function, functorch.nop) if compiled else function
    tensors = [torch.tensor(value) for value in values(case)]
    return _tensor_action(case, torch, run, tensors)


def _tensor_action(case: Case, library: Any, run: Any, tensors: list[Any]) -> Action:
    """A call of `run`, and of `autograd.grad` where the case has gradients."""
    if not case.with_grad:
        return lambda: run(*tensors)
    for each in tensors:
        each.requires_grad_()
    grad, tangent = library.autograd.grad, library.ones_like(run(*tensors))

    def action() -> Any:
        result = run(*tensors)
        return result, *grad(result, tensors, tangent, allow_unused=True)

    return action


def _jax(case: Case) -> Action:
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def function(*xs: Any) -> Any:
        return case.jax(jnp, *xs)

    def with_gradients(*xs: Any) -> Any:
        result, pull_back = jax.vjp(function, *xs)
        return result, *pull_back(jnp.ones_like(result))

    run = jax.jit(with_gradients if case.with_grad else function)
    arrays = [jnp.asarray(value) for value in values(case)]
    return lambda: run(*arrays)
