"""The generator of random programs about aliasing: what it draws, and what counts as a hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from aotlite import testing
from aotlite.testing.coverage import cells as alias_cells
from aotlite.testing.coverage.cells import (
    CELLS,
    NUMBER,
    OUTPUTS,
    POSSIBLE,
    RELATIONS,
    WRITES,
    Watcher,
    impossible,
)
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.fuzzing.one_program import eager_call
from aotlite.testing.generate.bodies import LIBRARY, STEPS
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step
from aotlite.testing.programs.vocabulary import VIEWS, kind_of_op
from tests.testing.helpers.examples import program

SEEDS = range(120)


def cells_of(given: Program) -> set[tuple[str, ...]]:
    """The cells that the calls of a program hit."""
    calls = [eager_call(given, number) for number in range(len(given.calls))]
    return {CELLS[cell] for _, cells in calls for cell in cells}


@pytest.fixture(scope="module")
def drawn() -> list[tuple[int, Program]]:
    """Targets from all over the table, and a program for each."""
    targets = [POSSIBLE[(seed * 7919) % len(POSSIBLE)] for seed in SEEDS]
    return [(target, draw(seed, target)) for seed, target in zip(SEEDS, targets, strict=True)]


def test_programs_are_plain_data_of_twelve_steps_at_most(drawn: list[tuple[int, Program]]) -> None:
    for _, each in drawn:
        assert each == Program.from_json(each.to_json()) == eval(repr(each), vars(testing))
        assert len(each.body) <= STEPS
        assert 1 <= len(each.results) <= 4


def test_a_seed_and_a_target_are_one_program(drawn: list[tuple[int, Program]]) -> None:
    for seed, (target, each) in list(zip(SEEDS, drawn, strict=True))[:10]:
        assert each == draw(seed, target)


def test_nearly_all_programs_hit_the_cell_that_they_are_drawn_towards(
    drawn: list[tuple[int, Program]],
) -> None:
    missed = [CELLS[target] for target, each in drawn if CELLS[target] not in cells_of(each)]
    assert len(missed) <= len(drawn) // 12, missed


def test_each_name_of_the_table_is_hit(drawn: list[tuple[int, Program]]) -> None:
    hit = {name for _, each in drawn for cell in cells_of(each) for name in cell}
    assert {*VIEWS, *WRITES, *OUTPUTS, *RELATIONS} == hit


def test_second_calls_have_arguments_of_another_pattern(drawn: list[tuple[int, Program]]) -> None:
    patterns = []
    for _, each in drawn:
        args = [setup_of(LIBRARY, call)[1] for call in each.calls]
        patterns.append([Watcher(LIBRARY, list(given)).memories[0].relations for given in args])
    twice = [each for each in patterns if len(each) == 2]
    assert len(twice) > len(patterns) // 2
    assert sum(first != second for first, second in twice) > len(twice) // 2


# ------------------------------------------------------------------------------------- the cells
PLAIN = [["make", [1, [2, 2], "float64", False]]]
GROWN = [["make", [1, [2, 2], "float64", True]], ["mul", ["$0", 1]]]

HITS: dict[str, tuple[list[Any], list[Any], list[Any], list[Any], tuple[str, str, str, str]]] = {
    "alone": (
        PLAIN, ["$0"], [["t", ["$0"]], ["mul_", ["$1", 2]]], ["$1"],
        ("t", "pointwise", "view of an input", "alone"),
    ),
    "separate": (
        [*PLAIN, *PLAIN], ["$0", "$1"], [["t", ["$0"]], ["copy_", ["$0", "$1"]]], ["$0"],
        ("t", "copy", "input", "separate"),
    ),
    "same object": (
        PLAIN, ["$0", "$0"], [["select", ["$1", 0, 0]], ["zero_", ["$0"]]], ["$0", "$1"],
        ("select", "fill", "twice", "same object"),
    ),
    "base and view": (
        [*PLAIN, ["select", ["$0", 0, 1]]], ["$0", "$1"],
        [["getitem", ["$0", ["1:"]]], ["setitem", ["$1", [0], 5]]], [None],
        ("slice", "setitem", "number", "base and view"),
    ),
    "overlapping siblings": (
        [*PLAIN, ["select", ["$0", 0, 1]], ["select", ["$0", 1, 1]]], ["$1", "$2"],
        [["alias", ["$0"]], ["ints", [[0]]], ["index_fill_", ["$1", 0, "$3", 2]], ["neg", ["$1"]]],
        ["$5"],
        ("alias", "index", "new memory", "overlapping siblings"),
    ),
    "disjoint siblings": (
        [*PLAIN, ["select", ["$0", 0, 1]], ["select", ["$0", 0, 0]]], ["$1", "$2"],
        [["split", ["$0", 1]], ["mul_", ["$1", 2], "no_grad"]], ["$2.1"],
        ("split", "no_grad", "multi-output view", "disjoint siblings"),
    ),
    "detached aliases": (
        [*GROWN, ["detach", ["$1"]]], ["$1", "$2"], [["detach", ["$0"]], ["mul_", ["$2", 2]]],
        ["$2"],
        ("detach", "detached", "detached", "detached aliases"),
    ),
    "expanded": (
        [*PLAIN, ["expand", ["$0", [2, 2, 2]]]], ["$1"], [["view_dtype", ["$0", "int64"]],
        ["transpose_", ["$0", 0, 1]]], ["$0"],
        ("view_dtype", "geometry", "input", "expanded"),
    ),
    "other dtype": (
        [*PLAIN, ["view_dtype", ["$0", "int64"]]], ["$0", "$1"],
        [["hidden_alias", ["$0"]], ["mul_", ["$2", 2]]], ["$2"],
        ("hidden_alias", "hidden_alias", "detached", "other dtype"),
    ),
    "two leaves": (
        [*PLAIN, ["select", ["$0", 0, 0]], ["select", ["$0", 0, 1]], ["requires_grad_", ["$1"]],
        ["requires_grad_", ["$2"]]], ["$1", "$2"], [["alias", ["$0"]], ["detach", ["$1"]],
        ["resize_", ["$3", [1]]]], ["$2"],
        ("alias", "resize", "view of an input", "two leaves"),
    ),
    "made inside, of which one view is returned": (
        GROWN, ["$1"], [["neg", ["$0"]], ["t", ["$1"]], ["mul_", ["$1", "$0"]]], ["$2"],
        ("t", "tracked", "unsafe view", "made inside"),
    ),
    "made inside, of which two views are returned": (
        PLAIN, ["$0"], [["neg", ["$0"]], ["t", ["$1"]], ["alias", ["$1"]],
        ["set_", ["$1", "$0"]]], ["$2", "$3"],
        ("t", "set", "two views of an intermediate", "made inside"),
    ),
    "made inside, returned with a view": (
        PLAIN, ["$0"], [["neg", ["$0"]], ["unbind", ["$1"]], ["alias", ["$1"]],
        ["mul_", ["$1", 2]]], ["$1", "$3"],
        ("unbind", "pointwise", "view of a result", "made inside"),
    ),
}  # fmt: skip


def _example(name: str) -> tuple[Program, tuple[str, str, str, str]]:
    setup, args, body, results, cell = HITS[name]
    return program(body, results, {"setup": setup, "args": args}), cell


@pytest.mark.parametrize("name", HITS)
def test_a_hit_needs_view_write_output_and_relation(name: str) -> None:
    """Without the view op, the write or the result, or with other arguments, the cell is missed."""
    given, cell = _example(name)
    assert cell in cells_of(given)
    assert impossible(cell) is None
    results = [value for value in given.results if cell[2] == "number" and value is not None]
    assert cell not in cells_of(attrs.evolve(given, results=results))
    fresh = [["clone", [arg]] for arg in given.calls[0].args]
    first = len(given.calls[0].setup)
    setup = [*given.calls[0].setup, *fresh]
    args = [f"${first + i}" for i in range(len(fresh))]
    alone = cell[3] in ("alone", "separate", "made inside")
    apart = attrs.evolve(given, calls=[Call(setup, args)])
    assert alone or cell not in cells_of(apart)


@pytest.mark.parametrize("name", HITS)
def test_a_write_of_a_copy_is_no_write_of_the_memory(name: str) -> None:
    given, cell = _example(name)
    steps = given.body
    for place, step in enumerate(steps):
        if kind_of_op(step.op) is not None:
            copied = [*steps[:place], Step("clone", step.args[:1]), *steps[place + 1 :]]
            assert cell not in cells_of(attrs.evolve(given, body=copied))


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "views are not looked at": lambda patch: patch.setattr(alias_cells, "VIEWS", ()),
    "writes are not told apart": lambda patch: patch.setattr(
        alias_cells, "kind_of_op", lambda op: "copy" if op.endswith("_") else None
    ),
    "results are all inputs": lambda patch: patch.setattr(
        alias_cells, "_outputs", lambda *_: {"input"}
    ),
    "relations are all the same": lambda patch: patch.setattr(
        alias_cells, "relations_of", lambda *_: {"alone"}
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_recognizer_is_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake](monkeypatch)
    missed = [name for name in HITS if _example(name)[1] not in cells_of(_example(name)[0])]
    assert missed


def test_impossible_cells_are_listed_with_their_reason() -> None:
    reasons = {impossible(cell) for cell in CELLS} - {None}
    assert len(reasons) == 2
    assert len(CELLS) == len(VIEWS) * len(WRITES) * len(OUTPUTS) * len(RELATIONS)
    assert len(POSSIBLE) == sum(impossible(cell) is None for cell in CELLS)
    assert all(CELLS[NUMBER[cell]] == cell for cell in CELLS[::97])


def test_the_body_of_a_program_runs_alike_for_any_library_of_the_table() -> None:
    given, _ = _example("base and view")
    _, args = setup_of(LIBRARY, given.calls[0])
    assert [None] == body_of(LIBRARY, given)(*args)
    assert 5 == args[0].tolist()[1][0]
