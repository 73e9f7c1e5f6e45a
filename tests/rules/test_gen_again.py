"""GEN-10: with `verify` the captured graph is analyzed once more, and a differing fact is named."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s2_analyze import analyze
from aotlite.testing import assert_same_effects
from tests.end_to_end.helpers.worlds import body_of
from tests.rules.helpers.meta_oracle import on_both
from tests.rules.test_meta_records import another, records, replaced
from tests.stages.helpers.journeys import inputs_of

pytestmark = pytest.mark.rules("GEN-10")

NOT_DERIVED = {"role", "place", "value", "node", "witness", "grad_mode_after"}
"""What the second capture is told, or what finds a value inside one compilation."""


def lie(meta: FunctionMeta, choice: int) -> tuple[str, FunctionMeta]:
    """Metadata with one wrong fact, and the way to it."""
    found = [
        (f"{path}.{field.name}" if path else field.name, record, field.name, other)
        for path, record in records(meta)
        for field in attrs.fields(type(record))
        if field.name not in NOT_DERIVED
        and (other := another(getattr(record, field.name))) is not None
    ]
    path, record, name, other = found[choice % len(found)]
    return path, replaced(meta, record, attrs.evolve(record, **{name: other}))


def test_a_wrong_fact_is_named_whichever_it_is() -> None:
    """Inputs keep their bytes; without `verify` the same analysis is believed."""
    told = set()
    for number, journey in enumerate(on_both()[::4]):
        if any(step.op in ("requires_grad_", "detach_") for step in journey.case.program.body):
            continue
        said: list[str] = []

        def wrong(captured: Any, number: int = number, said: list[str] = said) -> FunctionMeta:
            path, meta = lie(analyze(captured), 11 * number)
            said.append(path)
            return meta

        _, inputs = inputs_of(journey.case)
        before = [str(x.detach().tolist()) for x in inputs]
        with pytest.raises(al.ArgumentError) as caught:
            al.compile(body_of(journey.case), verify=True, stages={"analyze": wrong})(*inputs)
        assert str(caught.value).startswith("verify: 2 analyze says that ")
        assert said[0] in str(caught.value)
        assert before == [str(x.detach().tolist()) for x in inputs]
        told.add(said[0].rpartition(".")[2])
    assert len(told) > 15


def test_the_second_analysis_agrees_with_the_first() -> None:
    for journey in on_both()[1::4]:
        _, inputs = inputs_of(journey.case)
        al.compile(body_of(journey.case), verify=True).prepare(*inputs)


class Twice(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def leaf_inside(x: Any) -> Any:
    return (x * 2).detach().requires_grad_()


def cut_inside(x: Any) -> Any:
    return (x * 2).detach_()


@pytest.mark.parametrize("function", [lambda x: Twice.apply(x), leaf_inside, cut_inside])
def test_what_no_op_says_is_not_analyzed_again(function: Any) -> None:
    """The second run would find no history, or one too many."""
    x = al.ones(2, requires_grad=True)
    assert function(x).requires_grad == al.compile(function, verify=True)(x).requires_grad


def test_constants_hidden_inputs_and_random_ops_are_analyzed_again() -> None:
    weight = al.ones(3).requires_grad_()

    def function(x: Any) -> Any:
        scale = al.tensor([1.0, 2.0, 3.0])
        scale.add_(1)
        return (x * weight * scale).mul_(al.rand(3)), scale.view(3, 1), weight[1:]

    results = al.compile(function, verify=True)(al.ones(2, 3))
    assert [True, False, True] == [r.requires_grad for r in results]


def test_hidden_inputs_that_overlap_or_lend_their_memory_are_analyzed_again() -> None:
    """They are arguments in the second capture: every place that names one is told so."""
    base = (al.ones(6, requires_grad=True) * 2).view(2, 3)
    row, memory = base[0], al.ones(4)

    def overlapping(x: Any) -> Any:
        x.mul_(2)
        return row * 3

    def lending(x: Any) -> Any:
        x.set_(memory)
        return x[1:]

    found = al.compile(overlapping, verify=True)(base)
    assert [12.0, 12.0, 12.0] == found.tolist()
    x = al.ones(2)
    found = al.compile(lending, verify=True)(x)
    assert found.storage is memory.storage and x.storage is memory.storage


def test_with_symbols_what_is_idle_for_the_sizes_of_the_call_is_no_difference() -> None:
    def geometry(x: Any) -> list[Any]:
        x.as_strided_((0, 2), (2, 1))  # that of the call: equal for this size alone
        return []

    def window(x: Any) -> Any:
        return x.as_strided((3, 2), (2, 1), 0) + 1  # ends in the input for this size

    for function, shape in ((geometry, (0, 2)), (geometry, (0, 3)), (window, (3, 2))):
        compiled = al.compile(function, dynamic=True, backend="reference", verify=True)
        assert_same_effects(function, compiled, partial(al.ones, shape))
