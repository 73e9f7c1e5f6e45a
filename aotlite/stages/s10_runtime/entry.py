"""`CompiledEntry`: one compiled variant of a function, with its guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.stages.s10_runtime.guards.failures import GuardCheck, GuardFailure, what_fails


class CompiledEntry:
    """One compiled variant of a function: `call(leaves)` returns the results, or MISS."""

    __slots__ = ("_checks", "_scope", "call", "source")

    def __init__(
        self, call: Callable[[Any], Any], source: str, scope: dict[str, Any], checks: Any
    ) -> None:
        self.call = call
        self.source = source
        self._scope = scope
        self._checks: tuple[GuardCheck, ...] = checks

    def why_not(self, leaves: Sequence[Any]) -> GuardFailure | None:
        """The reason why the entry is not valid for these flat arguments; None if it is valid."""
        return what_fails(self._checks, self._scope, leaves)
