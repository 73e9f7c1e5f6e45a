"""Programs whose compiled backwards once were not the engine's (CAG-1, CAG-7)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from aotlite.sharding import Mesh, Shard, ShardedTensor
from aotlite.subclasses import TwoTensor
from tests.helpers.own_ops import taken_out

pytestmark = pytest.mark.rules("CAG-1", "CAG-7")

Program = Callable[[int], Any]
"""From the number of the call to what is to be seen afterwards."""


def P(*values: float) -> Any:
    return T(*values).requires_grad_()


def T(*values: float) -> Any:
    return al.tensor([float(value) for value in values])


def shown(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return "pair", shown(value.a), shown(value.b)
    if isinstance(value, ShardedTensor):
        return "sharded", str(value.placement), [shown(part) for part in value.parts]
    if isinstance(value, al.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().tolist()
    return [shown(each) for each in value] if isinstance(value, (list, tuple)) else value


def outcome(program: Program, number: int) -> Any:
    try:
        return shown(program(number))
    except Exception as error:
        return type(error).__name__, str(error)


def same(program: Program, calls: int = 5) -> CompiledAutograd:
    """Each call leaves what it leaves by the engine; for a compiler that begins at each of them."""
    with disable():
        expected = [outcome(program, number) for number in range(calls)]
    for first in range(calls):
        tapes = CompiledAutograd.of("reference")
        for number in [*range(first, calls), *range(calls)]:
            with enable(tapes):
                assert outcome(program, number) == expected[number], (first, number)
    return tapes


# -------------------------------------------------------------------------------------- memory
def test_two_leaves_of_one_gradient_have_memory_of_their_own() -> None:
    def program(number: int) -> Any:
        a, b, c = P(1, 2), P(3, 4), T(5, 6)
        ((a + b) * c).sum().backward()
        assert a.grad is not b.grad
        a.grad.mul_(100)
        ((a + b) * c).sum().backward()
        return a.grad, b.grad

    same(program)


def test_a_gradient_that_is_memory_of_the_tape() -> None:
    """It is added to when the leaf's turn comes, and read then."""

    def given(number: int) -> Any:
        h, x, g = P(1, 1), P(1, 1), T(1, 1)
        x.grad = g
        (h * T(2, 3) + x).backward(g)
        return h.grad, x.grad, g

    def saved(number: int) -> Any:
        h, x, w = P(1, 1), P(1, 1), T(5, 6)
        x.grad = w.detach()
        (h * w + x).backward(al.ones(2))
        return h.grad

    def anothers(number: int) -> Any:
        a, b = P(1, 2), P(3, 4)
        b.grad = a.detach()
        (a * a * b).sum().backward()
        return a.grad

    for program in (given, saved, anothers):
        same(program)


def test_results_that_are_one_tensor_or_views_are_so() -> None:
    def one(number: int) -> Any:
        x, y = P(1, 2), P(3, 4)
        first: Any
        first, second = al.autograd.grad((x + y).view(1, 2), [x, y], al.ones(1, 2))
        first.unsqueeze_(0)
        return first is second, first, second

    def view(number: int) -> Any:
        b, c = P(1, 2, 3, 4), al.ones(2, 2)
        grad: Any
        (grad,) = al.autograd.grad((b.view(2, 2) * c).sum(), [b])
        return grad._base is None, grad.detach_()

    same(one)
    same(view)


@pytest.mark.rules("CAG-14")
@pytest.mark.parametrize("hooked", [False, True])
def test_nothing_waits_for_the_collector(hooked: bool) -> None:
    tapes = CompiledAutograd.of("reference")
    gc.disable()
    try:
        for number in range(4):
            x = P(1, 2)
            middle = (x * x).exp()
            if hooked:
                middle.register_hook(lambda grad: None)
            loss = middle.sum()
            with enable(tapes):
                (found,) = al.autograd.grad(loss, x)
            references = [weakref.ref(found), weakref.ref(loss.grad_fn), weakref.ref(x)]
            del found, loss, middle, x
            if number:  # a first capture leaves what it recorded
                assert [each() for each in references] == [None] * 3
    finally:
        gc.enable()


