"""`Finding`: one thing that `aotlite doctor` looked at."""

from __future__ import annotations

from typing import Literal

import attrs

State = Literal["ok", "absent", "broken"]
"""`broken` is what is set up and does not work; what is not set up is `absent`."""


@attrs.frozen
class Finding:
    """What was looked at, how it is, and what to do about it."""

    section: str
    name: str
    state: State
    value: str
    """A version, a place, or why it does not work."""
    advice: str = ""
    """What to do or install; empty where there is nothing to do."""
