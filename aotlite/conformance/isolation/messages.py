"""The messages of the child process to its parent: JSON, one object a line."""

from __future__ import annotations

import json
from typing import Any

import attrs

from aotlite.conformance.outcomes import Breaks, Dies, Faulty, Keeps, Lacks, Outcome

_CLASSES: dict[str, type[Any]] = {
    each.__name__: each for each in (Keeps, Breaks, Lacks, Dies, Faulty)
}


def pack(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as JSON types."""
    return {"class": type(outcome).__name__, **attrs.asdict(outcome)}


def unpack(packed: dict[str, Any]) -> Outcome:
    """Returns the outcome that `pack` has packed; lists become tuples.

    >>> unpack(json.loads(json.dumps(pack(Keeps(3, ("view",))))))
    Keeps(cases=3, without=('view',))
    """
    fields = dict(packed)
    made: Outcome = _CLASSES[fields.pop("class")](
        **{name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    )
    return made


def encode(**message: object) -> bytes:
    """Returns the line of a message."""
    return json.dumps(message).encode() + b"\n"
