"""`Mesh`: a row of virtual ranks in one process, and how the part of each of them is computed.

Everything that is not a collective is computed by `Mesh.each`, a rank at a time, from that rank's
parts alone. Rules: SHD-1. Spec: `specs/sharding.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import SubclassError, noted

ResultT = TypeVar("ResultT")
Parts = Sequence[Tensor]
"""What each rank holds of a tensor, by rank."""


def _is_count(mesh: Mesh, attribute: attrs.Attribute, value: int) -> None:
    if type(value) is not int or value < 1:
        raise noted(
            SubclassError(f"Mesh: size is {value!r}, expected a number of ranks, at least 1"),
            "A mesh is a row of so many virtual ranks. (SHD-1)",
        )


@attrs.frozen
class Mesh:
    """A row of virtual ranks. Meshes of one size and name are the same.

    >>> Mesh(4) == Mesh(4), Mesh(4) == Mesh(4, "columns")
    (True, False)
    """

    size: int = attrs.field(validator=_is_count)
    name: str = "ranks"

    @property
    def ranks(self) -> range:
        """The ranks, from 0."""
        return range(self.size)

    def each(self, function: Callable[[int], ResultT], held: Sequence[Parts]) -> list[ResultT]:
        """What the function gives for every rank, of whose parts in `held` it may read its own."""
        return [function(rank) for rank in self.ranks]

    def made(self, parts: Parts, placement: object) -> None:
        """Told of every result. Meshes for tests look at it."""
