"""META: the records themselves: printing, comparing, counting, pickling, and orders of graphs."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import ROLES, Gradient, Hidden, Primal, Saved, Tangent
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.pipeline import STAGES
from aotlite.stages.records.base import Record, where_it_leads
from aotlite.stages.records.metadata.function_facts import Alias
from tests.end_to_end.helpers.cases import Case, cases
from tests.end_to_end.helpers.worlds import check, inputs_share_memory
from tests.rules.helpers.meta_oracle import on_both


def records(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All records in a record, with the way to each."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from records(item, f"{path}[{index}]")
    elif isinstance(value, Record):
        yield path, value
        for field in attrs.fields(type(value)):  # type: ignore[arg-type]
            inner = f"{path}.{field.name}" if path else field.name
            yield from records(getattr(value, field.name), inner)


def all_records() -> Iterator[Any]:
    for journey in on_both():
        for _, record in records(journey.meta):
            yield record
        yield from (journey.partition, *journey.partition.saved, journey.stages["3 convention"])


# ------------------------------------------------------------------------------------- printing
@pytest.mark.rules("META-5")
def test_a_record_is_printed_in_one_short_line_that_has_each_of_its_facts() -> None:
    """Flags by their names, roles, metas and chains as in printed graphs; no node is shown."""
    longest = 0
    for record in all_records():
        text = repr(record)
        longest = max(longest, len(text))
        assert "\n" not in text and "object at 0x" not in text and "<call" not in text
        for field in attrs.fields(type(record)):
            value = getattr(record, field.name)
            if field.name in ("node", "witness") or value in (None, 0, (), EMPTY_CHAIN):
                continue
            if isinstance(value, bool):
                assert (field.name in text.split("(", 1)[1]) == (value != (field.default is True))
            elif isinstance(value, (*ROLES, TensorMeta)):
                assert str(value) in text
            elif isinstance(value, ViewChain):
                assert all(f".{step.op.name}(" in text for step in value)
            elif isinstance(value, enum.Enum):
                assert value.value in text
            elif not isinstance(value, tuple) and value != field.default:
                assert repr(value) in text
    assert 40 < longest < 400


@pytest.mark.rules("META-5")
def test_a_record_prints_as_it_should() -> None:
    def f(x: Any, w: Any) -> Any:
        x.mul_(w)
        rows = x * 2
        return rows.view(-1), rows.t(), x[0], x.sum(), None

    compiled = al.compile(f)
    compiled(al.ones(2, 3), al.ones(3).requires_grad_())
    meta = compiled.meta
    shown = [*meta.inputs, *meta.outputs, *meta.bases, *compiled.partition.saved]
    assert [
        "InputMeta(primals_0, f32[2, 3], place='argument 0', is_leaf, requires_grad_at_exit, "
        "writes_data, changes_history, version_bumps=1)",
        "InputMeta(primals_1, f32[3], place='argument 1', is_leaf, requires_grad, "
        "requires_grad_at_exit)",
        "AliasOfBase(base=0, ViewFacts(.view((-1,)), requires_grad))",
        "AliasOfBase(base=0, ViewFacts(.t(), requires_grad))",
        "AliasOfInput(primals_0, ViewFacts(.select(0, 0), requires_grad))",
        "Plain(requires_grad, f32[])",
        "Fixed(None)",
        "BaseMeta(f32[2, 3], requires_grad)",
        "SavedValue(name='clone', f32[2, 3], reason='the backward uses it')",
    ] == [repr(record) for record in shown]
    assert "FunctionMeta(2 inputs, 5 outputs, 1 base, tangents=[updated_primals_0, output_3, " \
        "base_0], training)" == repr(meta)  # fmt: skip


# ------------------------------------------------------------------------------------ comparing
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-25")
def test_a_function_analyzed_twice_has_equal_metadata() -> None:
    for journey in on_both():
        assert [] == journey.meta.differences(journey.compiled.entries[-1].meta)


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-25")
def test_every_fact_that_is_changed_is_a_difference_and_is_named() -> None:
    """Field by field, in every record of every program: a new field is compared without more."""
    changed = set()
    for journey in on_both():
        for path, record in records(journey.meta):
            for field in attrs.fields(type(record)):
                name = (type(record).__name__, field.name)
                other = another(getattr(record, field.name))
                if other is None or field.name in ("node", "witness"):
                    continue
                whole = replaced(journey.meta, record, attrs.evolve(record, **{field.name: other}))
                (found,) = journey.meta.differences(whole)
                inner = f"{path}.{field.name}" if path else field.name
                assert found.startswith((f"{inner} is ", f"the number of {inner} is "))
                changed.add(name)
    assert len(changed) > 30


def another(value: Any) -> Any:
    """A value of the same type that is another; None where there is no easy one."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "!"
        case Primal(index) | Hidden(index):
            return type(value)(index + 7)
        case TensorMeta():
            return tensor_meta((*value.shape, 3))
        case tuple() if value and not isinstance(value[0], Record):
            return value[:-1]
    return None


