"""Saves of a forward for double backward, and joint graphs of later orders fed from saves (DBL-2).

`with_double_backward_saves` adds saved values to a partition: forward values that a double
backward may read, and that cannot be computed from the values saved already. Mostly there are none.
`fed` rewrites the joint graph of a later order: a value that was saved becomes an input, instead of
being recomputed from the function's inputs. Values of the two graphs are matched by value numbers
(`shared/value_numbering.py`). Spec: `specs/higher_orders.md`.

Note [Saves of a double backward]
    def f(x): y = x.exp(); return y.sin()         # backward: dx = dy * cos(y) * y; saved: y
The double backward differentiates dx by y, and then y by x. The first part reads y; the second one
goes back through `exp`, whose formula reads y too: nothing more is saved. With `y = x * w` the way
back through `mul` reads x and w. These are inputs, and given: nothing is saved, unless the caller
may write them before the backward. So the search starts where the backward reads forward values,
follows the gradients' way to the inputs, and collects what the formulas on it read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
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
    is_number,
)
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.shared.formula_reads import (
    operands_with_gradient,
    read_by_formulas,
    results_of_calls,
)
from aotlite.stages.shared.value_numbering import ValueNumbering, are_known

_REASON = "derivatives of the backward read it, or what it is computed from"


MayRead = Callable[[Set[Node], Any], bool]
"""(The saved values, the role of an input) -> whether derivatives may read it besides them."""


# ------------------------------------------------------------------------------ additional saves
class Reads(Enum):
    """Which forward values a double backward may read, of the ops that gradients pass."""

    FORMULAS = 1
    """The operands and results that the ops' gradient formulas declare."""
    OPERANDS = 2
    """All operands: users' Python runs in the backward, or passes replaced the recorded ops."""
    ANYTHING = 3
    """Any value computed from the inputs: wrappers' classes compute gradients."""


def with_double_backward_saves(
    partition: Partition,
    unsimplified: Graph,
    numbering: ValueNumbering,
    given: Mapping[Role, int],
    requires: Callable[[object], bool],
    exported: Container[object] = (),
    *,
    reads: Reads,
    may_read: MayRead = lambda saved, role: True,
) -> Partition:
    """The partition whose forward also saves the values that a double backward may read.

    `unsimplified` is the joint graph before stage 7 dropped gradients that are zeros, and before it
    was fed. `given` has the value numbers of the forward's inputs. `requires` answers of the role
    of an input whether it requires grad. Inputs in `exported` may be written without being noticed.
    With `Reads.ANYTHING`, `may_read` answers of an input whether what is read, and is not among the
    saved values, may depend on it.
    Note [Saves of a double backward].
    """
    if partition.backward is None:
        return partition
    if reads is Reads.ANYTHING:
        forward = _Forward(partition.forward, numbering, given)
        saved = forward.saved
        wanted = [n for n in forward.inputs() if n.op != "placeholder" or may_read(saved, n.role)]
    else:
        half, met = _halves(unsimplified)
        read = _read_by_derivatives(half, met, reads, requires)
        saved = {value for _, value in partition.forward.outputs_with(Saved)}
        if are_known(read, saved, partition.forward):
            return partition
        forward = _Forward(partition.forward, numbering, given)
        wanted = _Missing(half, numbering.of(half, given), forward).values(read)
    found = [node for node in wanted if node not in forward.saved]
    return _extended(partition, found, exported, forward.written) if found else partition


