"""The benchmark of graph sizes: its programs are the same in both libraries, and no larger here."""

import json

import numpy as np
import pytest

import aotlite as al
from benchmarks import alias_programs, graph_sizes
from benchmarks.alias_programs import PROGRAMS, overlapping_reads, row_writes
from benchmarks.graph_sizes import REASONS, Row, Size, measured, ours, sums, theirs
from tests.thinning import thinned

VALUES = alias_programs.values


def results_and_gradients(program, library, function):
    """The values of the results and the arguments, and the gradients of the leaves, as lists."""
    leaves = []

    def remembered(*args):
        leaves.append(VALUES(*args))
        return leaves[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alias_programs, "values", remembered)
        args = program.arguments(library)
    results = function(*args)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    flowing = [each for each in results if each.grad_fn is not None]
    for each in flowing:
        each.sum().backward(retain_graph=True)
    grads = [leaf.grad for leaf in leaves]
    return [None if each is None else each.tolist() for each in (*results, *args, *grads)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_libraries_agree_on_the_program(name, torch):
    of = PROGRAMS[name]
    expected = results_and_gradients(of, torch, lambda *xs: of.body(torch, *xs))
    found = results_and_gradients(of, al, lambda *xs: of.body(al, *xs))
    for one, other in zip(expected, found, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs_equal_eager(name):
    of = PROGRAMS[name]
    compiled = al.compile(lambda *xs: of.body(al, *xs), verify=2)
    expected = results_and_gradients(of, al, lambda *xs: of.body(al, *xs))
    assert expected == results_and_gradients(of, al, compiled)


@pytest.mark.parametrize("name", thinned([n for n in PROGRAMS if n not in REASONS], 5))
def test_no_program_is_larger_here_without_a_reason(torch, name):
    assert ours(PROGRAMS[name]).both <= theirs(PROGRAMS[name]).both


def test_each_reason_is_of_a_program_that_there_is():
    assert set() == set(REASONS) - set(PROGRAMS)


def test_64_row_writes_are_at_most_150_ops():
    assert ours(row_writes(64)).both <= 150
    assert ours(row_writes(16)).both <= 54


def test_64_rounds_of_overlapping_reads_are_at_most_838_ops():
    assert ours(overlapping_reads(64)).both <= 838


def test_a_library_that_refuses_is_a_line():
    def body(lib, x):
        raise ValueError("no")

    of = PROGRAMS["argument_itself"]
    row = measured("refused", type(of)(body, of.arguments), with_torch=False)
    assert row == Row("refused", None, None, "aotlite: ValueError: no")


def test_sums_leave_out_what_one_library_refuses():
    rows = [
        Row("both", Size(1, 2), Size(3, 4)),
        Row("here", Size(100, 0), None),
        Row("repeated:16", Size(100, 0), Size(100, 0)),
    ]
    assert sums(rows) == (1, 3, 7)


def test_prints_ours_alone(capsys, tmp_path, monkeypatch):
    few = {name: PROGRAMS[name] for name in list(PROGRAMS)[::8]} | {
        "diagonal_written": PROGRAMS["diagonal_written"]
    }
    monkeypatch.setattr(graph_sizes, "PROGRAMS", few)
    file = tmp_path / "sizes.json"
    graph_sizes.main(["--ours-only", "--json", str(file)])
    printed = capsys.readouterr().out
    assert "| diagonal_written" in printed and "programs that both compile" not in printed
    found = json.loads(file.read_text("utf-8"))
    assert [row["name"] for row in found][-1] == "overlapping_reads:64"
    assert all(row["theirs"] is None for row in found)
