"""Repeated calls of one compiled function, drawn by Hypothesis: clean runs, and planted bugs."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import aotlite as al
from aotlite.ir.errors import AliasError, ArgumentError
from aotlite.testing import machines
from aotlite.testing.assertions import Difference
from aotlite.testing.engines import engine
from aotlite.testing.machines import QUICK, USUAL, run_machine
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call
from aotlite.testing.sessions import PairedSessions

PAIR = [((2,), "float64"), ((2,), "float64")]
SIZES = [PAIR, [((3, 2), "float64"), ((3, 2), "float64")]]

SHORT = settings(USUAL, max_examples=40, stateful_step_count=10)

Body = Callable[..., Any]


# ------------------------------------------------------------------------------------ clean runs
@pytest.mark.rules("GEN-1", "GEN-2", "GEN-11", "GEN-13")
def test_random_bodies_are_like_eager_however_they_are_called() -> None:
    run_machine(settings=settings(USUAL, max_examples=9), verify=0)


@pytest.mark.rules("GEN-13")
@pytest.mark.parametrize("options", [{"partition": "min_cut"}, {"fast_paths": False}], ids=str)
def test_a_function_is_like_eager_however_it_is_called(options: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        window = x[1:]
        x.mul_(2)
        with al.no_grad():
            y.add_(1)
        return {"window": window, "product": (x * y, y[0])}

    run_machine(body, arguments=SIZES, settings=settings(USUAL, max_examples=12), **options)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"partition": "min_cut"}], ids=str)
def test_2_000_sessions_are_like_eager(options: Any) -> None:
    run_machine(settings=settings(USUAL, max_examples=2000), **options)


# ---------------------------------------------------------------------------------- planted bugs
def ignores_aliases(body: Body) -> Body:
    """Compiled for arguments on memory of their own, and called with others."""
    compiled = al.compile(body, verify=0)

    def wrong(*args: Any) -> Any:
        own = [each.clone() for each in args]
        before = [each.version for each in own]
        results = compiled(*own)
        for each, copy, version in zip(args, own, before, strict=True):
            if copy.version != version:
                each.copy_(copy)
        return results

    return wrong


def ignores_requires_grad(body: Body) -> Body:
    """The first call decides whether there is a backward."""
    compiled = al.compile(body, verify=0)
    first: list[bool] = []

    def wrong(*args: Any) -> Any:
        first.append(any(each.requires_grad for each in args))
        if first[0]:
            return compiled(*args)
        with al.no_grad():
            return compiled(*args)

    return wrong


def reuses_results(body: Body) -> Body:
    """The memory of a result is that of the next call's."""
    compiled = al.compile(body, verify=0)
    kept: list[Any] = []

    def wrong(*args: Any) -> Any:
        result = compiled(*args)
        if result.requires_grad:
            return result
        if not kept:
            kept.append(result)
        kept[0].hidden_alias().copy_(result)
        return kept[0].detach()

    return wrong


def drops_versions(body: Body) -> Body:
    """Writes of arguments are not counted where nothing requires grad."""
    compiled = al.compile(body, verify=0)

    def wrong(x: Any, y: Any) -> Any:
        is_tracked = any(each.requires_grad for each in (x, y))
        return compiled(x if is_tracked else x.hidden_alias(), y)

    return wrong


def keeps_first_size(body: Body) -> Body:
    """Results are of the first call's size."""
    compiled = al.compile(body, verify=0)
    first: list[Any] = []

    def wrong(*args: Any) -> Any:
        result = compiled(*args)
        first.append(result.shape)
        return result if result.shape == first[0] else result[: first[0][0]]

    return wrong


def forgets_late_gradients(body: Body) -> Body:
    """The gradient of a result is that of the last call."""
    compiled = al.compile(body, verify=0)
    last: list[Any] = []

    def wrong(x: Any, y: Any) -> Any:
        last[:] = [y.detach().clone()]
        results = compiled(x, y)
        with al.no_grad():
            value = results.clone()
        return Scaled.apply(x, value, last)

    return wrong


