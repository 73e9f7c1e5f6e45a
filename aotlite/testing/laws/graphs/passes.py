"""`check_pass`: the laws of a pass, a function from a graph to a graph.

G1  it returns a graph for every graph
G2  it does not change its input
G3  its result is valid, and writes nothing if its input writes nothing
G4  inputs and results keep their roles and metas; nodes that need tangents stay in the backward
G5  results have the same values, bit for bit
G6  results share the same memory, and the same inputs are written
G7  the same graph gives the same result
G8  a second run changes nothing (checked with `idempotent=True`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs
import numpy as np

from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import Gradient, IntermediateBase, Output, Part, Tangent
from aotlite.ir.graph.verify import verify
from aotlite.ir.serialize import dumps
from aotlite.pipeline.checks import verification
from aotlite.pipeline.checks.verification import Drawing, Noise
from aotlite.pipeline.user_code import apply_pass
from aotlite.testing.laws.errors import Checked, broken, running
from aotlite.testing.laws.graphs import runs
from aotlite.testing.laws.graphs.corpus import IMPERATIVE, GraphCase, graphs
from aotlite.testing.laws.graphs.runs import (
    copied,
    given,
    is_functional,
    picture,
    same_results,
    special,
)
from aotlite.testing.laws.ops.runs import same_bits

__all__ = ["PASS_LAWS", "GraphLaw", "cases_of", "check_pass"]

Pass = Callable[[Graph], Graph]


@attrs.frozen
class GraphLaw:
    """A named law of functions of graphs: `check(subject, case)` raises if it is broken."""

    name: str
    claim: str
    check: Callable[[Any, GraphCase], None]


def check_pass(
    pass_: Pass,
    graphs: Iterable[Graph | GraphCase] | None = None,
    *,
    idempotent: bool = False,
    imperative: bool = False,
    exact: bool = True,
) -> Checked:
    """Checks a pass, and returns the laws that it keeps. Raises LawError for the first broken law.

    Without `graphs` it runs on those of a corpus that write nothing, as passes of `compile` do;
    `imperative` adds those that hold views and writes. Values are compared bit for bit, on numbers
    with which sums and products are exact: reordering these is no difference. Where `exact` is
    False they may differ as far as rounding noise behind every op moves them (VER-14).

    >>> from aotlite.testing import laws
    >>> from aotlite.ir.run.transform import Transformer
    >>> print(laws.check_pass(lambda graph: Transformer(graph).transform(), idempotent=True))
    pass '<lambda>' obeys G1, G2, G3, G4, G5, G6, G7, G8 on 112 cases
    """
    cases = cases_of(graphs, imperative=imperative)
    chosen = [law for law in PASS_LAWS if law.name != "G8" or idempotent]
    if not exact:
        chosen = [_UP_TO_ROUNDING if law.name == "G5" else law for law in chosen]
    subject = runs.title("pass", pass_)
    for case in map(copied, cases):
        for law in chosen:
            with running(law.name, law.claim, f"{subject} on {case.name}", case):
                law.check(pass_, case)
    return Checked(subject, tuple(law.name for law in chosen), len(cases))


def cases_of(
    given_: Iterable[Graph | GraphCase] | None, *, imperative: bool = False
) -> tuple[GraphCase, ...]:
    """Returns the cases of a user's graphs, the smallest first; those of the corpus for None."""
    if given_ is None:
        functional = graphs()
        return functional if not imperative else (*functional, *graphs(*IMPERATIVE))
    cases = [each if isinstance(each, GraphCase) else _case(each) for each in given_]
    if not cases:
        raise ArgumentError("laws: there are no graphs, expected at least one")
    for case in cases:
        _check_arrays(case)
    return tuple(sorted(cases, key=lambda case: len(case.graph)))


def _case(graph: object) -> GraphCase:
    if not isinstance(graph, Graph):
        raise ArgumentError(f"laws: a graph is {graph!r}, expected a Graph or a GraphCase")
    return GraphCase(graph.name, graph)


def _check_arrays(case: GraphCase) -> None:
    """Raises ArgumentError if the arrays of a case do not fit the inputs of its graph."""
    if case.arrays is None:
        return
    wanted: list[Any] = [(n.meta.shape, n.meta.dtype.numpy) for n in case.graph.placeholders]  # type: ignore[union-attr]
    got = [(np.shape(a), np.asarray(a).dtype) for a in case.arrays]
    if got != wanted:
        texts = [", ".join(f"{d}{list(s)}" for s, d in each) or "none" for each in (got, wanted)]
        raise ArgumentError(
            f"laws: the arrays of {case.name!r} are {texts[0]}, expected {texts[1]} as its inputs"
        )


# ------------------------------------------------------------------------------------------ laws
def _takes(pass_: Pass, case: GraphCase) -> None:
    result: Any = pass_(copied(case).graph)  # G2 needs the first call on the case itself
    if not isinstance(result, Graph):
        raise broken(f"it gives {result!r}, expected a Graph", _shown("the graph", case.graph))


def _leaves(pass_: Pass, case: GraphCase) -> None:
    before = picture(case.graph)
    pass_(case.graph)
    if picture(case.graph) != before:
        now = _shown("the graph that it was given is now", case.graph)
        raise broken("it changes the graph that it is given, expected a new one", now)


def _gives_valid(pass_: Pass, case: GraphCase) -> None:
    functional = is_functional(case.graph)
    verify(pass_(case.graph), functional=functional, closing_copies=True, stage="it")


