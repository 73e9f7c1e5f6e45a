"""`aotlite.partition`: the partitioners, and the parts of a user's own.

A partitioner is a function from the joint graph to a `Partition`. It chooses the forward values to
save, and ends with `cut(graph, saved)`; the backward recomputes the rest.
"""

from aotlite.ir.graph import Graph
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.s8_partition import default_partition
from aotlite.stages.s8_partition.flow_network import Solver
from aotlite.stages.s8_partition.graph_cut import cut
from aotlite.stages.s8_partition.min_cut import MinCut, min_cut

__all__ = [
    "MinCut",
    "Partition",
    "SavedValue",
    "cut",
    "default_partition",
    "min_cut",
    "min_cut_rematerialization_partition",
]


def min_cut_rematerialization_partition(
    graph: Graph, *, solver: Solver | str | None = None
) -> Partition:
    """The partition that moves the fewest bytes: the backward recomputes cheap values (PART-14).

    `solver` is the name of a networkx algorithm, or a function that takes a networkx.DiGraph, its
    source and its sink, and returns what `networkx.minimum_cut` does. It is called once for every
    cut. Without one, most cuts need none.

    >>> import aotlite as al
    >>> def loss(x, w):
    ...     return (x @ w).sin().exp().sum()
    >>> compiled = al.compile(loss, partition="min_cut")
    >>> y = compiled(al.ones(4, 4), al.ones(4, 4).requires_grad_())
    >>> [each.name for each in compiled.partition.saved]
    ['primals_0', 'matmul']
    """
    found = min_cut(graph, solver=solver)
    return cut(graph, found.saved, indexed=found.indexed)
