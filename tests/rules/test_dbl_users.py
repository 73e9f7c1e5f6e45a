"""DBL: derivatives of compiled functions that draw, and of those in whose backward users' Python
runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers.towers import ORDERS, close, gradients, history_of, many, numbers, total

dropout = al.nn.functional.dropout


def drawn(*shape: int) -> Any:
    return al.rand(*shape, dtype=al.float64)


# ------------------------------------------------------------------------- draws in the forward
def forked(x: Any) -> Any:
    with al.random.fork_rng():
        first = drawn(4) * x.exp()
    return first * drawn(4) * x


def seeded(x: Any) -> Any:
    al.manual_seed(7)
    return x.exp() * drawn(4) * x


def penalty(x: Any) -> Any:
    [grad] = gradients(dropout(x.exp(), 0.5).sum(), [x], create_graph=True)
    return (grad * grad).sum() + x.sin().sum()


STEPS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: dropout(x.exp(), 0.5) * x,
    "alpha dropout": lambda x: al.nn.functional.alpha_dropout(x, 0.3, training=True),
    "rand": lambda x: drawn(4) * x.tanh(),
    "randn": lambda x: al.randn(4, dtype=al.float64) + x * x,
    "rand_like": lambda x: al.rand_like(x) * x.detach() * x,
    "bernoulli": lambda x: al.bernoulli(x.detach().sigmoid()) * x.sin(),
    "randperm": lambda x: x[al.randperm(4)] * x,
    "uniform_": lambda x: al.empty(4, dtype=al.float64).uniform_() * x,
    "checkpoint": lambda x: al.checkpoint(lambda y: dropout(y.sin(), 0.5) * y, x),
    "another seed": seeded,
    "a fork": forked,
    "a penalty": lambda x: penalty(x) * x,
    "nothing": lambda x: x.sin(),
}


def drawing(names: Sequence[str]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        results = []
        for name in names:
            x = STEPS[name](x).tanh()
            results.append(x * 2.0)
        return results[-1], results[0].sum()

    return function


def seen_of(called: Callable[[Any], Any], between: int) -> list[Any]:
    """Results, derivatives and generator; `between` numbers are drawn behind each order."""
    al.manual_seed(11)
    x = numbers(4)
    found: list[Any] = []
    for _ in range(2):
        current = list(called(x * 1))
        found += [each.tolist() for each in current]
        for order in range(ORDERS):
            found.append(al.get_rng_state())
            if between:
                al.rand(between * (order + 1))
            grads = gradients(total(current), [x], create_graph=True)
            found += [(each.tolist(), each.requires_grad) for each in grads]
            current = [*grads, *current[1:]]
    return found


@pytest.mark.rules("DBL-2", "RNG-1", "RNG-8")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("name", STEPS)
def test_third_derivatives_of_a_function_that_draws_are_eagers(name: str, partition: str) -> None:
    function = drawing([name, name])
    eager = seen_of(function, 3)
    # Of the two partitions each function has one in C, and each partition half of the functions.
    in_c = (list(STEPS).index(name) + (partition == "min_cut")) % 2 == 0
    for backend in ("reference", "auto") if in_c else ("reference",):
        compiled = al.compile(function, backend=backend, partition=partition)
        assert close(eager, seen_of(compiled, 3))


def check_draws(count: int, backend: str) -> int:
    tried = [0]

    @many(count)
    @given(
        st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
        st.integers(0, 3),
        st.sampled_from(["default", "min_cut"]),
    )
    def check(names: list[str], between: int, partition: str) -> None:
        function = drawing(names)
        compiled = al.compile(function, backend=backend, partition=partition)
        assert close(seen_of(function, between), seen_of(compiled, between)), names
        tried[0] += 1

    check()
    return tried[0]


@pytest.mark.slow("15 programs, to the third order")
@pytest.mark.rules("DBL-2", "RNG-1", "RNG-8")
def test_derivatives_of_random_programs_that_draw_are_eagers() -> None:
    """With the generator's state behind each order."""
    assert check_draws(15, "reference") >= 15