def _keeps_roles(pass_: Pass, case: GraphCase) -> None:
    result = pass_(case.graph)
    try:
        apply_pass(lambda graph: result, case.graph)
    except ArgumentError as error:
        raise broken(_said(error), *_both(case.graph, result)) from error
    early = _early(result)
    if early is not None and _early(case.graph) is None:
        said = f"{early!r} needs a tangent and is of the forward, expected of the backward"
        raise broken(said, *_both(case.graph, result))


def _early(graph: Graph) -> Node | None:
    """Returns a call of the forward phase that needs a tangent, or None."""
    late: set[Node] = set()
    for node in graph.nodes:
        if isinstance(node.role, Tangent) or any(each in late for each in node.inputs()):
            late.add(node)
            if node.op == "call" and node.phase is Phase.FORWARD:
                return node
    return None


def _said(error: Exception) -> str:
    """Returns the message without the name of the pass."""
    return str(error).partition("': ")[2].removeprefix("it ") or str(error)


def _keeps_values(pass_: Pass, case: GraphCase) -> None:
    result = pass_(case.graph)
    for inputs in (*given(case), *special(case)):
        before = runs.run(case.graph, inputs.fresh())
        after = runs.run(result, inputs.fresh())
        wrong = same_results(case.graph.output_roles, before.results, after.results)
        if wrong is not None:
            raise broken(str(wrong), *_both(case.graph, result), f"on {inputs.shown}")


def _keeps_values_roughly(pass_: Pass, case: GraphCase) -> None:
    result = pass_(case.graph)
    for given_ in given(case):
        inputs = runs.by_role(case.graph, given_)
        before = verification.run_graph(case.graph, inputs, Drawing)
        after = verification.run_graph(result, inputs, Drawing)
        noise = Noise(partial(verification.run_graph, case.graph), inputs)
        for role, mine in before.items():
            if not same_bits(mine, after[role]) and not np.all(
                noise.explains(role, mine, after[role])
            ):
                texts = [f"{role} is {after[role].tolist()}", f"expected about {mine.tolist()}"]
                raise broken(", ".join(texts), *_both(case.graph, result), f"on {given_.shown}")


def _keeps_memory(pass_: Pass, case: GraphCase) -> None:
    result = pass_(case.graph)
    for inputs in given(case):
        before = runs.run(case.graph, inputs.fresh())
        after = runs.run(result, inputs.fresh())
        names = [f"input {node.role} afterwards" for node in case.graph.placeholders]
        wrong = same_results(names, before.inputs, after.inputs)
        if wrong is not None:
            raise broken(str(wrong), *_both(case.graph, result), f"on {inputs.shown}")
        for sentence in _sharing(case.graph, before, after):
            raise broken(sentence, *_both(case.graph, result))


def _sharing(graph: Graph, before: runs.Ran, after: runs.Ran) -> Iterator[str]:
    """Yields a sentence for each pair of values that shares memory and did not, or the reverse.

    A graph that writes nothing may share less than before. New values of inputs may share any
    memory, and so may a gradient and a value that is no gradient: they are copied (PART-15).
    """
    functional, now = is_functional(graph), after.sharing()
    for (mine, other), shared in before.sharing().items():
        role = graph.output_roles[int(mine.split()[1])]
        seen = not functional or isinstance(role, (Output, IntermediateBase, Part))
        seen = seen or (type(role) is Gradient and _is_gradient(graph, other))
        if seen and now[mine, other] != shared and (now[mine, other] or not functional):
            said = "shares memory" if now[mine, other] else "shares no memory"
            yield f"{mine} ({role}) {said} with {other}, expected as before"


def _is_gradient(graph: Graph, name: str) -> bool:
    """Whether a value of `Ran.sharing` is a gradient."""
    kind, number, *_ = name.split()
    return kind == "result" and type(graph.output_roles[int(number)]) is Gradient


def _is_deterministic(pass_: Pass, case: GraphCase) -> None:
    first, second = pass_(case.graph), pass_(case.graph)
    if dumps(first) != dumps(second):
        notes = _shown("first", first), _shown("second", second)
        raise broken("it gives two results for the same graph, expected one", *notes)


def _is_idempotent(pass_: Pass, case: GraphCase) -> None:
    first = pass_(case.graph)
    second = pass_(first)
    if dumps(first) != dumps(second):
        raise broken("it changes its own result, expected none", *_both(first, second))


def _both(before: Graph, after: object) -> tuple[str, str]:
    return _shown("before", before), _shown("after", after)


def _shown(what: str, graph: object) -> str:
    return f"{what}:\n{graph.code if isinstance(graph, Graph) else graph}"


PASS_LAWS: tuple[GraphLaw, ...] = (
    GraphLaw("G1", "it returns a graph for every graph", _takes),
    GraphLaw("G2", "it does not change its input", _leaves),
    GraphLaw("G3", "its result is valid", _gives_valid),
    GraphLaw("G4", "inputs and results keep their roles and metas", _keeps_roles),
    GraphLaw("G5", "same values, bit for bit", _keeps_values),
    GraphLaw("G6", "the same memory is shared and written", _keeps_memory),
    GraphLaw("G7", "the same graph gives the same result", _is_deterministic),
    GraphLaw("G8", "a second run changes nothing", _is_idempotent),
)
"""The laws of passes; G8 is checked for idempotent passes alone."""

_UP_TO_ROUNDING = GraphLaw("G5", "same values, up to rounding", _keeps_values_roughly)
