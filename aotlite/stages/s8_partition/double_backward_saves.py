"""What a forward keeps so that its backward can be differentiated, and graphs fed from it (DBL-2).

The backward of a call is a function of the values that are saved and of the gradients that arrive.
Its own backward goes on through the saved values to the inputs, and on that way reads operands and
results that the backward alone may not need. `with_kept` finds those that do not follow from what
is saved, and has them saved, too; mostly there are none. `fed` replaces in a later graph what is
computed again from the inputs by what was saved. Values of two graphs are the same if they are
computed in the same way (`value_numbering`).
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from aotlite.ir.errors import GraphError, noted
from aotlite.ir.graph import Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.effect_chains import is_effect
from aotlite.ir.graph.role import (
    RNG_INPUTS,
    Gradient,
    Incoming,
    IntermediateBase,
    Kept,
    MutatedInput,
    Output,
    Part,
    Role,
    Saved,
    SyntheticBase,
    Token,
    is_given,
)
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.shared.value_numbering import ValueNumbering

_REASON = "derivatives of the backward read it, or what it is computed from"


# --------------------------------------------------------------------------- what is saved besides
class Reads(Enum):
    """What is known of the values that derivatives of a backward read."""

    FORMULAS = 1
    """What the declarations of the ops say."""
    OPERANDS = 2
    """Users' Python runs, or passes have made other ops of those that were recorded: operands of
    any op that a gradient passes."""
    ANYTHING = 3
    """Classes of wrappers compute: whatever follows from the inputs."""


def with_kept(
    partition: Partition,
    whole: Graph,
    numbering: ValueNumbering,
    given: Mapping[Any, int],
    requires: Callable[[Any], bool],
    exported: Container[Any] = (),
    *,
    reads: Reads,
    may_read: Callable[[Any], bool] = lambda role: True,
) -> Partition:
    """The partition whose forward also saves what derivatives of its backward may read.

    `whole` is the graph that was cut in two, as it was before stage 7 left out what gradients pass
    that come to nothing, and before it was fed. `requires` says of the role of its inputs whether
    they require grad, `given` which numbers the forward's have; the memory of inputs in `exported`
    may be written unnoticed. Where anything is read, `may_read` says of the role of an input
    whether it is, or what is read follows from it.
    """
    if partition.backward is None:
        return partition
    forward = _Forward(partition.forward, numbering, given)
    if reads is Reads.ANYTHING:
        wanted = [n for n in forward.inputs() if n.op != "placeholder" or may_read(n.role)]
    else:
        half, met = _halves(whole)
        missing = _Missing(half, numbering.of(half, given), forward, requires)
        wanted = missing.values(met, reads)
    found = [node for node in wanted if node not in forward.saved]
    return _extended(partition, found, exported, forward.written) if found else partition


def _halves(graph: Graph) -> tuple[Graph, list[Node]]:
    """What does not depend on gradients that arrive, and what of it the rest reads or gives.

    Where it was recorded does not matter: stage 7 may have one node for both halves.
    """
    late: set[Node] = set()
    met: dict[Node, None] = {}
    read = _read(graph)
    nodes = [node for node in graph.nodes[:-1] if node in read]
    for node in nodes:
        inputs = node.inputs()
        is_tangent = node.op == "placeholder" and node.phase is Phase.BACKWARD
        if is_tangent or not late.isdisjoint(inputs):
            late.add(node)
            met.update(dict.fromkeys([value for value in inputs if value not in late]))
    given = [value for _, value in graph.outputs_with(Gradient) if type(value) is Node]
    met.update(dict.fromkeys([value for value in given if value not in late]))
    early = [node for node in nodes if node not in late]
    return Graph((*early, output_node((), ())), graph.name), list(met)


class _Forward:
    """The forward of a partition, with its values by number."""

    def __init__(self, graph: Graph, numbering: ValueNumbering, given: Mapping[Any, int]) -> None:
        self.graph = graph
        numbers = numbering.of(graph, given)
        self.saved = {value for _, value in graph.outputs_with(Saved)}
        self.known = {numbers[value] for value in self.saved}
        """What is saved, by number."""
        results = zip(graph.output_roles, graph.outputs, strict=True)
        written = {role.of for role, _ in results if isinstance(role, MutatedInput)}
        self.written = {
            node
            for node in graph.placeholders
            if node.role in written or isinstance(node.role, SyntheticBase)
        }
        self.changed = {numbers[node] for node in self.written}
        self.values = {numbers[node]: node for node in reversed(graph.nodes[:-1])}
        turned = {numbering.turned(number) for number in self.known} - self.known
        self.turned = {self.values[number] for number in turned if number in self.values}
        """Of what is saved only turned what it is a view of."""

    def inputs(self) -> list[Node]:
        """The inputs, read or not, and what came of effects: all else follows from these."""
        return [
            node
            for node in self.graph.nodes
            if type(node.meta) is TensorMeta
            if (node.op == "placeholder" and type(node.role) is not Token) or _comes_of_effect(node)
        ]


class _Missing:
    """Values of the forward of a joint graph that do not follow from those that are saved."""

    def __init__(
        self,
        graph: Graph,
        numbers: Mapping[Node, int],
        forward: _Forward,
        requires: Callable[[Any], bool],
    ) -> None:
        self.graph = graph
        self.numbers = numbers
        self.forward = forward
        self.differentiable = _differentiable(graph, requires)
        self.parts: dict[Node, list[Node]] = {}
        for node in graph.calls:
            if node.target is GETITEM:
                self.parts.setdefault(node.args[0], []).append(node)

    def values(self, met: Sequence[Node], reads: Reads) -> list[Node]:
        """The values to save where a backward reads those that are `met`, in the forward's order.

        Of what is only turned what it is a view of, too, which is there anyway: a derivative turns
        it back.
        """
        forward = self.forward
        wanted = dict.fromkeys([each for value in met for each in self._parts(value)])
        for node in self._passed(met):
            for value in self._read_by(node, reads):
                wanted.update(dict.fromkeys(self._parts(value)))
        found = forward.turned - forward.written
        safe, computed = self._safe(), list[Node]()
        for value in wanted:
            itself = None if value in safe else forward.values.get(self.numbers[value])
            if itself is None:
                computed.append(value)
            else:
                found.add(itself)
        found.update(self._sources(computed))
        return [node for node in forward.graph.nodes if node in found]

    def _read_by(self, node: Node, reads: Reads) -> Iterable[Node]:
        every = reads is Reads.OPERANDS
        return node.inputs() if every else read_by_formulas(node, self.differentiable)

    def _parts(self, value: Node) -> list[Node]:
        """The value, or those of its results that anything reads where it is of several."""
        if type(value.meta) is not tuple:
            return [value]
        return self.parts.get(value, [])

    def _passed(self, starts: Iterable[Node]) -> Iterator[Node]:
        """The calls that a gradient of these values passes on its way to the inputs."""
        stack = [node for node in starts if node in self.differentiable]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node.op == "call":
                yield node
                for value in node.inputs():
                    if value in self.differentiable and value not in seen:
                        seen.add(value)
                        stack.append(value)

    def _ends_at(self, node: Node) -> bool:
        """Whether a value is not computed again: it is saved, or given, or came of an effect."""
        itself = self.forward.values.get(self.numbers[node])
        is_given = itself is not None and itself.op == "placeholder"
        return self.numbers[node] in self.forward.known or is_given or _comes_of_effect(node)

    def _safe(self) -> set[Node]:
        """The values that are the same when they are computed again from what is saved and from
        inputs: nothing is written, and nothing happens, on the way."""
        forward, safe = self.forward, set[Node]()
        for node in self.graph.nodes[:-1]:
            is_own = self.numbers[node] not in forward.changed and not is_effect(node)
            if self._ends_at(node):
                is_safe = is_own and not _comes_of_effect(node)
            else:
                is_safe = is_own and safe.issuperset(node.inputs())
            if is_safe or self.numbers[node] in forward.known:
                safe.add(node)
        return safe

    def _sources(self, values: Iterable[Node]) -> set[Node]:
        """The values of the forward that these are computed from where they do not follow from what
        is saved: inputs, and what came of effects."""
        forward, found = self.forward, set[Node]()
        stack = list(values)
        seen = set(stack)
        while stack:
            node = stack.pop()
            number = self.numbers[node]
            if not self._ends_at(node):
                fresh = [each for each in dict.fromkeys(node.inputs()) if each not in seen]
                seen.update(fresh)
                stack += fresh
            elif number not in forward.known and number in forward.values:
                found.add(forward.values[number])
        return found


def _comes_of_effect(node: Node) -> bool:
    """Whether a value is a result of an effect; its first one is a token."""
    return node.target is GETITEM and node.args[1] > 0 and is_effect(node.args[0])


def _differentiable(forward: Graph, requires: Callable[[Any], bool]) -> set[Node]:
    found: set[Node] = set()
    for node in forward.nodes:
        if node.op == "placeholder":
            if _may_require(node, requires):
                found.add(node)
        elif node.op == "call" and any(value in found for value in node.inputs()):
            is_part = node.target is GETITEM
            if is_part or _positions(node, found):
                found.add(node)
    return found


def _may_require(node: Node, requires: Callable[[Any], bool]) -> bool:
    role = node.role
    if not node.dtype.is_differentiable:
        return False
    return isinstance(role, (SyntheticBase, Kept, Incoming)) or (is_given(role) and requires(role))


def _positions(node: Node, differentiable: Container[Node]) -> tuple[int, ...]:
    """The operands of a call that gradients go to."""
    vjp = getattr(node.target, "vjp", None)
    if vjp is None:
        return ()
    return tuple([i for i in vjp.positions if _holds(node.args[i], differentiable)])


def _holds(argument: Any, values: Container[Node]) -> bool:
    if type(argument) is tuple:
        return any(type(item) is Node and item in values for item in argument)
    return type(argument) is Node and argument in values


def read_by_formulas(node: Node, differentiable: Container[Node]) -> Iterator[Node]:
    """What the gradient formulas of a call read (OPS-4)."""
    needed = _positions(node, differentiable)
    if not needed:
        return
    operands, results = node.target.vjp.saves(needed)
    for i in operands:
        argument = node.args[i]
        for item in argument if type(argument) is tuple else (argument,):
            if type(item) is Node:
                yield item
    if results:
        yield node


def _extended(
    partition: Partition, found: list[Node], exported: Container[Any], written: Container[Node]
) -> Partition:
    """The partition that saves these values, too; its backward does not read them."""
    forward, backward = partition.forward, partition.backward
    assert backward is not None
    build = Builder(forward.name)
    build.nodes = list(forward.nodes[:-1])
    first, names = len(partition.saved), forward.names
    owners = _owners(forward)
    values: list[Node] = []
    saved: list[SavedValue] = []
    given: list[Node] = []
    roles: list[Role] = [*forward.output_roles]
    for index, node in enumerate(found, first):
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        root = storage_root(node)
        owner = owners.get(root)
        lent = owner is not None and owner not in exported and root not in written
        build.source = node
        is_private = root.op == "call" and owner is None or isinstance(root.role, RNG_INPUTS)
        value = node if is_private or lent else build.emit(RESTRIDE, (node, meta.stride))
        values.append(value)
        role = Saved(index, names[node])
        roles.append(role)
        given.append(Node("placeholder", role, meta=value.meta, role=role))
        saved.append(SavedValue(names[node], meta, owner if lent else None, _REASON, lent))
    build.source = None
    longer = build.finish([*forward.outputs, *values], roles)
    before = [node for node in backward.nodes if isinstance(node.role, Saved)]
    after = [node for node in backward.nodes if not isinstance(node.role, Saved)]
    nodes = (*before, *given, *after)
    return Partition(longer, Graph(nodes, backward.name), (*partition.saved, *saved))


def _owners(forward: Graph) -> dict[Node, Any]:
    """Whose memory a value is that others may write once the call has returned."""
    owners = {node: node.role for node in forward.placeholders if is_given(node.role)}
    for role, value in forward.outputs_with((Output, IntermediateBase, Part)):
        owners.setdefault(storage_root(value), role)
    return owners


# ------------------------------------------------------------------------- graphs fed from values
@attrs.frozen
class SavedOperand:
    """A value that a call has saved."""

    number: int
    meta: TensorMeta
    owner: Any
    """Who may write its memory, which is noticed if its version is asked; None if nobody may.

    Of a part, the outermost wrapper.
    """

    @staticmethod
    def of(number: int, meta: TensorMeta, saved: SavedValue) -> SavedOperand:
        """What a partition says of it; what is lent is copied before it is written (PART-37)."""
        owner: Any = None if saved.lent else saved.owner
        owner = owner.of if isinstance(owner, MutatedInput) else owner
        return SavedOperand(number, meta, owner.whole if isinstance(owner, Part) else owner)


def places_of(saved: Sequence[SavedOperand], asked: Container[Any]) -> dict[int, int]:
    """For each number the place of a value.

    Of values that are one, and lie in several places, it is one that nobody may write, or whose
    owner is `asked` for its version.
    """
    found: dict[int, int] = {}
    for place, held in enumerate(saved):
        if held.number not in found or held.owner is None or held.owner in asked:
            found[held.number] = place
    return found


def following(
    graph: Graph,
    numbers: dict[Node, int],
    places: Mapping[int, int],
    arriving: Container[Any],
) -> Graph:
    """The graph with those of its results that follow from what is saved and what arrives."""
    found: set[Node] = set()
    for node in graph.nodes[:-1]:
        is_kept = numbers[node] in places and type(node.meta) is not tuple
        if node.op == "placeholder":
            follows = node.role in arriving
        else:
            follows = not is_effect(node) and found.issuperset(node.inputs())
        if is_kept or follows:
            found.add(node)
    pairs = zip(graph.output_roles, graph.outputs, strict=True)
    kept = [(role, value) for role, value in pairs if value in found]
    closing = output_node([value for _, value in kept], [role for role, _ in kept])
    return Graph((*graph.nodes[:-1], closing), graph.name)


def fed(
    graph: Graph,
    numbers: dict[Node, int],
    saved: Sequence[SavedOperand],
    places: Mapping[int, int],
) -> Graph:
    """The graph with `Kept` inputs in the place of values that have the numbers of `places`.

    What is left of its own inputs is read where passes look at more than is needed (`closed`).
    """
    build = Builder(graph.name)
    new: dict[Node, Node] = {}
    given = [
        build.add(Node("placeholder", Kept(index), meta=held.meta, role=Kept(index)))
        for index, held in enumerate(saved)
    ]
    kept = {number: given[place] for number, place in places.items()}
    inputs = [node for node in graph.placeholders if numbers[node] not in kept]
    for node in dict.fromkeys([*inputs, *graph.nodes[:-1]]):
        found = kept.get(numbers[node])
        if found is not None and type(node.meta) is not tuple:
            build.source = node
            new[node] = _laid_out(build, found, node)
        elif node.op != "call":
            new[node] = build.add(node)
        else:
            args = map_nodes(node.args, new.__getitem__)
            new[node] = build.add(node if args is node.args else node.with_args(args, node.meta))
    build.source = None
    pairs = [
        (role, new[value] if type(value) is Node else value)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if isinstance(role, (Output, Part, Gradient))
    ]
    return build.finish([value for _, value in pairs], [role for role, _ in pairs])


def closed(graph: Graph, arriving: Container[Any]) -> Graph:
    """A graph that was fed, with results in memory of their own.

    Of its inputs those with a role in `arriving` are left, and `Kept` ones. GraphError where
    another is read.
    """
    build = Builder(graph.name)
    build.nodes = list(graph.nodes[:-1])
    values = [
        _own_memory(build, role, value) if type(value) is Node else value
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
    ]
    return _without_unread(build.finish(values, graph.output_roles), arriving)


def _own_memory(build: Builder, role: Role, value: Node) -> Node:
    """A result is never memory of a saved value or of a gradient that arrives (SAV-1)."""
    is_own = isinstance(role, Gradient) or storage_root(value).op == "call"
    return value if is_own else build.emit(CLONE, (value,))


def _laid_out(build: Builder, value: Node, like: Node) -> Node:
    meta: TensorMeta = like.meta  # type: ignore[assignment]
    return value if value.meta is meta else build.emit(RESTRIDE, (value, meta.stride))


def _read(graph: Graph) -> set[Node]:
    """The values that results are computed from."""
    found: set[Node] = {value for value in graph.outputs if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in found:
            found.update(node.inputs())
    return found


def _without_unread(graph: Graph, arriving: Container[Any]) -> Graph:
    """The graph without dead code: what happened in the forward does not happen again."""
    live = _read(graph)
    nodes = []
    for node in graph.nodes:
        stays = node.op == "output" or isinstance(node.role, Kept) or node.role in arriving
        if node in live and node.op == "placeholder" and not stays:
            raise noted(
                GraphError(
                    f"{graph.name}: a derivative needs {node.role}, which was not saved, expected "
                    "one that follows from what is saved"
                ),
                "A pass or a partitioner has changed what the forward computes. (DBL-2)",
            )
        if node in live or stays:
            nodes.append(node)
    return Graph(tuple(nodes), graph.name)
