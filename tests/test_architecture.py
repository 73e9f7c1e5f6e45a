"""The house keeps its rules. That each rejects what breaks it, tests/house shows."""

import functools
from pathlib import Path

import pytest

from tests.house import allowances, lazy, op_names, path, pending, rules, slow, texts
from tests.house.allowances import Allowances
from tests.house.checks import CHECKS
from tests.house.house import House
from tests.house.plan import plan
from tests.house.sources import PRODUCT, ROOT, tree

TEXT_FOLDERS = (*PRODUCT, "tests", "tools", "specs", "docs", "examples", "benchmarks", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".cfg", ".toml", ".in", ".txt", ".yml", ".sh", ".c", ".cu", ""}
MODULE_RULES = {
    rules.imports_by_folder_name: [*PRODUCT, "tests", "tools", "examples", "benchmarks"],
    rules.imports_torch: PRODUCT,
    rules.makes_a_lock: PRODUCT,
    rules.hides_comparisons: ["tests"],
    rules.reads_another_variable: PRODUCT,
}
TEXT_RULES = [
    texts.is_too_long,
    texts.is_unfinished,
    texts.names_a_registry,
    pending.says_not_built,
    pending.lists_what_is_built,
]


@pytest.fixture(scope="module")
def house() -> House:
    found = House(tree())
    assert found.sources
    return found


@functools.cache
def texts_of_the_project() -> list[tuple[Path, str]]:
    """(path from the root, text) of everything that people write here."""
    below = (each for folder in TEXT_FOLDERS for each in sorted((ROOT / folder).rglob("*")))
    return [
        (each.relative_to(ROOT), each.read_text("utf-8"))
        for each in [*sorted(ROOT.glob("*")), *below]
        if each.is_file() and each.suffix in TEXT_SUFFIXES and "__pycache__" not in each.parts
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_house_has_no_more_exceptions_than_allowed(name: str, house: House) -> None:
    allowed = allowances.read(allowances.FILE.read_text("utf-8"))
    check = CHECKS[name]
    of_check = allowed.get(name, Allowances())
    assert [] == list(allowances.complaints(check, check.counts(house), of_check))


def test_tour_names_the_files_of_the_reading_path(house: House) -> None:
    assert [] == list(path.not_as_named(house, path.pages()))


def test_vocabularies_are_modules_with_a_table_of_op_names(house: House) -> None:
    assert [] == op_names.idle(house)


def test_allowances_are_those_of_checks() -> None:
    assert set(allowances.read(allowances.FILE.read_text("utf-8"))) <= set(CHECKS)


@pytest.mark.parametrize("rule", MODULE_RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_the_rule(rule) -> None:
    sources = tree().folders(*MODULE_RULES[rule]).values()
    assert [] == [text for source in sources for text in rule(source)]


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_no_text_breaks_the_rule(rule) -> None:
    assert [] == [text for each, content in texts_of_the_project() for text in rule(each, content)]


def test_rules_see_all_three_packages(house: House) -> None:
    """A walk over nothing would keep every rule."""
    assert {"aotlite", "aotlite.ir", "aotlite.backends"} <= set(house.sources)
    paths = {each.as_posix() for each, _ in texts_of_the_project()}
    assert {"README.md", "setup.cfg", "ir/__init__.py", ".ci/run"} <= paths


def test_modules_that_import_by_name_are_those_of_the_plan(house: House) -> None:
    assert [] == lazy.unneeded(house.sources, plan()["by_name"])


def test_slow_tests_are_few_and_say_why() -> None:
    assert [] == [each.text for each in slow.without_reason(tree())]
    assert slow.MOST >= len(list(slow.markers(tree())))
