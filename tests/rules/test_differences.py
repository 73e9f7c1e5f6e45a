"""`docs/differences.md` names each rule whose page says that PyTorch does otherwise."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"^### ([A-Z]+-\d+) · ", re.MULTILINE)
AS_THERE = re.compile(r"\b(as|like|as in|those of|that of|even) PyTorch\b")


def differing(page):
    """The rules of a page with a line that says what PyTorch does, other than "as PyTorch"."""
    parts = RULE.split(page)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if any("PyTorch" in AS_THERE.sub("", line) for line in body.splitlines()):
            yield name


def told(page):
    """The rules that the first cells of a page's tables name."""
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"[A-Z]+-\d+", cell)}


PAGES = sorted((ROOT / "specs" / "rules").glob("*.md"))
DIFFERENCES = (ROOT / "docs" / "differences.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_rule_that_differs_is_among_the_differences(page):
    assert [] == [n for n in differing(page.read_text("utf-8")) if n not in told(DIFFERENCES)]


def test_a_difference_is_one_of_a_rule_that_there_is(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from rules_sources import AREAS

    pages = [page.read_text("utf-8") for page in ROOT.glob("specs/**/*.md")]
    known = {name for page in pages for name in re.findall(r"\b[A-Z]+-\d+\b", page)}
    known |= {f"{area}-{n}" for area, last in AREAS.items() for n in range(1, last + 1)}
    assert [] == sorted(told(DIFFERENCES) - known)


PAGE = """# BOX
### BOX-1 · One
Here so. PyTorch does not.
### BOX-2 · Two
Like PyTorch's, this is `a`.
### BOX-3 · Three
As PyTorch: both. PyTorch's frontend does not.
### BOX-4 · Four
No word.
"""


def test_rules_that_differ_are_found():
    assert ["BOX-1", "BOX-3"] == list(differing(PAGE.replace("Like", "like").replace("As", "as")))


def test_rules_are_found_in_the_first_cells_alone():
    assert {"BOX-1", "BOX-2"} == told("| BOX-1, BOX-2 | as BOX-3 | |\n| | BOX-4 | |\nBOX-5")