# ---------------------------------------------------------------------------- values and errors
def test_a_saved_value_that_nothing_computes_with_is_checked() -> None:
    def program(number: int) -> Any:
        x, y = P(1, 2), T(3, 4)
        z = x * y
        x.requires_grad_(False) if number % 2 else None
        if number >= 2:
            y.mul_(2)
        z.sum().backward()
        return x.grad

    same(program)

    def dead(number: int) -> Any:
        y = T(3, 4)
        z = P(1, 2) * y
        if number >= 2:
            y.mul_(2)
        z.sum().backward()

    same(dead)


def test_a_sum_of_a_dense_gradient_and_a_wrapper() -> None:
    def program(number: int) -> Any:
        w, pair = P(1, 2), TwoTensor(T(3, 4), T(5, 6))
        u, v = w.sin(), w * pair
        al.autograd.backward([u, v], [al.ones(2), al.ones_like(v).detach()])
        return w.grad

    same(program)


def test_a_dense_tape_into_a_sharded_leaf() -> None:
    def program(number: int) -> Any:
        mesh = Mesh(2)
        x = ShardedTensor.from_dense(al.ones(2, 2) * 3, mesh, Shard(0)).requires_grad_()
        al.ones(2, 2).mul_(x).sum().backward()
        return x.grad

    same(program)


@pytest.mark.parametrize("change", ["requires_grad_", "dies", "behind accumulation"])
def test_a_hook_changes_a_leaf_in_one_call_only(change: str) -> None:
    def program(number: int) -> Any:
        w, x = P(1, 2), P(3, 4)
        held = [w]
        middle = w * 5
        end = middle * 3 * x

        def hook(grad: Any) -> None:
            if number == 0:
                if change == "dies":
                    held.clear()
                else:
                    w.requires_grad_(False)

        if change == "behind accumulation":
            x.register_post_accumulate_grad_hook(hook)
        else:
            end.register_hook(hook)
        if change == "dies":
            del w
        (end * 2).sum().backward()
        return [each.grad for each in held], x.grad

    same(program)


@pytest.mark.parametrize("change", ["t_", "unsqueeze_", "pack"])
def test_a_hook_changes_what_is_read_later(change: str) -> None:
    def program(number: int) -> Any:
        w = al.ones(2, 2, requires_grad=True)
        a = w * w
        b = a * 3

        def hook(grad: Any) -> None:
            if number % 2:
                return
            if change == "pack":
                a.grad_fn._raw_saved_other.register_hooks(lambda t: t.clone(), lambda t: t)  # type: ignore[union-attr]
            else:
                with al.no_grad():
                    w.t_() if change == "t_" else w.unsqueeze_(0)

        b.register_hook(hook)
        b.sum().backward()
        return w.grad

    same(program)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_hook_goes_through_a_later_part_without_retaining(compiled: bool) -> None:
    square = al.compile(lambda x: x * x, backend="reference") if compiled else lambda x: x * x

    def program(number: int) -> Any:
        w = P(1, 2)
        y = square(square(w))
        z = y * 3

        def hook(grad: Any) -> None:
            with al.enable_grad():
                al.autograd.grad(y.sum(), w)

        z.register_hook(hook)
        z.sum().backward()
        return w.grad

    same(program)


def test_closed_nodes_of_another_number_of_results() -> None:
    class Several(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, count: int) -> Any:
            ctx.set_materialize_grads(False)
            ctx.count = count
            return tuple([x * (k + 1) for k in range(count)])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            assert len(grads) == ctx.count
            return grads[0] * len(grads), None

    def function(number: int) -> Any:
        x = P(1, 2)
        Several.apply(x, 2 + number % 3)[0].sum().backward()
        return x.grad

    def compiled(number: int) -> Any:
        x = P(1, 2)
        several = al.compile(
            lambda x: [x * (k + 1) for k in range(2 + number % 3)], backend="reference"
        )
        results = several(x)
        results[0].register_hook(lambda grad: grad * 2)
        results[0].sum().backward()
        return x.grad

    def normed(number: int) -> Any:
        norm = al.nn.BatchNorm2d(3)
        norm.train(number % 2 == 1)
        x = (al.arange(96.0).view(2, 3, 4, 4) * 0.1).requires_grad_()
        (norm(x) * al.arange(96.0).view(2, 3, 4, 4)).sum().backward()
        return x.grad

    for program in (function, compiled, normed):
        same(program)


