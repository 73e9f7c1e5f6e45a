"""`GuardedFunction`: the generated function of one entry, with its guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.stages.s10_runtime.guards.failures import GuardCheck, GuardFailure, what_fails


@attrs.define(eq=False, repr=False)
class GuardedFunction:
    """The generated function of an entry: `call(leaves)` returns the results, or MISS."""

    call: Callable[[Any], object]
    source: str
    _scope: dict[str, Any]
    checks: tuple[GuardCheck, ...]

    def why_not(self, leaves: Sequence[object]) -> GuardFailure | None:
        """The reason why the entry is not valid for these flat arguments; None if it is valid."""
        return what_fails(self.checks, self._scope, leaves)
