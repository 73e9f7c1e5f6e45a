"""`replace_pattern`: replaces what computes a pattern by what computes another one.

Patterns are functions, graphs or GraphModules. A function needs no types: it is traced for those of
each place where it matches. Rules: FXG-20 to FXG-22. Spec: `specs/fx.md`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import attrs

from aotlite.fx.core.words import Argument
from aotlite.fx.graph import FxGraph
from aotlite.fx.graph_module import GraphModule
from aotlite.fx.node import FxNode
from aotlite.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from aotlite.fx.tracer import Tracer, annotated_type
from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.graph import Graph as IrGraph
from aotlite.ir.meta import TensorMeta

__all__ = [
    "Match",
    "PatternMatch",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]

Filter = Callable[[InternalMatch, FxGraph, FxGraph], bool]
"""(match, the graph, the pattern's graph) -> whether to replace it."""


class PatternMatch(NamedTuple):
    """What `replace_pattern` has replaced: FX's `Match`."""

    anchor: FxNode
    """The node that was the first result of the pattern; it is erased by now."""
    nodes_map: dict[FxNode, Argument]
    """Node of the pattern -> node of the graph."""


Match = PatternMatch


@attrs.frozen(eq=False)
class ReplacedPatterns:
    """What `replace_pattern_with_filters` has replaced."""

    anchor: FxNode
    nodes_map: dict[FxNode, Argument]
    replacements: list[FxNode]
    """The new nodes, in order."""


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[PatternMatch]:
    """Replaces each match of `pattern` by `replacement`, of the same inputs, and recompiles.

    Matches are replaced in the order of the graph; one that overlaps an earlier one stays as it is,
    and nothing that was put in is matched again. Raises ArgumentError, before anything changes,
    where the numbers of inputs or results differ.

    >>> from aotlite import fx
    >>> module = fx.symbolic_trace(lambda x: x * x.sigmoid() + 1, "f32[2]")
    >>> len(replace_pattern(module, lambda a: a * a.sigmoid(), lambda a: fx.ops.silu(a)))
    1
    >>> print(module.code)
    def forward(self, x: "f32[2]"):
        silu = ops.silu(x);  x = None
        add = ops.add(silu, 1);  silu = None
        return add
    """
    found = replace_pattern_with_filters(gm, pattern, replacement)
    return [PatternMatch(each.anchor, each.nodes_map) for each in found]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False,
) -> list[ReplacedPatterns]:
    """`replace_pattern` of the matches that every filter accepts; also returns the new nodes."""
    if not isinstance(gm, GraphModule):
        raise ArgumentError(f"replace_pattern: it is {gm!r}, expected a GraphModule")
    gm.graph.lint()
    chosen = _chosen(gm.graph, pattern, ignore_literals, list(match_filters or ()))
    made = [(match, _made(replacement, match)) for match in chosen]
    done: dict[FxNode, FxNode] = {}
    found = [_replaced(gm.graph, match, graph, done) for match, graph in made]
    gm.recompile()
    return found


# -------------------------------------------------------------------------------------- matching
def _chosen(
    graph: FxGraph, pattern: Any, ignore_literals: bool, filters: list[Filter]
) -> list[InternalMatch]:
    """The matches to replace, none of which overlaps another one, in the order of the graph."""
    found: list[tuple[FxNode, InternalMatch]] = []
    forms: dict[tuple[Any, ...], FxGraph | None] = {}
    for each in _pattern_graphs(graph, pattern):
        matcher = SubgraphMatcher(
            each, remove_overlapping_matches=False, ignore_literals=ignore_literals
        )
        for match in matcher.match(graph):
            if any(node.op == "placeholder" for node in matcher.pattern_returning_nodes):
                raise ArgumentError("replace_pattern: the pattern returns an input, expected ops")
            if _is_exact(pattern, each, match, matcher, forms) and _place(match) is not None:
                if all(accepts(match, graph, each) for accepts in filters):
                    found.append((match.anchors[0], match))
    chosen: list[InternalMatch] = []
    taken: set[FxNode] = set()
    for _, match in sorted(found, key=lambda pair: _at(pair[0])):
        if taken.isdisjoint(match.inner):
            taken |= match.inner
            chosen.append(match)
    return chosen


def _at(node: FxNode) -> int:
    place: int = node.graph._label(node)
    return place


def _graph_of(given: Any) -> FxGraph | None:
    if isinstance(given, GraphModule):
        return given.graph
    if isinstance(given, IrGraph):
        return FxGraph(given)
    return given if isinstance(given, FxGraph) else None


def _traced(function: Any, inputs: Sequence[Any]) -> FxGraph:
    return Tracer().trace(function, inputs=inputs)


def _pattern_graphs(graph: FxGraph, pattern: Any) -> list[FxGraph]:
    """The graphs of a pattern; of a function, one for each form that it takes for types of the
    graph's values."""
    given = _graph_of(pattern)
    if given is not None:
        return [given]
    if not callable(pattern):
        raise ArgumentError(f"replace_pattern: the pattern is {pattern!r}, expected a function")
    forms: dict[str, FxGraph] = {}
    error: Exception | None = None
    for inputs in _types(graph, pattern):
        try:
            made = _traced(pattern, inputs)
        except (AotliteError, ValueError, TypeError, IndexError) as raised:
            error = raised
            continue
        forms.setdefault(_form(made), made)
    if not forms:
        raise noted(
            ArgumentError(
                "replace_pattern: the pattern raises for all types of values in the graph"
            ),
            f"the last error: {error}" if error is not None else None,
            "Annotate its parameters with types, or give a traced graph.",
        )
    return list(forms.values())


