"""Tensors in the parts that virtual ranks hold, and how they are placed. Spec: `specs/sharding.md`.

>>> import aotlite as al
>>> from aotlite.sharding import Mesh, Replicate, Shard, ShardedTensor
>>> weight = ShardedTensor.from_dense(al.ones(3, 4), Mesh(2), Shard(1))
>>> y = al.ones(2, 3) @ weight
>>> y.placement, y.full_tensor().tolist()
(Shard(dim=1), [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]])
"""

from aotlite.sharding.collective_counts import CommDebugMode
from aotlite.sharding.mesh import Mesh
from aotlite.sharding.modules import distribute_module
from aotlite.sharding.placements import Partial, Replicate, Shard
from aotlite.sharding.tensor import ShardedTensor

__all__ = [
    "CommDebugMode",
    "Mesh",
    "Partial",
    "Replicate",
    "Shard",
    "ShardedTensor",
    "distribute_module",
]
