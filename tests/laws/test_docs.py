"""The table of docs/laws.md names each law with its claim, and no other."""

import re
from pathlib import Path

from aotlite.testing import laws

PAGE = Path(__file__).parents[2] / "docs" / "laws.md"
TABLES = {
    "ops": laws.LAWS,
    "passes": laws.PASS_LAWS,
    "partitioners": laws.PARTITIONER_LAWS,
    "backends": laws.BACKEND_LAWS,
    "wrappers": laws.WRAPPER_LAWS,
}


def test_the_page_of_laws_has_a_row_for_each():
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.*) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    expected = [(law.name, law.claim, of) for of, table in TABLES.items() for law in table]
    expected.append((*laws.TAPE_LAW, "functions"))
    assert expected == rows
