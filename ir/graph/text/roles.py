"""`parse_role`: the role of a printed text, which is the name of an input or output of a graph.

Ground floor. It reads what `str(role)` of `ir/graph/role.py` writes; `ir/graph/text/source.py` and
the files of graphs call it. Spec: `specs/graph.md`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs

from aotlite.ir.graph.role import (
    OWN,
    ROLES,
    Gradient,
    Hidden,
    IntermediateBase,
    MutatedInput,
    Output,
    Part,
    Piece,
    Primal,
    Role,
    Size,
    Tangent,
)


def parse_role(text: str) -> Role | None:
    """The role with this text; None if no role has it, or if the text leaves out a field.

    >>> parse_role("tangents_updated_primals_0")
    Tangent(of=MutatedInput(of=Primal(index=0)))
    """
    for prefix, kind in _KINDS.get(text.partition("_")[0], ()):
        if text == prefix or text.startswith(f"{prefix}_"):
            return _parsed(kind, text)
    return None


_KINDS: dict[str, list[tuple[str, Any]]] = {}
"""The first word of a text -> the prefixes that begin with it, in the order of `ROLES`."""
for _kind in ROLES:
    if _prefix := getattr(_kind, "prefix", None):
        _KINDS.setdefault(_prefix.partition("_")[0], []).append((_prefix, _kind))


def _parsed(kind: Any, text: str) -> Any:
    if kind is Size:
        return _parsed_size(text)
    if kind in _WITH_PARTS and "__" in text:
        return _parsed_part(text)
    fields = _fields(kind)
    if not fields:
        return kind() if text == kind.prefix else None
    rest = text[len(kind.prefix) + 1 :]
    name = fields[0]
    parse = _parsed_gradient if kind in (Tangent, Gradient) else parse_role
    value: Any = parse(rest) if name == "of" else rest if name == "effect" else _index(rest)
    if value is None or len(fields) > 1:
        return None
    role = kind(value)
    return role if str(role) == text else None


@cache
def _fields(kind: Any) -> list[str]:
    """The names of the fields of a class without defaults."""
    return [field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING]


_WITH_PARTS = (Primal, Hidden, Output, IntermediateBase)


def _parsed_part(text: str) -> Part | None:
    whole, *names = text.split("__")
    role = parse_role(whole)
    for name in names:
        attr = name[1:].replace("_u", "_") if name.startswith("0") else name
        role = Part(role, attr) if role is not None and attr.isidentifier() else None  # type: ignore[arg-type]
    return role if str(role) == text else None  # type: ignore[return-value]


def _parsed_size(text: str) -> Size | None:
    dim, _, rest = text.removeprefix(f"{Size.prefix}_").partition("_")
    of = parse_role(rest)
    whole = of.whole if isinstance(of, Part) else of
    role = Size(int(dim), of) if dim.isdecimal() and isinstance(whole, Primal) else None  # type: ignore[arg-type]
    return role if str(role) == text else None


def _parsed_gradient(text: str) -> object:
    """The `of` of a tangent or gradient: a `Part` behind the prefix, else parts are `Piece`s."""
    if text.startswith(OWN):
        return parse_role(text[len(OWN) :])
    return _pieces(parse_role(text))


def _pieces(role: object) -> object:
    if isinstance(role, Part):
        return Piece(_pieces(role.of), role.attr)
    if isinstance(role, MutatedInput) and isinstance(role.of, Part):
        return Piece(_pieces(MutatedInput(role.of.of)), role.of.attr)
    return role


def _index(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