_MOST_TYPES, _MOST_TRIALS = 32, 200


def _types(graph: FxGraph, pattern: Any) -> Iterator[tuple[Any, ...]]:
    """Types of the inputs of a pattern to try: one for all of them, then other combinations."""
    parameters = inspect.signature(pattern).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(each.kind not in kinds for each in parameters):
        raise ArgumentError("replace_pattern: the pattern has *args or **kwargs, expected names")
    count = len(parameters)
    if count and all(annotated_type(each) is not None for each in parameters):
        yield ()  # annotated
        return
    metas = [node.meta.get("val") for node in graph.nodes]
    kept = list(dict.fromkeys(meta for meta in metas if type(meta) is TensorMeta))[:_MOST_TYPES]
    for meta in kept:
        yield (meta,) * count
    others = (each for each in itertools.product(kept, repeat=count) if len(set(each)) > 1)
    yield from itertools.islice(others, _MOST_TRIALS)


def _input_types(match: InternalMatch) -> list[Any]:
    return [
        value.meta["val"] if isinstance(value, FxNode) else value
        for value in match.placeholder_nodes
    ]


def _form(graph: FxGraph) -> str:
    """A text of a graph without its types."""
    nodes = [(n.name, n.op, str(n.target), str(n.args), str(n.kwargs)) for n in graph.nodes]
    constants = [id(value) for value in graph._constants.values()]
    return str((nodes, constants))


def _is_exact(
    pattern: Any,
    graph: FxGraph,
    match: InternalMatch,
    matcher: SubgraphMatcher,
    forms: dict[tuple[Any, ...], FxGraph | None],
) -> bool:
    """Whether a pattern has this very form for the types of the values that it matches. `forms` has
    its graphs for types that were asked for before."""
    if _graph_of(pattern) is not None:
        return True
    types = _input_types(match)
    key = tuple([(type(each), repr(each)) for each in types])
    if key not in forms:
        try:
            forms[key] = _traced(pattern, types)
        except (AotliteError, ValueError, TypeError, IndexError):
            forms[key] = None
    made = forms[key]
    if made is None or _form(made) == _form(graph):
        return made is not None
    calls = len(made.find_nodes(op="call_function"))
    if calls != sum(mine.op == "call_function" for mine in match.nodes_map):
        return False
    again = SubgraphMatcher(
        made, remove_overlapping_matches=False, ignore_literals=matcher.ignore_literals
    )
    return any(each.inner == match.inner for each in again.match(match.anchors[0].graph))


# -------------------------------------------------------------------------------------- replacing
def _made(replacement: Any, match: InternalMatch) -> FxGraph:
    """The graph of the replacement for the types of a match."""
    graph = _graph_of(replacement)
    if graph is None:
        if not callable(replacement):
            raise ArgumentError(
                f"replace_pattern: the replacement is {replacement!r}, expected a function"
            )
        graph = _traced(replacement, _input_types(match))
    inputs = graph.find_nodes(op="placeholder")
    tensors = [each for each in match.placeholder_nodes if isinstance(each, FxNode)]
    if len(inputs) != len(tensors):
        raise ArgumentError(
            f"replace_pattern: the replacement has {len(inputs)} inputs, expected {len(tensors)}"
        )
    results = _results(graph)
    if not all(isinstance(each, FxNode) for each in results):
        raise ArgumentError("replace_pattern: the replacement returns a number, expected tensors")
    if len(results) != len(match.returning_nodes):
        raise ArgumentError(
            f"replace_pattern: the replacement has {len(results)} results, expected "
            f"{len(match.returning_nodes)}"
        )
    return graph


def _results(graph: FxGraph) -> list[Any]:
    return list(graph._shown(graph.output_node()._node.args[0]))


def _place(match: InternalMatch) -> FxNode | None:
    """The node before which the replacement goes: behind its inputs, in front of all users."""
    inner = match.inner
    inputs = [each for each in match.placeholder_nodes if isinstance(each, FxNode)]
    last = max(match.returning_nodes)
    users = [user for node in match.returning_nodes for user in node.users if user not in inner]
    first = min([last, *users])
    return first if all(each < first for each in inputs) else None


def _replaced(
    graph: FxGraph, match: InternalMatch, made: FxGraph, done: dict[FxNode, FxNode]
) -> ReplacedPatterns:
    """Puts the replacement in; `done` has what became of nodes that earlier ones replaced."""
    match.placeholder_nodes = [
        done.get(v, v) if isinstance(v, FxNode) else v for v in match.placeholder_nodes
    ]
    place = _place(match)
    assert place is not None
    given = [each for each in match.placeholder_nodes if isinstance(each, FxNode)]
    copies = dict(zip(made.find_nodes(op="placeholder"), given, strict=True))
    before = set(graph.nodes)
    with graph.inserting_before(place):
        graph.graph_copy(made, copies)
    new = [node for node in graph.nodes if node not in before]
    source = match.anchors[0]._node
    for node in new:
        for record in ("phase", "location", "scope", "sequence"):
            setattr(node._node, record, getattr(source, record))
        node._node.grad_mode = node._node.grad_mode and source.grad_mode
    results = [copies[each] for each in _results(made)]
    for old, result in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(result)
        done[old] = result
    anchor = match.anchors[0]
    for node in sorted(match.inner, key=_at, reverse=True):
        if not node.users:
            graph.erase_node(node)
    return ReplacedPatterns(anchor, match.nodes_map, new)
