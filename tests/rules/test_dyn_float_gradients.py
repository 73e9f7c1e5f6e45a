"""DYN-27: a float among the arguments is an input of the graph where gradients flow, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.op import OPS, PureOp
from aotlite.stages.records.guards.float_guards import FloatInputs
from tests.rules.test_dyn_floats import BACKENDS, FLOATS, arguments, numbers_in
from tests.samples import samples_of

FUNCTIONS: dict[str, Callable[[Any, float], Any]] = {
    "a product": lambda x, s: (x * s).pow(3).sum(),
    "a quotient": lambda x, s: (x / (s + 2)).exp().sum() + (s / x).sum(),
    "mixup": lambda x, s: (x.sin() * s + x.cos() * (1 - s)).pow(2).sum(),
    "a weight of a loss": lambda x, s: x.sin().sum() + s * (x * x).mean(),
    "of sizes": lambda x, s: (x * x * (s / x.shape[0])).sum(),
    "a sum": lambda x, s: x.add(x * x, alpha=s).sum(),
    "a branch": lambda x, s: (x * s if s > 0.15 else x / (s + 4)).exp().sum(),
}


def derivatives(function: Callable[..., Any], values: Any, *args: object, orders: int = 2) -> Any:
    """The texts of a result, and of its derivatives."""
    x = al.tensor(values).requires_grad_()
    with np.errstate(all="ignore"):
        y = function(x, *args)
        found = [repr(y.tolist())]
        for order in range(orders):
            (grad,) = al.autograd.grad(y, [x], create_graph=order + 1 < orders)
            assert grad is not None
            found.append(repr(grad.tolist()))
            y = grad.sum()
    return found


@pytest.mark.rules("DYN-27")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_backward_serves_every_number(name: str, dtype: str, backend: str) -> None:
    """Bit for bit that of a compilation for the number."""
    function, values = FUNCTIONS[name], np.arange(1, 5).astype(dtype) / 3
    compiled = al.compile(function, dynamic=None, backend=backend)
    for s in FLOATS if backend == "reference" else FLOATS[:3]:  # a compilation of C for each
        alone = al.compile(function, dynamic=False, backend=backend)
        assert derivatives(compiled, values, s) == derivatives(alone, values, s)
    assert len(compiled.entries) == 2 + (name == "a branch")


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_eagers(name: str) -> None:
    function, values = FUNCTIONS[name], np.arange(1, 5).astype(np.float32) / 4
    compiled = al.compile(function, dynamic=None, backend="reference")
    for s in FLOATS:
        mine, its = [derivatives(f, values, s, orders=1) for f in (compiled, function)]
        assert mine == its


@pytest.mark.rules("DYN-27")
def test_each_call_keeps_its_own_number() -> None:
    def loss(x: al.Tensor, s: float) -> al.Tensor:
        return (x * s).pow(2).sum()

    compiled = al.compile(loss, dynamic=True, backend="reference")
    x = al.ones(2).requires_grad_()
    losses = [compiled(x, s) for s in (0.5, 0.25, 3.0)]
    for _ in range(2):
        for s, each in zip((0.5, 0.25, 3.0), losses, strict=True):
            x.grad = None
            each.backward(retain_graph=True)
            assert x.grad is not None
            assert x.grad.tolist() == [2 * s * s] * 2
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
def test_a_number_of_another_type_is_compiled_by_itself() -> None:
    compiled = al.compile(FUNCTIONS["a product"], dynamic=None, backend="reference")
    values = np.ones(3, np.float32)
    for s in (0.5, 0.25, 2, 0.125, True, 3):
        assert derivatives(compiled, values, s) == derivatives(FUNCTIONS["a product"], values, s)


@pytest.mark.rules("DYN-27", "TEN-42")
def test_hooks_of_saved_tensors_do_not_get_numbers() -> None:
    """A hook that rounds would change them; eager saves none."""

    def rounded(t: al.Tensor) -> al.Tensor:
        seen.append(t.shape)
        return t.bfloat16()

    def loss(x: al.Tensor, s: float) -> al.Tensor:
        return (x.exp() * s).pow(3).sum()

    compiled = al.compile(loss, dynamic=True, backend="reference")
    for s in (0.1, 0.3, 0.7):
        found = []
        for function in (compiled, loss):
            seen: list[tuple[int, ...]] = []
            x = al.arange(3.0).requires_grad_()
            with al.autograd.graph.saved_tensors_hooks(rounded, lambda t: t.float()):
                (grad,) = al.autograd.grad(function(x, s), [x], create_graph=True)
                assert grad is not None
            found.append((grad.tolist(), () in seen))
        assert found[0] == found[1] and not found[0][1]
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27", "SAV-7")
@pytest.mark.parametrize("mode", ["donated", "no_static", "all"])
def test_hooks_in_the_graph_do_not_get_numbers(mode: str) -> None:
    def loss(x: al.Tensor, s: float) -> al.Tensor:
        return (x.exp() * s).sin().sum()

    hooks = (lambda t: t * 2, lambda t: t + 0)
    how = {"saved_hooks": hooks, "saved_hooks_mode": mode, "backend": "reference"}
    compiled = al.compile(loss, dynamic=True, **how)
    for s in (0.1, 0.3, 0.7):
        alone = al.compile(loss, dynamic=False, **how)
        values = np.arange(3, dtype=np.float32)
        assert derivatives(compiled, values, s, orders=1) == derivatives(alone, values, s, orders=1)


class Scaled(al.autograd.Function):
    """Its backward asks for the number."""

    @staticmethod
    def forward(ctx: Any, x: Any, s: float) -> Any:
        ctx.s = s
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * (ctx.s * 2 if ctx.s > 0.4 else math.sqrt(ctx.s)), None


def hooked(x: Any, s: float) -> Any:
    y = x * 2
    y.register_hook(lambda grad: grad * s)
    return y.exp().sum()


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize("function", [lambda x, s: Scaled.apply(x, s).pow(2).sum(), hooked])
def test_users_code_in_the_backward_is_compiled_for_the_number(function: Any) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    values = np.arange(3, dtype=np.float32) / 2
    for s in (0.5, 0.25, 0.75, 0.5):
        assert derivatives(compiled, values, s, orders=1) == derivatives(
            function, values, s, orders=1
        )
    assert len(compiled.entries) == 3


@pytest.mark.rules("DYN-27", "CKP-1")
@pytest.mark.parametrize("is_outside", [True, False])
def test_checkpoints_recompute_with_the_number(is_outside: bool) -> None:
    def block(x: Any, s: float) -> Any:
        return (x * s).exp().sin()

    def loss(x: Any, s: float) -> Any:
        return al.checkpoint(block, x, s).sum()

    inner = al.compile(block, dynamic=True, backend="reference")
    whole = al.compile(loss, dynamic=True, backend="reference")

    def around(x: Any, s: float) -> Any:
        return al.checkpoint(inner, x, s).sum()

    for s in (0.1, 0.2, 0.7):
        values = np.arange(3, dtype=np.float32)
        mine = derivatives(around if is_outside else whole, values, s, orders=1)
        assert mine == derivatives(loss, values, s, orders=1)


@pytest.mark.rules("DYN-27")
def test_compiled_tapes_take_the_number_of_each_call() -> None:
    compiled = al.compile(FUNCTIONS["mixup"], dynamic=True, backend="reference")
    for s in (0.1, 0.2, 0.7, math.nan):
        found = []
        for function in (compiled, FUNCTIONS["mixup"]):
            x = al.arange(3.0).requires_grad_()
            with al.compiled_autograd.enable("reference"):
                (function(x * 2, s) * 3).backward()
            assert x.grad is not None
            found.append(repr(x.grad.tolist()))
        assert found[0] == found[1]
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
def test_a_number_that_only_a_formula_makes_is_taken() -> None:
    """Of `lerp` the gradient is that times 1 - weight, which the function does not compute."""

    def mixed(x: Any, s: float) -> Any:
        return al.lerp(x, x * x, s).sum()

    compiled = al.compile(mixed, dynamic=True, backend="reference")
    values = np.arange(3, dtype=np.float32)
    for s in (0.25, 0.1, 0.25):
        assert derivatives(compiled, values, s, orders=1) == derivatives(mixed, values, s, orders=1)
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-27")
def test_nothing_new_is_asked_once_calls_are_made() -> None:
    floats = FloatInputs()
    number = floats.argument(1, 0.5, "")
    assert number < 1
    with floats.closed():
        assert number < 1
        with pytest.raises(al.UnsupportedError, match="a derivative of a backward needs"):
            number.plain()
    floats.take()
    with floats.closed():
        assert number.plain() == 0.5


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if isinstance(op, PureOp) and numbers_in(op)]
)
def test_derivatives_of_derivatives_ask_for_nothing_new(name: str) -> None:
    """The law beneath it: formulas of formulas compute with the numbers that the first backward
    has. So no later order needs a number that the calls have not kept."""
    op = OPS[name]
    assert isinstance(op, PureOp)
    for i in numbers_in(op):
        for sample in samples_of(name)[:12]:
            args = arguments(op, sample)
            if args is None or type(args[i]) not in (int, float):
                continue
            check_orders(op, args, i)


def check_orders(op: PureOp, args: tuple[Any, ...], i: int) -> None:
    given = [each for each in args if isinstance(each, al.Tensor)]

    def function(s: float, *tensors: Any) -> Any:
        left = iter(tensors)
        put = [next(left) if isinstance(each, al.Tensor) else each for each in args]
        put[i] = s
        results = tensors[0]._apply(op, tuple(put))
        results = results if isinstance(results, tuple) else (results,)
        return sum((y * y * y).sum() for y in results if y.is_floating_point())

    def orders(function: Any, s: float) -> list[str]:
        tensors = [each.detach().clone() for each in given]
        inputs = [each.requires_grad_() for each in tensors if each.is_floating_point()]
        found = []
        with np.errstate(all="ignore"):
            y = function(s, *tensors)
            for _ in range(3):
                found.append(repr(y.tolist()))
                if not y.requires_grad:
                    break
                grads = al.autograd.grad(y, inputs, create_graph=True, allow_unused=True)
                found += [repr(None if g is None else g.tolist()) for g in grads]
                y = sum((g * g).sum() for g in grads if g is not None)
        return found

    try:
        orders(function, 0.5)
    except al.AotliteError:
        return
    compiled = al.compile(function, dynamic=True, backend="reference")
    for s in (0.5, 0.3):
        alone = al.compile(function, dynamic=False, backend="reference")
        assert orders(compiled, s) == orders(alone, s)
