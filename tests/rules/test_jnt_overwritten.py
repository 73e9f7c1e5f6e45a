"""A gradient is None exactly where eager's is, where arguments are overwritten. JNT-1, TAN-8.

An argument of which nothing is left has no gradient of the call, and zeros for what writes to it.
Whether the gradient is zeros or None is told by what runs between: an op gives zeros, and the
backward of a custom function what its author says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import optim
from aotlite.compiled_autograd import CompiledAutograd
from aotlite.subclasses import MaskedTensor, TwoTensor
from tests.rules.helpers.overwrites import (
    Program,
    covering,
    gradients,
    leaves_of,
    multiplied,
    nones,
    programs,
    shown,
    writes,
)

pytestmark = pytest.mark.rules("JNT-1", "TAN-8")

First = multiplied((True, False)).apply


def overwritten(y: Any, w: Any) -> Any:
    y.copy_(w)
    return First(w, y)[0]


def pair() -> tuple[Any, Any]:
    return al.tensor([1.0, 2.0], requires_grad=True), al.tensor([3.0, 4.0], requires_grad=True)


# ------------------------------------------------------------------------------- the smallest case
@pytest.mark.parametrize("backend", ["reference", "loops", "auto"])
def test_an_overwritten_argument_has_no_gradient_where_a_custom_function_gives_none(
    backend: str,
) -> None:
    p, w = pair()
    al.compile(overwritten, backend=backend)(p * 1.0, w).sum().backward()
    assert p.grad is None
    assert [1, 1] == w.grad.tolist()


def test_an_overwritten_argument_that_is_asked_for_by_name_is_unused() -> None:
    """`autograd.grad` raises for it, as eager's does."""
    p, w = pair()
    total = al.compile(overwritten, backend="reference")(p * 1.0, w).sum()
    with pytest.raises(al.AutogradError, match="allow_unused"):
        al.autograd.grad(total, [p, w])


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "AdamW with decay": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.5),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_leave_alone_what_has_no_gradient(name: str) -> None:
    """Zeros would decay it, and let its momentum go on: the first step gives it some."""
    found = []
    for function in (overwritten, al.compile(overwritten, backend="reference")):
        p, w = pair()
        optimizer = OPTIMIZERS[name]([p, w])
        (p * p * w).sum().backward()
        optimizer.step()
        before = p.tolist()
        for _ in range(3):
            optimizer.zero_grad()
            function(p * 1.0, w).sum().backward()
            optimizer.step()
        assert before == p.tolist()
        found.append(w.tolist())
    assert found[0] == found[1]


def test_zeros_that_a_custom_function_was_given_come_out_as_zeros() -> None:
    """The other way round: eager makes zeros for the result of which no gradient arrives."""
    p, w = pair()
    al.compile(multiplied((True, True)).apply, backend="reference")(p, w)[1].sum().backward()
    assert ([0, 0], [0, 0]) == (p.grad.tolist(), w.grad.tolist())