@pytest.mark.long
@pytest.mark.rules("DBL-2", "RNG-8")
@pytest.mark.parametrize(("backend", "count"), [("reference", 1500), ("auto", 200)])
def test_derivatives_of_many_random_programs_that_draw_are_eagers(backend: str, count: int) -> None:
    assert check_draws(count, backend) >= count


@pytest.mark.rules("DBL-2", "RNG-11")
def test_a_gradient_penalty_with_dropout_trains_as_in_eager() -> None:
    """A critic that draws, its gradient at its input, and a loss of both."""

    def trained(compiles: Any) -> Any:
        al.manual_seed(3)
        layers = al.nn.Sequential(
            al.nn.Linear(4, 8), al.nn.Tanh(), al.nn.Dropout(0.5), al.nn.Linear(8, 1)
        )
        critic = compiles(lambda x: layers(x).sum())
        optimizer = al.optim.SGD(layers.parameters(), lr=0.05)
        for _ in range(4):
            x = al.rand(6, 4).requires_grad_()
            score = critic(x)
            [grad] = gradients(score, [x], create_graph=True)
            loss = ((grad.square().sum(1).sqrt() - 1.0) ** 2).mean() + score * 0.1
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.tolist() for p in layers.parameters()], al.get_rng_state()

    assert close(trained(lambda f: f), trained(lambda f: al.compile(f, backend="reference")))


# ------------------------------------------------------------------- memory that nobody has saved
def reads(x: Any, k: Any) -> Any:
    y = x.exp()
    kept = k.detach()
    y.register_hook(lambda grad: grad * kept)
    return y * x.sin()


def second_of(function: Any, *, write: str = "") -> Any:
    x, k = numbers(4), numbers(4, seed=3)
    result = function(x * 1, k)
    with al.no_grad():
        if write == "before":
            k.mul_(2.0)
    [first] = gradients(result.sum(), [x], create_graph=True)
    with al.no_grad():
        if write == "behind":
            k.mul_(2.0)
    [second] = gradients((first.sin() * 3).sum() + result.sum(), [x], create_graph=True)
    [third] = gradients((second.sin() * 3).sum() + first.sum(), [x])
    return [each.tolist() for each in (first, second, third)]


@pytest.mark.rules("DBL-2", "SAV-3")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_memory_that_a_hook_reads_and_that_is_as_it_was_is_no_hindrance(backend: str) -> None:
    assert close(second_of(reads), second_of(al.compile(reads, backend=backend)))


@pytest.mark.rules("DBL-1", "SAV-3")
def test_memory_that_a_hook_reads_and_that_was_written_since_the_call_is_refused() -> None:
    """The first gradient is of what is there; its derivatives would be of what was there."""
    assert len(second_of(reads, write="before")) == ORDERS
    x, k = numbers(4), numbers(4, seed=3)
    result = al.compile(reads)(x * 1, k)
    with al.no_grad():
        k.mul_(2.0)
    [first] = gradients(result.sum(), [x], create_graph=True)
    y, k = numbers(4), numbers(4, seed=3) * 2.0
    assert close(gradients(reads(y * 1, k).sum(), [y])[0].tolist(), first.tolist())
    with pytest.raises(al.AutogradError, match="first derivatives only") as caught:
        first.sum().backward()
    assert "memory that was written since the call" in caught.value.__notes__[0]


@pytest.mark.rules("DBL-2", "SAV-2")
def test_memory_that_a_hook_has_read_and_that_was_written_since_is_an_error() -> None:
    """Eager has saved it by then: the hook multiplied by it under grad mode."""
    for function in (reads, al.compile(reads)):
        with pytest.raises(al.AutogradError, match="at version 1, expected version 0"):
            second_of(function, write="behind")