@pytest.mark.rules("CAG-18")
def test_formulas_that_draw_or_have_effects_are_closed(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(grad: Any) -> Any:
        al.effects.print("{}", grad)
        return grad * 2

    formulas = {"drawing": lambda grad: grad * al.rand(2), "printing": printed}
    with taken_out():
        for name, formula in formulas.items():
            al.register_op(
                f"{name}(Tensor x) -> Tensor",
                kernel=lambda xp, x: x * 2,
                scalar=lambda x: x * 2,
                vjp={"x": formula},
            )

        def program(number: int) -> Any:
            al.manual_seed(number)
            x = P(1, 2)
            al.printing(al.drawing(x.sin())).exp().sum().backward()
            return x.grad, al.get_rng_state(), capsys.readouterr().out

        same(program)


# ------------------------------------------------------------------------------------ coverage
def test_parameters_are_leaves_like_others() -> None:
    al.manual_seed(0)
    model = al.nn.Sequential(al.nn.Linear(3, 4), al.nn.ReLU(), al.nn.Linear(4, 2))
    tapes = CompiledAutograd.of("reference")
    for _ in range(3):
        with enable(tapes):
            model(al.ones(5, 3)).sum().backward()
    assert len(tapes.graphs) == 1
    assert tapes._recent[0].whole is not None


@pytest.mark.rules("CAG-15")
def test_disabling_in_a_hook_leaves_the_engine_in_the_hook() -> None:
    tapes = CompiledAutograd.of("reference")
    seen = []
    x = P(1, 2)

    def hook(grad: Any) -> None:
        with disable():
            pass
        with enable("reference"):
            pass
        seen.append(al.compiled_autograd.is_enabled())
        with al.enable_grad():
            z = P(3.0)
            al.autograd.grad((z * z).sum(), z, create_graph=True)

    x.register_hook(hook)
    with enable(tapes):
        (x * x).sum().backward()
        assert al.compiled_autograd.is_enabled()
    assert seen == [False]


@pytest.mark.rules("CAG-15")
def test_a_generator_has_the_mode_while_it_runs() -> None:
    @enable("reference")
    def steps() -> Any:
        for _ in range(2):
            yield al.compiled_autograd.is_enabled()

    assert [(inside, al.compiled_autograd.is_enabled()) for inside in steps()] == [
        (True, False),
        (True, False),
    ]


@pytest.mark.rules("CAG-4")
def test_what_no_stage_can_do_is_run_by_the_engine() -> None:
    """A stage refuses; nothing has run by then, and nothing is lost."""

    def refuse(graph: Any) -> Any:
        raise al.UnsupportedError("no graph is good enough")

    tapes = CompiledAutograd.of("reference", passes=[refuse])
    for _ in range(3):
        x, y = P(1, 2), P(3, 4)
        seen: list[Any] = []
        middle = x.sin() * y
        middle.register_hook(lambda grad, seen=seen: seen.append(grad.tolist()))
        with enable(tapes):
            (middle.exp() * 2 + x).sum().backward()
        with disable():
            other, another = P(1, 2), P(3, 4)
            ((other.sin() * another).exp() * 2 + other).sum().backward()
        assert x.grad.tolist() == other.grad.tolist()
        assert y.grad.tolist() == another.grad.tolist()
        assert len(seen) == 1
    assert tapes.counters.captures == 1
    assert tapes.graphs == []


def test_writes_through_views_of_another_dtype() -> None:
    """Such windows are none of a recorded value's: the engine runs them."""

    def program(number: int) -> Any:
        leaf = al.tensor([3 - 3j, 1 + 1j], requires_grad=True)
        y = leaf.mul(1)
        y.imag.expand((2, 2)).unflatten(0, (-1, 2))[0, 1].mul_(3)
        y.imag.sum().backward()
        return leaf.grad

    same(program)
