"""DBL-3: backwards inside a compiled function, into the `.grad` of leaves from outside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

Call = Callable[..., Any]


def leaf(*values: float) -> Any:
    return al.tensor(list(values), dtype=al.float64, requires_grad=True)


def seen(tensor: Any) -> Any:
    """What can be told of a tensor and of its gradient."""
    grad = tensor.grad
    shown = None if grad is None else (grad.tolist(), grad.stride(), grad.requires_grad)
    return tensor.tolist(), tensor.version, tensor.requires_grad, shown


def both_ways(function: Call, setup: Callable[[], tuple[Any, ...]], calls: int = 3) -> Any:
    """Checks that a function does the same compiled, call by call; the compiled one."""
    compiled = al.compile(function)
    worlds = []
    for called in (function, compiled):
        args: Any = setup()
        world: list[Any] = []
        for _ in range(calls):
            before = [arg.grad for arg in args]
            try:
                result = called(*args)
            except al.AutogradError as error:
                world.append(type(error).__name__)
                continue
            same = [arg.grad is grad for arg, grad in zip(args, before, strict=True)]
            results = [result] if isinstance(result, al.Tensor) else list(result or ())
            given_back = [[r is arg.grad for arg in args] for r in results]
            shown = [(r.tolist(), r.requires_grad) for r in results]
            world.append(([seen(arg) for arg in args], same, given_back, shown))
        worlds.append(world)
    assert worlds[0] == worlds[1]
    return compiled


def two() -> tuple[Any, ...]:
    return leaf(1.0, 2.0), leaf(-3.0, 0.5)


def with_gradients() -> tuple[Any, ...]:
    args = two()
    for k, arg in enumerate(args):
        arg.grad = al.tensor([10.0 + k, 20.0], dtype=al.float64)
    return args


def loss(x: Any, w: Any) -> Any:
    return (x * w * w).sum()


def plain(x: Any, w: Any) -> Any:
    total = loss(x, w)
    total.backward()
    return total.detach()


def cleared(x: Any, w: Any) -> Any:
    x.grad = None
    w.grad = None
    return plain(x, w)


def zeroed(x: Any, w: Any) -> Any:
    for each in (x, w):
        if each.grad is not None:
            each.grad.zero_()
    return plain(x, w)


def clipped(x: Any, w: Any) -> Any:
    plain(x, w)
    w.grad.clamp_(-1.0, 1.0)
    x.grad = x.grad * 0.5
    return x.grad, w.grad


def twice(x: Any, w: Any) -> None:
    loss(x, w).backward()
    loss(w, x).backward()


def retained(x: Any, w: Any) -> Any:
    total = loss(x, w)
    total.backward(retain_graph=True)
    return total


def some(x: Any, w: Any) -> Any:
    loss(x, w).backward(inputs=[w])
    return w.grad


def with_history(x: Any, w: Any) -> Any:
    loss(x, w).backward(create_graph=True)
    return (x.grad * w.grad).sum()


def penalized(x: Any, w: Any) -> None:
    total = loss(x, w)
    grad: Any = al.autograd.grad(total, [x], create_graph=True)[0]
    (total + (grad * grad).sum()).backward()


def descended(x: Any, w: Any) -> Any:
    w.grad = None
    total = loss(x, w)
    total.backward()
    with al.no_grad():
        w.sub_(0.1 * w.grad)
    return total


def swapped(x: Any, w: Any) -> None:
    x.grad, w.grad = w.grad, x.grad


def spent(x: Any, w: Any) -> Any:
    total = loss(x, w)
    total.backward()
    total.backward()


FUNCTIONS = {
    each.__name__: each
    for each in (
        plain, cleared, zeroed, clipped, twice, retained, some, with_history, penalized, descended,
        swapped, spent,
    )
}  # fmt: skip


@pytest.mark.rules("DBL-3", "TEN-29")
@pytest.mark.parametrize("setup", [two, with_gradients], ids=["without", "with"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_leaves_become_what_they_become_in_eager(name: str, setup: Any) -> None:
    """Values, layouts, identity of tensors that stay or are returned, counts of writes."""
    both_ways(FUNCTIONS[name], setup)


@pytest.mark.rules("DBL-3", "GRD-1")
def test_one_entry_serves_where_gradients_are_cleared_without_a_look() -> None:
    compiled = both_ways(cleared, two)
    assert 1 == len(compiled.entries)
    assert 2 == len(both_ways(plain, two).entries)


@pytest.mark.rules("DBL-3", "FUN-21")
def test_a_whole_step_is_one_graph_without_a_backward() -> None:
    compiled = both_ways(descended, two)
    assert compiled.backward_graph is None
    total = compiled(*two())
    with pytest.raises(al.AutogradError, match="freed"):
        total.backward()


@pytest.mark.rules("DBL-3")
def test_a_training_loop_is_eagers() -> None:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        error = ((model(x) - y) ** 2).mean()
        error.backward()
        optimizer.step()
        return error.detach()

    def run(called: Call, kind: Any) -> Any:
        al.manual_seed(0)
        first, last = (al.nn.Linear(*sizes, dtype=al.float64) for sizes in ((3, 4), (4, 1)))
        model = al.nn.Sequential(first, al.nn.Tanh(), last)
        optimizer = kind(model.parameters(), lr=0.1)
        x, y = al.randn(5, 3, dtype=al.float64), al.randn(5, 1, dtype=al.float64)
        errors = [called(model, optimizer, x, y).item() for _ in range(4)]
        return errors, [p.tolist() for p in model.parameters()]

    for kind in (al.optim.SGD, al.optim.AdamW):
        compiled = al.compile(step, backend="reference")
        assert run(step, kind) == run(compiled, kind)
        assert 1 == len(compiled.entries)


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "backward": lambda x, w, y: y.sum().backward(retain_graph=True),
    "second": lambda x, w, y: (y * y).sum().backward(retain_graph=True),
    "clear x": lambda x, w, y: setattr(x, "grad", None),
    "clear w": lambda x, w, y: setattr(w, "grad", None),
    "scale": lambda x, w, y: None if w.grad is None else w.grad.mul_(2.0),
    "replace": lambda x, w, y: setattr(w, "grad", (x if w.grad is None else w.grad).detach() + 1),
    "share": lambda x, w, y: setattr(x, "grad", w.grad),
    "part": lambda x, w, y: None if x.grad is None else x.grad[:1].add_(3.0),
    "only w": lambda x, w, y: y.sum().backward(inputs=[w], retain_graph=True),
}


@pytest.mark.draws(long=480)
@pytest.mark.rules("DBL-3")
@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.booleans())
def test_random_uses_of_gradients_are_eagers(names: list[str], started: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * w.exp()
        for name in names:
            STEPS[name](x, w, y)
        return y.detach(), x.grad, w.grad

    def called(inner: Call) -> Call:
        def call(x: Any, w: Any) -> list[Any]:
            return [each for each in inner(x, w) if each is not None]

        return call

    compiled = al.compile(function)
    setup = with_gradients if started else two
    worlds = []
    for inner in (function, compiled):
        args, world = setup(), []
        for _ in range(3):
            results = called(inner)(*args)
            shared = args[0].grad is args[1].grad
            world.append(([seen(a) for a in args], shared, [r.tolist() for r in results]))
        worlds.append(world)
    assert worlds[0] == worlds[1]


# ---------------------------------------------------------------------------- leaves of its own
def put(x: Any) -> Any:
    own = x.detach().clone().requires_grad_()
    own.grad = x.detach() * 2
    return own


def put_itself(x: Any) -> Any:
    own = x.detach().requires_grad_()
    own.grad = own.detach()
    return [own, own.grad]


def put_on_a_gradient(x: Any) -> Any:
    own = put(x)
    own.grad.requires_grad_().grad = x.detach() * 3
    return own, own


def backward_of_its_own(x: Any) -> Any:
    own = x.detach().clone().requires_grad_()
    (own * own).sum().backward()
    return own


def put_and_cleared(x: Any) -> Any:
    own = backward_of_its_own(x)
    own.grad = None
    return own


@pytest.mark.rules("DBL-3")
@pytest.mark.parametrize(
    "function",
    [put, put_itself, put_on_a_gradient, backward_of_its_own, put_and_cleared, copy.deepcopy],
)
def test_leaves_that_are_returned_have_the_gradients_that_they_were_given(function: Call) -> None:
    """They once had none."""

    def with_gradients(tensor: Any) -> list[Any]:
        return [] if tensor is None else [tensor, *with_gradients(tensor.grad)]

    worlds = []
    for called in (function, al.compile(function), al.compile(function, backend="reference")):
        for _ in range(2):
            x = leaf(1.0, 2.0)
            (x * 3).sum().backward()
            result = called(x)
            results = result if isinstance(result, (list, tuple)) else [result]
            found = [each for given in (*results, x) for each in with_gradients(given)]
            objects = [[a is b for a in found] for b in found]
            memory = [[a.storage is b.storage for a in found] for b in found]
            worlds.append(([seen(each) for each in found], objects, memory))
            assert (results[0].grad is None) == (function is put_and_cleared)
    assert worlds[1:] == worlds[:-1]


# ---------------------------------------------------------------------------------- refusals
@pytest.mark.rules("DBL-3", "TEN-41")
def test_hooks_of_a_leaf_would_have_to_run_at_each_call() -> None:
    x, w = two()
    w.register_hook(lambda grad: grad * 2)
    with pytest.raises(al.UnsupportedError, match="has hooks or is retained"):
        al.compile(plain)(x, w)
    assert (None, None) == (x.grad, w.grad)


@pytest.mark.rules("DBL-3", "CAP-6")
def test_a_backward_does_not_leave_the_function() -> None:
    """The history of an argument that is no leaf is the caller's."""
    x, w = two()
    with pytest.raises(al.UnsupportedError, match="from outside"):
        al.compile(plain)(x * 1.0, w)
    assert w.grad is None