# --------------------------------------------------------------- functions that see what arrives
def told(count: int, *, draws: bool = False) -> Callable[..., Any]:
    """A function of `count` results and as many arguments, whose backward is given None."""

    class Told(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.set_materialize_grads(False)
            return tuple([each * 2 for each in args])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if draws:
                al.rand(2)
            some = [each for each in grads if each is not None]
            return tuple([some[0] * len(some) if each is None else None for each in grads])

    return Told.apply


def by_choice(function: Callable[..., Any], count: int, chosen: Iterable[int]) -> list[Any]:
    inputs = [al.full((2,), float(k), requires_grad=True) for k in range(count)]
    results = function(*inputs)
    al.autograd.backward([results[k].sum() for k in chosen])
    return shown([each.grad for each in inputs])


@pytest.mark.parametrize("chosen", [(0,), (3,), (1, 2), (0, 1, 3), (0, 1, 2, 3)])
def test_a_custom_function_that_branches_on_none_is_recorded_for_each_choice(
    chosen: tuple[int, ...],
) -> None:
    eager = by_choice(told(4), 4, chosen)
    assert eager == by_choice(al.compile(told(4), backend="reference"), 4, chosen)


@pytest.mark.parametrize("count, draws", [(5, False), (2, True)], ids=["many", "draws"])
def test_a_custom_function_that_sees_none_is_refused_where_choices_are_not_recorded(
    count: int, draws: bool
) -> None:
    compiled = al.compile(told(count, draws=draws), backend="reference")
    assert [None] * count == by_choice(compiled, count, range(count))
    with pytest.raises(al.AutogradError) as caught:
        by_choice(compiled, count, (1,))
    names = ", ".join(f"output_{k}" for k in range(count))
    assert str(caught.value) == (
        f"backward: gradients of some of {names} arrive, expected all of them or none: "
        "ToldBackward is given None for those that do not (set_materialize_grads), and was "
        "recorded with all"
    )
    assert any("leave set_materialize_grads out" in note for note in caught.value.__notes__)


# --------------------------------------------------------------------------------------- the law
def few(each: int, *, seed: int = 0) -> Iterator[Program]:
    """Of each write that covers some programs: those with methods and indices, and with `out=`."""
    for write in covering():
        found = list(programs([write]))
        random.Random(f"{write.name} {seed}").shuffle(found)
        yield from found[: each if not write.name.endswith("(out=)") else max(each // 4, 1)]


def check(
    chosen: Iterable[Program],
    compiled: Callable[[Any], Any],
    way: Callable[[Program, Any], Any] = gradients,
) -> Counter[str]:
    """What was seen of these programs; AssertionError where a gradient is another one."""
    seen: Counter[str] = Counter()
    for program in chosen:
        eager, found = (way(program, f) for f in (program.function(), compiled(program.function())))
        assert nones(eager) == nones(found), f"{program}\n{shown(eager)}\n{shown(found)}"
        if isinstance(eager, list):
            for mine, its in zip(eager, found, strict=True):
                if mine is not None:
                    assert_close(mine, its, str(program))
        seen["all"] += 1
        seen["refused"] += not isinstance(eager, list)
        seen["some None"] += None in eager if isinstance(eager, list) else 0
    return seen


def assert_close(mine: Any, its: Any, what: str) -> None:
    np.testing.assert_allclose(its.detach().numpy(), mine.detach().numpy(), 1e-12, 0, err_msg=what)


def by(backend: str) -> Callable[[Any], Any]:
    return lambda function: al.compile(function, backend=backend)


def test_the_writes_are_found_in_the_table() -> None:
    """A law over few of them, or over such that cover nothing, would show little."""
    names = {write.name for write in covering()}
    assert 220 < len(names) < len({write.name for write in writes()})
    assert {
        "copy_", "fill_", "zero_", "__setitem__", "index_put_", "index_copy_", "index_fill_",
        "masked_fill_", "masked_scatter_", "normal_", "uniform_", "random_", "bernoulli_", "set_",
        "scatter_", "put_", "add(out=)", "cat(out=)",
    } <= names  # fmt: skip


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_gradients_are_none_where_eagers_are_whatever_overwrites(every: int) -> None:
    seen = check(list(few(4))[::every], by("reference"))
    assert seen["all"] > 250 // every and seen["some None"] > 210 // every
    assert seen["refused"] < 30 // every


@pytest.mark.parametrize("backend, every", [("loops", 24), ("auto", 150)])
def test_gradients_are_none_where_eagers_are_on_other_backends(backend: str, every: int) -> None:
    seen = check(list(few(4, seed=1))[::every], by(backend))
    assert seen["some None"] > 1


@pytest.mark.long
def test_gradients_are_none_where_eagers_are_over_all_programs() -> None:
    """All of methods and indices, and some of `out=` and of what leaves something of the old."""
    partial = [write for write in writes() if not write.covers()]
    of_partial = [p for w in partial for p in list(programs([w]))[::7]]
    print(dict(check([*few(240), *of_partial], by("reference"))))


# ------------------------------------------------------------------ hooks, orders, tapes, wrappers
def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
    """With hooks on the argument before it is written, and after."""

    def both(y: Any, *rest: Any) -> Any:
        y.register_hook(lambda grad: grad * 2)
        results = function(y, *rest)
        y.register_hook(lambda grad: grad * 3)
        return results

    return both


def test_hooks_do_not_make_gradients_of_none() -> None:
    seen: Counter[str] = Counter()
    for program in list(few(4, seed=2))[::12]:
        body = hooked(program.function())
        eager = gradients(program, body)
        found = gradients(program, al.compile(body, backend="reference"))
        assert shown(eager) == shown(found), str(program)
        seen["some None"] += isinstance(eager, list) and None in eager
    assert seen["some None"] > 15


def second_order(program: Program, function: Callable[..., Any]) -> Any:
    """Gradients with a history, and those of each of them; or the error."""
    al.manual_seed(3)
    leaf, other, *operands = leaves_of(program)
    inputs = [each for each in (leaf, other, *operands) if each.requires_grad]
    try:
        results = function(leaf * leaf, other * other, *operands)
        total: Any = sum((results[k] * results[k]).sum() for k in program.taken)
        if not total.requires_grad:
            return []
        first = al.autograd.grad(total, inputs, create_graph=True, allow_unused=True)
        found = list(first)
        for each in first:
            if each is not None and each.requires_grad:
                square = (each * each).sum()
                found += al.autograd.grad(square, inputs, allow_unused=True, retain_graph=True)
        return found
    except al.AotliteError as error:
        return type(error)


def test_second_derivatives_are_none_where_eagers_are() -> None:
    seen = check(list(few(4, seed=3))[::16], by("reference"), second_order)
    assert seen["some None"] > 15


def nested(y: Any, w: Any) -> Any:
    """A gradient that is overwritten, and given to a function that has none for it."""
    (grad,) = al.autograd.grad((w * w * w).sum(), [w], create_graph=True)
    assert grad is not None
    y.copy_(grad)
    return First(grad, y)[0]


def test_the_gradient_of_a_gradient_is_none_where_eagers_is() -> None:
    found = []
    for function in (nested, al.compile(nested, backend="reference")):
        p, w = pair()
        first = al.autograd.grad(
            function(p * p, w).sum(), [p, w], create_graph=True, allow_unused=True
        )
        assert first[1] is not None
        found.append(shown([*first, *al.autograd.grad(first[1].sum(), [p, w], allow_unused=True)]))
    assert found[0] == found[1]
    assert [True, False, True, False] == nones(found[0])


class Outer(al.autograd.Function):
    """Its backward calls a function that sees which of its results gradients arrive at."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        a, b = ctx.saved_tensors
        first, second = told(2)(a * a, b * b)
        return first * grad, second * grad


@pytest.mark.parametrize("chosen", [(0,), (1,), (0, 1)])
def test_a_function_inside_a_backward_sees_what_arrives_at_second_order(
    chosen: tuple[int, ...],
) -> None:
    found = []
    for function in (Outer.apply, al.compile(Outer.apply, backend="reference")):
        inputs = pair()
        first = al.autograd.grad(function(*inputs).sum(), inputs, create_graph=True)
        some: list[Any] = [first[k] for k in chosen]
        total: Any = sum((each * (k + 2)).sum() for k, each in enumerate(some))
        found.append(shown(list(al.autograd.grad(total, inputs, allow_unused=True))))
    assert found[0] == found[1]


def test_gradients_are_none_where_eagers_are_on_compiled_tapes() -> None:
    """`compiled_autograd` of eager functions, and of compiled ones, which it pastes in (CAG-11)."""
    seen: Counter[str] = Counter()
    for program in list(few(4, seed=4))[::20]:
        eager = gradients(program, program.function())
        compiled = al.compile(program.function(), backend="reference")
        with al.compiled_autograd.enable(CompiledAutograd.of("reference")):
            for function in (program.function(), compiled):
                assert shown(eager) == shown(gradients(program, function)), str(program)
        seen["some None"] += isinstance(eager, list) and None in eager
    assert seen["some None"] > 10


def _two(array: np.ndarray) -> Any:
    parts = (al.from_numpy(np.array(array)), al.from_numpy(np.array(array)))
    return TwoTensor(*parts, requires_grad=True)


def _masked(array: np.ndarray) -> Any:
    made = MaskedTensor(al.from_numpy(np.array(array)), al.from_numpy(np.array(array > 0)))
    return made.requires_grad_()


@pytest.mark.parametrize("make", [_two, _masked], ids=["TwoTensor", "MaskedTensor"])
def test_gradients_of_wrappers_are_none_where_eagers_are(make: Callable[..., Any]) -> None:
    names = ("copy_", "fill_", "zero_", "masked_fill_", "__setitem__", "index_copy_")
    chosen = list(programs([write for write in covering() if write.name in names]))
    random.Random(5).shuffle(chosen)
    seen: Counter[str] = Counter()
    for program in [p for p in chosen if p.view != "bytes"][:12]:  # bytes are of one tensor
        found = []
        for function in (program.function(), al.compile(program.function(), backend="reference")):
            found.append(nones(gradients(program, function, make)))
        assert found[0] == found[1], str(program)
        seen["some None"] += True in found[0]
    assert seen["some None"] > 7


# ------------------------------------------------------------------------------------- in PyTorch
def everywhere(lib: Any, write: str, view: str, gives: tuple[bool, bool]) -> list[Any]:
    """The gradients that a library has after an overwritten argument was given to a function."""

    class Multiplied(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a * b, a + b

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return tuple([first if each else None for each in gives])

    p = lib.ones(2, 2, dtype=lib.float64).requires_grad_()
    w = (lib.arange(4, dtype=lib.float64).view(2, 2) + 1).requires_grad_()
    y = p * 1.0
    target = {"itself": y, "flat": y.view(-1), "row": y[0], "transposed": y.t()}[view]
    scope = {"t": target, "s": w.reshape(-1)[: target.numel()].view(target.shape), "lib": lib}
    exec(write, scope)
    found = []
    for k in (0, 1):
        p.grad = w.grad = None
        Multiplied.apply(w, y)[k].sum().backward(retain_graph=True)
        found += [None if each.grad is None else each.grad.tolist() for each in (p, w)]
    return found


WRITES = [
    "t.copy_(s)", "t.fill_(2.0)", "t.zero_()", "t[...] = s", "t.masked_fill_(t == t, 1.5)",
    "t.index_copy_(0, lib.arange(t.shape[0]), s)", "t.index_fill_(0, lib.arange(t.shape[0]), 3.0)",
    "t.normal_()", "t.uniform_()", "t.bernoulli_(0.5)", "t.masked_scatter_(t == t, s)", "t.mul_(s)",
    "t.exponential_()", "t.pow_(0)", "t.lt_(3.0)",
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("view", ["itself", "flat", "row", "transposed"])
@pytest.mark.parametrize("write", WRITES)
def test_gradients_of_what_is_overwritten_are_pytorchs(write: str, view: str, torch: Any) -> None:
    for gives in ((True, True), (True, False), (False, True), (False, False)):
        mine = everywhere(al, write, view, gives)
        its = everywhere(torch, write, view, gives)
        drawn = "normal" in write or "uniform" in write or "exponential" in write
        assert its == mine or (drawn and nones(its) == nones(mine)), f"{write} {view} {gives}"
