"""The structure of a tape before it runs: numbered nodes, their forms, and the cache key (CAG-6).

Spec: `specs/compiled_autograd.md`.

Note [One program per topology]
    for x in batches: model(x).sum().backward()
Each step builds a new tape of new objects, but of the same topology. So nodes are numbered in the
order in which edges reach them from the roots, and the key consists of forms, edges by number, and
the order in which nodes were made: the engine runs them by it, and a sum of gradients in another
order has other bits. Values, leaves and hook functions are not in the key: they are inputs, or run
between two graphs. A Python number in a formula (`x * lr`) is in the form: if it changes at each
step, every tape is captured anew, up to `recompile_limit`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any

import attrs

from aotlite.backends.calling_convention import window_of
from aotlite.compiled_autograd.node_signatures import (
    CLOSED,
    Form,
    form_of,
    is_plain,
    records_of,
    saver_of,
)
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.base.tape.node import LAST, Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.stages.s10_runtime.backward.node import CompiledBackward

Roots = Sequence[tuple[Edge | None, Any]]


@attrs.frozen(eq=False)
class TapeStructure:
    """The nodes of a tape, in the order in which edges lead to them, their forms, and the key.

    Note [One program per topology].
    """

    nodes: list[TapeNode]
    number: dict[TapeNode, int]
    forms: list[Form]
    key: Hashable

    def is_open(self, number: int) -> bool:
        """Whether the node can be recorded."""
        return self.forms[number][0] != CLOSED


def look_at(
    roots: Roots, sinks: Sequence[Edge | None] | None, *, accumulate: bool
) -> TapeStructure:
    """The structure of the tape that is reached from these roots."""
    number: dict[TapeNode, int] = {}
    nodes: list[TapeNode] = []
    for edge, _ in roots:
        if edge is not None and edge[0] not in number:
            number[edge[0]] = len(nodes)
            nodes.append(edge[0])
    topology = []
    for node in nodes:  # grows meanwhile
        leads: list[tuple[int, int] | None] = []
        for edge in node.edges:
            if edge is None:
                leads.append(None)
                continue
            target = edge[0]
            at = number.get(target)
            if at is None:
                at = number[target] = len(nodes)
                nodes.append(target)
            leads.append((at, edge[1]))
        topology.append(tuple(leads))
    forms = [form_of(node) for node in nodes]
    order = sorted([n for n in nodes if n.sequence != LAST], key=attrgetter("sequence"))
    key = (
        _numbered([edge for edge, _ in roots], number),
        signatures([grad for _, grad in roots]),
        tuple(forms),
        tuple(topology),
        tuple([number[node] for node in order]),
        None if sinks is None else _numbered(sinks, number),
        accumulate,
    )
    return TapeStructure(nodes, number, forms, key)


def alike(look: TapeStructure) -> Hashable:
    """A coarser key: ops and edges, without sizes and numbers."""
    key: Any = look.key
    return tuple([form[0] for form in look.forms]), key[3]


def _numbered(edges: Sequence[Edge | None], number: dict[TapeNode, int]) -> Hashable:
    """Edges by the numbers of their nodes; None for a node that is not on the tape."""
    return tuple([None if e is None else (number.get(e[0]), e[1]) for e in edges])


def signatures(values: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The signatures of gradients: layout or class, and which of them are one tensor."""
    first: dict[int, int] = {}
    found: list[object] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        kind = value.meta if is_plain(value) else type(value)
        found.append((kind, first.setdefault(id(value), len(first))))
    return tuple(found)


def shares_gradients(look: TapeStructure, roots: Roots) -> bool:
    """Whether the `.grad` of a leaf shares memory with a saved value or a root's gradient.

    A segment accumulates at its end, after all reads; the engine does at the leaf's turn. If the
    tape reads that memory, the results would differ.
    """
    leaves = [node.leaf for node in look.nodes if type(node) is AccumulateGrad]
    grads = [leaf._grad for leaf in leaves if leaf is not None and leaf._grad is not None]
    written = {id(grad.storage.buffer) for grad in grads if not is_wrapper(grad)}
    if not written:
        return False
    read = [grad for _, grad in roots if grad is not None and is_plain(grad)]
    for node in look.nodes:
        if type(node) is CompiledBackward:
            if any(id(window_of(value)[0]) in written for value in node.saved or ()):
                return True
            if any(id(storage.buffer) in written for storage, _ in node.saved_versions):
                return True
        saver = saver_of(node)
        if saver is not None:
            read += [r.tensor for r in records_of(saver) if r.tensor is not None]
    return any(id(tensor.storage.buffer) in written for tensor in read if is_plain(tensor))
