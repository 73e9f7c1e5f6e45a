"""DBL: derivatives of compiled backwards, to the third order, are eager's."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

import pytest
from hypothesis import given

import aotlite as al
from aotlite.inspect import counting
from tests.end_to_end.helpers.cases import Call, Case, cases, setup_of
from tests.end_to_end.helpers.worlds import body_of
from tests.helpers.programs import Aotlite, execute
from tests.rules.helpers.towers import (
    ORDERS,
    close,
    close_but_zeros,
    gradients,
    history_of,
    many,
    numbers,
    total,
)

REFUSED = (al.UnsupportedError, al.AliasError)


# ------------------------------------------------------------------------------ random programs
class Small(Aotlite):
    """Numbers of which third derivatives do not overflow; another call has others."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def fresh(self, values: list[float], shape: tuple[int, ...], requires_grad: bool) -> Any:
        return super().fresh([v * self.scale for v in values], shape, requires_grad)


def tower(results: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Gradients of leaves of a function of the results, of one of these gradients, and so on."""
    found: list[Any] = []
    current = [r for r in results if isinstance(r, al.Tensor) and r.requires_grad]
    for order in range(ORDERS):
        if not current or not leaves:
            break
        try:
            grads = gradients(total(current), leaves, create_graph=True, allow_unused=True)
        except al.AotliteError as error:
            assert not isinstance(error, (al.UnsupportedError, al.GraphError)), error
            return [*found, (order, type(error).__name__)]
        found.append([g if g is None else (g.tolist(), g.requires_grad) for g in grads])
        current = history_of(grads)
    return found


def towers(case: Case, function: Callable[..., Any]) -> Any:
    """Those of each call of a case; the error's name where a call raises."""
    found: list[Any] = []
    for number, call in enumerate(case.calls):
        setup: list[Any] = []
        execute(Small(0.1 if number == 0 else -0.2), setup_of(case, call), setup)
        leaves = [t for t in setup if t.requires_grad and t.is_leaf and t.grad_fn is None]
        try:
            results = function(*[setup[i] for i in call.inputs])
        except REFUSED:
            raise
        except (al.AotliteError, IndexError) as error:  # a view of fewer parts is another program
            found.append(type(error).__name__)
        else:
            found.append(tower(results, leaves))
    return found


def is_known(case: Case, eager: Any, compiled: Any) -> bool:
    """Whether a cleared view of what is not passed has zeros without a history (docs/limits.md),
    and nothing else differs."""
    clears = any(step.op in ("fill_", "zero_", "copy_") for step in case.program.body)
    return (clears and any(map(partial(passes_a_part, case), case.calls))) and all(
        close(*pair) or close_but_zeros(*pair) for pair in zip(eager, compiled, strict=True)
    )


def passes_a_part(case: Case, call: Call) -> bool:
    """Whether an argument is a view of what is not passed."""
    setup: list[Any] = []
    execute(Small(0.1), setup_of(case, call), setup)
    passed = [setup[i] for i in call.inputs]
    return any(
        each._base is not None and not any(each._base is other for other in passed)
        for each in passed
    )


def check_programs(count: int, backend: str) -> Counter[str]:
    seen: Counter[str] = Counter()

    @many(count)
    @given(cases())
    def check(case: Case) -> None:
        seen["all"] += 1
        try:
            eager = towers(case, body_of(case))
        except al.AotliteError:
            seen["refused in eager"] += 1
            return
        try:
            compiled = towers(case, al.compile(body_of(case), backend=backend))
        except REFUSED:
            seen["refused"] += 1
            return
        assert close(eager, compiled) or is_known(case, eager, compiled), (
            f"{case}\n{eager}\n{compiled}"
        )
        seen["third order"] += any(type(each) is list and len(each) == ORDERS for each in eager)

    check()
    return seen


@pytest.mark.rules("DBL-2", "JNT-15")
def test_derivatives_of_random_programs_are_eagers() -> None:
    """With writes and views: values, Nones, whether they require grad, and errors."""
    seen = check_programs(60, "reference")
    assert seen["refused"] <= 0.1 * seen["all"]
    assert seen["third order"] >= 0.2 * seen["all"]


@pytest.mark.long
@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize(("backend", "count"), [("reference", 5000), ("auto", 500)])
def test_derivatives_of_many_random_programs_are_eagers(backend: str, count: int) -> None:
    seen = check_programs(count, backend)
    print(f"{backend}: {dict(seen)}")
    assert seen["third order"] >= 0.2 * seen["all"]


# -------------------------------------------------------------------------------- hand cases
class Tripled(al.autograd.Function):
    """A backward that is not the derivative of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x.exp() * 3


def hooked(x: Any) -> Any:
    y = x.exp()
    y.register_hook(lambda grad: grad * 2 - grad.sum(0, keepdim=True).expand(3, 4) / 3)
    return (y * x).sum()


def untracked(x: Any) -> Any:
    with al.no_grad():
        z = x * 3
    return (z * x.exp()).sum()


def written(x: Any, y: Any) -> Any:
    z = x * y
    z[0].mul_(x[1])
    return z.sin_().sum(), z


def normalized(x: Any, w: Any, b: Any) -> Any:
    return al.nn.functional.layer_norm(x, (4,), w, b).pow(3).sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "detach": (lambda x: (x.detach() * x * x).sum(), ((3, 4),)),
    "no_grad": (untracked, ((3, 4),)),
    "a custom function": (lambda x: Tripled.apply(x.sin()).cos().sum(), ((3, 4),)),
    "a linear hook": (hooked, ((3, 4),)),
    "writes and a view": (written, ((3, 4), (3, 4))),
    "products": (lambda x, w: (x @ w).tanh().pow(2).mean(), ((3, 4), (4, 5))),
    "softmax": (lambda x, w: al.softmax(x @ w, -1).log().sum(), ((3, 4), (4, 5))),
    "a normalization": (normalized, ((3, 4), (4,), (4,))),
    "a mask": (lambda x: (x.relu() * x * x).sum(), ((3, 4),)),
    "two results": (lambda x, y: (x.exp(), y.sin() * x, (x * y).sum(0)), ((3, 4), (3, 4))),
    "an alias": (lambda x: (x.t(), x.exp()), ((3, 4),)),
    "an argument without use": (lambda x, y: x.exp(), ((3, 4), (3, 4))),
    "positions": (lambda x: x.sort(-1)[0].cumsum(0).pow(2).sum(), ((3, 4),)),
}


@pytest.mark.rules("DBL-2")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("inner", [False, True], ids=["leaves", "computed"])
@pytest.mark.parametrize("name", CASES)
def test_third_derivatives_are_eagers(name: str, inner: bool, backend: str) -> None:
    function, shapes = CASES[name]

    def found(called: Callable[..., Any]) -> list[Any]:
        leaves = [numbers(*shape, seed=k) for k, shape in enumerate(shapes)]
        results = called(*[leaf * 1 if inner else leaf for leaf in leaves])
        return tower(results if isinstance(results, tuple) else (results,), leaves)

    eager = found(function)
    assert len(eager) == ORDERS
    assert close(eager, found(al.compile(function, backend=backend)))


OPTIONS: dict[str, dict[str, Any]] = {
    "verified": {"verify": True},
    "general ways": {"fast_paths": False},
    "min-cut": {"partition": "min_cut"},
    "a pass": {"passes": [lambda graph: graph]},
    "decomposed": {"decompositions": al.decompositions.core_table()},
    "loops": {"backend": "loops"},
}


@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["softmax", "a normalization", "writes and a view", "a mask"])
def test_options_change_no_derivative(name: str, option: str) -> None:
    function, shapes = CASES[name]

    def found(called: Callable[..., Any]) -> list[Any]:
        leaves = [numbers(*shape, seed=k) for k, shape in enumerate(shapes)]
        results = called(*leaves)
        return tower(results if isinstance(results, tuple) else (results,), leaves)

    assert close(found(function), found(al.compile(function, **OPTIONS[option])))


@pytest.mark.rules("DBL-2", "TEN-45")
def test_threads_make_orders_side_by_side() -> None:
    compiled = al.compile(lambda x: (x**4).sum(), backend="reference")
    seen: list[Any] = []

    def work() -> None:
        for _ in range(10):
            x = al.tensor([1.0, 2.0], requires_grad=True)
            seen.append(tower([compiled(x)], [x]))

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 40
    assert all(each == seen[0] for each in seen)


@pytest.mark.rules("DBL-2")
def test_second_derivatives_agree_with_finite_differences() -> None:
    f = al.compile(lambda x, w: (x @ w).tanh().sum(1).exp())
    assert al.autograd.gradgradcheck(f, (numbers(3, 4), numbers(4, 2, seed=1)))


@pytest.mark.rules("DBL-2")
def test_forward_mode_goes_through_compiled_functions() -> None:
    def f(x: Any) -> Any:
        return (x.sin() * x).exp()

    x, v = numbers(4).detach(), numbers(4, seed=1).detach()
    functional = al.autograd.functional
    compiled = al.compile(f)
    assert close(functional.jvp(f, x, v)[1].tolist(), functional.jvp(compiled, x, v)[1].tolist())
    loss, compiled_loss = (lambda g: lambda x: g(x).sum())(f), al.compile(lambda x: f(x).sum())
    hessian = functional.hessian(loss, x).tolist()
    assert close(hessian, functional.hessian(compiled_loss, x).tolist())


@pytest.mark.rules("DBL-2")
def test_neither_the_function_nor_eager_ops_run_for_later_orders() -> None:
    runs = []

    def cube(x: Any) -> Any:
        runs.append("function")
        return x * x * x

    compiled = al.compile(cube)
    ones = al.ones(3)

    def derivatives() -> list[Any]:
        x = al.tensor([1.0, 2.0, 3.0], requires_grad=True)
        found = [compiled(x)]
        for _ in range(3):
            found += al.autograd.grad(found[-1], [x], ones, create_graph=True)
        return [each.tolist() for each in found[1:]]

    expected = [[3.0, 12.0, 27.0], [6.0, 12.0, 18.0], [6.0, 6.0, 6.0]]
    assert expected == derivatives()
    assert ["function"] == runs
    with counting() as ran:
        assert expected == derivatives()
    assert ["function"] == runs
    assert (ran.eager_ops, dict(ran.graphs)) == (0, {0: 1, 1: 1, 2: 1, 3: 1})


@pytest.mark.rules("DBL-2", "SAV-2")
def test_what_a_later_order_reads_and_is_written_is_an_error() -> None:
    def error(function: Callable[..., Any], place: str) -> str | None:
        x = numbers(3)
        y = x * 1
        result = function(y)
        given_ = al.ones(3, dtype=al.float64).requires_grad_() * 1
        [grad] = gradients(result, [x], given_, create_graph=True)
        with al.no_grad():
            {"input": y, "result": result, "tangent": given_, "gradient": grad}[place].mul_(2)
        try:
            grad.sum().backward()
        except al.AutogradError as found:
            return str(found).partition("modified")[1]
        return None

    for function in (lambda x: x * x * x, al.exp, lambda x: x.sin() * 2.0, lambda x: x.tanh()):
        for place in ("input", "result", "tangent", "gradient"):
            assert error(function, place) == error(al.compile(function), place), place


@pytest.mark.rules("DBL-2", "PART-37")
def test_what_eager_has_not_saved_may_be_written() -> None:
    """The compiled forward keeps other values, which are copied before."""

    def loss(x: Any, w: Any) -> Any:
        return ((x.exp() * w).sin() * 2).sum()

    def found(function: Callable[..., Any]) -> Any:
        x, w = numbers(3), numbers(3, seed=1)
        y = x * 1
        result = function(y, w)
        with al.no_grad():
            y.mul_(5)
        [grad] = gradients(result, [x], create_graph=True)
        return [each.tolist() for each in (grad, *al.autograd.grad(grad.sum(), [x, w]))]

    for backend in ("reference", "auto"):
        for partition in ("default", "min_cut"):
            compiled = al.compile(loss, backend=backend, partition=partition)
            assert close(found(loss), found(compiled))


@pytest.mark.rules("DBL-2", "FUN-1")
def test_a_written_input_is_differentiated_as_it_was() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x.exp()
        x.mul_(w)
        return (y * x).sum()

    def found(called: Callable[..., Any]) -> Any:
        leaf, w = numbers(3), numbers(3, seed=1)
        x = leaf * 1
        result = called(x, w)
        return tower([result, x], [leaf, w])

    assert len(found(function)) == ORDERS
    assert close(found(function), found(al.compile(function)))


@pytest.mark.rules("DBL-2")
def test_a_part_of_an_argument_that_the_function_writes_is_read_as_it_was() -> None:
    """A view of what is written lies in the same memory: it is copied at the call (PART-37)."""

    def f(a: Any, b: Any) -> Any:
        b[1:].mul_(a[:2])
        return b.sin()

    def story(run: Any) -> Any:
        a = al.tensor([0.3, 0.5, 0.7], dtype=al.float64, requires_grad=True)
        b = al.tensor([0.2, 0.4, 0.6], dtype=al.float64, requires_grad=True)
        first: Any = al.autograd.grad(run(a, b * 1).sum(), [a, b], create_graph=True)
        second: Any = al.autograd.grad(first[0].sum() + first[1].sum(), [a, b])
        return [each.tolist() for each in (*first, *second)]

    expected = story(f)
    for backend in ("reference", "auto"):
        found = story(al.compile(f, backend=backend))
        for its, mine in zip(expected, found, strict=True):
            assert its == pytest.approx(mine, rel=1e-12)


@pytest.mark.rules("DBL-2")
def test_nothing_of_the_callers_is_kept_alive() -> None:
    compiled = al.compile(lambda x, w: (x @ w).tanh().sum())
    x, w = numbers(3, 4), numbers(4, 2)
    [grad] = gradients(compiled(x, w), [w], create_graph=True)
    grad.sum().backward()
    alive = [weakref.ref(each) for each in (x, w, grad, x.storage, w.storage)]
    del x, w, grad
    gc.collect()
    assert [None] * 5 == [each() for each in alive]


@pytest.mark.rules("DBL-2", "SAV-2")
@pytest.mark.parametrize("written", [0, 1])
def test_of_results_that_are_one_value_the_other_may_be_written(written: int) -> None:
    """Each is saved in its own memory, and either is read for derivatives of both."""

    def function(x: Any) -> Any:
        return al.softmax(x, -1), al.softmax(x, -1)

    def found(called: Callable[..., Any]) -> Any:
        x = numbers(3, 4)
        results = called(x * 1)
        with al.no_grad():
            results[written].detach().mul_(1.5)
        return tower([results[1 - written]], [x])

    eager = found(function)
    assert len(eager) == ORDERS
    for backend in ("reference", "auto"):
        assert close(eager, found(al.compile(function, backend=backend)))


class Given(al.autograd.Function):
    """Its gradient is what it has saved."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return ctx.saved_tensors[0]


@pytest.mark.rules("DBL-2", "SAV-1")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_gradient_with_a_history_is_never_memory_that_was_saved(backend: str) -> None:
    """Its holder may write it."""
    x = numbers(4)
    result = al.compile(Given.apply, backend=backend)(x).sum()
    [first] = gradients(result, [x], create_graph=True)
    before = first.tolist()
    with al.no_grad():
        first.detach().mul_(3.0)
    [again] = gradients(result, [x], create_graph=True)
    assert before == again.tolist()
