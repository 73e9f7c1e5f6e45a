"""`distribute_module`: a module whose parameters are sharded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import ArgumentError
from aotlite.nn.module import Module, state_places
from aotlite.nn.parameter import Buffer, Parameter, TransientBuffer
from aotlite.sharding.mesh import Mesh
from aotlite.sharding.placements import Placed, Replicate
from aotlite.sharding.tensor import ShardedTensor

M = TypeVar("M", bound=Module)


def distribute_module(module: M, mesh: Mesh, placements: Mapping[str, Placed]) -> M:
    """Puts sharded tensors in the places of a module's parameters and buffers; returns the module.

    `placements` are by dotted name; those not named are replicated. A tensor reached by several
    names stays one, in the placement of the first that is named. Raises ArgumentError for unknown
    names.

    >>> import aotlite as al
    >>> from aotlite.sharding import Mesh, Shard, distribute_module
    >>> layer = distribute_module(al.nn.Linear(3, 4), Mesh(2), {"weight": Shard(0)})
    >>> layer.weight.placement, layer.bias.placement, layer(al.ones(5, 3)).placement
    (Shard(dim=0), Replicate(), Shard(dim=1))
    """
    places = list(state_places(module))
    unknown = [name for name in placements if name not in [place.path for place in places]]
    if unknown:
        names = ", ".join(place.path for place in places)
        raise ArgumentError(
            f"distribute_module: {unknown[0]!r} is no parameter or buffer of "
            f"{type(module).__name__}, expected one of {names}"
        )
    wanted: dict[int, Placed] = {}
    for path, owner, name in places:
        if path in placements:
            wanted.setdefault(id(vars(owner)[name]), placements[path])
    made: dict[int, Tensor] = {}
    for _, owner, name in places:
        held = vars(owner)[name]
        if id(held) not in made:
            made[id(held)] = _member(held, mesh, wanted.get(id(held), Replicate()))
        setattr(owner, name, made[id(held)])
    return module


def _member(held: Tensor, mesh: Mesh, placement: Placed) -> Tensor:
    with no_grad():
        sharded = ShardedTensor.from_dense(held.detach(), mesh, placement)
    if isinstance(held, Parameter):
        found: Tensor = Parameter(sharded, held.requires_grad)
        return found
    return Buffer(sharded, persistent=not isinstance(held, TransientBuffer))
