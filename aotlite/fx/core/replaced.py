"""Names of torch.fx that have another word here: the table, and the error that reads it out.

The rows are data (`replaced.json`), checked against the names of torch.fx where it is installed;
`docs/fx.md` shows them. Rule: FXG-1. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

from aotlite.ir.errors import AbsentError

__all__ = ["ReplacedNameError", "WithReplacedNames", "refuse_name", "replaced_names"]


class ReplacedNameError(AbsentError):
    """A name of torch.fx that has another word here, or no use: the message says which."""


@cache
def replaced_names() -> dict[str, dict[str, str]]:
    """Class or module of torch.fx -> name -> what replaces it, and why.

    >>> replaced_names()["Graph"]["call_module"][:30]
    'trace through it: the op nodes'
    """
    text = files("aotlite.fx.core").joinpath("replaced.json").read_text("utf-8")
    found: dict[str, dict[str, str]] = json.loads(text)
    return found


def refuse_name(owner: str, name: str) -> NoReturn:
    """Raises ReplacedNameError for a name of the table, AttributeError for another one."""
    row = replaced_names().get(owner, {}).get(name)
    if row is None:
        raise AttributeError(f"{owner!r} object has no attribute {name!r}")
    raise ReplacedNameError(f"fx.{owner}.{name} has another word here. Instead: {row} (FXG-1)")


class WithReplacedNames:
    """The base of FX's classes: a missing name that torch.fx has is explained."""

    _called = ""
    """FX's name of the class."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        refuse_name(self._called, name)
