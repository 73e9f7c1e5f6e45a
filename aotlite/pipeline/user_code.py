"""Calls the decompositions, passes and partitioners that users supply, and checks their results.

Each must keep the graph's inputs and outputs. An error names the function that broke that.
Rules: PIP-3, PART-8. Spec: `specs/pipeline.md`, `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.eager.base.modes import modes_kept
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.effect_chains import same_effects
from aotlite.ir.graph.role import (
    FROM_BACKWARD,
    OF_BACKWARD,
    Gradient,
    MutatedInput,
    Rewritten,
    Role,
    Saved,
)
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.pipeline.request import Compilation
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.s7_simplify.decompositions import decompose

_HINT = "A partitioner returns aotlite.partition.cut(graph, saved), or keeps all outputs."


def pass_name(function: Callable[..., object]) -> str:
    """The name of a pass in messages and dumps."""
    return f"pass {getattr(function, '__name__', function)!r}"


def apply_pass(function: Callable[[Graph], Graph], graph: Graph) -> Graph:
    """The graph that a pass returns. Raises ArgumentError if its inputs or outputs are others."""
    name = pass_name(function)
    result = _called(name, function, graph, "a Graph")
    if not isinstance(result, Graph):
        raise ArgumentError(f"{name}: it returned {result!r}, expected a Graph")
    if result.output_roles != graph.output_roles:
        raise ArgumentError(f"{name}: it changed the roles of the outputs, expected the same")
    if _inputs(result.placeholders) != _inputs(graph.placeholders):
        raise ArgumentError(f"{name}: it changed the inputs, expected the same")
    _check_results(name, graph.output_roles, result.outputs, graph.outputs)
    same_effects(name, graph, result)
    return result


def decomposed(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with the decompositions of the options applied.

    With `verify=True` each is first applied alone, so that a wrong one is named.
    """
    table, observers = compilation.options.decompositions, compilation.observers
    if not table:
        return graph
    if observers.runner is not None:
        for op in table:
            alone = decompose(graph, {op: table[op]})
            observers.compare(f"decomposition of {op.name!r}", alone, exact=False)
    result = decompose(graph, table)
    observers.check("7 decompose", result, functional=True)
    observers.compare("7 decompose", result, exact=False)
    return result


def applied(each: Callable[[Graph], Graph], graph: Graph, compilation: Compilation) -> Graph:
    """The graph that a pass returns, shown, verified and compared as those of stages are."""
    result = apply_pass(each, graph)
    compilation.observers.check(pass_name(each), result, functional=True)
    compilation.observers.compare(pass_name(each), result, exact=False)
    return result


def with_passes(graph: Graph, compilation: Compilation) -> Graph:
    """The graph behind the users' passes, in their order."""
    for each in compilation.options.passes:
        graph = applied(each, graph, compilation)
    return graph


def call_partitioner(function: Callable[[Graph], object], graph: Graph) -> Partition:
    """The partition that a partitioner returns; ArgumentError if it does not partition the graph.

    PART-8: the halves together give every result and gradient, from the inputs and tangents.
    """
    name = f"partition: {getattr(function, '__name__', function)!r}"
    partition = _called(name, function, graph, "a Partition", "")
    if not isinstance(partition, Partition) or not _is_whole(partition):
        raise ArgumentError(f"{name} returned {partition!r}, expected a Partition")
    _check_nothing_lost(graph, partition)
    _check_forward(graph, partition)
    if partition.backward is not None:
        _check_backward(graph, partition, partition.backward)
    same_effects("partition", graph, *_halves(partition))
    return partition


def _called(
    name: str, function: Callable[..., object], graph: Graph, expected: str, it: str = ": it"
) -> Any:
    try:
        with modes_kept():
            return function(graph)
    except AotliteError as error:
        error.add_note(f"raised by {name.removeprefix('partition: ')}")
        raise
    except Exception as error:
        raise noted(
            ArgumentError(f"{name}{it} raised {type(error).__name__}, expected {expected}"),
            str(error),
        ) from error


# ------------------------------------------------------------------------------------- results
def _inputs(placeholders: Sequence[Node]) -> list[object]:
    return [(node.role, node.meta) for node in placeholders]