class Keeps(al.autograd.Function):
    """Keeps an operand beside what it saves."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: Any) -> Any:
        ctx.k = k
        ctx.save_for_backward(x)
        return x.sin() * k.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.k.detach(), None


def watched(x: Any, k: Any) -> Any:
    y, kept = x * 1.5, k.detach()
    y.register_hook(lambda grad: grad * kept)
    return y


def half_watched(x: Any, k: Any) -> Any:
    y, kept = x * 1.5, k.detach()[:2]
    y.register_hook(lambda grad: al.cat([grad[:2] * kept, grad[2:] * 2.0]))
    return y


def behind_a_write(x: Any, k: Any) -> Any:
    y = x * 1
    with al.no_grad():
        k.detach().mul_(1.1)
    return y


READING: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda x, k: x * k,
    "sin": lambda x, k: x.sin(),
    "detach": lambda x, k: x.detach() * x,
    "kept": Keeps.apply,
    "watched": watched,
    "half watched": half_watched,
    "write": behind_a_write,
}


@st.composite
def readers(draw: Any) -> tuple[Any, list[int], int, int]:
    """Steps with two operands each, results, and when which memory is written by the caller."""
    steps = [
        (draw(st.sampled_from(sorted(READING))), *[draw(st.integers(0, k + 1)) for _ in range(2)])
        for k in range(draw(st.integers(2, 5)))
    ]
    places = st.integers(2, len(steps) + 1)
    results = draw(st.lists(places, min_size=1, max_size=3, unique=True))
    return steps, results, draw(st.integers(0, 4)), draw(st.integers(0, 4))


def read_by(program: Any, *, compiles: Callable[[Any], Any]) -> list[Any]:
    """Results and derivatives up to an error; whether that is of DBL-1."""
    steps, results, when, which = program

    def function(*values: Any) -> Any:
        found = list(values)
        for name, a, b in steps:
            found.append(READING[name](found[a], found[b]))
        return tuple([found[place] for place in results])

    leaves = [numbers(4), numbers(4, seed=3)]
    operands = [leaf * 1 for leaf in leaves]
    current = list(compiles(function)(*operands))
    found: list[Any] = [each.tolist() for each in current]
    targets = [*operands, *current]
    for order in range(ORDERS):
        if order == when:
            with al.no_grad():
                targets[which % len(targets)].detach().mul_(1.25)
        try:
            terms = [each * (0.5 + 0.25 * i) for i, each in enumerate(current)]
            summed = sum([each.sum() if order == when else each.sin().sum() for each in terms])
            grads = gradients(summed, leaves, create_graph=True, allow_unused=True)
        except al.AutogradError:
            return [*found, "error"]
        found.append([each if each is None else each.tolist() for each in grads])
        current = history_of(grads)
        if not current:
            break
    return found


def check_readers(count: int, backend: str) -> Counter[str]:
    seen: Counter[str] = Counter()

    @many(count)
    @given(readers())
    def check(program: Any) -> None:
        eager = read_by(program, compiles=lambda function: function)
        try:
            found = read_by(program, compiles=lambda f: al.compile(f, backend=backend))
        except (al.UnsupportedError, al.AliasError):
            seen["refused"] += 1
            return
        if found[-1] == "error" and eager[-1] != "error":
            seen["stricter"] += 1
            eager = [*eager[: len(found) - 1], "error"]
        assert close(eager, found), f"{program}\n{eager}\n{found}"
        seen["error" if found[-1] == "error" else "equal"] += 1

    check()
    return seen


@pytest.mark.rules("DBL-1", "DBL-2", "SAV-2", "SAV-3")
def test_memory_that_users_python_reads_is_eagers_or_an_error() -> None:
    """The caller writes an input or a result before some order: never another number."""
    seen = check_readers(45, "reference")
    assert seen["equal"] >= 18, seen
    assert seen["stricter"] + seen["refused"] <= 6, seen


@pytest.mark.long
@pytest.mark.rules("DBL-1", "DBL-2", "SAV-3")
@pytest.mark.parametrize(("backend", "count"), [("reference", 4000), ("auto", 400)])
def test_much_memory_that_users_python_reads_is_eagers_or_an_error(
    backend: str, count: int
) -> None:
    seen = check_readers(count, backend)
    print(f"{backend}: {dict(seen)}")
    assert seen["equal"] >= 0.4 * count


# ------------------------------------------------------------------------------- what is not linear
def clamped(x: Any) -> Any:
    y = x.exp()
    y.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
    return y.sum()


class Signed(al.autograd.Function):
    """A backward of signs."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad.sign() * x * x.sin()


