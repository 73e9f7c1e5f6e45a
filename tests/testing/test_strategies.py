"""The public Hypothesis strategies: they give what they say, in plain data, and shrink well."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from aotlite import testing
from aotlite.ir.errors import ArgumentError
from aotlite.testing import Call, Program, shrunk, strategies
from aotlite.testing.coverage.cells import (
    CELLS,
    OUTPUTS,
    POSSIBLE,
    RELATIONS,
    WRITES,
    cells_of,
    relations_of,
)
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.generate import layouts
from aotlite.testing.generate.choices import DTYPES, LIBRARY, Seeded, times
from aotlite.testing.generate.layouts import Layout, Storage
from aotlite.testing.observe.differences import is_exact
from aotlite.testing.observe.exact_numbers import are_exact
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import VIEWS, kind_of_op
from aotlite.testing.strategies import hypothesis_choices, memory_strategies, program_strategies
from tests.testing.helpers.examples import program

few = settings(max_examples=60)
# The phase `explain` traces a hundred variants of what was found.
QUICK = settings(max_examples=500, database=None, phases=[Phase.generate, Phase.shrink])
FIRST = settings(max_examples=20, database=None, phases=[Phase.generate])


def smallest(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    return find(strategy, wanted, settings=QUICK)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "module", [layouts, hypothesis_choices, memory_strategies, program_strategies]
)
def test_the_examples_of_the_docstrings_run(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert (0, True) == (failed, attempted > 0)


# ------------------------------------------------------------------------------------ the choices
def drawn(make: Callable[[Any], Any]) -> st.SearchStrategy[Any]:
    return st.composite(lambda draw: make(strategies.Choices(draw)))()


@pytest.mark.parametrize("share", [0.003, 0.04, 0.1, 0.3, 0.5, 0.6, 0.72, 0.95])
def test_what_has_a_chance_happens_or_not_and_shrinks_to_not(share: float) -> None:
    ways = drawn(lambda source: source.chance(share))
    assert smallest(ways, lambda happens: happens)
    assert not smallest(ways, lambda happens: True)
    seeded = Seeded(1)
    count = sum(seeded.chance(share) for _ in range(4000))
    assert abs(count - 4000 * share) < 150


def test_choices_shrink_to_the_first_option_and_the_given_order() -> None:
    def make(source: Any) -> list[Any]:
        sample = source.sample("abcd", 3)
        return [sample, source.choices("xyz", [3, 0, 1], k=2), source.randint(-3, 5)]

    assert [["a", "b", "c"], ["x", "x"], 0] == smallest(drawn(make), lambda made: True)
    other = smallest(drawn(make), lambda made: made[0][0] != "a" and "z" in made[1])
    assert (["b", "a", "c"], {"x", "z"}, 0) == (other[0], set(other[1]), other[2])


@given(drawn(lambda source: source.choices("xyz", [3, 0, 1], k=4)))
def test_options_of_weight_0_are_never_chosen(letters: list[str]) -> None:
    assert "y" not in letters


def test_turns_stop_where_a_source_wants_no_more() -> None:
    counts = [len(list(times(Seeded(seed), 2, 6))) for seed in range(400)]
    assert {*range(7)} == set(counts)
    assert 1.4 < sum(counts) / 400 < 2.2


# -------------------------------------------------------------------------- memory and layouts
@given(strategies.storages(max_size=5, dtypes=["int64", "float32"]))
def test_storages_are_what_they_are_limited_to(storage: Storage) -> None:
    assert 1 <= storage.size <= 5
    assert storage.dtype in ("int64", "float32")
    assert not (storage.requires_grad and storage.dtype == "int64")
    (tensor,), _ = setup_of(LIBRARY, Call([storage.step()], []))
    assert (storage.size, storage.requires_grad) == (tensor.numel(), tensor.requires_grad)


@pytest.mark.parametrize("overlapping", [None, True, False])
def test_layouts_lie_on_their_storage_and_overlap_as_they_are_told(overlapping: Any) -> None:
    seen = set()

    @given(strategies.layouts(overlapping=overlapping, dtypes=DTYPES))
    def check(layout: Layout) -> None:
        places = [layout.offset]
        for size, stride in zip(layout.shape, layout.stride, strict=True):
            places = [start + i * stride for start in places for i in range(size)]
        assert overlapping in (None, len(set(places)) < len(places))
        assert max(places, default=0) < layout.storage.count(layout.dtype)
        assert min((layout.offset, *layout.stride, *layout.shape)) >= 0
        values, _ = setup_of(LIBRARY, Call(layout.steps(), []))
        tensor = values[-1]
        assert layout.shape == tuple(tensor.shape)
        assert (layout.stride, layout.offset) == (tuple(tensor.stride()), tensor.storage_offset())
        assert layout == eval(repr(layout), vars(layouts))
        seen.add((layout.overlaps, len(layout.shape), layout.dtype == layout.storage.dtype))

    check()
    assert {0, 1, 2, 3} <= {dims for _, dims, _ in seen} | ({0} if overlapping else set())
    assert {True, False} == {own for _, _, own in seen}
    assert {True, False} == {overlaps for overlaps, _, _ in seen} or overlapping is not None


def test_a_layout_shrinks_to_the_smallest() -> None:
    layout = smallest(strategies.layouts(overlapping=True), lambda layout: True)
    assert ((2,), (0,), 0, 1) == (layout.shape, layout.stride, layout.offset, layout.storage.size)
    apart = smallest(strategies.layouts(overlapping=False), lambda layout: len(layout.shape) == 2)
    assert 4 >= prod(apart.shape)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64", "uint8", "bool"])
def test_sums_and_products_of_exact_numbers_are_exact(dtype: str) -> None:
    import numpy as np

    @given(st.lists(strategies.exact_numbers(dtype), min_size=4, max_size=4))
    def check(numbers: list[Any]) -> None:
        made = np.array(numbers, dtype)
        assert made.tolist() == numbers
        assert are_exact(
            [made, made * made[0], made[:1] * made[1] * made[2], made.sum(keepdims=True)]
        )

    check()


# -------------------------------------------------------------------------------- the arguments
@pytest.mark.parametrize("relation", RELATIONS[:-1])
def test_arguments_have_the_relation_that_is_asked_for(relation: str) -> None:
    @settings(max_examples=20)
    @given(strategies.aliased_inputs(relations=[relation]))
    def check(call: Call) -> None:
        _, args = setup_of(LIBRARY, call)
        storage = LIBRARY.storage_of(args[0])
        family = [arg for arg in args if LIBRARY.storage_of(arg) == storage]
        assert relation in relations_of(LIBRARY, family, len(args))
        assert call == eval(repr(call), vars(testing))

    check()


def test_so_many_arguments_are_related_as_are_asked_for() -> None:
    @settings(max_examples=20)
    @given(strategies.aliased_inputs(count=3, dtypes="float64"))
    def check(call: Call) -> None:
        _, args = setup_of(LIBRARY, call)
        assert 3 == len(args)
        assert 1 == len({LIBRARY.storage_of(arg) for arg in args})

    check()


# ------------------------------------------------------------------------------------ the programs
@few
@given(strategies.view_chains(views=["select", "t", "expand", "unbind"], max_length=4))
def test_chains_are_of_the_views_that_are_asked_for(chain: Program) -> None:
    assert {step.op for step in chain.body} <= {"select", "t", "expand", "unbind"}
    assert len(chain.body) <= 4
    _, args = setup_of(LIBRARY, chain.calls[0])
    (last,) = body_of(LIBRARY, chain)(*args)
    assert LIBRARY.storage_of(args[0]) == LIBRARY.storage_of(last)


@few
@given(strategies.programs())
def test_programs_run_exactly_and_are_plain_data(given_program: Program) -> None:
    assert given_program == eval(repr(given_program), vars(testing))
    assert given_program == Program.from_json(given_program.to_json())
    assert len(given_program.body) <= 12
    assert all(map(is_exact, given_program.run()))


@few
@given(
    strategies.programs(
        views=["select", "expand"],
        writes=["fill", "copy"],
        relations=["alone", "same object"],
        dtypes=["float32"],
        max_steps=5,
    )
)
def test_programs_have_nothing_but_what_they_are_limited_to(limited: Program) -> None:
    assert len(limited.body) <= 5
    ops = {step.op for step in limited.body}
    assert ops & {*VIEWS, "getitem"} <= {"select", "expand"}
    assert {kind_of_op(op) for op in ops} <= {None, "fill", "copy"}
    makes = [step for call in limited.calls for step in call.setup if step.op == "make"]
    assert {"float32"} == {step.args[2] for step in makes}
    hit = [CELLS[number] for number in cells_of(limited)]
    assert {relation for *_, relation in hit} <= {"alone", "same object"}


def test_each_name_of_the_table_is_reached() -> None:
    """By a program for each, of the cells with that name."""
    rng = Random(7)
    for place, names in enumerate((VIEWS, WRITES, OUTPUTS, RELATIONS)):
        for name in rng.sample(names, 4):
            cell = ["any"] * 4
            cell[place] = name
            found = find(strategies.programs(cell=cell), lambda _: True, settings=FIRST)
            assert name in {CELLS[number][place] for number in cells_of(found)}, name


def test_all_programs_of_a_cell_hit_it() -> None:
    number = POSSIBLE[20_001]

    @settings(max_examples=15)
    @given(strategies.programs(cell=number))
    def check(hitting: Program) -> None:
        assert number in cells_of(attrs.evolve(hitting, calls=hitting.calls[:1]))

    check()


@pytest.mark.torch
def test_programs_are_drawn_on_another_engine(torch: Any) -> None:
    del torch

    @settings(max_examples=15)
    @given(strategies.programs(engine="torch", views=["select", "view"], writes=["fill"]))
    def check(foreign: Program) -> None:
        assert foreign.run("torch")[0].error is None

    check()


# ----------------------------------------------------------------------------------- the calls
SUM = program(
    [["mul_", ["$0", 2]], ["add_", ["$1", "$0"]]],
    ["$1"],
    {
        "setup": [["make", [1, [2, 3], "float64", False]], ["make", [2, [3], "float64", False]]],
        "args": ["$0", "$1"],
    },
)


def test_further_calls_differ_in_relation_size_history_and_mode() -> None:
    first = program([["mul_", ["$0", 2]]], ["$1"], *SUM.calls)
    seen: list[set[Any]] = [set(), set(), set(), set()]

    @settings(max_examples=100)
    @given(strategies.calls_of(first))
    def check(call: Call) -> None:
        _, args = setup_of(LIBRARY, call)
        assert 2 == len(args)
        (world,) = attrs.evolve(first, calls=[call]).run()
        assert is_exact(world)
        same = LIBRARY.storage_of(args[0]) == LIBRARY.storage_of(args[1])
        seen[0] |= relations_of(LIBRARY, args, 2) if same else {"separate"}
        for place, value in enumerate((tuple(args[0].shape), args[0].requires_grad, call.grad)):
            seen[place + 1].add(value)

    check()
    assert len(seen[0]) >= 5
    assert {(2, 3), (3, 3)} <= seen[1]
    assert [{True, False}] * 2 == seen[2:]


def test_further_calls_run_though_few_fit() -> None:
    """Where shapes must match, sizes that are changed in one argument only are left out."""
    copies = program([["copy_", ["$0", "$1"]]], [], *SUM.calls)
    raised = []

    @settings(max_examples=30)
    @given(strategies.calls_of(copies))
    def check(call: Call) -> None:
        (world,) = attrs.evolve(copies, calls=[call]).run()
        raised.append(world.error is not None)

    check()
    assert sum(raised) <= 6


# ------------------------------------------------------------------------------------ shrinking
def writes_overlapping(given_program: Program) -> bool:
    """Whether a step writes the values of a tensor that has two elements in one place."""
    found = []

    def watch(step: Step, args: list[Any], result: Any) -> None:
        if kind_of_op(step.op) in ("pointwise", "copy", "fill", "setitem", "index"):
            places = Layout(Storage(10**6), tuple(args[0].shape), tuple(args[0].stride())).places()
            found.append(len(set(places)) < len(places))

    for call in given_program.calls:
        try:
            body_of(LIBRARY, given_program, watch)(*setup_of(LIBRARY, call)[1])
        except Exception:
            continue
    return any(found)


def test_the_simplest_program_does_nothing() -> None:
    nothing = smallest(strategies.programs(), lambda program: True)
    make = Step("make", (0, (), "float64", False))
    assert Program([], ["$0"], [Call([make], ["$0"])]) == nothing


@pytest.mark.slow("Hypothesis shrinks a program")
def test_a_program_shrinks_to_few_steps_and_then_to_the_fewest() -> None:
    found = smallest(strategies.programs(writes=["fill"]), writes_overlapping)
    assert len(found.body) + sum(len(call.setup) for call in found.calls) <= 8
    least = shrunk(found, writes_overlapping)
    assert ["fill_"] == [step.op for step in least.body if kind_of_op(step.op)]
    assert len(least.body) + len(least.calls[0].setup) <= 3
    assert 1 == len(least.calls)


# ------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: strategies.programs(views=["slide"]), "programs: views has 'slide', expected"),
        (lambda: strategies.programs(writes=[]), "programs: writes has none, expected"),
        (lambda: strategies.programs(dtypes="int8"), "programs: dtypes has 'int8', expected"),
        (lambda: strategies.programs(max_steps=0), "programs: max_steps is 0, expected 1 to 40"),
        (
            lambda: strategies.programs(outputs=["input"], relations=["made inside"]),
            "are impossible, expected some that can meet",
        ),
        (
            lambda: strategies.programs(views=["real"], dtypes=["float64"]),
            "programs: views has 'real', expected",
        ),
        (lambda: strategies.programs(cell=["t", "fill"]), "expected one each of view, write"),
        (lambda: strategies.programs(cell=["t", "mul", "any", "any"]), "the write is 'mul'"),
        (lambda: strategies.programs(cell=10**6), "expected one of cells.POSSIBLE"),
        (
            lambda: strategies.programs(cell=["t", "any", "any", "any"], views=["select"]),
            "cell has 't', expected one of the views",
        ),
        (
            lambda: strategies.programs(cell=["any", "any", "input", "made inside"]),
            "which is impossible",
        ),
        (lambda: strategies.programs(engine="nympy"), "engine: the name is 'nympy'"),
        (lambda: strategies.aliased_inputs(count=9), "aliased_inputs: count is 9"),
        (lambda: strategies.aliased_inputs(count=1, relations=["two leaves"]), "count is 1"),
        (lambda: strategies.layouts(max_dims=9), "layouts: max_dims is 9, expected 0 to 6"),
        (lambda: strategies.layouts(max_dims=0, overlapping=True), "one element does not overlap"),
        (lambda: strategies.storages(max_size=0), "storages: max_size is 0, expected 1 or more"),
        (lambda: strategies.exact_numbers("text"), "exact_numbers: the dtype is 'text', expected"),
        (lambda: strategies.calls_of(Program([], [], [])), "calls_of: the program has 0 calls"),
        (lambda: Layout(Storage(3), (2,), (3,)), "Layout: the end is 4, expected at most the 3"),
        (lambda: Layout(Storage(3), (2,), (-1,)), "expected as many strides as sizes, and nothing"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
import aotlite.testing
aotlite.testing.Program, aotlite.testing.generate, aotlite.testing.shrinking
from aotlite.testing.generate.random_programs import draw
draw(0).run()
try:
    aotlite.testing.strategies
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_without_hypothesis_only_strategies_are_missing() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True)
    assert 0 == run.returncode, run.stderr
    assert run.stdout.startswith("MissingExtraError")
    assert "pip install hypothesis" in run.stdout