def replaced(value: Any, old: Any, new: Any) -> Any:
    """A record with one record in it put in the place of another."""
    if value is old:
        return new
    if isinstance(value, tuple):
        return tuple([replaced(item, old, new) for item in value])
    if not isinstance(value, Record):
        return value
    names = [field.name for field in attrs.fields(type(value))]  # type: ignore[arg-type]
    inner = {name: replaced(getattr(value, name), old, new) for name in names}
    return attrs.evolve(value, **inner)  # type: ignore[misc]


@pytest.mark.rules("META-25")
def test_recipes_are_compared_by_where_they_lead() -> None:
    """`.t().t()` leads where `.transpose(0, 1).t()` leads, and not where `.t()` does."""

    def recipe(function: Any) -> Any:
        compiled = al.compile(function)
        compiled(al.ones(2, 2))
        return compiled.meta

    one, other = recipe(lambda x: x.t().t()), recipe(lambda x: x.transpose(0, 1).t())
    assert [] == one.differences(other)
    assert ["outputs[0].view.chain is .t().t(), expected .t()"] == one.differences(
        recipe(lambda x: x.t())
    )
    first, second = recipe(lambda x: x[0]), recipe(lambda x: x[1])
    assert ["outputs[0].view.chain is .select(0, 0), expected .select(0, 1)"] == first.differences(
        second
    )
    assert [] == recipe(lambda x: x[1:][0]).differences(second)
    assert [] != recipe(lambda x: x[1].detach()).differences(second)


@pytest.mark.draws(long=520)
def test_a_chain_leads_to_the_window_that_eager_sees() -> None:
    """Geometry and first element, for every recipe of the random programs."""
    for journey in on_both():
        for output in journey.meta.outputs:
            chain = output.view.chain if isinstance(output, Alias) else EMPTY_CHAIN
            end = where_it_leads(chain)
            if end is not None:
                assert end[0] is chain[-1].result
                assert end[1] + end[0].span <= max(1, chain[0].operand.span)


# ------------------------------------------------------------------------------------- counting
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-19")
def test_counts_add_up() -> None:
    """Every result is of one class; every written input is written once, here or there."""
    for journey in on_both():
        meta = journey.compiled.entries[-1].meta
        counts = meta.counts
        classes = counts.plain, counts.aliases, counts.inputs_again, counts.repeated, counts.fixed
        assert list(range(len(meta.outputs))) == sorted(i for each in classes for i in each)
        assert counts.outputs == len(meta.outputs)
        written = {i for i, each in enumerate(meta.inputs) if each.writes}
        assert written == {*counts.out_graph, *counts.in_graph}
        assert not {*counts.out_graph} & {*counts.in_graph}
        assert {*counts.in_graph_counted} <= {*counts.in_graph}
        updated = [i for i in counts.out_graph if meta.inputs[i].writes_data]
        returns = len(updated) + len(counts.plain) + counts.bases
        assert returns == len(counts.forward_returns)
        assert counts.tangents == len(meta.tangents) * meta.training


# ------------------------------------------------------------------------------ orders of graphs
@pytest.mark.draws(long=520)
@pytest.mark.rules("META-20")
def test_the_forward_returns_updated_inputs_results_bases_and_saved_values_in_this_order() -> None:
    """By roles, and in the printed graph."""
    for journey in on_both():
        meta, forward = journey.compiled.entries[-1].meta, journey.partition.forward
        saved = [Saved(i) for i in range(len(journey.partition.saved))]
        assert [*meta.counts.forward_returns, *saved] == list(forward.output_roles)
        names = [role.name for role, _ in forward.outputs_with(Saved)]
        assert [value.name for value in journey.partition.saved] == names
        last = forward.print_readable(print_output=False).splitlines()[-1]
        if forward.outputs:
            assert last.endswith("# " + ", ".join(map(str, forward.output_roles)))


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-22")
def test_the_backward_takes_saved_values_and_tangents_and_returns_gradients_in_order() -> None:
    """Gradients are in the order of the inputs, None where nothing flows."""
    seen = 0
    for journey in on_both():
        backward = journey.partition.backward
        if backward is None:
            continue
        seen += 1
        count = len(journey.partition.saved)
        tangents = [Tangent(result) for result in journey.meta.tangents]
        taken = [node.role for node in backward.placeholders]
        assert [*[Saved(i) for i in range(count)], *tangents] == taken
        order: list[Any] = [each.role for each in journey.meta.inputs]
        order += [each.role for each in journey.meta.families]
        given = [role.of for role, _ in backward.outputs_with(Gradient)]
        assert [role for role in order if role in given] == given
        assert len(given) == len(backward.output_roles)
        lines = backward.print_readable(print_output=False).splitlines()
        if backward.outputs:
            assert lines[-1].endswith("# " + ", ".join(map(str, backward.output_roles)))
    assert seen > 20


