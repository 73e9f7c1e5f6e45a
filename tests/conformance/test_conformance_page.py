"""`docs/conformance.md`: what `aotlite conformance` writes, with a reason for every breach."""

import re
from pathlib import Path

import pytest

from aotlite.conformance import all_rules, check
from aotlite.conformance.expected_failures import NOTES
from aotlite.conformance.libraries import adapter_of
from aotlite.conformance.report import word
from aotlite.ir.errors import DeviceError, MissingExtraError

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
TEXT = PAGE.read_text("utf-8")
LIBRARIES = ["numpy", "array-api-strict", "jax", "torch", "aotlite", "cupy"]
QUICK = [rule.id for rule in all_rules() if rule.id != "MEM-1"]


def column(library):
    """Rule -> word, as the page has it."""
    place = LIBRARIES.index(library) + 2
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines()
            if re.match(r"\| [A-Z]+-\w+ \|", line)]  # fmt: skip
    return {row[0]: row[place].strip("*") for row in rows}


def recorded_version(library):
    return re.search(rf"^- {re.escape(library)} (\S+):", TEXT, re.M)[1]


def compare(library, rules):
    """The page's column against what the library does now."""
    try:
        adapter = adapter_of(library)
    except (MissingExtraError, DeviceError) as error:
        pytest.skip(str(error))
    if library != "aotlite" and adapter.version != recorded_version(library):
        pytest.skip(f"{library} is {adapter.version}, the page is of {recorded_version(library)}")
    found = {result.rule: word(result) for result in check(adapter, rules).results}
    assert {rule: column(library)[rule] for rule in found} == found


def test_the_page_has_every_rule_and_at_least_five_libraries():
    assert [rule.id for rule in all_rules()] == list(column("numpy"))
    run = [library for library in LIBRARIES if f"- {library}: not run" not in TEXT]
    assert len(run) >= 5


def test_every_breach_on_the_page_has_a_reason_and_no_reason_is_left_over():
    on_page = {library: {rule for rule, what in column(library).items() if what == "breaks"}
               for library in LIBRARIES}  # fmt: skip
    assert on_page == {library: set(NOTES.get(library, {})) for library in LIBRARIES}
    assert not on_page["aotlite"]
    assert all(reason in TEXT for reasons in NOTES.values() for reason in reasons.values())


def test_the_page_is_what_numpy_does():
    compare("numpy", QUICK)


@pytest.mark.long
@pytest.mark.parametrize("library", ["array-api-strict", "jax", "torch", "aotlite"])
def test_the_page_is_what_the_other_libraries_do(library):
    compare(library, None)
