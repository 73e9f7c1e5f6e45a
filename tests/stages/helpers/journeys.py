"""Random programs through all stages, with the result of each stage."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import numpy as np
from hypothesis import Phase, given, settings

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import Role, Tangent
from aotlite.ir.meta import TensorMeta
from aotlite.ir.run.interpreter import ArrayValue, Interpreter
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from tests.end_to_end.helpers.cases import Case, cases, setup_of
from tests.end_to_end.helpers.worlds import body_of
from tests.helpers.programs import Aotlite, execute


@attrs.frozen
class Journey:
    """The results of the stages for the first call of a case."""

    case: Case
    stages: dict[str, Any]
    compiled: Any

    @property
    def meta(self) -> FunctionMeta:
        """The analysis."""
        meta: FunctionMeta = self.stages["2 analyze"]
        return meta

    @property
    def captured(self) -> Graph:
        """The imperative graph of the forward."""
        return self._graph("1 capture")

    @property
    def joint(self) -> Graph:
        """The imperative joint graph."""
        return self._graph("4 joint")

    @property
    def pure(self) -> Graph:
        """The functional joint graph."""
        return self._graph("6 functionalize")

    @property
    def simple(self) -> Graph:
        """The simplified joint graph."""
        return self._graph("7 simplify")

    @property
    def partition(self) -> Partition:
        """Forward and backward."""
        partition: Partition = self.compiled.entries[-1].partition
        return partition

    def _graph(self, stage: str) -> Graph:
        graph: Graph = self.stages[stage]
        return graph


def inputs_of(case: Case) -> tuple[list[Any], list[Any]]:
    """(setup values, the arguments of the first call), made eagerly."""
    setup: list[Any] = []
    execute(Aotlite(), setup_of(case, case.calls[0]), setup)
    return setup, [setup[i] for i in case.calls[0].inputs]


def journey_of(case: Case) -> Journey | None:
    """The journey of a case; None where eager or the compiler refuses it."""
    stages: dict[str, Any] = {}
    try:
        _, given_inputs = inputs_of(case)
        body_of(case)(*given_inputs)
        _, given_inputs = inputs_of(case)
        compiled = al.compile(body_of(case), observer=stages.__setitem__)
        compiled(*given_inputs)
    except (al.AotliteError, IndexError):
        return None
    return Journey(case, stages, compiled)


EXAMPLES = 120
"""Cases of which the journeys are; more in the long run, for tests with the marker `draws`."""


def journeys(examples: int | None = None) -> tuple[Journey, ...]:
    """The journeys of random cases that eager and the compiler take; the same in every test.

    The law of a stage is checked on all of them: compiling anew for each law would take longer.
    """
    return _journeys(EXAMPLES if examples is None else examples)


@cache
def _journeys(examples: int) -> tuple[Journey, ...]:
    found: list[Journey] = []

    @settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases())
    def collect(case: Case) -> None:
        call = attrs.evolve(case.calls[0], grad=True)
        journey = journey_of(attrs.evolve(case, calls=(call,)))
        if journey is not None:
            found.append(journey)

    collect()
    return tuple(found)


# ------------------------------------------------------------------------------------ running
def values_for(graph: Graph) -> dict[Role, Any]:
    """Small integers for each input of a graph, by role: arithmetic on them is exact."""
    found: dict[Role, Any] = {}
    for node in graph.placeholders:
        meta: Any = node.meta
        draw = np.random.default_rng(len(found) + (50 if isinstance(node.role, Tangent) else 0))
        found[node.role] = draw.integers(-3, 4, meta.shape).astype(meta.dtype.numpy)  # type: ignore[index]
    return found


def run_graph(graph: Graph, values: dict[Role, Any]) -> dict[Role, Any]:
    """The results of a graph by role, without those that are None."""
    inputs = [_window(values[node.role], node.meta) for node in graph.placeholders]  # type: ignore[index]
    outputs = Interpreter(graph).run(*inputs)
    pairs = zip(graph.output_roles, outputs, strict=True)
    return {role: np.array(value) for role, value in pairs if value is not None}


def _window(value: Any, meta: Any) -> ArrayValue:
    """A value in the memory layout that its meta says; the gaps hold zeros."""
    assert isinstance(meta, TensorMeta)
    arrays = meta.device.arrays
    buffer = arrays.allocate(meta.span, meta.dtype)
    buffer.view(meta.dtype.numpy)[...] = 0
    arrays.copy(arrays.strided(buffer, meta.dtype, meta.shape, meta.stride, 0), value)
    return ArrayValue(buffer, meta)


def same_results(a: dict[Role, Any], b: dict[Role, Any]) -> bool:
    """Whether two runs have the same roles and values, exactly."""
    return a.keys() == b.keys() and all(np.array_equal(a[role], b[role]) for role in a)