def _halves(graph: Graph) -> tuple[Graph, list[Node]]:
    """The graph of nodes that depend on no tangent, and those of them that the others read.

    Phases do not count: stage 7 may have merged nodes of both halves.
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


def _read_by_derivatives(
    graph: Graph, met: Sequence[Node], reads: Reads, requires: Callable[[object], bool]
) -> list[Node]:
    """The values that the backward and its derivatives read; `met` are those of the backward.

    Of a call with several results those that are used.
    """
    differentiable = _differentiable(graph, requires)
    parts = results_of_calls(graph)
    found = dict.fromkeys(met)
    for node in _passed(met, differentiable):
        if reads is Reads.OPERANDS:
            found.update(dict.fromkeys(node.inputs()))
        else:
            found.update(dict.fromkeys(read_by_formulas(node, differentiable, parts)))
    several = [parts.get(v, []) if type(v.meta) is tuple else [v] for v in found]
    return list(dict.fromkeys([each for values in several for each in values]))


def _passed(starts: Iterable[Node], differentiable: Container[Node]) -> Iterator[Node]:
    """The calls that a gradient of these values passes on its way to the inputs."""
    stack = [node for node in starts if node in differentiable]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.op == "call":
            yield node
            for value in node.inputs():
                if value in differentiable and value not in seen:
                    seen.add(value)
                    stack.append(value)


class _Forward:
    """The forward of a partition, with its nodes by value number."""

    def __init__(self, graph: Graph, numbering: ValueNumbering, given: Mapping[Role, int]) -> None:
        self.graph = graph
        numbers = numbering.of(graph, given)
        self.saved = {value for _, value in graph.outputs_with(Saved)}
        self.known = {numbers[value] for value in self.saved}
        """The value numbers of the saved values."""
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
        """The bases of saved values that are transposes or reshapes of them."""

    def inputs(self) -> list[Node]:
        """The inputs, and the results of effects: all other values are computed from these."""
        return [
            node
            for node in self.graph.nodes
            if type(node.meta) is TensorMeta
            if (node.op == "placeholder" and type(node.role) is not Token) or _comes_of_effect(node)
        ]


class _Missing:
    """Finds forward values that a double backward reads, and cannot compute from saved ones."""

    def __init__(
        self,
        graph: Graph,
        numbers: Mapping[Node, int],
        forward: _Forward,
    ) -> None:
        self.graph = graph
        self.numbers = numbers
        self.forward = forward

    def values(self, wanted: Sequence[Node]) -> list[Node]:
        """The values to save so that these can be computed, in the forward's order.

        Of a saved transpose its base is saved too: it is in memory, and a derivative transposes
        back.
        """
        forward = self.forward
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

    def _ends_at(self, node: Node) -> bool:
        """Whether a value is not recomputed: it is saved, an input, or the result of an effect."""
        itself = self.forward.values.get(self.numbers[node])
        is_given = itself is not None and itself.op == "placeholder"
        return self.numbers[node] in self.forward.known or is_given or _comes_of_effect(node)

    def _safe(self) -> set[Node]:
        """The values that can be recomputed from saved values and unwritten inputs, or are saved.

        On the way there is no written input, and no effect.
        """
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
        """The inputs and results of effects, not saved yet, that these values depend on."""
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
    """Whether a value is a result of an effect (result 0 is the token)."""
    return node.target is GETITEM and node.args[1] > 0 and is_effect(node.args[0])


def _differentiable(forward: Graph, requires: Callable[[object], bool]) -> set[Node]:
    found: set[Node] = set()
    for node in forward.nodes:
        if node.op == "placeholder":
            if _may_require(node, requires):
                found.add(node)
        elif node.op == "call" and any(value in found for value in node.inputs()):
            is_part = node.target is GETITEM
            if is_part or operands_with_gradient(node, found):
                found.add(node)
    return found


def _may_require(node: Node, requires: Callable[[object], bool]) -> bool:
    role = node.role
    if not node.dtype.is_differentiable:
        return False
    return isinstance(role, (SyntheticBase, Kept, Incoming)) or (is_given(role) and requires(role))


def _extended(
    partition: Partition, found: list[Node], exported: Container[object], written: Container[Node]
) -> Partition:
    """The partition that also saves these values; its backward takes them without reading them."""
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
        copied = owner is not None and owner not in exported and root not in written
        build.source = node
        is_private = root.op == "call" and owner is None or isinstance(root.role, RNG_INPUTS)
        value = node if is_private or copied else build.emit(RESTRIDE, (node, meta.stride))
        values.append(value)
        role = Saved(index, names[node], is_number(node.role))
        roles.append(role)
        given.append(Node("placeholder", role, meta=value.meta, role=role))
        saved.append(SavedValue(names[node], meta, owner if copied else None, _REASON, copied))
    build.source = None
    longer = build.finish([*forward.outputs, *values], roles)
    before = [node for node in backward.nodes if isinstance(node.role, Saved)]
    after = [node for node in backward.nodes if not isinstance(node.role, Saved)]
    nodes = (*before, *given, *after)
    return Partition(longer, Graph(nodes, backward.name), (*partition.saved, *saved))


def _owners(forward: Graph) -> dict[Node, Any]:
    """The inputs and results that own memory which the caller may write after the call."""
    owners = {node: node.role for node in forward.placeholders if is_given(node.role)}
    for role, value in forward.outputs_with((Output, IntermediateBase, Part)):
        owners.setdefault(storage_root(value), role)
    return owners


# ------------------------------------------------------------------------- graphs fed from values
@attrs.frozen
class SavedOperand:
    """A saved value of a call, by its value number."""

    number: int
    meta: TensorMeta
    owner: Role
    """The input or result on whose memory it is: writes to that show in its version counter. None
    if nobody else can write it. Of a part, the outermost wrapper."""
    is_number: bool = False
    """It is made of float arguments (DYN-27)."""

    @staticmethod
    def of(number: int, meta: TensorMeta, saved: SavedValue, role: object) -> SavedOperand:
        """The operand of a partition's saved value. One that is copied on write has
        no owner (PART-37)."""
        owner: Any = None if saved.copied_on_write else saved.owner
        owner = owner.of if isinstance(owner, MutatedInput) else owner
        owner = owner.whole if isinstance(owner, Part) else owner
        return SavedOperand(number, meta, owner, is_number(role))


def places_of(saved: Sequence[SavedOperand], asked: Container[Role]) -> dict[int, int]:
    """For each value number an index among `saved`.

    Of equal values one is preferred that nobody can write, or whose owner's version is checked
    (`asked`).
    """
    found: dict[int, int] = {}
    for place, held in enumerate(saved):
        if held.number not in found or held.owner is None or held.owner in asked:
            found[held.number] = place
    return found


def unwritten_places(
    graph: Graph,
    numbers: dict[Node, int],
    places: Mapping[int, int],
    unchecked: Container[int],
    arriving: Container[object],
) -> dict[int, int]:
    """The places without the `unchecked` ones of values that the graph computes from the others.

    An unchecked place is memory that the caller may write, and whose version nobody checks for the
    gradients that arrive: it may hold another value by then. `arriving` are the roles of tangents.
    """
    known: set[Node] = set()
    needed: set[int] = set()
    for node in graph.nodes[:-1]:
        number = numbers[node]
        place = None if type(node.meta) is tuple else places.get(number)
        if node.op == "placeholder":
            follows = node.role in arriving
        else:
            follows = not is_effect(node) and known.issuperset(node.inputs())
        if follows or (place is not None and place not in unchecked):
            known.add(node)
        else:
            needed.add(number)
    return {k: v for k, v in places.items() if v not in unchecked or k in needed}


def fed(
    graph: Graph,
    numbers: dict[Node, int],
    saved: Sequence[SavedOperand],
    places: Mapping[int, int],
) -> Graph:
    """The graph with `Kept` inputs in place of the nodes whose value numbers are in `places`.

    Its own inputs stay until dead code is removed: `closed` checks that none is read.
    """
    build = Builder(graph.name)
    new: dict[Node, Node] = {}
    roles = [Kept(index, held.is_number) for index, held in enumerate(saved)]
    given = [
        build.add(Node("placeholder", role, meta=held.meta, role=role))
        for role, held in zip(roles, saved, strict=True)
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


def closed(graph: Graph, arriving: Container[Role]) -> Graph:
    """A fed graph after dead code elimination, with outputs on memory of their own.

    Its inputs are `Kept` ones and those with a role in `arriving`. GraphError if another is read.
    """
    build = Builder(graph.name)
    build.nodes = list(graph.nodes[:-1])
    values = [
        _own_memory(build, role, value) if type(value) is Node else value
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
    ]
    return _without_unread(build.finish(values, graph.output_roles), arriving)


def _own_memory(build: Builder, role: Role, value: Node) -> Node:
    """A copy of an output that is a saved value or a tangent: the caller may write it (SAV-1)."""
    is_own = isinstance(role, Gradient) or storage_root(value).op == "call"
    return value if is_own else build.emit(CLONE, (value,))


def _laid_out(build: Builder, value: Node, like: Node) -> Node:
    meta: TensorMeta = like.meta  # type: ignore[assignment]
    return value if value.meta is meta else build.emit(RESTRIDE, (value, meta.stride))


def _read(graph: Graph) -> set[Node]:
    """The nodes on which outputs depend."""
    found: set[Node] = {value for value in graph.outputs if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in found:
            found.update(node.inputs())
    return found


def _without_unread(graph: Graph, arriving: Container[Role]) -> Graph:
    """The graph without dead code and without effects of the forward, which must not run again."""
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