@pytest.mark.rules("META-21")
def test_what_is_saved_is_the_partitions_affair() -> None:
    """Two partitioners of one function: equal metadata, orders that hold, other saved values."""
    differ = 0

    def f(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = (x * w).sin().exp()
        return x.sum(), x

    functions = [f, lambda x, w: (x.exp() * w).cos(), lambda x, w: x @ w.t()]
    for function in functions:
        found = []
        for partition in ("default", "min_cut"):
            compiled = al.compile(function, partition=partition)
            compiled(al.ones(2, 2).requires_grad_(), al.ones(2, 2).requires_grad_())
            found.append(compiled.entries[0])
            saved = [Saved(i) for i in range(len(compiled.partition.saved))]
            assert saved == [r for r, _ in compiled.forward_graph.outputs_with(Saved)]
            assert compiled.backward_graph is not None
            assert saved == [n.role for n in compiled.backward_graph.placeholders][: len(saved)]
        assert [] == found[0].meta.differences(found[1].meta)
        assert found[0].meta.counts == found[1].meta.counts
        differ += len(found[0].partition.saved) != len(found[1].partition.saved)
    assert differ


# ------------------------------------------------------------------------------------- pickling
def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.draws(long=520)
@pytest.mark.rules("META-26")
def test_records_are_as_they_were_after_pickling() -> None:
    for journey in on_both():
        meta = journey.compiled.entries[-1].meta
        for record in (meta, journey.meta):  # the second still knows nodes of the captured graph
            assert [] == record.differences(again(record))
            assert all(base.node is None for base in again(record).bases)
        assert meta.explain() == again(meta).explain()
        convention = journey.stages["3 convention"]
        assert [] == convention.differences(again(convention))
        partition, back = journey.partition, again(journey.partition)
        assert repr(partition.saved) == repr(back.saved)
        for old, new in ((partition.forward, back.forward), (partition.backward, back.backward)):
            assert (old is None) == (new is None)
            if old is not None:
                assert str(old) == str(new)


@pytest.mark.rules("META-26")
def test_a_long_recipe_is_pickled() -> None:
    """A chain is a list, linked: pickled link by link it would be as deep as it is long."""

    def f(x: Any) -> Any:
        for _ in range(2_000):
            x = x.t()
        return x

    compiled = al.compile(f)
    compiled(al.ones(2, 3))
    meta = again(compiled.meta)
    assert 2_000 == len(meta.outputs[0].view.chain)
    assert [] == compiled.meta.differences(meta)


@pytest.mark.rules("META-26")
def test_what_one_detach_made_is_one_after_pickling() -> None:
    """Views of one detached alias are one family; the step that they share stays shared."""

    def f(x: Any) -> Any:
        alias = x.detach()
        return alias[0], alias[1]

    compiled = al.compile(f)
    compiled(al.ones(2, 3).requires_grad_())
    first, second = (output.view.chain for output in again(compiled.meta).outputs)
    assert first[0] is second[0]


def _pickled(plan: Any) -> Any:
    meta, forward = again((plan.meta, plan.forward))
    return STAGES["runtime"](attrs.evolve(plan, meta=meta, forward=forward))


def _cut_and_pickled(graph: Any) -> Any:
    return again(STAGES["partition"](graph))


@pytest.mark.draws(long=600)
@pytest.mark.rules("META-26")
@settings(max_examples=75)
@given(cases())
def test_an_entry_made_from_pickled_records_does_what_eager_does(case: Case) -> None:
    """Stage 10 writes it from metadata and a partition that went through a pickle."""
    if inputs_share_memory(case):
        return
    found, _ = check(case, stages={"partition": _cut_and_pickled, "runtime": _pickled})
    assert [] == found


def test_a_pickled_graph_is_the_same_program() -> None:
    for journey in on_both()[::20]:
        for graph in (journey.captured, journey.joint, journey.pure, journey.simple):
            assert structurally_equal(graph, again(graph)) is None