class Scaled(al.autograd.Function):
    """A value that was computed as `x * y`, of which only x gets a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, value: Any, last: Any) -> Any:
        ctx.last = last
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.last[0], None, None


def writing(x: Any, y: Any) -> Any:
    x.mul_(2)
    return x * y + y


def product(x: Any, y: Any) -> Any:
    return x * y


def scaled(x: Any, y: Any) -> Any:
    return x * y.detach()


BUGS: dict[str, tuple[Body, Body, Any, int]] = {
    "ignores the alias pattern": (ignores_aliases, writing, PAIR, 3),
    "ignores requires_grad": (ignores_requires_grad, product, PAIR, 8),
    "reuses a result's memory": (reuses_results, product, PAIR, 6),
    "drops a version": (drops_versions, writing, PAIR, 3),
    "ignores sizes": (keeps_first_size, product, SIZES, 6),
    "forgets what a late backward needs": (forgets_late_gradients, scaled, PAIR, 12),
}
"""A compiler, a function, its arguments, and how many lines show the bug at most."""


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_its_session_is_short(name: str) -> None:
    wrong, body, arguments, most = BUGS[name]
    with pytest.raises(Difference) as raised:
        run_machine(body, arguments=arguments, compile=wrong, settings=SHORT)
    head, session = str(raised.value).split("\n\n")
    assert head.startswith("Twins: compiled differs from eager, expected the same")
    assert len(session.split("\n")) <= most, session


def test_the_session_of_a_program_tells_its_body() -> None:
    call = Call([["make", [0, [2], "float64", False]]], ["$0"])
    program = Program([["mul_", ["$0", 2]]], ["$1"], [call])
    with pytest.raises(Difference) as raised:
        run_machine(program, compile=lambda body: lambda x: body(x.clone()), settings=QUICK)
    assert "def f(x):\n    x.mul_(2)\n    return [x]\n\n" in str(raised.value)
    assert program == raised.value.program


# -------------------------------------------------------------------------------------- the twins
def twins_of(body: Body, compiled: Body | None = None) -> PairedSessions:
    return PairedSessions(engine("aotlite"), body, compiled or al.compile(body))


@pytest.mark.rules("META-10")
@pytest.mark.parametrize("compiled", [None, lambda x: x[1:] * 2], ids=["own", "on new memory"])
def test_a_base_that_is_hidden_stays_so_for_later_views(compiled: Body | None) -> None:
    twins = twins_of(lambda x: (x * 2)[1:], compiled)
    [result] = twins.call([twins.do("make", 0, [3], "float64", False)])
    assert [None, True] == [result.mine.base, result.its.base is not None]
    view = twins.do("alias", result)
    twins.do("mul_", view, 3)
    assert [] == twins.differences()
    assert view.mine.base is result.mine
    assert view.its.base is not result.its


@pytest.mark.rules("GEN-2")
def test_a_refused_call_leaves_both_sessions_as_they_were() -> None:
    def refused(x: Any) -> Any:
        raise AliasError("no")

    twins = twins_of(lambda x: x.mul_(2), refused)
    x = twins.do("make", 0, [3], "float64", False)
    assert [] == twins.call([x]) == twins.differences()
    assert (1, 1) == (twins.calls, twins.refused)
    assert "f(v0)  # refused" == twins.lines[-1]


def test_a_call_that_raises_in_both_ends_what_there_was() -> None:
    twins = twins_of(lambda x, y: x.mul_(2) + y)
    x = twins.do("make", 0, [3], "float64", False)
    assert [] == twins.call([x, twins.do("make", 0, [2], "float64", False)])
    assert [] == twins.live


def test_a_call_that_raises_must_not_have_written() -> None:
    def touching(x: Any, y: Any) -> Any:
        return x.mul_(2) + y

    twins = twins_of(touching, touching)
    x = twins.do("make", 0, [3], "float64", False)
    y = twins.do("make", 0, [2], "float64", False)
    with pytest.raises(Difference, match="touched: the call raised"):
        twins.call([x, y])
    lenient = PairedSessions(engine("aotlite"), touching, touching, atomic=False)
    made = [lenient.do("make", 0, [count], "float64", False) for count in (3, 2)]
    assert [] == lenient.call(made)


@pytest.mark.torch
def test_eager_pytorch_is_like_itself(torch: Any) -> None:
    del torch
    settled = settings(USUAL, max_examples=5)
    run_machine(on="torch", compile=lambda body: body, atomic=False, settings=settled)


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda x: x.clone(), "identity: v0 is the result: False, eager True"),
        (lambda x: [x], r"results: PyTreeSpec\(\[\*\], NoneIsLeaf\), eager"),
        (lambda x: 1, "result: 1, eager tensor"),
        (lambda x: x.nothing, "error of the call: AttributeError.* eager None"),
    ],
)
def test_results_that_differ_are_told_apart(wrong: Body, text: str) -> None:
    twins = twins_of(lambda x: x, wrong)
    with pytest.raises(Difference, match=text):
        twins.call([twins.do("make", 0, [3], "float64", False)])


def test_gradients_of_late_backwards_are_compared() -> None:
    twins = twins_of(lambda x: x * 2, lambda x: x * 3 - x.detach())
    leaf = twins.do("make", 0, [3], "float64", True)
    [result] = twins.call([leaf])
    assert [] == twins.differences()
    twins.backward([result])
    assert twins.differences()[0].startswith("gradient of object 0")
    twins.clear()
    assert [] == twins.differences()
    twins.backward([result], retain=False)
    assert [leaf] == twins.live


def test_arguments_without_shapes_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"arguments is \(\), expected a shape and a dtype"):
        run_machine(lambda x: x, settings=QUICK)


def test_examples_run() -> None:
    assert 0 == doctest.testmod(machines).failed


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from aotlite.ir.errors import MissingExtraError\n"
        "try:\n    import aotlite.testing.machines\n"
        "except MissingExtraError as error:\n    print(error)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("is not installed, expected: pip install hypothesis")
