"""Warns of facts about sizes that are neither proved nor refuted in time. Rule: DYN-11.

Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.provenance.location import place_of

if TYPE_CHECKING:
    from aotlite.ir.symbols.validation.verdict import Verdict

_SHOWN = 3


def warn_of_open_facts(function: Callable[..., object], name: str, proof: Verdict) -> None:
    """Warns of what a proof leaves open, once a function: the facts, and the lines that asked."""
    if not proof.unknown:
        return
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({place_of((code, 0))})"
    facts = list(dict.fromkeys(map(repr, proof.unknown)))
    more = f", and {len(facts) - _SHOWN} more" if len(facts) > _SHOWN else ""
    warn_once(
        f"compile: whether {name}{place} is right for all sizes that its conditions admit was not "
        "proved in time",
        f". Open: {', '.join(facts[:_SHOWN])}{more}. At all sizes that were tried they hold. A "
        "condition that names these sizes makes the proof easier; verify=0 leaves it out. (DYN-11)",
    )