@pytest.mark.rules("DBL-3")
@pytest.mark.parametrize(
    ("value", "error"),
    [("no tensor", al.ArgumentError), (al.ones(3, dtype=al.float64), al.AutogradError)],
)
def test_what_cannot_be_a_gradient_is_an_error_as_in_eager(value: Any, error: Any) -> None:
    def function(x: Any) -> None:
        x.grad = value

    for called in (function, al.compile(function)):
        x = leaf(1.0, 2.0)
        with pytest.raises(error, match="^grad: the value is"):
            called(x)
        assert x.grad is None


@pytest.mark.rules("DBL-3", "JNT-15")
def test_who_asks_for_a_gradient_of_what_is_spent_meets_the_error() -> None:
    """Where the graph has no backward at all: also by `autograd.grad`, of whichever input."""

    def overwritten(x: Any) -> Any:
        y = (x * 1.0).relu_()
        return y.mul_(0.0)

    for function in (overwritten, retained, spent_once):
        for called in (function, al.compile(function)):
            x, w = two()
            args = (x,) if function is overwritten else (x, w)
            result = called(*args)
            if function is retained:
                assert al.autograd.grad(result, [x])[0] is not None
                continue
            with pytest.raises(al.AutogradError):
                al.autograd.grad(result.sum(), [x], allow_unused=True)


def spent_once(x: Any, w: Any) -> Any:
    total = loss(x, w)
    total.backward()
    return total
