"""Compiles with the artifact cache, or loads bundles, and says what became of each look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aotlite as al
from aotlite.ir.logs import LogEvent, listen, stop

COMPILED: list[Any] = []
"""The compiled functions that `kept` and `loaded` have made."""
LOADED: list[Path] = []
"""The file that `loaded` loads."""


class Outcomes(list[str]):
    """The outcomes of look-ups, in order; `why` is the reason of the last that was no hit."""

    why, of = "", "artifact"

    def __call__(self, event: LogEvent) -> None:
        if event.name == "cache" and event.facts.get("of") == self.of:
            self.append(event.facts["outcome"])
            self.why = event.facts.get("why", self.why)


@contextmanager
def outcomes(of: str = "artifact") -> Iterator[Outcomes]:
    """A block in which outcomes are noted: those of the cache, or of a "bundle"."""
    found = Outcomes()
    found.of = of
    listen(found)
    try:
        yield found
    finally:
        stop(found)


def cached(function: Callable[..., Any], **options: Any) -> Any:
    """The function, compiled with the cache for the reference backend."""
    return al.compile(function, backend="reference", artifact_cache=True, **options)


def cached_on_cpu(function: Callable[..., Any], **options: Any) -> Any:
    """The function, compiled with the cache for the backend `cpu`."""
    return al.compile(function, backend="cpu", artifact_cache=True, **options)


def kept(function: Callable[..., Any]) -> Any:
    """The function, compiled so that it can be saved."""
    COMPILED.append(cached(function))
    return COMPILED[-1]


def loaded(function: Callable[..., Any]) -> Any:
    """The function with the entries of a bundle."""
    COMPILED.append(al.load(LOADED[0], function))
    return COMPILED[-1]
