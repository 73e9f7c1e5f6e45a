"""How a tensor made of tensors is rebuilt from its dense parts, as a record (SUB-3, SUB-4).

Spec: `specs/subclasses.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from aotlite.ir.graph.role import Part, Piece
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.base import Record


@attrs.frozen(eq=False, repr=False)
class SubclassMeta(Record):
    """A wrapper by its class, spec and outer geometry, and the roles of its parts (SUB-3)."""

    kind: type[Any]
    spec: Any
    meta: TensorMeta
    parts: tuple[tuple[str, Any, SubclassMeta | None], ...]
    """Of each part the attribute, the role, and how it is made where it is a wrapper itself."""
    layouts: Mapping[Any, TensorMeta]
    """The geometry of each dense part, by role."""
    offset: int = 0
    """Elements from the start of what it is a view of; the parts have their own."""

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """The dense parts, depth first: where they are, such as `a.b`, and their roles (SUB-4)."""
        for name, role, inner in self.parts:
            if inner is None:
                yield name, role
            else:
                yield from [(f"{name}.{path}", leaf) for path, leaf in inner.leaves()]

    def __str__(self) -> str:
        parts = ", ".join([f"{name}={role}" for name, role in self.leaves()])
        return f"{self.kind.__name__}({self.meta}, {parts})"


def outermost_role(role: Any) -> Any:
    """The role of the outermost wrapper that this is a part of; of anything else the role."""
    return role.whole if isinstance(role, Part) else role


def gradient_of(role: Any) -> Any:
    """What a gradient is of that this is a part of; of anything else the role itself.

    >>> from aotlite.ir.graph.role import MutatedInput, Primal
    >>> str(gradient_of(Piece(Piece(MutatedInput(Primal(0)), "a"), "b")))
    'updated_primals_0'
    """
    while isinstance(role, Piece):
        role = role.of
    return role
