"""Runs of graphs by the reference interpreter, and comparisons of two runs.

The laws of passes, partitioners and backends share them. Inputs are drawn by role, of values with
exact arithmetic, so that a comparison needs no tolerance.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import attrs
import numpy as np

from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.role import RNG_INPUTS
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import ArrayValue
from aotlite.pipeline.checks.verification import DRAWS, Draw, Drawing, Inputs
from aotlite.testing.laws.errors import Broken, broken
from aotlite.testing.laws.graphs.corpus import GraphCase
from aotlite.testing.laws.ops.runs import close, same_bits

__all__ = [
    "Given",
    "Ran",
    "copied",
    "drawn",
    "given",
    "is_functional",
    "picture",
    "run",
    "same_results",
    "special",
    "title",
]

STREAMS = (0, 1)
"""The streams of random numbers: inputs are drawn once from each, the same in each process."""


def is_functional(graph: Graph) -> bool:
    """Whether the closing copies are the only writes of the graph."""
    impure = verify(graph)
    return impure == sum(_closes(node) for node in graph.nodes)


def _closes(node: Node) -> bool:
    return node.op == "call" and node.target.name == "copy_" and node.args[0].op == "placeholder"


# ----------------------------------------------------------------------------------------- inputs
@attrs.frozen(eq=False)
class Given:
    """Inputs of a graph. `fresh` returns copies in new memory."""

    metas: tuple[TensorMeta, ...]
    arrays: tuple[np.ndarray, ...]

    def fresh(self, margin: int = 0) -> list[ArrayValue]:
        """Returns copies of the inputs, each `margin` elements after the start of its buffer."""
        return [_window(a, m, margin) for a, m in zip(self.arrays, self.metas, strict=True)]

    @property
    def shown(self) -> str:
        """The inputs as text."""
        return ", ".join(f"{a.dtype}{a.tolist()}" for a in self.arrays)


def _window(array: np.ndarray, meta: TensorMeta, margin: int) -> ArrayValue:
    buffer = np.zeros(meta.span + 2 * margin, meta.dtype.numpy)
    value = ArrayValue(buffer, meta, margin)
    if meta.numel:
        value.array[...] = array
    return value


@lru_cache(256)
def given(case: GraphCase) -> list[Given]:
    """Returns the inputs of a case. Raises `Broken` if the graph raises on all drawn inputs."""
    metas: tuple[Any, ...] = tuple([node.meta for node in case.graph.placeholders])
    if case.arrays is not None:
        return [Given(metas, tuple(map(np.asarray, case.arrays)))]
    error: Exception | None = None
    found = []
    for stream in STREAMS:
        for integers in ((-3, 3), (0, 1), (0, 0)):  # integers may be indices
            inputs = drawn(case.graph, attrs.evolve(DRAWS[0], stream=stream), integers)
            try:
                run(case.graph, inputs.fresh())
            except Exception as raised:
                error = raised
                continue
            found.append(inputs)
            break
    if not found:
        raise broken(f"the graph itself cannot be run: {error}, expected arrays with the case")
    return found


def drawn(graph: Graph, draw: Draw, integers: tuple[int, int]) -> Given:
    """Draws the inputs of a graph by role; integers are from the range `integers`."""
    inputs = Inputs(draw, integers)
    nodes: Any = graph.placeholders
    values = [inputs.value(node.role, node.meta) for node in nodes]
    return Given(tuple(v.meta for v in values), tuple(np.array(v.array) for v in values))


@lru_cache(256)
def special(case: GraphCase) -> list[Given]:
    """Inputs of nan, infinities, both zeros and wide integers, if the graph runs on them.

    An empty list if it casts floats to integers, as no rule defines the result for nan.
    """
    if case.arrays is not None or any(map(_makes_integers, case.graph.calls)):
        return []
    for wide in (True, False):  # integers may be indices
        found = Given(given(case)[0].metas, tuple(_special(a, k, wide) for k, a in _numbered(case)))
        try:
            run(case.graph, found.fresh())
        except Exception:
            continue
        return [found]
    return []


def _numbered(case: GraphCase) -> list[tuple[int, np.ndarray]]:
    """The drawn inputs with their numbers; the number of a seed or an offset is -1."""
    roles = [node.role for node in case.graph.placeholders]
    arrays = given(case)[0].arrays
    return [
        (-1 if isinstance(role, RNG_INPUTS) else k, array)
        for k, (role, array) in enumerate(zip(roles, arrays, strict=True))
    ]


def _special(array: np.ndarray, number: int, wide: bool) -> np.ndarray:
    values: tuple[float, ...] = ()
    if array.dtype.kind in "fc":
        values = (float("nan"), -0.0, float("inf"), 1.5, 0.0, float("-inf"), -2.5)
    elif array.dtype == np.int64 and wide and number >= 0:
        values = (2**53 + 1, -(2**53) - 1)
    if not values:
        return array
    places = (np.arange(array.size) + number) % len(values)
    return np.array(values)[places].astype(array.dtype).reshape(array.shape)


def _makes_integers(node: Node) -> bool:
    metas = node.meta if isinstance(node.meta, tuple) else (node.meta,)
    of_floats = any(
        isinstance(each.meta, TensorMeta) and each.meta.dtype.is_differentiable
        for each in node.inputs()
    )
    return of_floats and any(
        isinstance(meta, TensorMeta) and meta.dtype.numpy.kind in "iu" for meta in metas
    )


def by_role(graph: Graph, inputs: Given) -> Inputs:
    """The inputs in the form that `aotlite.pipeline.checks.verification` runs."""
    found = Inputs(DRAWS[0], DRAWS[0].integers)
    nodes: Any = graph.placeholders
    for node, value in zip(nodes, inputs.fresh(), strict=True):
        found.drawn[node.role], found.metas[node.role] = value.buffer, value.meta
    return found


# ------------------------------------------------------------------------------------------- runs
@attrs.frozen(eq=False)
class Ran:
    """The outcome of a run: its inputs after the run, and its results."""

    inputs: tuple[ArrayValue, ...]
    results: tuple[Any, ...]
    """`ArrayValue`s; also numbers and None, as the graph returns them."""

    def sharing(self) -> dict[tuple[str, str], bool]:
        """(result, input or earlier result) -> whether they share memory."""
        named = [(f"input {k}", value) for k, value in enumerate(self.inputs)]
        found = {}
        for k, result in enumerate(self.results):
            if isinstance(result, ArrayValue):
                for name, other in named:
                    found[f"result {k}", name] = shares(result, other)
                named.append((f"result {k}", result))
        return found


def shares(a: ArrayValue, b: ArrayValue) -> bool:
    """Whether two values are in one buffer. An empty tensor shares none."""
    if not a.meta.numel or not b.meta.numel:
        return False
    return a.buffer is b.buffer or bool(np.may_share_memory(a.buffer, b.buffer))


def run(graph: Graph, inputs: Sequence[ArrayValue]) -> Ran:
    """Runs the reference interpreter on these inputs, which it may write."""
    with np.errstate(all="ignore"):
        results = Drawing(graph).run(*inputs)
    return Ran(tuple(inputs), tuple(results))


def same_results(
    names: Sequence[object],
    expected: Sequence[object],
    got: Sequence[object],
    tolerance: float = 0.0,
) -> Broken | None:
    """Returns the error for results that differ in a bit, or by more than a tolerance; or None."""
    for name, mine, its in zip(names, expected, got, strict=True):
        a, b = _plain(mine), _plain(its)
        if (a is None) != (b is None) or (a is not None and not _are_equal(a, b, tolerance)):
            return broken(f"{name} is {_text(b)}, expected {_text(a)}")
    return None


def _are_equal(a: object, b: object, tolerance: float) -> bool:
    if same_bits(a, b):
        return True
    mine, its = (np.asarray(each).dtype for each in (a, b))
    return tolerance > 0 and mine == its and mine.kind in "fc" and close(a, b, tolerance)


def _plain(value: object) -> object:
    return value.array if isinstance(value, ArrayValue) else value


def _text(array: object) -> str:
    if array is None:
        return "None"
    found = np.asarray(array)
    return f"{found.dtype}{found.tolist()}"


# --------------------------------------------------------------------------------------- pictures
def picture(graph: Graph) -> tuple[object, ...]:
    """The complete state of a graph: its name, its nodes by identity, and the fields of each."""
    fields = [
        (n, n.op, n.target, n.args, n.meta, n.role, n.grad_mode, n.phase, n.sequence, n.recompute)
        for n in graph.nodes
    ]
    return (graph.name, *fields)


def copied(case: GraphCase) -> GraphCase:
    """The case with a copy of its graph, so that a change of it changes no other case."""
    made: dict[Node, Node] = {}
    for node in case.graph.nodes:
        made[node] = copy.copy(node)
        made[node].args = map_nodes(node.args, made.__getitem__)
    return attrs.evolve(case, graph=Graph(tuple(made.values()), case.graph.name))


def title(kind: str, function: object) -> str:
    """The name of the checked object in messages."""
    return f"{kind} {getattr(function, '__name__', None) or getattr(function, 'name', function)!r}"
