"""The classes that ship obey the laws of wrapper subclasses, alone and nested."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.op import OPS
from aotlite.testing import subclass_laws
from aotlite.testing.subclasses import (
    SHIPPED,
    Meanings,
    Refused,
    SubclassKind,
    compiled_differences,
    draw_program,
    drawn_nesting,
    eager_differences,
    making,
)
from aotlite.testing.subclasses.wrapper_models import DEPTH, QUANTIZED_FORMS, forms_of
from tests.samples import samples_of

MEANINGS = Meanings(SHIPPED)

UNKNOWN = {
    "TwoTensor": set(),
    "QuantizedTensor": {"view_as_complex", "view_dtype"},
    "SemiStructuredSparseTensor": {"as_strided", "diagonal", "unfold", "view_dtype"},
}
"""What each class refuses; what a MaskedTensor knows is said by its rules."""

MASKED_KNOWS = (
    "add mul div where exp cast clone fill sum mean prod amax amin max min any all var std "
    "logsumexp softmax log_softmax cumsum cumprod logcumsumexp count_nonzero linalg_vector_norm "
    "matmul mm mv dot bmm cat stack flip roll index_select gather index take repeat index_put "
    "index_fill index_copy select_scatter slice_scatter view t select slice expand split unbind "
    "mul_ add_ copy_ fill_ masked_fill_ index_put_ index_fill_"
).split()


@pytest.mark.slow("the laws over the op table")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.name)
@pytest.mark.rules("SUB-1", "SUB-7", "SUB-15", "SUB-17", "SUB-23")
def test_the_classes_that_ship_obey_the_laws(kind: SubclassKind) -> None:
    """Over the whole op table, by one of the samples that the ops' own laws are tried on."""
    found = check_shipped(kind, most=1, programs=6, compiled=2, ops=OPS_OF.get(kind.name))
    assert found.cases > 300
    if kind.name in UNKNOWN:
        assert set(found.refused) <= UNKNOWN[kind.name]


@pytest.mark.long
@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.name)
@pytest.mark.rules("SUB-1", "SUB-7", "SUB-15", "SUB-17", "SUB-23")
def test_the_classes_that_ship_obey_the_laws_on_many_samples(kind: SubclassKind) -> None:
    found = check_shipped(kind, most=3, programs=12, compiled=4)
    assert found.cases > 1500
    if kind.name in UNKNOWN:
        assert set(found.refused) == UNKNOWN[kind.name]


OPS_OF = {
    "SemiStructuredSparseTensor": list(OPS)[::2],
    "ShardedTensor": list(OPS)[1::2],  # all of them in tests/sharding/test_laws.py
}
"""Half of the table for those that take longest; all of it with -m long."""


def check_shipped(
    kind: SubclassKind,
    *,
    most: int,
    programs: int,
    compiled: int,
    ops: list[str] | None = None,
) -> Any:
    """What was found, by `most` samples of each op."""
    knows = MASKED_KNOWS if kind.name == "MaskedTensor" else ()
    found = subclass_laws(
        kind,
        ops=ops,
        samples=samples_of,
        knows=knows,
        most=most,
        programs=programs,
        compiled=compiled,
    )
    assert found.laws == ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8")
    return found


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", [form for form in QUANTIZED_FORMS if form != "quantized"])
def test_each_form_of_quantizing_obeys_the_laws(form: str) -> None:
    quantized = next(kind for kind in SHIPPED if kind.name == "QuantizedTensor")
    how = making((form, "dense"))
    found = subclass_laws(
        how.make,
        quantized.meaning,
        stored=quantized.stored,
        holds=how.holds,
        ops=[
            "add",
            "mul",
            "sum",
            "mul_",
            "copy_",
            "fill_",
            "relu_",
            "t",
            "select",
            "view",
            "slice",
        ],
        most=8,
        programs=10,
        compiled=3,
    )
    assert found.refused == ()


def check_nestings(seeds: range) -> Counter[str]:
    """Random programs on random nestings: what came of them."""
    found: Counter[str] = Counter()
    for seed in seeds:
        nesting = drawn_nesting(Random(seed))
        how = making(nesting, MEANINGS)
        program = draw_program(seed, how)
        if program is None:
            found["none"] += 1
            continue
        try:
            differences = eager_differences(program, how)
        except Refused:
            found["refused"] += 1
            continue
        assert not differences, (seed, nesting, differences, program)
        found["ran"] += 1
    return found


@pytest.mark.rules("SUB-9")
def test_random_programs_on_random_nestings_do_what_they_mean() -> None:
    """seed by seed"""
    found = check_nestings(range(9))
    assert found["ran"] > 6


@pytest.mark.long
@pytest.mark.rules("SUB-9")
def test_many_random_programs_on_random_nestings_do_what_they_mean() -> None:
    """20,000 of them."""
    found = check_nestings(range(1000, 21_000))
    assert found["ran"] > 19_000


def check_compiled(seeds: range) -> Counter[str]:
    """Random programs on random nestings, compiled: what came of them."""
    found: Counter[str] = Counter()
    for seed in seeds:
        nesting = drawn_nesting(Random(seed))
        how = making(nesting, MEANINGS)
        program = draw_program(seed, how)
        if program is None:
            continue
        try:
            differences = compiled_differences(program, how, al.compile)
        except Refused:
            found["refused"] += 1
            continue
        assert not differences, (seed, nesting, differences, program)
        found["ran"] += 1
    return found


@pytest.mark.rules("SUB-9", "SUB-15", "SUB-20")
def test_random_programs_on_random_nestings_compile() -> None:
    """seed by seed"""
    found = check_compiled(range(4))
    assert found["ran"] >= 3


@pytest.mark.long
@pytest.mark.rules("SUB-9", "SUB-15", "SUB-20")
def test_many_random_programs_on_random_nestings_compile() -> None:
    """1,000 of them."""
    found = check_compiled(range(1000, 2000))
    assert found["ran"] > 900


def test_nestings_have_every_class_and_at_most_three_levels() -> None:
    drawn = [drawn_nesting(Random(seed)) for seed in range(400)]
    assert set().union(*map(forms_of, drawn)) == {
        "pair", "masked", "sparse", "small", *QUANTIZED_FORMS
    }  # fmt: skip

    def depth(nesting: object) -> int:
        inner = nesting[1:] if isinstance(nesting, tuple) else ()
        return 0 if nesting == "dense" else 1 + max(map(depth, inner), default=0)

    assert {1, 2, DEPTH} == {depth(nesting) for nesting in drawn}
