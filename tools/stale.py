"""Says which generated pages and tables are stale, and the command that renews each.

`python tools/stale.py` checks those that take seconds and ends with status 1 if one is stale.
`--write` renews the stale ones, `--slow` looks at those that take minutes, too.
"""

from __future__ import annotations

import argparse
import configparser
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from source_files import PACKAGES, ROOT

sys.path.insert(0, str(ROOT))

SETUP = ROOT / "setup.cfg"
FRONT = ROOT / "aotlite" / "__init__.py"


@attrs.frozen
class Generated:
    """Files that a tool writes: their present text is a function of the sources."""

    name: str
    command: str
    """The command that renews them."""
    made: Callable[[], dict[Path, str]]
    """Returns the right text of each file. Raises ImportError if a requirement is missing."""
    is_slow: bool = False


def tool(name: str) -> Any:
    """A generator of this folder, as a module."""
    return importlib.import_module(name)


def rules() -> dict[Path, str]:
    table = tool("rules_table")
    return {table.PAGE: table.page(table.read())}


def ops() -> dict[Path, str]:
    table = tool("ops_table")
    return {table.PAGE: table.page()}


def python_file_ops() -> dict[Path, str]:
    table = tool("python_file_ops")
    return {table.PAGE: table.page()}


def interchange_ops() -> dict[Path, str]:
    table = tool("interchange_ops")
    return {table.PAGE: table.page()}


def front_types() -> dict[Path, str]:
    return {FRONT: tool("front_types").renewed()}


def packages() -> dict[Path, str]:
    """`setup.cfg` with every folder that has an `__init__.py` in its list of packages."""
    parser = configparser.ConfigParser()
    text = SETUP.read_text("utf-8")
    parser.read_string(text)
    listed = parser["options"]["packages"]
    found = "\n".join(["", *sorted(_package_names())])
    # Indented as the parser has stripped it.
    old, new = (each.replace("\n", "\n    ") for each in (listed, found))
    return {SETUP: text.replace(f"packages ={old}\n", f"packages ={new}\n")}


def _package_names() -> Iterator[str]:
    for folder in PACKAGES:
        for init in (ROOT / folder).rglob("__init__.py"):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            yield name if folder == "aotlite" else f"aotlite.{name}"


def cupy() -> dict[Path, str]:
    table = tool("cupy_table")
    return {table.TARGET: table.text()}


def ndarrays() -> dict[Path, str]:
    table = tool("ndarray_table")
    made = table.table()
    return {table.names.TABLE: table.text_of(made), table.PAGE: table.page(made)}


def coefficients() -> dict[Path, str]:
    fits = tool("minimax")
    return {fits.TARGET: fits.text()}


GENERATED = (
    Generated("the rules, and their tests", "python tools/rules_table.py", rules),
    Generated("the ops and their laws", "python tools/ops_table.py", ops),
    Generated("the ops in files of NumPy", "python tools/python_file_ops.py", python_file_ops),
    Generated("the ops that leave", "python tools/interchange_ops.py", interchange_ops),
    Generated("the public names for type checkers", "python tools/front_types.py", front_types),
    Generated("the list of packages", "python tools/stale.py --write", packages),
    Generated("the names that CuPy has", "python tools/cupy_table.py", cupy),
    Generated("NumPy's names on tensors", "python tools/ndarray_table.py", ndarrays, is_slow=True),
    Generated("polynomials", "python tools/minimax.py --write", coefficients, is_slow=True),
)

NOT_COVERED = (
    ("tests/goldens", "tests/test_goldens.py fails if stale; pytest --update-goldens renews"),
    ("docs/conformance.md", "depends on other libraries; the command stands at its top"),
)
"""Other generated files, with the reason why they are not checked here."""


def stale(each: Generated) -> dict[Path, str]:
    """The stale files of an entry, with their right text."""
    made = each.made()
    return {path: text for path, text in made.items() if path.read_text("utf-8") != text}


def report(entries: Sequence[Generated], *, write: bool, slow: bool) -> Iterator[tuple[bool, str]]:
    """(whether it stays stale, a line) of each entry."""
    for each in entries:
        if each.is_slow and not slow:
            yield False, f"not checked  {each.name}: takes minutes, see --slow"
            continue
        try:
            found = stale(each)
        except (ImportError, FileNotFoundError) as error:
            yield False, f"not checked  {each.name}: {error}"
            continue
        names = ", ".join(path.relative_to(ROOT).as_posix() for path in found)
        if not found:
            yield False, f"fresh        {each.name}"
        elif write:
            for path, text in found.items():
                path.write_text(text, encoding="utf-8")
            yield False, f"renewed      {each.name}: {names}"
        else:
            yield True, f"STALE        {each.name}: {names}: {each.command}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing stays stale; else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew what is stale")
    parser.add_argument("--slow", action="store_true", help="look at what takes minutes, too")
    given = parser.parse_args(arguments)
    code = 0
    for is_stale, line in report(GENERATED, write=given.write, slow=given.slow):
        code |= is_stale
        print(line, flush=True)
    for what, command in NOT_COVERED:
        print(f"not covered  {what}: {command}")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `stale.py | head`: the reader has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
