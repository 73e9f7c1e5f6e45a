"""The tour: eight pages in order, each with a picture, files to read, and an exercise.

Its examples run with those of the other pages (tests/test_specs.py), its links and the files that
it names are followed there, too (tests/test_links.py).
"""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tour").glob("*.md"))
SOLUTIONS = sorted((ROOT / "examples" / "tour").glob("*.py"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BESIDE = re.compile(r"^Read beside this page: (.*)$", re.MULTILINE)
LOSS = """
>>> def loss(x, w):
...     x[0].mul_(2.0)
...     hidden = x @ w
...     hidden[:, 1].relu_()
...     return (hidden * hidden).sum()
"""
OWN = {"1_one_call": "with comments", "3_ops": "of ops alone", "4_tape": "run line by line"}
"""Pages that do not define `loss` as the README does, and how they have it."""
SHOWN = {
    "1_writing_ops": [
        "1 capture: 7 ops, 2 write mul_ relu_",
        "6 functionalize: 19 ops, 0 write",
        "8 partition, backward: 9 ops, 0 write",
    ],
    "2_bytes_by_cost": ["indexing: 80 bytes"],
    "3_poisson_nll": [
        "tour_poisson_nll obeys L1, L2, L3, L6, L7, L8, L9, L12 on",
        "L2 (vjp = finite differences, second order too)",
    ],
    "4_saved_on_the_tape": [
        "MulBackward {'other': (4, 2), 'self': (4, 2)}",
        "MatmulBackward {'self': (4, 3)}",
    ],
    "5_analysis": [
        "Its bytes are written in place",
        "Result 0 is argument 0 itself, the same object.",
        "Result 1 is a view of intermediate base 0",
        "so a backward graph is made.",
    ],
    "6_planted_mistake": ["made small:\n", "    x[1] = 2\n"],
    "7_inputs_only": [
        "wave: saves primals_0, 0 bytes, 0 copied",
        "loss: saves primals_0, primals_1, 48 bytes, 1 copied",
    ],
    "8_backend": [
        "loss 126.0 gradient tensor([[42., 42.],",
        "backend 'by_numpy' obeys B1, B2, B3, B4",
    ],
}
"""Solution -> some of what it prints."""


def texts():
    return {page.stem: page.read_text("utf-8") for page in PAGES}


def test_tour_has_eight_pages_each_of_which_leads_to_the_next():
    assert list("12345678") == [page.stem[0] for page in PAGES]
    for page, following in pairwise(PAGES):
        last = page.read_text("utf-8").rstrip().splitlines()[-1]
        assert last.startswith("Next: ") and f"({following.name})" in last


@pytest.mark.parametrize("name", texts())
def test_page_has_a_picture_examples_and_two_or_three_files_to_read(name):
    text = texts()[name]
    languages = [language for language, _ in BLOCK.findall(text)]
    assert 1 <= languages.count("") <= 2, "a picture is a block without a language"
    assert languages.count("python") >= 2
    (beside,) = BESIDE.findall(text)
    assert 2 <= len(re.findall(r"`[\w/]+\.py`", beside)) <= 3


@pytest.mark.parametrize("name", [name for name in texts() if name not in OWN])
def test_page_follows_the_function_of_the_readme(name):
    assert LOSS in texts()[name] and LOSS in (ROOT / "README.md").read_text("utf-8")


def test_page_shows_the_whole_path_of_loss():
    """A stage that the tour forgets would be missed by nobody."""
    first = texts()["1_one_call"]
    for number in range(1, 11):
        assert re.search(rf"^\| {number} \w+ \| `aotlite/stages/s{number}_", first, re.MULTILINE)


@pytest.mark.parametrize("name", texts())
def test_page_ends_with_an_exercise_and_its_solution(name):
    exercise = texts()[name].partition("## Exercise\n")[2]
    solutions = re.findall(r"\(\.\./\.\./examples/tour/(\w+)\.py\)", exercise)
    assert [name[0]] == [each[0] for each in solutions]
    assert solutions[0] in SHOWN


@pytest.mark.thinned(3)
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solution_runs_and_prints_what_the_exercise_asks(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    for line in SHOWN[path.stem]:
        assert line in done.stdout
    assert len(path.read_text("utf-8").splitlines()) < 75


def test_every_solution_is_of_an_exercise():
    assert list(SHOWN) == [path.stem for path in SOLUTIONS]


# ---------------------------------------------------------------------------- names that pages use
NAMED = re.compile(r"`([\w.]+)` in `([\w/]+\.py)`")
CLASSES = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`")
FOREIGN = {"SumBackward", "MulBackward", "MatmulBackward", "SelectBackward"}
"""Names that tape nodes have as texts, and no class."""


def defined():
    """The classes of the library, and the functions of each file."""
    files = [p for folder in ("aotlite", "ir", "backends") for p in (ROOT / folder).rglob("*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}
    found = [re.findall(r"^class (\w+)", text, re.MULTILINE) for text in sources.values()]
    return sources, {name for names in found for name in names}


def unknown(text, sources, classes):
    """Names of a page that the sources do not define, where it says that they do."""
    for name, file in NAMED.findall(text):
        if not re.search(rf"\b(?:def|class) {name.rpartition('.')[2]}\b", sources.get(file, "")):
            yield f"{name} in {file}"
    for name in CLASSES.findall(BLOCK.sub("", text)):
        if name not in classes | FOREIGN:
            yield name


def test_pages_name_classes_and_functions_that_exist():
    sources, classes = defined()
    assert {} == {
        name: found
        for name, text in texts().items()
        if (found := list(unknown(text, sources, classes)))
    }


def test_a_name_that_nothing_defines_is_found():
    sources = {"ir/graph.py": "class GraphEdit: ...\ndef edit(): ..."}
    text = "`edit` in `ir/graph.py`, `gone` in `ir/graph.py`, `GraphEdit`, `GraphGone`, `Graph`"
    assert ["gone in ir/graph.py", "GraphGone"] == list(unknown(text, sources, {"GraphEdit"}))
