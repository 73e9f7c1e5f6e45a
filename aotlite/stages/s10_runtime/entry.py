"""CompiledEntry: one compiled variant of a function, which tells why it does not serve a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.stages.s10_runtime.guards.failures import GuardCheck, GuardFailure, what_fails


class CompiledEntry:
    """One compiled variant of a function: `call(leaves)` gives its results, or MISS."""

    __slots__ = ("_checks", "_scope", "call", "source")

    def __init__(
        self, call: Callable[[Any], Any], source: str, scope: dict[str, Any], checks: Any
    ) -> None:
        self.call = call
        self.source = source
        self._scope = scope
        self._checks: tuple[GuardCheck, ...] = checks

    def why_not(self, leaves: Sequence[Any]) -> GuardFailure | None:
        """What makes the entry not valid for these flat arguments; None if it is."""
        return what_fails(self._checks, self._scope, leaves)
