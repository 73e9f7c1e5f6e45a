"""The table of docs/subclasses.md names each law with its claim, and no other."""

import re
from pathlib import Path

from aotlite.testing.subclasses import CLAIMS

PAGE = Path(__file__).parents[2] / "docs" / "subclasses.md"


def test_the_table_of_laws_is_that_of_the_laws() -> None:
    rows = re.findall(r"^\| (S\d) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == CLAIMS
