"""What a capture leaves alive: no gradient that was looked at, no argument of a call that failed.

Both are drawn: kinds of looks, on kinds of tensors; kinds of failures, at each stage, after kinds
of escapes.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn, optim
from aotlite.subclasses import TwoTensor

SIZE = 8

# ------------------------------------------------------------------------------------- gradients
Look = Callable[[Any, Any], Any]


def backward_inside(x: Any, w: Any) -> Any:
    (w * 2).sum().backward()
    return x * 2


def stepped(x: Any, w: Any) -> Any:
    optim.SGD([w], lr=0.1).step()
    return x * 2


def cleared(x: Any, w: Any) -> Any:
    w.grad = None
    return x * 2


def exchanged(x: Any, w: Any) -> Any:
    w.grad = w.grad * 2
    return x * 2


LOOKS: dict[str, Look] = {
    "is it None": lambda x, w: x * (2 if w.grad is None else 3),
    "is it None, unused": lambda x, w: (w.grad is None, x * 2)[1],
    "its shape": lambda x, w: x * w.grad.shape[0],
    "its strides": lambda x, w: x * w.grad.stride(0),
    "its dtype": lambda x, w: x.to(w.grad.dtype) * 2,
    "arithmetic": lambda x, w: x * w.grad,
    "arithmetic that is dropped": lambda x, w: (x * w.grad, x * 2)[1],
    "a view of it": lambda x, w: x * w.grad.view(-1)[0],
    "detached": lambda x, w: x * w.grad.detach(),
    "a write": lambda x, w: x * w.grad.mul_(2),
    "it is returned": lambda x, w: (x * 2, w.grad),
    "it is cleared": cleared,
    "another is put there": exchanged,
    "a backward adds to it": backward_inside,
    "an optimizer reads it": stepped,
}
HOLDERS = ("closure", "argument", "list", "module", "optimizer")


def function_of(holder: str, look: Look, w: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function of x that looks at the gradient of w, and its arguments besides x."""
    if holder == "argument":
        return (lambda x, given: look(x, given)), [w]
    if holder == "list":
        held = [{"w": w}]
        return (lambda x: look(x, held[0]["w"])), []
    if holder == "module":
        module = nn.Linear(1, 1)
        module.weight = w
        return (lambda x, module: look(x, module.weight)), [module]
    if holder == "optimizer":
        opt = optim.SGD([w], lr=0.1)
        return (lambda x: look(x, opt.params[0])), []
    return (lambda x: look(x, w)), []


LOOKING = tuple(itertools.product(LOOKS, HOLDERS, (False, True), (False, True)))


def check_look(look: str, holder: str, trains: bool, goes_back: bool) -> None:
    """Of the gradient that was there in the first call nothing is left when others forget it."""
    w = nn.Parameter(al.ones(SIZE))
    f, more = function_of(holder, LOOKS[look], w)
    compiled = al.compile(f, backend="reference")
    w.grad = al.full((SIZE,), 2.0)
    alive = [weakref.ref(each) for each in parts(w.grad)]
    result = compiled(al.ones(SIZE, requires_grad=trains), *more)
    if trains and goes_back:
        first = result[0] if isinstance(result, tuple) else result
        first.sum().backward()
    del result
    first = None
    w.grad = None
    gc.collect()
    assert [None] * 3 == [each() for each in alive]
    assert compiled.entries
    w.grad = al.full((SIZE,), 3.0)
    first = compiled(al.ones(SIZE), *more)  # which finds another gradient there
    assert first is not None


@settings(max_examples=60)
@given(st.sampled_from(LOOKING))
@pytest.mark.draws(long=600)
def test_a_gradient_that_was_looked_at_is_not_kept(case):
    """Of 300 cases."""
    check_look(*case)


# -------------------------------------------------------------------------------------- failures
class Fails(Exception):
    """What a user's code raises."""


