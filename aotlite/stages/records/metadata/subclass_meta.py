"""`SubclassMeta`: how a wrapper subclass is rebuilt from its dense parts (SUB-3, SUB-4).

Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from aotlite.ir.graph.role import Part, Piece, Role
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record


@attrs.frozen(eq=False, repr=False)
class SubclassMeta(Record):
    """A wrapper by its class, spec and outer geometry, and the roles of its parts (SUB-3)."""

    kind: type[Any]
    spec: object
    meta: TensorMeta
    parts: tuple[tuple[str, Part, SubclassMeta | None], ...]
    """The attribute and role of each part, and how it is rebuilt if it is a wrapper itself."""
    layouts: Mapping[Role, TensorMeta]
    """The geometry of each dense part, by role."""
    offset: int = 0
    """Its storage offset in elements; the parts have their own."""

    def leaves(self) -> Iterator[tuple[str, Part]]:
        """The dense parts, depth first: their paths, such as `a.b`, and their roles (SUB-4)."""
        for name, role, inner in self.parts:
            if inner is None:
                yield name, role
            else:
                yield from [(f"{name}.{path}", leaf) for path, leaf in inner.leaves()]

    def __str__(self) -> str:
        parts = ", ".join([f"{name}={role}" for name, role in self.leaves()])
        return f"{self.kind.__name__}({self.meta}, {parts})"


def outermost_role(role: object) -> Any:
    """The role of the outermost wrapper around a part; for another value its own role."""
    return role.whole if isinstance(role, Part) else role


def gradient_of(role: Role) -> Any:
    """The role whose gradient this is a part of; for another value its own role.

    >>> from aotlite.ir.graph.role import MutatedInput, Primal
    >>> str(gradient_of(Piece(Piece(MutatedInput(Primal(0)), "a"), "b")))
    'updated_primals_0'
    """
    while isinstance(role, Piece):
        role = role.of
    return role