def _check_results(
    name: str, roles: Sequence[Role], got: Sequence[object], expected: Sequence[object]
) -> None:
    """Raises where an output has another shape, dtype or device; or other strides that users see.

    A literal output has to be the same literal.
    """
    for role, mine, its in zip(roles, expected, got, strict=True):
        if not _fits(role, its, mine):
            raise ArgumentError(
                f"{name}: {role} is {_shown(its)}, expected {_shown(mine)} as in the graph it took"
            )


def _fits(role: Role, found: object, wanted: object) -> bool:
    """Whether an output is as wanted for all values of symbols: `max(1, s0)` is `s0` where the
    graph assumes that there are elements."""
    if type(found) is not Node or type(wanted) is not Node:
        truth: object = found is wanted or found == wanted
        return truth is True
    a, b = found.meta, wanted.meta
    is_free = isinstance(role, (Gradient, MutatedInput, Rewritten))  # copied or summed: unseen
    if is_free and isinstance(a, TensorMeta) and isinstance(b, TensorMeta) and a.ndim == b.ndim:
        b = b.with_stride(a.stride)
    return always_same_meta(a, b)


def _shown(value: object) -> str:
    return str(value.meta if type(value) is Node else value)


# ----------------------------------------------------------------------------------- partitions
def _is_whole(partition: Partition) -> bool:
    return (
        isinstance(partition.forward, Graph)
        and (partition.backward is None or isinstance(partition.backward, Graph))
        and isinstance(partition.saved, tuple)
        and all(isinstance(value, SavedValue) for value in partition.saved)
    )


def _halves(partition: Partition) -> list[Graph]:
    return [each for each in (partition.forward, partition.backward) if each is not None]


def _check_nothing_lost(graph: Graph, partition: Partition) -> None:
    given = set(partition.forward.output_roles)
    if partition.backward is not None:
        given.update(partition.backward.output_roles)
    for role in graph.output_roles:
        if role not in given:
            raise noted(
                ArgumentError(
                    f"partition: the output {role} of the joint graph is in neither half, expected "
                    "every output to be in one"
                ),
                _HINT,
            )


def _check_forward(graph: Graph, partition: Partition) -> None:
    forward = partition.forward
    inputs = [node for node in graph.placeholders if type(node.role) not in OF_BACKWARD]
    if _inputs(forward.placeholders) != _inputs(inputs):
        raise _wrong("inputs of the forward", forward.placeholders, inputs)
    roles = [role for role in graph.output_roles if type(role) not in FROM_BACKWARD]
    expected = [*roles, *[Saved(i) for i in range(len(partition.saved))]]
    if list(forward.output_roles) != expected:
        raise _wrong("results of the forward", forward.output_roles, expected)
    wanted = dict(zip(graph.output_roles, graph.outputs, strict=True))
    results = [*[wanted[role] for role in roles], *[None for _ in partition.saved]]
    found = [*forward.outputs[: len(roles)], *[None for _ in partition.saved]]
    _check_results("partition", forward.output_roles, found, results)
    for value, kept in zip(partition.saved, forward.outputs[len(roles) :], strict=True):
        if getattr(kept, "meta", None) != value.meta:
            raise ArgumentError(
                f"partition: {value.name} is saved as {value.meta}, expected {_shown(kept)} as in "
                "the forward"
            )


def _check_backward(graph: Graph, partition: Partition, backward: Graph) -> None:
    saved: list[object] = [(Saved(i), value.meta) for i, value in enumerate(partition.saved)]
    tangents = [node for node in graph.placeholders if type(node.role) in OF_BACKWARD]
    expected = [*saved, *_inputs(tangents)]
    if _inputs(backward.placeholders) != expected:
        raise _wrong("inputs of the backward", backward.placeholders, [*saved, *tangents])
    gradients = graph.outputs_with(tuple(FROM_BACKWARD))
    roles = [role for role, _ in gradients]
    if list(backward.output_roles) != roles:
        raise _wrong("results of the backward", backward.output_roles, roles)
    _check_results("partition", roles, backward.outputs, [value for _, value in gradients])


def _wrong(what: str, got: Sequence[object], expected: Sequence[object]) -> ArgumentError:
    texts = [", ".join(_role_text(each) for each in values) for values in (got, expected)]
    return noted(
        ArgumentError(f"partition: the {what} are {texts[0]}, expected {texts[1]}, of equal metas"),
        _HINT,
    )


def _role_text(value: object) -> str:
    return str(value.role if type(value) is Node else value[0] if type(value) is tuple else value)