class LoudBackward(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise Fails


class AskingBackward(LoudBackward):
    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * grad.sum().item()


def raises(*_: Any, **__: Any) -> Any:
    raise Fails


def raising(x: Any) -> Any:
    raise Fails


Failure = tuple[Callable[[Any], Any], dict[str, Any]]
FAILURES: dict[str, Failure] = {
    "the function raises": (raising, {}),
    "Ctrl-C": (lambda x: interrupt(), {}),
    "an error of shapes": (lambda x: x @ al.ones(SIZE + 1), {}),
    "a value is asked for": (lambda x: x.tolist(), {}),
    "a refusal that is caught": (lambda x: caught(x), {}),
    "a result of no kind": (lambda x: object(), {}),
    "a number that changes": (lambda x: counted(x), {}),
    "a backward of a user's": (lambda x: AskingBackward.apply(x), {}),
    "a backward of a user's that raises": (lambda x: LoudBackward.apply(x), {}),
    **{
        f"stage {stage}": (lambda x: x.mul(2).sin(), {"stages": {stage: raises}})
        for stage in (
            "analyze", "convention", "joint", "functionalize", "simplify", "partition",
            "lower", "runtime",
        )
    },
    "a pass": (lambda x: x * 2, {"passes": [raises]}),
    "a partitioner": (lambda x: x * 2, {"partition": raises}),
    "a backend": (lambda x: x * 2, {"backend": raises}),
    "an observer": (lambda x: x * 2, {"observer": raises}),
}  # fmt: skip
STATE = {"n": 1}


def counted(x: Any) -> Any:
    STATE["n"] += 1
    return x * STATE["n"]


def interrupt() -> Any:
    raise KeyboardInterrupt


def caught(x: Any) -> Any:
    with contextlib.suppress(al.AotliteError):
        x.sum().item()
    return x


KEPT: list[Any] = []


class Holder:
    """A plain object."""


def in_a_list(x: Any) -> None:
    KEPT.append(x)


def in_an_object(x: Any) -> None:
    KEPT.append(Holder())
    KEPT[-1].x = x


def result_in_a_list(x: Any) -> None:
    KEPT.append((x * 2).sum())


def view_in_a_list(x: Any) -> None:
    KEPT.append(x[1:])


def in_a_closure(x: Any) -> None:
    KEPT.append(lambda: x)


def in_a_traceback(x: Any) -> None:
    try:
        x.reshape(SIZE + 1)
    except al.AotliteError as error:
        KEPT.append(error)


def in_a_wrapper(x: Any) -> None:
    KEPT.append(TwoTensor(x, x * 2))


def nowhere(x: Any) -> None:
    """Nothing escapes."""


ESCAPES = (
    nowhere, in_a_list, in_an_object, result_in_a_list, view_in_a_list, in_a_closure,
    in_a_traceback, in_a_wrapper,
)  # fmt: skip
FAILING = tuple(itertools.product(FAILURES, ESCAPES, (False, True)))


def check_failure(failure: str, escape: Callable[[Any], None], trains: bool) -> bool:
    """Whether the call failed; nothing of its argument and of what it closes over is left then.

    A frame that a traceback holds holds the function, in eager as well.
    """
    KEPT.clear()
    call = call_of(failure, escape, trains)
    watched = call[1:2] if escape is in_a_traceback else call[1:]
    alive = [weakref.ref(each) for tensor in watched for each in parts(tensor)]
    del watched
    failed = fails(call)
    gc.collect()
    assert not failed or not any(each() is not None for each in alive)
    KEPT.clear()
    return failed


def call_of(failure: str, escape: Callable[[Any], None], trains: bool) -> list[Any]:
    """A compiled function, its argument, and a tensor that it reaches outside."""
    body, options = FAILURES[failure]
    outside = al.ones(SIZE)

    def f(x: Any) -> Any:
        escape(x + outside)
        escape(x)
        return body(x)

    compiled = al.compile(f, **{"backend": "reference", **options})
    return [compiled, al.ones(SIZE, requires_grad=trains), outside]


def parts(tensor: Any) -> tuple[Any, ...]:
    return tensor, tensor.storage, tensor.storage.buffer


def fails(call: list[Any]) -> bool:
    """Whether a call fails. Local variables of frames, which hold the argument in eager, go."""
    call.pop()
    try:
        call.pop(0)(call.pop())
    except (KeyboardInterrupt, Exception) as error:
        for each in (error, *(k for k in KEPT if isinstance(k, Exception))):
            clear(each.__traceback__)
        return True
    return False


def clear(trace: Any) -> None:
    """Clears the frames of a traceback, and those that had called them and are over, too."""
    for frame, _ in traceback.walk_tb(trace):
        above: Any = frame
        while above is not None:
            with contextlib.suppress(RuntimeError):  # one that is running
                above.clear()
            above = above.f_back


@settings(max_examples=60)
@given(st.sampled_from(FAILING))
@pytest.mark.draws(long=600)
def test_a_call_that_fails_keeps_nothing_alive(case):
    """Of 336 cases."""
    check_failure(*case)


def test_the_cases_are_counted():
    assert (300, 336) == (len(LOOKING), len(FAILING))


@pytest.mark.parametrize("failure", FAILURES)
def test_each_failure_fails(failure):
    """A law of calls that do not fail would say nothing."""
    assert check_failure(failure, in_a_list, True)
