"""`check_partitioner`: the laws of a partitioner, a function from a joint graph to a `Partition`.

H1  it partitions every joint graph; the halves have all of its results and gradients, None included
H2  it does not change its input
H3  both halves are valid graphs and write nothing
H4  the halves, one after the other, compute the joint graph, bit for bit
H5  the backward reads every saved value
H6  each saved value has a reason, and its owner is the tensor whose memory it shares
H7  the forward computes no node of the backward, except to save it
H8  results share memory only where they do in the joint graph
H9  the same graph gives the same partition
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import RNG_INPUTS, IntermediateBase, Output, Part, Role, Saved
from aotlite.ir.graph.verify import verify
from aotlite.ir.run.interpreter import ArrayValue, array_value
from aotlite.ir.serialize import dumps
from aotlite.partition import Partition
from aotlite.pipeline.user_code import call_partitioner
from aotlite.testing.laws.errors import Checked, broken, running
from aotlite.testing.laws.graphs import runs
from aotlite.testing.laws.graphs.corpus import GraphCase, joints
from aotlite.testing.laws.graphs.passes import GraphLaw, cases_of
from aotlite.testing.laws.graphs.runs import Given, copied, given, picture, same_results, shares

__all__ = ["PARTITIONER_LAWS", "check_partitioner"]

Partitioner = Callable[[Graph], Partition]


def check_partitioner(
    partition: Partitioner, graphs: Iterable[Graph | GraphCase] | None = None
) -> Checked:
    """Checks a partitioner, and returns the laws that it keeps. Raises LawError for a broken one.

    `graphs` are joint graphs, as stage 7 gives them; those of a corpus without.

    >>> from aotlite.partition import default_partition
    >>> from aotlite.testing import laws
    >>> print(laws.check_partitioner(default_partition))
    partitioner 'default_partition' obeys H1, H2, H3, H4, H5, H6, H7, H8, H9 on 28 cases
    """
    cases = joints() if graphs is None else cases_of(graphs)
    subject = runs.title("partitioner", partition)
    for case in map(copied, cases):
        for law in PARTITIONER_LAWS:
            with running(law.name, law.claim, f"{subject} on {case.name}", case):
                law.check(partition, case)
    return Checked(subject, tuple(law.name for law in PARTITIONER_LAWS), len(cases))


# ------------------------------------------------------------------------------------------ laws
def _takes(partition: Partitioner, case: GraphCase) -> None:
    try:
        call_partitioner(partition, copied(case).graph)
    except ArgumentError as error:
        notes = getattr(error, "__notes__", ())
        raise broken(str(error), *notes, _shown("the joint graph", case.graph)) from error


def _leaves(partition: Partitioner, case: GraphCase) -> None:
    before = picture(case.graph)
    partition(case.graph)
    if picture(case.graph) != before:
        raise broken("it changes the graph that it is given, expected two new ones")


def _gives_valid(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    for half in _halves(made):
        verify(half, functional=True, stage=half.name)


def _computes_the_joint(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    for inputs in given(case):
        joint = runs.run(case.graph, inputs.fresh())
        halves = {**_forward(case.graph, made, inputs), **_backward(case.graph, made, inputs)}
        got = [halves.get(role) for role in case.graph.output_roles]
        wrong = same_results(case.graph.output_roles, joint.results, got)
        if wrong is not None:
            raise broken(str(wrong), *_pictures(case.graph, made), f"on {inputs.shown}")


def _forward(joint: Graph, made: Partition, inputs: Given) -> dict[Role, Any]:
    """The results of the forward by role, with the saved values."""
    return _by_role(made.forward, _by_input(joint, inputs))


def _backward(joint: Graph, made: Partition, inputs: Given) -> dict[Role, object]:
    if made.backward is None:
        return {}
    saved = {r: v for r, v in _forward(joint, made, inputs).items() if isinstance(r, Saved)}
    return _by_role(made.backward, {**_by_input(joint, inputs), **saved})


def _by_input(joint: Graph, inputs: Given) -> dict[Any, ArrayValue]:
    return {n.role: v for n, v in zip(joint.placeholders, inputs.fresh(), strict=True)}


def _by_role(graph: Graph, values: dict[Any, ArrayValue]) -> dict[Role, object]:
    """Runs a half; returns its results by role. Inputs get the metas of its placeholders."""
    ordered = [_seen_as(values[node.role], node.meta) for node in graph.placeholders]
    ran = runs.run(graph, ordered)
    return dict(zip(graph.output_roles, ran.results, strict=True))


def _seen_as(value: ArrayValue, meta: Any) -> ArrayValue:
    return value if value.meta is meta else array_value(value.array, meta)


def _reads_what_is_saved(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    if made.backward is None:
        return
    for node in made.backward.placeholders:
        if isinstance(node.role, Saved) and not made.backward.users[node]:
            name = made.saved[node.role.index].name
            raise broken(
                f"the backward does not read {name}, which is saved, expected to save what is read",
                *_pictures(case.graph, made),
            )


def _says_whose_memory(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    for value in made.saved:
        if not value.reason:
            raise broken(f"{value.name} is saved for the reason '', expected one to read")
    for inputs in given(case):
        values = _by_input(case.graph, inputs)
        forward = [values[node.role] for node in made.forward.placeholders]
        results = runs.run(made.forward, forward).results
        found = dict(zip(made.forward.output_roles, results, strict=True))
        callers = values | {r: v for r, v in found.items() if isinstance(v, ArrayValue)}
        for index, saved in enumerate(made.saved):
            _check_owner(saved, found[Saved(index)], callers)


def _check_owner(saved: Any, value: ArrayValue, callers: dict[object, ArrayValue]) -> None:
    owners = [r for r, v in callers.items() if not isinstance(r, Saved) and shares(value, v)]
    owner = saved.owner
    if owner is None:  # a seed and an offset are made for each call, and belong to nobody
        owners = [role for role in owners if not isinstance(role, RNG_INPUTS)]
    if value.meta.numel and (owner not in owners if owner is not None else bool(owners)):
        got = "nobody's memory" if owner is None else f"memory of {owner}"
        said = ", ".join(map(str, owners)) or "nobody's"
        raise broken(f"{saved.name} is saved as {got}, expected {said}: that is where it lies")


def _computes_no_backward(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    needed: set[Node] = {v for _, v in made.forward.outputs_with(Saved)}
    for node in reversed(made.forward.nodes):
        if node in needed:
            needed.update(node.inputs())
        elif node.op == "call" and node.phase is Phase.BACKWARD:
            raise broken(
                f"the forward computes {made.forward.names[node]}, which is of the backward and "
                "not saved, expected no node of the backward that is not saved",
                *_pictures(case.graph, made),
            )


def _keeps_memory(partition: Partitioner, case: GraphCase) -> None:
    made = partition(case.graph)
    for inputs in given(case):
        joint = runs.run(case.graph, inputs.fresh())
        before: dict[Any, Any] = dict(zip(case.graph.output_roles, joint.results, strict=True))
        before |= {n.role: v for n, v in zip(case.graph.placeholders, joint.inputs, strict=True)}
        values = _by_input(case.graph, inputs)
        forward = runs.run(made.forward, [values[n.role] for n in made.forward.placeholders])
        after = {**values, **dict(zip(made.forward.output_roles, forward.results, strict=True))}
        _check_shared(made, before, after)


def _check_shared(made: Partition, before: dict[Any, Any], after: dict[Any, Any]) -> None:
    kinds = (Output, IntermediateBase, Part)
    roles = [role for role in made.forward.output_roles if isinstance(role, kinds)]
    inputs: list[Any] = [node.role for node in made.forward.placeholders]
    for k, role in enumerate(roles):
        for other in (*inputs, *roles[:k]):
            pairs = [(values[role], values[other]) for values in (after, before)]
            now, then = [_both_share(a, b) for a, b in pairs]
            if now and not then:
                raise broken(f"{role} shares memory with {other}, expected as in the joint graph")


def _both_share(a: object, b: object) -> bool:
    return isinstance(a, ArrayValue) and isinstance(b, ArrayValue) and shares(a, b)


def _is_deterministic(partition: Partitioner, case: GraphCase) -> None:
    first, second = partition(case.graph), partition(case.graph)
    texts = [[dumps(half) for half in _halves(each)] for each in (first, second)]
    records = [repr(each.saved) for each in (first, second)]
    if texts[0] != texts[1] or records[0] != records[1]:
        notes = (*_pictures(case.graph, first), *_pictures(case.graph, second)[1:])
        raise broken("it gives two partitions of the same graph, expected one", *notes)


def _halves(made: Partition) -> list[Graph]:
    return [made.forward] if made.backward is None else [made.forward, made.backward]


def _pictures(joint: Graph, made: Partition) -> list[str]:
    names = ("the joint graph", "the forward", "the backward")
    return [_shown(*pair) for pair in zip(names, [joint, *_halves(made)], strict=False)]


def _shown(what: str, graph: Graph) -> str:
    return f"{what}:\n{graph.code}"


PARTITIONER_LAWS: tuple[GraphLaw, ...] = (
    GraphLaw("H1", "it partitions every joint graph, and loses no result", _takes),
    GraphLaw("H2", "it does not change its input", _leaves),
    GraphLaw("H3", "both halves are valid and write nothing", _gives_valid),
    GraphLaw("H4", "forward and backward compute the joint graph", _computes_the_joint),
    GraphLaw("H5", "the backward reads every saved value", _reads_what_is_saved),
    GraphLaw("H6", "a saved value has the right owner, and a reason", _says_whose_memory),
    GraphLaw("H7", "the forward computes no node of the backward", _computes_no_backward),
    GraphLaw("H8", "results share memory only where they do in the joint graph", _keeps_memory),
    GraphLaw("H9", "the same graph gives the same partition", _is_deterministic),
)
"""The laws of partitioners."""
