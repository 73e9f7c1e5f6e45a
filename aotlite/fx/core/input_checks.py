"""`InputChecks`: whether the inputs of a call have the types of a graph's inputs (FXG-14)."""

from __future__ import annotations

from collections.abc import Mapping

from aotlite.eager.base.tensor import Tensor
from aotlite.fx.core.words import Args
from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.binding import bindings_in, names_among
from aotlite.ir.graph.symbolic.inputs import NO_SIZES, RunSizes
from aotlite.ir.meta import TensorMeta

__all__ = ["InputChecks"]


class InputChecks:
    """Checks inputs against the metas of a graph's placeholders; gives the symbols no input has."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._metas: Args = tuple([node.meta for node in graph.placeholders])
        self._names = [graph.names[node] for node in graph.placeholders]
        wanted = names_among([node.args for node in graph.nodes])
        self._free = bindings_in(graph, wanted).free if wanted else ()
        self._passed: dict[tuple[object, ...], Mapping[str, int]] = {}

    def __call__(self, inputs: Args) -> tuple[int, ...]:
        """Raises ArgumentError for inputs of other types; returns the parameters of the code."""
        count = len(self._metas)
        if len(inputs) < count or len(inputs) > count + len(self._free):
            raise ArgumentError(f"forward: there are {len(inputs)} inputs, expected {count}")
        symbolic = False
        for value, meta, name in zip(inputs, self._metas, self._names, strict=False):
            if not isinstance(value, Tensor):
                raise _wrong(name, f"a {type(value).__name__}", meta)
            if value.meta is meta:
                continue
            if meta.table is not None:
                symbolic = True
            elif not _fits(value.meta, meta):
                raise _wrong(name, value.meta, meta)
        if symbolic:
            self._check_sizes(inputs)
        return ()

    def _check_sizes(self, inputs: Args) -> None:
        """Raises for sizes at which a graph with symbols is not valid."""
        count = len(self._metas)
        shapes = tuple([value.shape for value in inputs[:count]])
        sizes = dict(zip(self._free, inputs[count:], strict=True))
        key = (shapes, tuple(sizes.items()))
        if key not in self._passed:
            self._passed[key] = RunSizes(self._graph, shapes, sizes or NO_SIZES).values
        values = self._passed[key]
        for value, meta, name in zip(inputs, self._metas, self._names, strict=False):
            if not _fits(value.meta, meta.concrete(values)):
                raise _wrong(name, value.meta, meta.concrete(values))


def _fits(given: TensorMeta, meta: TensorMeta) -> bool:
    """Whether a graph for `meta` does the same with this input: strides decided what is a copy."""
    if (given.shape, given.dtype, given.device) != (meta.shape, meta.dtype, meta.device):
        return False
    pairs = zip(given.shape, given.stride, meta.stride, strict=True)
    return not given.numel or all(mine == its or size == 1 for size, mine, its in pairs)


def _wrong(name: str, got: object, expected: object) -> ArgumentError:
    return noted(
        ArgumentError(f"forward: input {name} is {got}, expected {expected}"),
        "The graph was made for this type: trace the function for the other one, too; where the "
        "strides alone differ, pass x.contiguous().",
    )
