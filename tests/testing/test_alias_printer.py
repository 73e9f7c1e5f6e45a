"""The drawing of alias groups: which tensor has which element of which memory.

`pytest --update-goldens` rewrites tests/goldens/drawing_*.txt.
"""

from pathlib import Path

import pytest

from aotlite.testing import Call, Program
from aotlite.testing import alias_printer as module
from aotlite.testing.alias_printer import Bar, drawing, picture
from aotlite.testing.generate.random_programs import draw

GOLDENS = Path(__file__).parents[1] / "goldens"


def program(setup, args, body, results, **call):
    return Program(body, results, [Call(setup, args, **call)])


def make(*shape, dtype="float64", grad=False):
    return ["make", [0, list(shape), dtype, grad]]


PROGRAMS = {
    "views": program(
        [make(2, 3), ["select", ["$0", 0, 1]], ["t", ["$0"]]],
        ["$1", "$2"],
        [["mul_", ["$0", 2]], ["add", ["$1", 1]], ["getitem", ["$1", ["1:", 0]]]],
        ["$0", "$4", "$2"],
    ),
    "overlap": program(
        [make(3), ["expand", ["$0", [2, 3]]], ["as_strided", ["$0", [2, 2], [1, 1]]]],
        ["$1", "$2", "$0"],
        [["fill_", ["$0", 1]], ["unbind", ["$1", 0]]],
        ["$4.1", None, "$2"],
    ),
    "dtypes": program(
        [make(2, dtype="complex128"), ["view_dtype", ["$0", "float64"]]],
        ["$0", "$1"],
        [["imag", ["$0"]], ["zero_", ["$2"]], ["view_dtype", ["$1", "int64"]]],
        ["$4"],
    ),
    "moved": Program(
        [["resize_", ["$0", [5]]], ["detach", ["$0"]], ["set_", ["$1", "$0"]], ["alias", ["$1"]]],
        ["$3"],
        [Call([make(3), make(2)], ["$0", "$1"]), Call([make(2, grad=True)], ["$0", "$0"])],
    ),
    "wide": program(
        [make(50), ["as_strided", ["$0", [5, 2], [11, 1]]]], ["$1"], [["neg_", ["$0"]]], ["$0"]
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_drawing_is_its_golden(name, pytestconfig):
    path = GOLDENS / f"drawing_{name}.txt"
    text = drawing(PROGRAMS[name]) + "\n"
    if pytestconfig.getoption("--update-goldens"):
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_a_picture_of_a_long_memory_leaves_out_its_middle():
    text = picture([Bar("x", 0, (1000,), (1,)), Bar("y", 0, (2,), (999,))])
    assert all(len(line) < 250 for line in text.splitlines())
    assert "memory 1: 1000 of float64" in text
    first = text.splitlines()[1].split()
    assert ["0", "...", "999"] == [first[1], first[21], first[-1]]


def test_a_memory_of_many_tensors_counts_the_last_ones():
    text = picture([Bar(f"x{i}", 0, (2,), (1,)) for i in range(module.ROWS + 3)])
    assert "  and 3 tensors more" in text


def test_every_element_of_random_programs_is_where_the_tensor_has_it():
    """Each row has a number for each element that lies alone, and the columns of the memory."""
    for seed in range(60):
        for line in drawing(draw(seed)).splitlines():
            if line.startswith("memory "):
                columns = int(line.split()[2])
            elif line.startswith("  written") and columns <= module.WIDE // 2:
                assert line.count("^") <= columns
    whole = Bar("x", 0, (3, 2), (1, 3), 1)
    cells = picture([whole]).splitlines()[1].split()[1:]
    assert [".", "0", "2", "4", "1", "3", "5"] == cells
    assert [1, 4, 2, 5, 3, 6] == module.addresses(whole)
