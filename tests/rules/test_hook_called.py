"""HOOK-2, TOK-4: hooks that each backward calls: of wrappers, and with effects of their own."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.stages.s1_capture.hooks.reachable import Known, reached
from aotlite.subclasses import TwoTensor, masked_tensor
from tests.rules.helpers.hook_programs import both, leaf
from tests.rules.test_hook_python import known, more_than_computes, next_to

Call = Callable[..., Any]
SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def parts(value: Any) -> Any:
    """The values of a tensor or wrapper, by class."""
    if isinstance(value, TwoTensor):
        return "two", parts(value.a), parts(value.b)
    if type(value).__name__ == "MaskedTensor":
        return "masked", value.data.tolist(), value.mask.tolist()
    return value.tolist()


def two(*values: float) -> Any:
    return TwoTensor(al.tensor(values), al.tensor(values) * 4)


def nested(*values: float) -> Any:
    return TwoTensor(two(*values), al.tensor(values) * 3)


def masked(*values: float) -> Any:
    return masked_tensor(al.tensor(values), al.tensor([k % 2 == 0 for k in range(len(values))]))


@pytest.mark.rules("HOOK-2", "SUB-11")
@pytest.mark.parametrize("make", [two, nested, masked])
@pytest.mark.parametrize("gives", ["nothing", "another", "itself written"])
def test_a_hook_with_effects_is_given_the_wrapper(make: Call, gives: str) -> None:
    log: list[Any] = []

    def hook(grad: Any) -> Any:
        log.append((type(grad).__name__, parts(grad)))
        if gives == "another":
            return grad * len(log)
        return grad.mul_(2) if gives == "itself written" else None

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * y

    def story(run: Call) -> Any:
        log.clear()
        x = make(0.5, 1.5, 2.5).requires_grad_()
        for _ in range(2):
            result = run(x)
            result.backward(make(1.0, 2.0, 3.0))
        return log.copy(), parts(x.grad)

    compiled = both(f, story)
    assert any("callback" in node.target.name for node in compiled.backward_graph.calls)


@pytest.mark.rules("HOOK-2", "TAN-5")
def test_a_hook_that_changes_the_form_of_its_gradient_says_so() -> None:
    def hook(grad: Any) -> Any:
        SEEN.append(1)
        return grad.a + grad.b

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * y

    x = two(0.5, 1.5).requires_grad_()
    result = al.compile(f, backend="reference")(x)
    with pytest.raises(al.SubclassError, match="expected a TwoTensor like it") as caught:
        result.backward(two(1.0, 2.0))
    assert "HOOK-2" in "".join(caught.value.__notes__)


@pytest.mark.rules("HOOK-2")
def test_a_hook_of_wrappers_that_asks_for_a_value_is_called() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad * 3 if grad.a.sum() > 2 else grad * 5)
        return y * y

    def story(run: Call) -> Any:
        x = two(0.5, 1.5).requires_grad_()
        run(x).backward(two(1.0, 2.0))
        run(x).backward(two(-1.0, -2.0))
        return parts(x.grad)

    both(f, story)


# ------------------------------------------------------------------------- effects.callback inside
def note(array: Any) -> Any:
    SEEN.append(array.tolist())


def tells(grad: Any) -> None:
    al.effects.callback(note, grad)


def tells_by_a_lambda(grad: Any) -> None:
    k = 3
    al.effects.callback(lambda array: SEEN.append(array.tolist() + [k]), grad)


def tells_by_another_name(grad: Any) -> Any:
    tell = al.effects.callback
    return tell(note, grad)


def uses_it_otherwise(grad: Any) -> Any:
    al.effects.callback(note, grad)
    return note(grad)


def calls_what_it_is_given(function: Any, grad: Any) -> None:
    function(grad)


def gives_it_to_another(grad: Any) -> Any:
    return calls_what_it_is_given(note, grad)


@pytest.mark.rules("HOOK-3", "TOK-4")
@pytest.mark.parametrize("hook", [tells, tells_by_a_lambda])
def test_what_a_callback_does_is_no_matter_of_the_hook(hook: Call) -> None:
    """The hook is recorded, and the effect is one of the graph, with tensors of the function."""
    assert more_than_computes(hook, known(hook)) is None

    def f(x: Any) -> Any:
        y = x * 2
        factor = y.detach().cos()
        y.register_hook(lambda grad: hook(grad * factor))
        return (y * y).sum()

    def story(run: Call) -> Any:
        SEEN.clear()
        for _ in range(2):
            run(leaf(0.5, 1.5)).backward()
        return SEEN.copy()

    both(f, story)


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("hook", [tells_by_another_name, uses_it_otherwise, gives_it_to_another])
def test_a_function_that_is_used_otherwise_speaks_against_the_hook(hook: Call) -> None:
    assert "SEEN" in str(more_than_computes(hook, known(hook)))


# ------------------------------------------------------------------ ways to what may change
class Counting(al.nn.Module):
    """Its forward does more than compute."""

    def forward(self, x: Any) -> Any:
        SEEN.append(1)
        return x * 2


class Outer(al.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counting = Counting()
        self.several = al.nn.Sequential(al.nn.ReLU(), Counting())

    def calls(self, grad: Any) -> Any:
        return self.counting(grad)

    def calls_several(self, grad: Any) -> Any:
        return self.several(grad)

    def names_one(self, grad: Any) -> Any:
        chosen = self.counting
        return chosen(grad)


class Odd(int):
    """A number with more to it."""

    def noted(self, grad: Any) -> Any:
        SEEN.append(1)
        return grad * int(self)


class Keeping(TwoTensor):
    """A wrapper whose class has a list."""

    kept = SEEN


class Answering(al.nn.Module):
    """A module that has a way of its own to answer."""

    def __getattr__(self, name: str) -> Any:
        if name == "hidden":
            return SEEN
        raise AttributeError(name)

    def hook(self, grad: Any) -> None:
        self.hidden.append(grad.tolist())


class CalledOwn(al.nn.Module):
    def __call__(self, grad: Any) -> Any:
        SEEN.append(1)
        return grad * 2


class Called:
    def __call__(self, grad: Any) -> Any:
        SEEN.append(1)
        return grad * 2


def ways() -> dict[str, Call]:
    outer, odd, pair, called, own = Outer(), Odd(3), (2.0, SEEN), Called(), CalledOwn()
    wrapper = Keeping(al.ones(2), al.ones(2))
    frozen = frozenset((note,))

    def nested(grad: Any) -> Any:
        def inside(k: int) -> Any:
            return [note(grad) for _ in range(k)]

        return inside(1) and None

    return {
        "a module that is called": outer.calls,
        "one in a container of modules": outer.calls_several,
        "one by another name": outer.names_one,
        "a module itself": lambda grad: outer.counting.forward(grad),
        "a method of a number": lambda grad: odd.noted(grad),
        "a list in a tuple": lambda grad: pair[1].append(grad.tolist()),
        "a list of a wrapper's class": lambda grad: wrapper.kept.append(grad.tolist()),
        "a function in a frozenset": lambda grad: [f(grad) for f in frozen] and None,
        "an object": called,
        "a method that is found at an object": called.__call__,
        "nested functions": nested,
        "a default": lambda grad, tell=note: tell(grad),
        "a keyword default": lambda grad, *, tell=note: tell(grad),
        "a generator": lambda grad: next(note(each) for each in (grad,)),
        "a key of sorted": lambda grad: sorted([1], key=lambda _: note(grad) or 1) and None,
        "a builtin of a list": SEEN.append,
        "a partial": functools.partial(lambda kept, grad: kept.append(grad.tolist()), SEEN),
        "a partial's function": functools.partial(note),
        "a class of tensors": lambda grad: Keeping.kept.append(grad.tolist()),
        "a module's own answers": Answering().hook,
        "a module's own call": lambda grad: own(grad),
    }


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("way", ways())
def test_hooks_that_reach_what_may_change_are_called(way: str) -> None:
    """Once each backward, whatever leads there."""
    assert more_than_computes(ways()[way], known(ways()[way])) is not None

    def story(is_compiled: bool) -> Any:
        SEEN.clear()
        hook = ways()[way]

        def f(x: Any) -> Any:
            y = x * 2
            y.register_hook(hook)
            return (y * y).sum()

        run = al.compile(f, backend="reference") if is_compiled else f
        found = []
        for _ in range(2):
            x = leaf(0.5, 1.5)
            run(x).backward()
            shown = [each.tolist() if isinstance(each, al.Tensor) else each for each in SEEN]
            found.append((x.grad.tolist(), shown))
        return found

    assert story(False) == story(True)
    assert SEEN


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("made", [[note], {1: note}, {note}, [[1, (note,)]], {"a": {"b": note}}])
def test_what_lies_in_lists_that_the_run_made_counts(made: Any) -> None:
    def hook(grad: Any, held: Any = made) -> Any:
        return grad * len(held)

    only = Known([], [each for each in reached([hook]) if isinstance(each, types.FunctionType)])
    assert "may change a list" == more_than_computes(hook, only)  # which note appends to
    pure = types.FunctionType(hook.__code__, hook.__globals__, "hook", ([next_to, (1, {2: None})],))
    functions: list[Any] = [pure, next_to]
    only = Known([], functions)
    assert more_than_computes(pure, only) is None


class Kept(al.nn.Module):
    """What hooks and backwards read of a module."""

    strength: Any = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.strength = 0.5
        self.inner = al.nn.Dropout(0.0)

    @property
    def twice(self) -> float:
        return float(self.strength) * 2


class Reversed(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, module: Any) -> Any:
        ctx.module = module
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return -ctx.module.strength * grad, None


def _hooked(hook: Call) -> Call:
    def f(x: Any, module: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: hook(grad, module))
        return (y * y).sum()

    return f


READS: dict[str, Call] = {
    "an attribute": _hooked(lambda grad, m: grad * m.strength),
    "the mode": _hooked(lambda grad, m: grad * 3 if m.training else grad),
    "a property": _hooked(lambda grad, m: grad * m.twice),
    "of a part": _hooked(lambda grad, m: grad * 2 if m.inner.training else grad),
    "by its class": _hooked(lambda grad, m: grad * type(m).strength),
    "a custom backward": lambda x, m: Reversed.apply(x * 2, m).exp().sum(),
}


@pytest.mark.rules("CAP-5", "HOOK-3")
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("read", READS)
def test_what_a_backward_reads_of_a_module_is_compared_at_each_call(
    read: str, outside: bool
) -> None:
    def story(is_compiled: bool) -> Any:
        module, found = Kept(), []
        function = READS[read]
        if outside:
            run: Call = lambda x: function(x, module)
            run = al.compile(run, backend="reference") if is_compiled else run
        else:
            two = al.compile(function, backend="reference") if is_compiled else function
            run = lambda x: two(x, module)
        for strength in (0.5, 0.5, 2.0):
            module.strength, Kept.strength = strength, strength * 5
            module.train(strength < 1)
            x = leaf(0.5, 1.5)
            run(x).backward()
            found.append(x.grad.tolist())
        return found

    assert story(False) == story(True)


class Classed(al.nn.Module):
    """A method of the class reads what belongs to the class."""

    factor = 1.0

    @classmethod
    def scaled(cls, grad: Any) -> Any:
        return grad * cls.factor


@pytest.mark.rules("HOOK-2", "HOOK-3")
def test_what_a_hook_reads_of_a_class_by_a_classmethod_is_read_each_time(monkeypatch: Any) -> None:
    module = Classed()

    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: module.scaled(grad))
        return (y * y).sum()

    compiled = al.compile(function, backend="reference")
    for factor in (1.0, 3.0, 5.0):
        monkeypatch.setattr(Classed, "factor", factor)
        found = []
        for run in (function, compiled):
            x = leaf(1.0, 2.0)
            run(x).backward()
            found.append(x.grad.tolist())
        assert [8.0 * factor, 16.0 * factor] == found[0] == found[1]


@pytest.mark.rules("HOOK-2")
@pytest.mark.parametrize("how", ["reads", "asks whether", "sets", "steps"])
def test_a_hook_that_asks_for_the_gradient_of_an_input_is_refused(how: str) -> None:
    """In eager it may have been given already, or not yet."""
    v = leaf(1.0, 2.0)
    v.grad = al.zeros(2)
    optimizer = al.optim.SGD([v], lr=0.1)

    def sets(grad: Any) -> None:
        v.grad = grad

    hooks: dict[str, Call] = {
        "reads": lambda grad: grad + v.grad,
        "asks whether": lambda grad: grad * 2 if v.grad is None else grad,
        "sets": sets,
        "steps": lambda grad: optimizer.step(),
    }

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(hooks[how])
        return (y.exp() + v).sum()

    with pytest.raises(al.UnsupportedError, match="asks for the .grad of"):
        al.compile(f)(leaf(0.5, 1.5))
