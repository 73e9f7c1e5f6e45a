"""The mutants without an observable difference: `equivalent.toml`, with a reason each.

An entry names a mutant and the line that it changes. An entry whose line has changed is an error,
as its reason is about another line.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.mutation.sites import Mutant, sites_of
from tests.mutation.targets import FILES

PATH = Path(__file__).with_name("equivalent.toml")


class OutdatedError(ValueError):
    """Entries that no longer match."""


def load(path: Path = PATH) -> dict[str, str]:
    """Key -> reason. Raises OutdatedError for entries whose mutant or line has changed."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    known = _lines({entry["key"].partition("::")[0] for entry in entries})
    wrong = [e["key"] for e in entries if known.get(e["key"]) != e["text"]]
    if wrong:
        names = "\n  ".join(wrong)
        raise OutdatedError(f"{path.name}: entries of lines that are others by now:\n  {names}")
    return {entry["key"]: entry["reason"] for entry in entries}


def _lines(files: set[str]) -> dict[str, str]:
    mutants: list[Mutant] = [
        mutant
        for file in sorted(files)
        if file in FILES
        for site in sites_of(file)
        for mutant in site
    ]
    return {mutant.key: mutant.text for mutant in mutants}
