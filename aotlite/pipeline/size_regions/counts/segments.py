"""Cuts a forward at the sizes that depend on values: a segment for each, and one for the rest.

    gt = x > 0;  n = nonzero_count(gt)      segment 0 gives n, and hands on gt
    y = nonzero_fitted(gt, u0); ...         segment 1 takes gt, and gives the results

A segment takes the inputs of the forward, and the values that earlier ones hand on. No op but views
is in two segments, so that both see the same values. Rule: DYN-31. Spec: `specs/data_sizes.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import attrs
import optree

from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.graph.role import Lifted, Output
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.pipeline.derivatives import Derivable
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.backward.gradient_reads import GradientReads
from aotlite.stages.records.backward.joint import BackwardFacts, Joint
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.capture import Containers
from aotlite.stages.records.metadata.function_facts import Fixed, InputMeta, Plain
from aotlite.stages.records.metadata.function_meta import FunctionMeta

Ends = Sequence[tuple[Any, Any]]
"""The outputs of a graph: (role, value)."""
NO_BACKWARD = BackwardFacts({}, {}, {}, GradientReads((), {}))


def segments(records: StageRecords, counts: Sequence[int]) -> list[StageRecords]:
    """The records of the segments: `counts` are the numbers of the results that are sizes.

    The results of each but the last are its size, and what it hands on.
    """
    forward = records.partition.forward
    pairs = list(zip(forward.output_roles, forward.outputs, strict=True))
    values: dict[object, Any] = dict(pairs)
    numbers = [Output(index) for index in counts]
    rest = [pair for pair in pairs if pair[0] not in numbers]
    cut = _Cut(forward, [[values[role]] for role in numbers], _nodes(rest))
    found = []
    for number, role in enumerate(numbers):
        outputs = [values[role], *cut.handed[number]]
        ends = [(Output(index), value) for index, value in enumerate(outputs)]
        found.append(_prefix(records, cut, number, ends))
    changes: dict[str, Any] = {
        "meta": _without(records.meta, counts),
        "partition": attrs.evolve(records.partition, forward=_whole(forward, rest, cut.last)),
        "handed": cut.graph(len(numbers), rest),
    }
    return [*found, attrs.evolve(records, **changes)]


def _without(meta: FunctionMeta, counts: Collection[int]) -> FunctionMeta:
    """The facts of the function without the results that are sizes."""
    outputs = [Fixed(None) if i in counts else each for i, each in enumerate(meta.outputs)]
    return attrs.evolve(meta, outputs=tuple(outputs))


# ----------------------------------------------------------------------------------------- graphs
class _Cut:
    """Which node is in which segment, and what each hands on."""

    def __init__(
        self, forward: Graph, ends: Sequence[Sequence[Node]], results: Sequence[Node]
    ) -> None:
        self.forward = forward
        self.at: dict[Node, int] = {}
        """By a node that is no input: the number of its segment."""
        for number, nodes in enumerate(ends):
            self.at.update(dict.fromkeys(_behind(nodes, self.at), number))
            for node in forward.nodes:  # results of one op are handed on, and not their tuple
                if node.target is GETITEM and node.args[0] in self.at:
                    self.at.setdefault(node, number)
        others = [node for node in forward.nodes if node.op == "call" and node not in self.at]
        self.at.update(dict.fromkeys(others, len(ends)))
        self.last = (*others, *results)
        """What the last segment has to compute: results, effects and writes."""
        targets = [*ends, self.last]
        found: set[Node] = set()
        for number, nodes in enumerate(targets):
            found |= self.inside(number, nodes)[1]
        self.handed: list[list[Node]] = [[] for _ in targets]
        """By the number of a segment: the values that later ones take."""
        for node in forward.nodes:
            if node in found:
                self.handed[self.at[node]].append(node)

    def inside(self, number: int, targets: Iterable[Node]) -> tuple[set[Node], set[Node]]:
        """(the nodes of a segment with these results, the values that it takes of earlier ones)."""
        here: set[Node] = set()
        taken: set[Node] = set()
        waiting = list(targets)
        while waiting:
            node = waiting.pop()
            if node in here or node.op == "placeholder":
                continue
            if node.op == "call" and self.at[node] < number and not isinstance(node.target, ViewOp):
                taken.add(node)
            else:
                here.add(node)
                waiting += node.inputs()
        return here, taken

    def graph(self, number: int, ends: Ends) -> Graph:
        """The graph of a segment: behind the forward's inputs it takes all that was handed on."""
        is_last = number == len(self.handed) - 1
        here, _ = self.inside(number, self.last if is_last else _nodes(ends))
        made: dict[Node, Node] = {}
        inputs = list(self.forward.placeholders)
        for node in [node for each in self.handed[:number] for node in each]:
            role = Lifted(len(made))
            made[node] = Node("placeholder", role, meta=node.meta, role=role)
            inputs.append(made[node])
        body = []
        for node in self.forward.nodes:
            if node in here:
                args = map_nodes(node.args, lambda each: made.get(each, each))
                made[node] = attrs.evolve(node, args=args)
                body.append(made[node])
        replaced = [made.get(v, v) if type(v) is Node else v for _, v in ends]
        closing = output_node(replaced, [role for role, _ in ends])
        copies = self.forward.copies
        kept = [attrs.evolve(each, node=made[each.node]) for each in copies if each.node in here]
        return attrs.evolve(self.forward, nodes=(*inputs, *body, closing), copies=tuple(kept))


