"""`explain()` says every fact of a function's metadata: none can change without the text."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain, ViewStep, chain_of
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.ir.graph.role import Family, Hidden, IntermediateBase, MutatedInput, Output, Primal
from aotlite.ir.meta import tensor_meta
from aotlite.ir.ops.views.view_ops import SELECT, T
from aotlite.stages.records.metadata.function_facts import (
    AliasOfBase,
    AliasOfInput,
    AliasOfOutput,
    BaseMeta,
    FamilyMeta,
    Fixed,
    InputMeta,
    IsInput,
    Plain,
    Repeated,
    StateStep,
    ViewFacts,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from tests.rules.helpers.meta_oracle import on_both
from tests.rules.test_meta_records import another, records, replaced

SQUARE = tensor_meta((3, 3))
ROW = tensor_meta((3,))
TURNED = chain_of(ViewStep(T, (), SQUARE, SQUARE.with_stride((1, 3))))
PICKED = chain_of(ViewStep(SELECT, (0, 1), SQUARE, ROW))


# -------------------------------------------------------------------------------- random records
def flags(*names: str) -> st.SearchStrategy[dict[str, bool]]:
    return st.fixed_dictionaries(dict.fromkeys(names, st.booleans()))


@st.composite
def inputs(draw: Any, index: int) -> InputMeta:
    """Any combination of flags, possible or not: explaining takes them all."""
    found = draw(
        flags(
            *("is_leaf", "requires_grad", "requires_grad_at_exit", "writes_data"),
            *("writes_metadata", "under_no_grad", "changes_history", "through_hidden_alias"),
            *("shares_outside", "in_graph", "written_late"),
        )
    )
    moved = found["writes_metadata"]
    role = draw(st.sampled_from((Primal(index), Hidden(index, "model.weight"))))
    return InputMeta(
        role=role,
        meta=SQUARE,
        final_meta=TURNED[-1].result if moved else SQUARE,
        final_start=draw(st.integers(0, 3)) if moved else 0,
        geometry_steps=TURNED if moved else EMPTY_CHAIN,
        place=f"argument {index}" if isinstance(role, Primal) else "model.weight",
        version_bumps=draw(st.integers(0, 2)),
        changes=tuple(draw(st.lists(st.sampled_from(StateStep), max_size=2))),
        **found,
    )


@st.composite
def views(draw: Any) -> ViewFacts:
    chains: tuple[ViewChain, ...] = (TURNED, PICKED)
    return ViewFacts(
        chain=draw(st.sampled_from((*chains, EMPTY_CHAIN))),
        kind=draw(st.sampled_from((None, *CreationKind))),
        geometry_steps=draw(st.sampled_from((*chains, EMPTY_CHAIN))),
        version=draw(st.none() | st.integers(0, 3)),
        **draw(flags("requires_grad", "stale", "under_grad", "is_dead_end")),
        **draw(flags("own_history", "is_leaf", "follows_base")),
    )


def _plain(meta: Any, **facts: Any) -> Plain:
    return Plain(meta=meta, geometry_steps=EMPTY_CHAIN, **facts)


@st.composite
def metas(draw: Any) -> FunctionMeta:
    """Metadata with up to two inputs and two bases, and results of all kinds."""
    given_inputs = tuple([draw(inputs(i)) for i in range(draw(st.integers(1, 2)))])
    role = draw(st.sampled_from([each.role for each in given_inputs]))
    counts = st.integers(0, 3)
    memory = flags("requires_grad", "shares_outside")
    kinds = (
        st.builds(lambda v, f, leaf: _plain(SQUARE, version=v, is_leaf=leaf, **f),
                  counts, memory, st.booleans()),
        st.just(IsInput(role)),
        st.builds(AliasOfInput, st.just(role), views(), st.integers(0, 2)),
        st.builds(AliasOfBase, st.integers(0, 1), views()),
        st.builds(AliasOfOutput, st.just(0), views()),
        st.just(Repeated(0)),
        st.builds(Fixed, st.none() | st.integers() | st.text(max_size=3)),
    )  # fmt: skip
    outputs = tuple(draw(st.lists(st.one_of(*kinds), min_size=1, max_size=4)))
    based = {output.base for output in outputs if isinstance(output, AliasOfBase)}
    bases = tuple([BaseMeta(None, SQUARE, witness=0, version=draw(counts), **draw(memory))
                   for _ in range(max(based, default=-1) + 1)])  # fmt: skip
    if len(based) < len(bases):  # the first has a view, too
        outputs = (*outputs, AliasOfBase(0, draw(views())))
    results = [MutatedInput(each.role) for each in given_inputs]
    possible: list[Any] = [*results, Output(0), *map(IntermediateBase, range(len(bases)))]
    tangents = tuple([each for each in possible if draw(st.booleans())])
    some_gradient = any(i.requires_grad or i.requires_grad_at_exit for i in given_inputs)
    members = tuple([each.role for each in given_inputs])
    families = [FamilyMeta(Family(0), SQUARE, members, draw(st.booleans()), members[0])]
    return FunctionMeta(
        families=tuple(families if len(members) == 2 and draw(st.booleans()) else []),
        inputs=given_inputs,
        outputs=outputs,
        bases=bases,
        tangents=tangents,
        training=bool(tangents) and some_gradient and draw(st.booleans()),
        grad_mode_after=draw(st.sampled_from((None, True, False))),
    )


# --------------------------------------------------------------------------------- the property
WHERE = {
    ("FunctionMeta", "failure"): lambda r: r.training,
    ("InputMeta", "final_meta"): lambda r: r.writes_metadata,
    ("InputMeta", "final_start"): lambda r: r.writes_metadata,
    ("InputMeta", "in_graph"): lambda r: r.writes_data,
    ("InputMeta", "through_hidden_alias"): lambda r: r.writes_data,
    ("InputMeta", "changes_history"): lambda r: r.writes_data,
    ("InputMeta", "under_no_grad"): lambda r: r.writes_data and not r.changes_history,
    ("InputMeta", "is_leaf"): lambda r: r.requires_grad,
    ("ViewFacts", "stale"): lambda r: r.kind is not None,
    ("ViewFacts", "is_dead_end"): lambda r: r.kind is not None and not r.stale,
    ("ViewFacts", "is_leaf"): lambda r: not r.follows_base,
    ("ViewFacts", "under_grad"): lambda r: r.kind is CreationKind.NO_GRAD,
}
"""The records in which a fact says something: where an input is not written, nothing is said of
how it is written."""


def silent(meta: FunctionMeta) -> set[tuple[str, str]]:
    """The facts that change without the text."""
    text = meta.explain()
    found = set()
    for path, record in records(meta):
        if "changes[" in path or "count_plan" in path:
            continue  # what the run time does step by step; the text says that it does
        for field in attrs.fields(type(record)):
            name = (type(record).__name__, field.name)
            other = another(getattr(record, field.name))
            if other is None or not _applies(name, record) or _leads_nowhere(name, meta, other):
                continue
            changed = replaced(meta, record, attrs.evolve(record, **{field.name: other}))
            if changed.explain() == text:
                found.add(name)
    return found


def _applies(name: tuple[str, str], record: Any) -> bool:
    return name[1] not in ("node", "witness") and WHERE.get(name, lambda r: True)(record)


def _leads_nowhere(name: tuple[str, str], meta: FunctionMeta, other: Any) -> bool:
    """Whether the changed fact would name what is not there, or leave a base without a view."""
    match name[1]:
        case "role" | "base" | "through":
            return True
        case "training":
            return bool(other) and not meta.tangents
    return False


@pytest.mark.rules("META-2", "META-5", "META-16", "META-24")
def test_no_fact_of_a_programs_metadata_changes_without_its_sentences() -> None:
    for journey in on_both()[::5]:
        if any(each.requires_grad for each in journey.meta.inputs):
            assert set() == silent(journey.meta), journey.meta.explain()


@pytest.mark.draws(long=800)
@pytest.mark.rules("META-2", "META-5", "META-6", "META-16", "META-24")
@settings(max_examples=70)
@given(metas())
def test_no_fact_of_any_metadata_changes_without_its_sentences(meta: FunctionMeta) -> None:
    """Records drawn field by field: combinations that no program has made yet."""
    assert set() == silent(meta)


@pytest.mark.draws(long=400)
@pytest.mark.rules("META-6")
@settings(max_examples=79)
@given(metas())
def test_every_sentence_is_one_line_that_ends(meta: FunctionMeta) -> None:
    lines = meta.explain().splitlines()
    assert all(line.endswith(".") and len(line) > 20 for line in lines)
    about = len(meta.inputs) + len(meta.outputs) + len(meta.bases)
    assert len(lines) >= about + 2
    starts = [line for line in lines if not line.startswith(" ")]
    for index, start in itertools.islice(enumerate(starts), len(meta.inputs)):
        assert start.startswith(f"{meta.inputs[index].role} is ")


# ----------------------------------------------------------------------------------- examples
def test_sentences_of_a_view_taken_with_grad_of_a_view_under_no_grad() -> None:
    """A dead end: it has a tape node, and its gradient goes nowhere (TEN-21)."""

    def f(x: Any) -> Any:
        with al.no_grad():
            row = x[0]
        return row[1:]

    compiled = al.compile(f)
    compiled(al.ones(2, 3).requires_grad_())
    assert (
        "Result 0 is a view of argument 0, rebuilt at each call by .select(0, 0).slice(0, 1, None, "
        "1), "
        "and is taken with grad mode on of a view made under no_grad or in inference_mode, from "
        "which no gradient goes on; it requires grad."
    ) in compiled.meta.explain()


def test_sentences_of_memory_that_was_written() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.add_(1)
        z = y * 3
        z[0].add_(1).mul_(2)
        return y, z[0], z[1]

    compiled = al.compile(f)
    compiled(al.ones(2, 3))
    text = compiled.meta.explain()
    assert "Result 0 is new memory, f32[2, 3], its version counter at 1." in text
    assert "Intermediate base 0 is f32[2, 3], its version counter at 2, returned besides" in text
