"""Allowances only fall: an exceeded one is a complaint, and so is an unneeded one."""

import pytest

from tests.house import __main__ as command
from tests.house import allowances
from tests.house.allowances import Allowances, CannotWrite, complaints, read, rewritten, written
from tests.house.checks import Check
from tests.house.house import Finding
from tests.house.sources import Tree


def check(step: int = 1) -> Check:
    return Check("lines", lambda house: iter(()), "less", step)


def test_count_sums_what_is_found_of_a_key():
    found = [Finding("a", "x", 2), Finding("b", "y"), Finding("a", "z", 3)]
    assert {"a": 5, "b": 1} == Check("c", lambda house: iter(found), "less").counts(None)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (3, []),
        (4, ["lines: ir has 4, allowed are 3; expected less"]),
        (2, ["lines: ir needs 2, allowed are 3; run --write"]),
    ],
)
def test_allowance_is_exact(count, said):
    assert said == list(complaints(check(), {"ir": count}, Allowances({"ir": 3})))


def test_complaint_of_what_may_grow_says_how_to_raise_it():
    growing = Check("any", lambda house: iter(()), "less", may_grow=True)
    (said,) = complaints(growing, {"ir.ops": 4}, Allowances({"ir.ops": 3}))
    assert said.startswith("any: ir.ops has 4, allowed are 3; expected less. ")
    assert '--write --raise "any ir.ops" --because "' in said


def test_what_has_no_allowance_is_a_complaint():
    assert 1 == len(list(complaints(check(), {"ir": 1}, Allowances())))


def test_allowance_of_what_is_gone_is_a_complaint():
    assert 1 == len(list(complaints(check(), {}, Allowances({"ir": 1}))))


@pytest.mark.parametrize(("count", "number"), [(301, 1), (300, 0), (150, 0), (101, 0), (100, 1)])
def test_rough_allowance_leaves_a_step(count, number):
    assert number == len(list(complaints(check(100), {"ir": count}, Allowances({"ir": 300}))))


def test_writing_lowers_and_forgets():
    before = Allowances({"ir": 300, "gone": 5}, {"ir": "loops", "gone": "it was there"})
    assert Allowances({"ir": 2}, {"ir": "loops"}) == rewritten(check(), {"ir": 2}, before)


def test_writing_raises_nothing():
    before = Allowances({"ir": 3, "eager": 9})
    with pytest.raises(CannotWrite, match=r"lines ir: 4, was 3\nlines new: 1, was 0"):
        rewritten(check(), {"ir": 4, "new": 1}, before)


def test_writing_keeps_what_a_rough_allowance_has_room_for():
    assert Allowances({"ir": 250}) == rewritten(check(100), {"ir": 240}, Allowances({"ir": 250}))


def test_writing_raises_what_it_is_told_to_and_notes_why():
    after = rewritten(check(), {"ir": 4, "x": 1}, Allowances({"ir": 3, "x": 2}), ["ir"], "a table")
    assert Allowances({"ir": 4, "x": 1}, {"ir": "a table"}) == after


@pytest.mark.parametrize(
    ("because", "reasons"),
    [("loops", "a table; loops"), ("a table", "a table"), ("a table of loops", "a table of loops")],
)
def test_a_number_that_grows_again_keeps_its_earlier_reasons(because, reasons):
    before = Allowances({"ir": 3}, {"ir": "a table"})
    after = rewritten(check(), {"ir": 4}, before, ["ir"], because)
    assert Allowances({"ir": 4}, {"ir": reasons}) == after


def test_numbers_move_from_key_to_key():
    before = Allowances({"old": 5, "kept": 2})
    counts = {"new": 3, "kept": 4}
    with pytest.raises(CannotWrite):
        rewritten(check(), counts, before)
    assert Allowances(counts) == rewritten(check(), counts, before, moved=True)


def test_numbers_that_move_do_not_grow():
    with pytest.raises(CannotWrite):
        rewritten(check(), {"new": 6}, Allowances({"old": 5}), moved=True)


def test_file_is_read_as_it_is_written():
    sections = {
        "lines": Allowances({"ir": 3, "eager -> ir": 4}, {"ir": 'a "table" of \\ names'}),
        "any": Allowances(),
    }
    assert sections == read(written(sections))


def test_name_of_a_package_file_is_the_package():
    assert {"aotlite.stages.s1": 3} == read('[stages]\n"aotlite.stages.s1.__init__" = 3')[
        "stages"
    ].most


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of one module, at which the command looks."""
    (tmp_path / "aotlite").mkdir()
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "glossary.md").write_text("| api |")
    (tmp_path / "specs" / "ops.md").write_text("")
    (tmp_path / "tests" / "house").mkdir(parents=True)
    module = tmp_path / "aotlite" / "api.py"
    module.write_text("def f():\n    import json\n")
    monkeypatch.setattr(command, "tree", Tree)
    return module


def test_command_lowers_the_allowances_of_a_checkout(checkout, capsys):
    root = ["--root", str(checkout.parents[1])]
    file = checkout.parents[1] / "tests" / "house" / allowances.FILE.name
    assert 1 == command.main([*root, "--write"])
    assert "functions aotlite.api: 1, was 0" in capsys.readouterr().err
    assert not file.exists()
    whole = ["--raise", "lines", "--raise", "empty", "--raise", "path_names"]
    raised = ["--raise", "functions aotlite.api", *whole, "--because", "a start"]
    assert 0 == command.main([*root, "--write", *raised])
    found = read(file.read_text())
    assert Allowances({"aotlite.api": 1}, {"aotlite.api": "a start"}) == found["functions"]
    assert {"aotlite": 100} == found["lines"].most
    checkout.write_text("import json\n")
    assert 0 == command.main([*root, "--write"])
    assert Allowances() == read(file.read_text())["functions"]


def test_command_prints_the_state_of_a_checkout(checkout, capsys):
    assert 0 == command.main(
        ["--root", str(checkout.parents[1]), "summary", "circles", "functions"]
    )
    printed = capsys.readouterr().out
    assert "functions        1 in   1 places" in printed
    assert "no circle" in printed
    assert "aotlite.api:2: json" in printed


@pytest.mark.parametrize("arguments", [["nonsense"], ["--write", "--raise", "lines"]])
def test_command_refuses_what_it_does_not_know(arguments, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert "expected" in capsys.readouterr().err