class Bent(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.clamp(-0.2, 0.2)


class Passed(al.autograd.Function):
    """A linear backward, whose own backward is not."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return Bent.apply(grad * x) * x


NOT_LINEAR: dict[str, Callable[[Any], Any]] = {
    "a hook": clamped,
    "a backward": lambda x: Signed.apply(x.sin()).sum(),
    "several": lambda x: (Signed.apply(x.exp()) * Signed.apply(x)).sum(),
}


@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_is_differentiated_where_gradients_arrive_at_once(
    name: str, backend: str
) -> None:
    def found(function: Any) -> Any:
        x = numbers(4)
        result = function(x * 1)
        [first] = gradients(result, [x], create_graph=True)
        [second] = gradients((first.sin() * 3.0).sum(), [x], retain_graph=True)
        [again] = gradients((first * 2.0).sum(), [x], retain_graph=True)
        [plain] = gradients(result * 5.0, [x])
        return [each.tolist() for each in (first, second, again, plain)]

    function = NOT_LINEAR[name]
    assert close(found(function), found(al.compile(function, backend=backend)))


@pytest.mark.rules("DBL-1")
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_is_refused_where_gradients_arrive_apart(name: str) -> None:
    compiled = al.compile(NOT_LINEAR[name])
    x = numbers(4)
    result = compiled(x)
    [first] = gradients(result, [x], create_graph=True)
    [other] = gradients(result, [x], create_graph=True)
    for summed in (first.sum() + result, first.sum() + other.sum()):
        with pytest.raises(al.AutogradError, match="in two parts") as caught:
            gradients(summed, [x], retain_graph=True)
        assert "not linear in the gradient" in caught.value.__notes__[0]
        assert "(DBL-1)" in caught.value.__notes__[0]
    assert result.grad_fn.name() == first.grad_fn.name() == "CompiledBackward"
    [second] = gradients(first.sum(), [x])  # that one is refused spoils no other
    assert second.shape == x.shape


@pytest.mark.rules("DBL-1")
def test_what_is_not_linear_at_a_later_order_is_seen_there() -> None:
    def found(function: Any, *, both: bool) -> Any:
        x = numbers(4)
        result = function(x * 1)
        [first] = gradients(result.sum(), [x], create_graph=True)
        [second] = gradients((first * 0.3).sum() + result.sum(), [x], create_graph=True)
        total = second.sum() + first.sum() if both else second.sum()
        return [each.tolist() for each in (first, second, gradients(total, [x])[0])]

    function: Callable[..., Any] = lambda x: Passed.apply(x.sin())
    compiled = al.compile(function)
    assert close(found(function, both=False), found(compiled, both=False))
    with pytest.raises(al.AutogradError, match="in two parts"):
        found(compiled, both=True)


@pytest.mark.rules("DBL-1", "CAG-4")
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_compiled_autograd_meets_what_is_not_linear_as_the_engine_does(name: str) -> None:
    def found(function: Any, *, both: bool) -> Any:
        x = numbers(4)
        result = function(x * 1)
        [first] = gradients(result, [x], create_graph=True)
        total = first.sum() + result if both else (first.sin() * 3.0).sum()
        seen = []
        with al.compiled_autograd.enable():
            for _ in range(3):
                x.grad = None
                total.backward(retain_graph=True)
                seen.append(x.grad.tolist())
        return seen

    compiled = al.compile(NOT_LINEAR[name])
    assert close(found(NOT_LINEAR[name], both=False), found(compiled, both=False))
    with pytest.raises(al.AutogradError, match="in two parts"):
        found(compiled, both=True)


@pytest.mark.rules("DBL-1", "TEN-45")
def test_threads_that_differentiate_gradients_and_results_are_not_mixed_up() -> None:
    """One goes through the gradients, the other through the results, of the same call."""
    x = numbers(4)
    result = al.compile(clamped)(x)
    [first] = gradients(result, [x], create_graph=True)
    totals = [(first.sin() * 3.0).sum(), result * 2.0]
    expected = [gradients(each, [x], retain_graph=True)[0].tolist() for each in totals]
    seen: list[Any] = []

    def work(number: int) -> None:
        for _ in range(50):
            [grad] = gradients(totals[number], [x], retain_graph=True)
            seen.append((number, grad.tolist()))

    threads = [Thread(target=work, args=(number,)) for number in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 200
    assert all(expected[number] == found for number, found in seen)


# ---------------------------------------------------------------------------------- refused
class Later(al.autograd.Function):
    """A backward that does something when it is differentiated."""

    does: Callable[[Any], Any] = staticmethod(lambda grad: grad)

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return Doing.apply(grad * x)


class Doing(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return Later.does(grad)


def told(grad: Any) -> Any:
    al.effects.print("seen")
    return grad


HAPPENING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "draws": (lambda grad: grad * drawn(4), "draws"),
    "another seed": (lambda grad: (al.manual_seed(1), grad * 2.0)[1], "draws"),
    "an effect": (told, "has effects"),
}


@pytest.mark.rules("DBL-1")
@pytest.mark.parametrize("name", HAPPENING)
def test_what_happens_in_a_later_backward_is_refused(
    name: str, monkeypatch: Any, capsys: Any
) -> None:
    """The first backward has nothing of it, and is differentiated; the second one is not."""
    does, why = HAPPENING[name]
    monkeypatch.setattr(Later, "does", staticmethod(does))
    x = numbers(4)
    before = al.get_rng_state()
    [first] = gradients(al.compile(Later.apply)(x).sum(), [x], create_graph=True)
    with pytest.raises(al.AutogradError, match="first derivatives only") as caught:
        first.sin().sum().backward()
    assert f"Its backward {why} at order 2." in caught.value.__notes__[0]
    assert before == al.get_rng_state()
    assert capsys.readouterr().out == ""


@pytest.mark.rules("DBL-1", "SAV-3")
def test_memory_that_a_later_backward_reads_first_is_refused() -> None:
    """The compiled call does not know whether it was written since."""

    def function(x: Any, k: Any) -> Any:
        kept = k.detach()

        class Scaled(Doing):
            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * kept

        class First(Later):
            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                (x,) = ctx.saved_tensors
                return Scaled.apply(grad * x)

        return First.apply(x)

    x, k = numbers(4), numbers(4, seed=3)
    [first] = gradients(al.compile(function)(x, k).sum(), [x], create_graph=True)
    with pytest.raises(al.AutogradError, match="first derivatives only") as caught:
        first.sum().backward()
    assert "reads primals_1 unchecked at order 2" in caught.value.__notes__[0]


class Noisy(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * drawn(4)


@pytest.mark.rules("DBL-1")
def test_a_backward_that_draws_is_not_differentiated() -> None:
    x = numbers(4)
    [first] = gradients(al.compile(Noisy.apply)(x).sum(), [x], create_graph=True)
    assert first.requires_grad
    with pytest.raises(al.AutogradError, match="first derivatives only") as caught:
        first.sum().backward()
    assert "Its backward has effects, draws, writes memory" in caught.value.__notes__[0]
