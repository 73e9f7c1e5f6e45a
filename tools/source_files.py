"""The project's own Python files, found by walking folders: an independent count for the tools."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("aotlite", "ir", "backends")
OTHER_FOLDERS = ("tests", "tools", "examples", "benchmarks", "docs", "specs")


def python_files(*folders: str) -> Iterator[Path]:
    """Every .py file below the named top-level folders, without Python's own caches."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield path
