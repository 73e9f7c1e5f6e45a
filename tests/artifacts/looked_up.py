"""Compiles with the artifact cache, and says what became of each look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aotlite as al
from aotlite.ir.logs import LogEvent, listen, stop


class Outcomes(list[str]):
    """The outcomes of look-ups, in order; `why` is the reason of the last that was no hit."""

    why = ""

    def __call__(self, event: LogEvent) -> None:
        if event.name == "cache" and event.facts.get("of") == "artifact":
            self.append(event.facts["outcome"])
            self.why = event.facts.get("why", self.why)


@contextmanager
def outcomes() -> Iterator[Outcomes]:
    """A block in which outcomes are noted."""
    found = Outcomes()
    listen(found)
    try:
        yield found
    finally:
        stop(found)


def cached(function: Callable[..., Any], **options: Any) -> Any:
    """The function, compiled with the cache for the reference backend."""
    return al.compile(function, backend="reference", artifact_cache=True, **options)
