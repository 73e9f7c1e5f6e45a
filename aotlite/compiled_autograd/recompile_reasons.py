"""Recompile reasons: the first difference between a tape and the one captured before (CAG-21)."""

from __future__ import annotations

from typing import Any

from aotlite.compiled_autograd.node_signatures import CLOSED, Form
from aotlite.compiled_autograd.structure import TapeStructure
from aotlite.ir.meta import TensorMeta


def why(look: TapeStructure, before: TapeStructure | None) -> str:
    """The first difference, as a clause."""
    if before is None:
        return "it is the first one"
    new, old = look.forms, before.forms
    for number, (now, then) in enumerate(zip(new, old, strict=False)):
        if now != then:
            return f"NodeCall {number} is {_words(now)}, and was {_words(then)}"
    if len(new) != len(old):
        return f"it has {len(new)} nodes, and had {len(old)}"
    key: Any = look.key
    for part, name in zip(_differing(key, before.key), _PARTS, strict=True):
        if part:
            return f"its {name} differ from those before"
    return "it is known no longer"


_PARTS = ("roots", "first gradients", "nodes", "edges", "orders", "inputs", "kinds of backward")


def _differing(key: Any, before: Any) -> list[bool]:
    return [a != b for a, b in zip(key, before, strict=True)]


def _words(form: Form) -> str:
    if form[0] == CLOSED:
        what = f" with {form[2]}" if form[2] else ""
        return f"a {form[1].__name__} that the engine runs{what}"
    kind = form[0]
    name = kind.__name__ if isinstance(kind, type) else kind.name
    parts = [str(each) for part in form[1:] for each in _telling(part)]
    return f"{name} of {', '.join(dict.fromkeys(parts))}" if parts else name


def _telling(part: object) -> list[object]:
    """The metas and numbers in a form."""
    if isinstance(part, tuple):
        if part[:1] == (int,):  # an int in place of a tensor, with its type
            return [str(part[1])]
        return [each for item in part for each in _telling(item)]
    return [part] if isinstance(part, (TensorMeta, str)) else []
