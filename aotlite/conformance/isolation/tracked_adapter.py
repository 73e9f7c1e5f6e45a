"""An adapter that says which method it is in, and no longer calls those that ended a process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import through
from aotlite.conformance.unsupported import Absent, is_missing


class Watched:
    """Stands for an `Adapter`. `deadly`: method -> what it did to an earlier process.

    A library in which one method hangs would hang in every rule that needs it; after a few of them
    the method counts as absent. `calling` hears the name of each method, and '' when it is back.
    Functions that a library traces call `unwatched`, the adapter.
    """

    def __init__(
        self, adapter: Adapter, deadly: Mapping[str, str], calling: Callable[[str], None]
    ) -> None:
        self.unwatched = adapter
        self._deadly = deadly
        self._calling = calling

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.unwatched, name)
        if not callable(attribute) or is_missing(self.unwatched, name):
            return attribute
        return self._watched(name, attribute)

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: object) -> Any:
            if name in self._deadly:
                raise Absent(f"{name}, which {self._deadly[name]}")
            self._calling(name)
            try:
                result = through(method, arguments)
            except Exception:
                self._calling("")
                raise
            self._calling("")
            return result

        return call
