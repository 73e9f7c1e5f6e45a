"""An adapter that reports the running method, and does not call methods that ended a process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.error_source import through
from aotlite.conformance.unsupported import Absent, is_missing


class Watched:
    """A wrapper of an `Adapter`. `deadly`: method -> how it ended an earlier process.

    If one method of a library hangs, every rule that needs it would; after a few of them the method
    counts as absent. `calling` is called with the name of each method, and with '' when it has
    returned. Functions that a library traces use `unwatched`, the adapter itself.
    """

    def __init__(
        self, adapter: Adapter, deadly: Mapping[str, str], calling: Callable[[str], None]
    ) -> None:
        self.unwatched = adapter
        self._deadly = deadly
        self._calling = calling

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self.unwatched, name)
        if not callable(attribute) or is_missing(self.unwatched, name):
            return attribute
        return self._watched(name, attribute)

    def _watched(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
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
