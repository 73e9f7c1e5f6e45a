"""Which gradients are None: eager, compiled, and in PyTorch where it is installed. JNT-1, TAN-8."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

import aotlite as al

Call = Callable[..., Any]
"""A function of a library and three tensors, of which some require grad."""
Ways = tuple[tuple[bool, ...], ...]


# --------------------------------------------------------------------------------------- a table
def unused(lib: Any, x: Any, w: Any, u: Any) -> Any:
    return x * w, u.detach() + 1


def shares_a_result(lib: Any, x: Any, w: Any, u: Any) -> Any:
    return x * 2, x * w, w + u


def integers(lib: Any, x: Any, w: Any, u: Any) -> Any:
    return x.argmax(0), (w > 0), w * 1


def index_only(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """A gradient flows to what is picked, none to what picks."""
    return x[(w > 0).to(lib.int64)], u.sum()


def detached(lib: Any, x: Any, w: Any, u: Any) -> Any:
    y = (x * w).detach()
    return y * u, y


def without_grad(lib: Any, x: Any, w: Any, u: Any) -> Any:
    with lib.no_grad():
        y = x * w
    return y + u, y


def grad_again(lib: Any, x: Any, w: Any, u: Any) -> Any:
    with lib.no_grad():
        y = x * 2
        with lib.enable_grad():
            z = w * 2
    return y, z + y, u


def views(lib: Any, x: Any, w: Any, u: Any) -> Any:
    return x[0], w.view(2, 2)[1], u.reshape(4)[:2] * 2


def parts(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """All parts of one op have one tape node."""
    one, two = lib.stack([x, w]).unbind(0)
    return one, two * u


def writes(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """What is overwritten in the whole leads nowhere any more."""
    y = x * 1
    y.copy_(w)
    return y, u * 2


def writes_in_part(lib: Any, x: Any, w: Any, u: Any) -> Any:
    y = x * 1
    y[:2] = w[:2]
    return y, y[0], u


def writes_without_grad(lib: Any, x: Any, w: Any, u: Any) -> Any:
    y = x * 1
    with lib.no_grad():
        y.mul_(w)
    return y, u * 1


def filled(lib: Any, x: Any, w: Any, u: Any) -> Any:
    y = x * w
    y.zero_()
    return y, y + u


def flows_as_zeros(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """A gradient of zeros is none of None."""
    return x.round() + w * 0, u.sign()


def chooses(lib: Any, x: Any, w: Any, u: Any) -> Any:
    return lib.where(w > 0, x, u), lib.maximum(x, w)


def passes(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """Results that are arguments."""
    return x, w * 1, u


def inner_leaf(lib: Any, x: Any, w: Any, u: Any) -> Any:
    y = x.detach().requires_grad_()
    return y * w, u * 2


def asks_inside(lib: Any, x: Any, w: Any, u: Any) -> Any:
    if not x.requires_grad:
        return u
    (found,) = lib.autograd.grad((x * x * w).sum(), [x], create_graph=True)
    return found, u * 2


def asks_for_numbers(lib: Any, x: Any, w: Any, u: Any) -> Any:
    """Without `create_graph` what comes has no history."""
    y = x * 1
    if not y.requires_grad:
        return w
    (found,) = lib.autograd.grad((y * y * w).sum(), [y])
    return found * u, found


def cut(kind: str) -> Call:
    """A custom function whose backward gives None, zeros, or a gradient for one operand."""

    def function(lib: Any, x: Any, w: Any, u: Any) -> Any:
        class Cutting(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a * 2 + b

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return (None if kind == "none" else grad * 0), None

        return Cutting.apply(x, w), u * 1

    function.__name__ = f"custom_{kind}"
    return function


def not_differentiable(lib: Any, x: Any, w: Any, u: Any) -> Any:
    class Marking(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            one, two = a * 2, a * 3
            ctx.mark_non_differentiable(two)
            return one, two

        @staticmethod
        def backward(ctx: Any, one: Any, two: Any) -> Any:
            return one

    one, two = Marking.apply(x)
    return one + w, two, u * 1


TABLE: list[Call] = [
    unused, shares_a_result, integers, index_only, detached, without_grad, grad_again, views,
    parts, writes, writes_in_part, writes_without_grad, filled, flows_as_zeros, chooses, passes,
    inner_leaf, asks_inside, asks_for_numbers, cut("none"), cut("zeros"), not_differentiable,
]  # fmt: skip


# ------------------------------------------------------------------------------- what is observed
def arguments(lib: Any, requires: tuple[bool, ...]) -> list[Any]:
    numbers = ([1.0, -2.0, 3.0, 0.5], [2.0, 1.0, -1.0, 4.0], [0.5, 0.5, 2.0, -3.0])
    return [
        lib.tensor(each, dtype=lib.float64, requires_grad=needs)
        for each, needs in zip(numbers, requires, strict=True)
    ]


def differentiable(results: Any) -> list[Any]:
    every = results if isinstance(results, tuple) else (results,)
    return [each for each in every if each.requires_grad]


def by_grad(lib: Any, function: Call, requires: tuple[bool, ...], taken: int) -> Any:
    """Of the gradients of those that require grad which are None; `taken`: of which results."""
    inputs = arguments(lib, requires)
    roots = differentiable(function(*inputs))
    roots = [root for k, root in enumerate(roots) if taken >> k & 1]
    wanted = [each for each in inputs if each.requires_grad]
    if not roots or not wanted:
        return len(roots)
    ones = [lib.ones_like(each) for each in roots]
    found = lib.autograd.grad(roots, wanted, ones, allow_unused=True)
    return [None if grad is None else grad.tolist() for grad in found]


def by_backward(lib: Any, function: Call, requires: tuple[bool, ...], taken: int) -> Any:
    """The same of `.grad` after a backward."""
    inputs = arguments(lib, requires)
    roots = differentiable(function(*inputs))
    roots = [root for k, root in enumerate(roots) if taken >> k & 1]
    if roots:
        lib.autograd.backward(roots, [lib.ones_like(each) for each in roots])
    return [None if each.grad is None else each.grad.tolist() for each in inputs]


def patterns(lib: Any, function: Call) -> Iterator[Any]:
    """Over all choices of inputs that require grad, and of results that gradients arrive for."""
    for requires in product((False, True), repeat=3):
        for taken in range(1, 8):
            for way in (by_grad, by_backward):
                yield way(lib, function, requires, taken)


def of(lib: Any, function: Call) -> Call:
    return lambda *inputs: function(lib, *inputs)


@pytest.mark.rules("JNT-1", "JNT-3", "TAN-8")
@pytest.mark.parametrize("function", TABLE, ids=lambda each: each.__name__)
def test_gradients_that_are_none_in_eager_are_none_where_it_is_compiled(function: Call) -> None:
    """For all choices of inputs that require grad, and of results that are differentiated."""
    body = of(al, function)
    assert list(patterns(al, body)) == list(patterns(al, al.compile(body, backend="reference")))


@pytest.mark.torch
@pytest.mark.rules("JNT-1", "JNT-3")
@pytest.mark.parametrize("function", TABLE, ids=lambda each: each.__name__)
def test_gradients_that_are_none_are_none_in_pytorch(function: Call, torch: Any) -> None:
    assert list(patterns(torch, of(torch, function))) == list(patterns(al, of(al, function)))


@pytest.mark.rules("JNT-1")
def test_the_table_has_every_kind_of_pattern() -> None:
    """A table in which nothing is None, or all is, would show nothing."""
    seen: Counter[str] = Counter()
    for function in TABLE:
        for found in patterns(al, of(al, function)):
            if isinstance(found, list) and len(found) == 3:
                seen["".join("-" if each is None else "g" for each in found)] += 1
    assert len(seen) == 8 and min(seen.values()) > 20


# -------------------------------------------------------------------------------- random programs
STEPS = [
    "{a} * {b}", "{a} + {b}", "-{a}", "{a}.detach()", "{a}.sin()", "{a}.clone()", "{a}.sum()",
    "({a} > 0).to(lib.float64)", "{a}.view(2, 2).t().reshape(4)", "lib.where({a} > 0, {a}, {b})",
    "lib.stack([{a}, {b}])[0]", "{a}[1:3].sum() + {b}", "{a}.argmax(0)", "{a}.sign() * {b}",
    "{a}.unbind(0)[1] * {b}", "lib.zeros_like({a})", "{a}.round() + {b}",
]  # fmt: skip
WRITES = ["{a}.mul_({b})", "{a}.copy_({b})", "{a}.zero_()", "{a}[0] = {b}[1]", "{a}.add_(1)"]


def program(rng: random.Random) -> str:
    """A function of tensors of four elements, in Python that both libraries run."""
    whole, lines = ["x", "w", "u"], []
    every = ["x", "w", "u"]
    for k in range(rng.randint(2, 8)):
        step = rng.choice(STEPS if rng.random() < 0.8 else WRITES)
        a, b = rng.choice(whole[-4:]), rng.choice(whole)
        indent = ""
        if rng.random() < 0.2:
            lines.append("with lib.no_grad():")
            indent = "    "
        if step in WRITES:
            inner: list[Any] = [name for name in whole if name not in "xwu"] or [None]
            a = rng.choice(inner)
            lines.append(f"{indent}{step.format(a=a, b=b) if a else 'pass'}")
            continue
        lines.append(f"{indent}v{k} = {step.format(a=a, b=b)}")
        every.append(f"v{k}")
        if ".sum()" != step[3:] and "argmax" not in step:
            whole.append(f"v{k}")
    results = [rng.choice(every[3:] or every) for _ in range(rng.randint(1, 3))]
    body = "".join(f"    {line}\n" for line in lines)
    return f"def f(lib, x, w, u):\n{body}    return {', '.join(results)},\n"


def outcomes(lib: Any, function: Call, *, errors: tuple[type[Exception], ...]) -> list[Any]:
    """The patterns of a few choices; of a program that raises that it does, and where."""
    found: list[Any] = []
    for requires, taken, way in [
        ((True, True, True), 7, by_grad),
        ((True, True, True), 1, by_backward),
        ((True, False, True), 6, by_backward),
        ((False, True, True), 2, by_grad),
    ]:
        try:
            found.append(way(lib, function, requires, taken))
        except errors:
            found.append("raised")
    return found


def functions_of(seed: int) -> tuple[str, Call]:
    text = program(random.Random(seed))
    scope: dict[str, Any] = {}
    exec(text, scope)
    function: Call = scope["f"]
    return text, function


def nones(found: list[Any]) -> list[Any]:
    """Of each outcome which gradients are None."""
    return [[grad is None for grad in each] if isinstance(each, list) else each for each in found]


def check_compiled(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        text, function = functions_of(seed)
        body = of(al, function)
        eager = outcomes(al, body, errors=(al.AotliteError,))
        try:
            compiled = al.compile(body, backend="reference")
            found = outcomes(al, compiled, errors=(al.AutogradError, al.AliasError))
        except al.UnsupportedError:
            seen["refused"] += 1
            continue
        assert eager == found, f"{seed}\n{text}"
        seen["all"] += 1
        seen["some None"] += any(None in each for each in eager if isinstance(each, list))
    return seen


@pytest.mark.rules("JNT-1", "JNT-3", "TAN-8")
def test_random_programs_have_their_nones_where_they_are_compiled() -> None:
    seen = check_compiled(range(130))
    assert seen["refused"] < 13 and seen["some None"] > 40


@pytest.mark.long
@pytest.mark.rules("JNT-1", "JNT-3")
def test_many_random_programs_have_their_nones_where_they_are_compiled() -> None:
    print(dict(check_compiled(range(1000, 11000))))


@pytest.mark.torch
@pytest.mark.rules("JNT-1", "JNT-3")
def test_random_programs_have_pytorchs_nones(torch: Any) -> None:
    """Nones, and which programs raise."""
    some = 0
    for seed in range(600):
        text, function = functions_of(seed)
        mine = outcomes(al, of(al, function), errors=(al.AotliteError, IndexError))
        its = outcomes(torch, of(torch, function), errors=(RuntimeError, IndexError))
        assert nones(its) == nones(mine), f"{seed}\n{text}\n{its}\n{mine}"
        some += any(None in each for each in mine if isinstance(each, list))
    assert some > 200


class AloneOnly(al.autograd.Function):
    """Two results, whose backward raises where gradients arrive for both."""

    @staticmethod
    def forward(ctx: Any, grad: Any) -> Any:
        ctx.set_materialize_grads(False)
        return grad * 1, grad * 2

    @staticmethod
    def backward(ctx: Any, one: Any, other: Any) -> Any:
        if one is not None and other is not None:
            raise ValueError("both arrive")
        return one * 1 if other is None else other * 2


class Forked(al.autograd.Function):
    """A sum whose gradients are those results."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        return x * 1 + w * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return AloneOnly.apply(grad)


@pytest.mark.rules("JNT-15", "TAN-8", "DBL-2")
@pytest.mark.parametrize("which", [[0], [1], [0, 1]])
def test_gradients_that_fail_only_together_do_so_where_both_are_differentiated(which: Any) -> None:
    """Each subset of them is recorded; the error is that of the subset that arrives."""
    found: list[Any] = []
    for function in (Forked.apply, al.compile(Forked.apply)):
        x, w, v = (al.ones(2, requires_grad=True) for _ in range(3))
        grads = al.autograd.grad(function(x, w), [x, w], v, create_graph=True)
        try:
            ones = [al.ones(2)] * len(which)
            (second,) = al.autograd.grad([grads[k] for k in which], [v], ones)
            assert second is not None
            found.append(second.tolist())
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert (found[0] == "both arrive") is (len(which) > 1)