def _nodes(ends: Ends) -> list[Node]:
    return [value for _, value in ends if type(value) is Node]


def _behind(targets: Iterable[Node], before: Collection[Node]) -> set[Node]:
    """The calls that these values need, themselves included, but for those of `before`."""
    found: set[Node] = set()
    waiting = list(targets)
    while waiting:
        node = waiting.pop()
        if node.op == "call" and node not in found and node not in before:
            found.add(node)
            waiting += node.inputs()
    return found


def _whole(forward: Graph, ends: Ends, targets: Iterable[Node]) -> Graph:
    """The forward with these outputs alone, and the nodes that the targets need."""
    targets = list(targets)
    needed = _behind(targets, ())
    read = {value for node in needed for value in node.inputs()}.union(targets)
    body = [n for n in forward.nodes if n in needed or (n.op == "get_attr" and n in read)]
    closing = output_node([value for _, value in ends], [role for role, _ in ends])
    copies = tuple([each for each in forward.copies if each.node in needed])
    return attrs.evolve(forward, nodes=(*forward.placeholders, *body, closing), copies=copies)


# --------------------------------------------------------------------------------------- prefixes
def _prefix(records: StageRecords, cut: _Cut, number: int, ends: Ends) -> StageRecords:
    """The records of a segment that gives a size: it writes nothing and has no gradient."""
    meta = attrs.evolve(
        records.meta,
        inputs=tuple(map(_only_read, records.meta.inputs)),
        outputs=tuple([Plain(False, value.meta) for _, value in ends]),
        bases=(),
        tangents=(),
        training=False,
        grad_mode_after=None,
        families=(),
        count_plan=None,
        parts=(),
        grads=(),
        hooks=(),
        inside={},
        failure="",
    )
    spec = optree.tree_structure(tuple(range(len(ends))))  # type: ignore[arg-type]
    return StageRecords(
        meta=meta,
        convention=attrs.evolve(records.convention, consumed=0, sets_generator=False),
        joint=Joint(Graph((output_node([], []),)), NO_BACKWARD, has_backward=False),
        partition=Partition(_whole(cut.forward, ends, _nodes(ends)), None, ()),
        derivable=Derivable(),
        containers=Containers(spec, (None,) * len(ends)),
        handed=cut.graph(number, ends),
    )


def _only_read(each: InputMeta) -> InputMeta:
    return attrs.evolve(
        each,
        final_meta=each.meta,
        final_start=0,
        geometry_steps=EMPTY_CHAIN,
        requires_grad_at_exit=each.requires_grad,
        writes_data=False,
        writes_metadata=False,
        changes_history=False,
        version_bumps=0,
        changes=(),
        shares_outside=False,
        extent=None,
        in_graph=False,
        written_late=False,
    )
