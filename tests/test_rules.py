"""Rule pages, the tests that show rules, and the table of both agree."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import rules_table

    yield rules_table
    for name in ("rules_table", "rules_sources", "source_files"):
        sys.modules.pop(name, None)


@pytest.mark.slow("reads all specs and tests")
def test_rules_the_tests_that_show_them_and_their_page_agree(tool):
    read = tool.read()
    assert [] == tool.complaints(read)
    shown = (ROOT / "specs" / "rules.md").read_text(encoding="utf-8")
    assert tool.page(read) == shown, "run tools/rules_table.py"


BOX = """# BOX

### BOX-1 · Inputs come as one list
The callable may empty it.

### BOX-2 · Nobody else holds them
Not even the caller.

### BOX-3 · Gradients, too
Pending: export
"""
TEST = """
import pytest

@pytest.mark.rules("BOX-1", "BOX-2")
def test_the_list_is_empty_afterwards(): ...
"""
OTHERS = (
    "GEN",
    "FUN",
    "META",
    "DUP",
    "ALI",
    "SYN",
    "RT",
    "TAN",
    "SAV",
    "RNG",
    "TOK",
    "SUB",
    "HOOK",
    "LOG",
    "FRZ",
    "SEQ",
    "JNT",
    "DBL",
    "CAG",
    "CUG",
    "GRD",
)
SPECS = {"views.md": "- **TEN-5** A hidden alias is a view without a history.\n"}
CODE = {"aotlite/compilers.py": "# BOX-1..BOX-3: as the page says"}
NOTES = {"docs/differences.md": "| BOX-2 | here | there |"}


def texts(tool, page=BOX, tests=TEST, name="box.md"):
    tests = {"tests/test_boxes.py": tests}
    return tool.Texts({name: page}, SPECS, tests, CODE, NOTES)


def test_a_page_with_tests_for_what_holds_is_in_order(tool):
    assert [] == tool.complaints(texts(tool), OTHERS)


def twice(text):
    return text + text[text.index("### BOX-3") :]


PLANTED_IN_PAGES = {
    "a hole": (BOX.replace("BOX-3", "BOX-4"), "box.md: lacks BOX-3"),
    "a number too many": (BOX.replace("BOX-3", "BOX-4"), "BOX-4: is beyond the last number"),
    "a rule twice": (twice(BOX), "BOX-3: is stated 2 times, expected once"),
    "no test": (BOX.replace("Pending: export", "It does."), "BOX-3: no test shows it"),
    "an own reason": (BOX.replace(": export", ": time"), "BOX-3: waits for 'time', expected"),
    "two reasons": (BOX.replace("export", "export, time"), "BOX-3: waits for 'time', expected"),
    "another area": (BOX.replace("BOX-3", "TAN-3"), "box.md: states TAN-3, expected rules of its"),
    "no such area": (BOX.replace("BOX-3", "LAW-3"), "box.md: states LAW-3, expected rules of its"),
    "nothing said": (BOX.replace("Not even the caller.\n", ""), "box.md: BOX-2 says nothing"),
    "no title": (BOX.replace("Gradients, too", ""), "box.md: BOX-3 says nothing"),
    "another order": (BOX.replace("-2 ", "-9 "), "box.md: its rules are in the order [1, 9, 3]"),
}


@pytest.mark.parametrize("page, complaint", PLANTED_IN_PAGES.values(), ids=PLANTED_IN_PAGES)
def test_a_mistake_in_a_page_is_seen(tool, page, complaint):
    found = tool.complaints(texts(tool, page), OTHERS)
    assert any(each.startswith(complaint) for each in found), found


def test_a_page_that_is_missing_is_seen(tool):
    found = tool.complaints(texts(tool, name="box.md"), OTHERS[:-1])
    assert ["grd.md: lacks GRD-1, GRD-2, GRD-3, GRD-4, GRD-5, GRD-6"] == found


FUNCTION = "def test_the_list_is_empty_afterwards(): ...\n"
PLANTED_IN_TESTS = {
    "no such rule": (TEST.replace("BOX-2", "BOX-7"), "marked with BOX-7, expected a rule"),
    "no such area": (TEST.replace("BOX-2", "TEN-99"), "marked with TEN-99, expected a rule"),
    "a helper": (TEST.replace("def test_", "def "), "test_boxes.py:4: a mark of rules marks no"),
    "a variable": (TEST.replace('"BOX-1", ', "*BOTH, "), "test_boxes.py:4: a mark of rules marks"),
    "no rule": (TEST.replace('"BOX-1", "BOX-2"', ""), "test_boxes.py:4: a mark of rules marks no"),
    "not called": (TEST.replace('("BOX-1", "BOX-2")', ""), "test_boxes.py:4: a mark of rules"),
    "unused": (TEST + 'shows = pytest.mark.rules("BOX-1")', "test_boxes.py:6: a mark of rules"),
}


@pytest.mark.parametrize("tests, complaint", PLANTED_IN_TESTS.values(), ids=PLANTED_IN_TESTS)
def test_a_mistake_in_a_mark_is_seen(tool, tests, complaint):
    assert any(complaint in each for each in tool.complaints(texts(tool, tests=tests), OTHERS))


MARKS = {
    "decorator": TEST,
    "two": '@pytest.mark.rules("BOX-1")\n@pytest.mark.rules("BOX-2")\n' + FUNCTION,
    "module": 'pytestmark = [pytest.mark.long, pytest.mark.rules("BOX-1", "BOX-2")]\n' + FUNCTION,
    "class": f'@pytest.mark.rules("BOX-1", "BOX-2")\nclass TestBoxes:\n    {FUNCTION}',
    "within a class": 'class TestBoxes:\n    pytestmark = pytest.mark.rules("BOX-1", "BOX-2")\n'
    f"    {FUNCTION}",
    "parameter": "@pytest.mark.parametrize('x', [pytest.param(1, marks="
    f'pytest.mark.rules("BOX-1", "BOX-2"))])\n{FUNCTION}',
    "table": 'CASES = [pytest.param(1, marks=pytest.mark.rules("BOX-1", "BOX-2"))]\n'
    f"@pytest.mark.parametrize('x', CASES)\n{FUNCTION}",
    "name": f'shows = pytest.mark.rules("BOX-1", "BOX-2")\n@shows\n{FUNCTION}',
}


@pytest.mark.parametrize("tests", MARKS.values(), ids=MARKS)
def test_marks_are_found_wherever_pytest_finds_them(tool, tests):
    assert [] == tool.complaints(texts(tool, tests=tests), OTHERS)


def test_rules_of_other_pages_may_be_shown(tool):
    tests = TEST.replace('"BOX-2"', '"BOX-2", "TEN-5"')
    assert [] == tool.complaints(texts(tool, tests=tests), OTHERS)


def test_the_table_has_status_tests_code_and_notes(tool):
    lines = tool.page(texts(tool)).splitlines()
    assert [
        "| [BOX-1](rules/box.md#box-1--inputs-come-as-one-list) Inputs come as one list | holds | "
        "[test_boxes](../tests/test_boxes.py): the_list_is_empty_afterwards | "
        "[compilers](../aotlite/compilers.py) |  |",
        "| [BOX-2](rules/box.md#box-2--nobody-else-holds-them) Nobody else holds them | holds | "
        "[test_boxes](../tests/test_boxes.py): the_list_is_empty_afterwards | "
        "[compilers](../aotlite/compilers.py) | [differences](../docs/differences.md) |",
        "| [BOX-3](rules/box.md#box-3--gradients-too) Gradients, too | pending: export |  "
        "| [compilers](../aotlite/compilers.py) |  |",
    ] == [line for line in lines if line.startswith("| [BOX-")]
    assert "| [BOX](#box) | 3 | 2 | 1 | 0 | 1 |" in lines


def test_a_test_that_draws_comes_first(tool):
    drawn = '@pytest.mark.rules("BOX-1")\n@given(lists())\ndef test_any_list(): ...\n'
    table = tool.page(texts(tool, tests=TEST + drawn))
    assert ": ∀ any_list, the_list_is_empty_afterwards |" in table


def test_ranges_are_cited_rule_by_rule(tool):
    expected = {"RT-1", "RT-2", "RT-3", "SAV-1", "SAV-2", "GRD-4"}
    assert expected == tool.cited("RT-1..RT-3, SAV-1 to SAV-2 (GRD-4)")
