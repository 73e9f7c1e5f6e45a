"""`with_saved_sizes`: a partition whose forward returns the sizes that its backward needs.

Sizes of tensors that the backward takes are read there. Every other one is saved as a number: it is
an output of the forward, and a parameter of the backward. A call does not hand them over, as an
instance has numbers in both halves. Rule: PART-4. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import SavedSize
from aotlite.ir.graph.symbolic.binding import bindings_in, sizes_among
from aotlite.ir.symbols.table import table_of
from aotlite.stages.records.backward.partition import Partition


def with_saved_sizes(partition: Partition) -> Partition:
    """The partition with its saved sizes, which are the last outputs of the forward and the
    parameters of the backward. Itself if the backward needs none."""
    forward, backward = partition.forward, partition.backward
    if backward is None or not backward.symbols:
        return partition
    names = bindings_in(backward).free
    table = table_of(sizes_among((node.args, node.meta) for node in backward.nodes))
    if not names or table is None:
        return partition
    numbers = [table.named(name) for name in names]
    return attrs.evolve(
        partition,
        forward=_returning(forward, numbers),
        backward=attrs.evolve(backward, saved_sizes=names),
        saved_sizes=names,
    )


def _returning(forward: Graph, numbers: Sequence[object]) -> Graph:
    """The forward with these numbers as its last outputs."""
    values, roles = list(forward.outputs), list(forward.output_roles)
    ends = [pair for pair in zip(values, roles, strict=True) if not isinstance(pair[1], SavedSize)]
    values = [*[value for value, _ in ends], *numbers]
    roles = [*[role for _, role in ends], *map(SavedSize, range(len(numbers)))]
    closing = attrs.evolve(forward.output_node, args=(tuple(values),), role=tuple(roles))
    return attrs.evolve(forward, nodes=(*forward.nodes[:-1], closing))
