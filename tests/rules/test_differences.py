"""Each flaw of PyTorch that is none here has a regression test, and users are told of it."""

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
FLAWS = """
    FUN-8 FUN-9 FUN-10 FUN-11 FUN-12 FUN-13 FUN-18 FUN-19 FUN-21 FUN-23 FUN-24 FUN-33 FUN-36
    FUN-37 FUN-38 META-8 META-11 META-12 META-13 META-14 DUP-3 DUP-5 ALI-4 ALI-5 ALI-6 SYN-4 SYN-6
    SYN-7 SYN-9 SYN-11 RT-5 RT-6 RT-7 RT-9 RT-10 TAN-8 SAV-2 SAV-4 GRD-2 TEN-8 TEN-31 TEN-35
""".split()
"""The rules that PyTorch breaks, or that go further than PyTorch does."""
WITHOUT_TEST = {
    "RT-9": "waits for subclasses",
}


def test_a_rule_that_pytorch_breaks_has_a_regression_test():
    texts = [path.read_text("utf-8") for path in (ROOT / "tests/rules").glob("test_beyond_*.py")]
    marks = {name for text in texts for name in re.findall(r'"([A-Z]+-\d+)"', text)}
    assert set(WITHOUT_TEST) == set(FLAWS) - marks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_rule_that_pytorch_breaks_is_among_the_differences(page):
    broken = [name for name in differing(page.read_text("utf-8")) if name in FLAWS]
    assert [] == [name for name in broken if name not in told(DIFFERENCES)]


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
