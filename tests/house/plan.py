"""The plan of the house, read from house.toml."""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.house.floors import Floors

PLAN = Path(__file__).with_name("house.toml")
PACKAGES = {
    "aotlite": "aotlite",
    "ir": "aotlite.ir",
    "backends": "aotlite.backends",
    "eager": "aotlite.eager",
    "stages": "aotlite.stages",
}


@functools.cache
def plan() -> Mapping[str, Any]:
    return tomllib.loads(PLAN.read_text("utf-8"))


@functools.cache
def floors() -> Floors:
    only = {f"aotlite.{name}": list(_full(each)) for name, each in plan()["only"].items()}
    return Floors([list(_rooms(line)) for line in plan()["floors"]], only)


def _rooms(line: str) -> Iterator[str]:
    package, _, rooms = line.partition(": ")
    for room in rooms.split():
        yield f"{PACKAGES[package]}.{'__init__' if room == '.' else room}"


def _full(names: list[str]) -> Iterator[str]:
    return ("aotlite.__init__" if name == "." else f"aotlite.{name}" for name in names)
