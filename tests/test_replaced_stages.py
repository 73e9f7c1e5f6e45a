"""PIP-3: every stage can be replaced by name, and a replacement is what is called where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.pipeline import STAGES
from aotlite.pipeline.options import make_options


def loss(x: Any, w: Any) -> Any:
    x[0].mul_(2.0)
    return (x @ w).relu().sum()


def arguments() -> tuple[Any, Any]:
    return al.ones(4, 3), al.ones(3, 2).requires_grad_()


def spent(x: Any) -> Any:
    """Its result has a history whose saved values are freed: every backward raises."""
    result = (x * x).sum()
    result.backward()
    return result


def counted(name: str, calls: list[str]) -> Callable[..., Any]:
    def stage(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return STAGES[name](*args, **kwargs)

    return stage


@pytest.mark.parametrize("name", STAGES)
def test_a_replaced_stage_is_called(name: str) -> None:
    calls: list[str] = []
    expected, ours = arguments(), arguments()
    loss(*expected).backward()
    al.compile(loss, stages={name: counted(name, calls)})(*ours).backward()
    assert {name} == set(calls)
    assert [expected[0].tolist(), expected[1].grad.tolist()] == [
        ours[0].tolist(),
        ours[1].grad.tolist(),
    ]


def test_all_stages_are_called_in_their_order() -> None:
    calls: list[str] = []
    replaced = {name: counted(name, calls) for name in STAGES}
    al.compile(loss, stages=replaced)(*arguments()).backward()
    assert list(STAGES) == list(dict.fromkeys(calls))


@pytest.mark.parametrize("name", ["functionalize", "simplify", "lower"])
def test_backwards_that_are_compiled_go_through_replaced_stages(name: str) -> None:
    calls: list[str] = []
    tapes = al.compiled_autograd.CompiledAutograd.of(
        "reference", stages={name: counted(name, calls)}
    )
    x, w = arguments()
    with al.compiled_autograd.enable(tapes):
        loss(x, w).backward()
    assert [name] == calls


def test_an_unknown_stage_is_told_all_names() -> None:
    with pytest.raises(al.ArgumentError) as caught:
        make_options(stages={"desugaring": len})
    assert str(caught.value) == (
        f"compile: stages has 'desugaring', expected names among {', '.join(STAGES)}"
    )


@pytest.mark.rules("PIP-3")
@pytest.mark.parametrize("how", [dict, lambda **given: {"stages": given}], ids=["own", "stages"])
@pytest.mark.parametrize(
    "function, needs_grad, why",
    [(abs, False, "no input requires grad"), (spent, True, "every backward raises, as in eager (")],
)
def test_a_partitioner_runs_only_where_there_is_a_backward(
    how: Callable[..., Any], function: Any, needs_grad: bool, why: str
) -> None:
    calls: list[str] = []
    partitioned = how(partition=counted("partition", calls))
    without = al.compile(function, **partitioned)
    without(al.ones(2).requires_grad_(needs_grad))
    assert [] == calls
    assert without.partition.no_backward.startswith(why)
    al.compile(abs, **partitioned)(al.ones(2).requires_grad_())
    assert ["partition"] == calls
