"""META: kinds of results, flags of inputs and tangents against what an eager run shows."""

from __future__ import annotations

from typing import Any

import pytest

from aotlite.ir.graph.role import IntermediateBase, MutatedInput, Output, Primal
from aotlite.stages.records.base import where_it_leads
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    BaseMeta,
    InputMeta,
    IsInput,
    Plain,
    Repeated,
    ViewFacts,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from tests.rules.helpers.meta_oracle import Run, kinds, on_both, run_eagerly, tangents
from tests.stages.helpers.journeys import Journey

ENOUGH = 20
"""Journeys that a check must have something to say about."""


def holds(check: Any) -> int:
    """Checks all random programs; how many the check had something to say about."""
    applied = 0
    for journey in on_both():
        try:
            applied += check(journey.meta, run_eagerly(journey.case), journey) is not False
        except Exception as error:
            error.add_note(str(journey.case))
            raise
    return applied


def is_alone(run: Run, number: int) -> bool:
    """Whether no other input lies on this input's storage."""
    return run.owners(run.inputs[number]) == {number}


# ------------------------------------------------------------------------------------- outputs
def said(output: Any) -> tuple[Any, ...]:
    match output:
        case IsInput(Primal(index)) | AliasOfInput(Primal(index)):
            return type(output).__name__, index
        case AliasOfBase(index) | AliasOfOutput(index) | Repeated(index):
            return type(output).__name__, index
    return (type(output).__name__,)


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-6", "META-7", "META-9", "META-10", "META-12", "META-13", "META-14")
def test_the_kind_of_each_result_is_what_storages_and_objects_of_eager_say() -> None:
    """Where inputs share a storage, a view of it may be a view of either."""
    met = set()

    def check(meta: FunctionMeta, run: Run, journey: Journey) -> None:
        for found, expected in zip(map(said, meta.outputs), kinds(run), strict=True):
            met.add(expected[0])
            if expected == ("AliasOfInput", None):
                expected = (expected[0], found[1])
                assert found[1] in {run.number(x) for x in run.inputs}
            assert expected == found

    assert holds(check) > ENOUGH
    assert met == {
        *("Plain", "IsInput", "AliasOfInput", "AliasOfBase", "AliasOfOutput", "Repeated", "Fixed")
    }


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-5", "META-11")
def test_what_is_said_of_each_result_is_what_eager_shows() -> None:
    """Where its recipe leads, from the source's geometry at entry, is where eager's result lay."""
    recipes = 0

    def check(meta: FunctionMeta, run: Run, journey: Journey) -> None:
        nonlocal recipes
        for output, result in zip(meta.outputs, run.results, strict=True):
            if isinstance(output, Plain):
                assert output.requires_grad == result.requires_grad
                assert output.is_leaf == (result.requires_grad and result.grad_fn is None)
                assert output.version == result.version
                last = [step.result for step in output.geometry_steps] or [output.meta]
                assert last[-1] is result.meta
            view = getattr(output, "view", None)
            if isinstance(view, ViewFacts):
                recipes += 1
                assert view.requires_grad == result.requires_grad
                assert view.kind is result._kind
                last = [step.result for step in (*view.chain, *view.geometry_steps)]
                assert not last or last[-1] is result.meta
                _check_start(run, output, view, result)

    assert holds(check) > ENOUGH
    assert recipes > ENOUGH


def _check_start(run: Run, output: Any, view: ViewFacts, result: Any) -> None:
    """The recipe starts where eager's view does; a geometry op may have moved the object since."""
    if view.geometry_steps or not isinstance(output, AliasOfInput):
        return
    assert isinstance(output.role, Primal)
    end = where_it_leads(view.chain)
    start = 0 if end is None else end[1]
    entry_offset: int = run.before[output.role.index][2]
    assert entry_offset + start == result.storage_offset()


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-9")
def test_a_base_is_said_to_be_what_eager_made() -> None:
    """Its geometry is that of the first tensor on its storage, its version the storage's."""
    seen = 0

    def check(meta: FunctionMeta, run: Run, journey: Journey) -> None:
        nonlocal seen
        for index, base in enumerate(meta.bases):
            assert isinstance(base, BaseMeta)
            seen += 1
            views = [
                result
                for output, result in zip(meta.outputs, run.results, strict=True)
                if isinstance(output, AliasOfBase) and output.base == index
            ]
            made = run.maker(views[0])
            assert base.version == made.version
            assert base.meta.numel == made.numel()
            assert all(view.storage is made.storage for view in views)

    assert holds(check) > ENOUGH
    assert seen > ENOUGH / 8


# -------------------------------------------------------------------------------------- inputs
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-2", "META-3")
def test_the_flags_of_each_input_are_what_eager_shows() -> None:
    """Writes are counted, values not compared: writing what was there is a write."""
    met = set()

    def check(meta: FunctionMeta, run: Run, journey: Journey) -> None:
        for number, x in enumerate(run.inputs):
            if run.number(x) != number:
                continue
            each = meta.input_of(Primal(number))
            shape, stride, offset, requires_grad, is_leaf, version = run.before[number]
            assert (shape, stride) == (each.meta.shape, each.meta.stride)
            assert each.final_meta is x.meta
            assert each.final_start == x.storage_offset() - offset
            moved = (shape, stride, offset) != (x.shape, x.stride(), x.storage_offset())
            assert each.writes_metadata == moved
            assert each.requires_grad == requires_grad
            assert each.is_leaf == (is_leaf or not requires_grad)
            assert each.requires_grad_at_exit == x.requires_grad
            assert each.version_bumps == x.version - version
            if is_alone(run, number):
                _check_writes(each, run, x)
                met.add((each.writes_data, each.writes_metadata, each.under_no_grad))

    assert holds(check) > ENOUGH
    assert len(met) >= 4  # of six combinations: under_no_grad needs a data write


def _check_writes(each: InputMeta, run: Run, x: Any) -> None:
    written = run.writes.get(id(x.storage))
    assert each.writes_data == (written is not None)
    assert each.under_no_grad == (written is not None and not written.with_grad)


# ------------------------------------------------------------------------------------- tangents
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-16")
def test_tangents_are_the_differentiable_results_of_eager_in_order() -> None:
    """Updated inputs, new memory, bases; nothing else."""

    def check(meta: FunctionMeta, run: Run, journey: Journey) -> bool:
        if not all(is_alone(run, i) for i, x in enumerate(run.inputs) if run.number(x) == i):
            return False
        found = []
        for role in meta.tangents:
            match role:
                case MutatedInput(Primal(index)):
                    found.append(("updated", index))
                case Output(index):
                    found.append(("output", index))
                case IntermediateBase(index):
                    found.append(("base", index))
        assert tangents(run) == found
        return bool(found)

    assert holds(check) > ENOUGH
