"""Graphs with symbolic sizes: written for it, or made of graphs with numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_strides
from aotlite.ir.run.transform import Transformer
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.symint import SymBool
from aotlite.ir.symbols.table import SymbolTable

SIZES = (0, 1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 100)
MOST = 200_000
"""Elements: the interpreter of a convolution with a hundred of everything would take a minute."""
HINTS = {"a": 24, "b": 40, "c": 12, "d": 6}

Shape = tuple[int | str, ...]


@attrs.frozen
class Sized:
    """A graph with symbols, and the table of these."""

    name: str
    graph: Graph
    table: SymbolTable

    def values(
        self, count: int, seed: int = 0, sizes: tuple[int, ...] = SIZES
    ) -> list[dict[str, int]]:
        """Up to `count` values of the symbols for which the graph is valid and not large."""
        names = list(self.table.symbols)
        every = list(itertools.product(sizes, repeat=len(names))) if len(names) < 4 else []
        drawn = random.Random(f"{self.name} {seed}")
        picked = drawn.sample(every, min(len(every), 60 * count))
        picked += [
            tuple(drawn.choices(sizes, k=len(names))) for _ in range(60 * count - len(every))
        ]
        found: list[dict[str, int]] = []
        for each in picked:
            values = dict(zip(names, each, strict=True))
            if values not in found and self.holds(values):
                found.append(values)
        return found[:count]

    def holds(self, values: dict[str, int]) -> bool:
        """Whether the graph is valid for these values."""
        rooms = [(s, values[name]) for name, s in self.table.symbols.items()]
        if not all((s.lower or 0) <= n and (s.upper is None or n <= s.upper) for s, n in rooms):
            return False
        return all(each.holds(values) for each in self.table.log) and self._elements(values) <= MOST

    def _elements(self, values: dict[str, int]) -> int:
        """Those of all inputs and results."""
        outputs = [node for node in self.graph.outputs if isinstance(node, Node)]
        nodes: list[Any] = [*self.graph.placeholders, *outputs]
        return sum(math.prod(concrete(node.meta.shape, values)) for node in nodes)


def sized(name: str, function: Callable[..., Any], *shapes: Shape, low: int = 0) -> Sized:
    """The graph of a function of proxies; letters in shapes are symbols of at least `low`."""
    table, build = SymbolTable(), Builder(name)
    symbols: dict[str, Any] = {}

    def size(given: int | str) -> Any:
        if isinstance(given, int):
            return given
        if given not in symbols:
            symbols[given] = table.symbol(HINTS[given], given, lower=low)
        return symbols[given]

    inputs = [build.placeholder(tensor_meta(tuple(map(size, shape)))) for shape in shapes]
    result = function(*inputs)
    return Sized(name, build.finish(result if isinstance(result, tuple) else [result]), table)


class _Symbolized(Transformer):
    """Rebuilds a graph with symbols, minus `less`, for the sizes of its inputs."""

    def __init__(self, graph: Graph, table: SymbolTable, less: int) -> None:
        super().__init__(graph)
        self.table, self.less = table, less

    def placeholder(self, target: object, args: tuple[object, ...]) -> Any:
        meta: TensorMeta = self.node.meta  # type: ignore[assignment]
        shape = tuple([self._size(size) for size in meta.shape])
        stride = symbolic_strides(shape, meta.shape, meta.stride)
        changed = tensor_meta(shape, stride, meta.dtype, meta.device)
        return Proxy(self.builder, self.builder.add(self.node.with_args((), changed)))

    def _size(self, size: int) -> Any:
        return size if size < 2 else self.table.size(size + self.less) - self.less


def symbolized(name: str, graph: Graph, less: int = 0, *, shared: bool = True) -> Sized | None:
    """The graph with symbols in the place of the sizes of its inputs; None where an op refuses
    them, or needs all sizes as numbers. With `less` 2 a size may be 0 or 1; `shared`: equal sizes
    are one symbol."""
    table = SymbolTable(duck_shape=shared)
    try:
        made = _Symbolized(graph, table, less).transform()
    except AotliteError:
        return None
    facts = [each.fact for each in table.log if each.specializes]
    fixed = {str(fact.left) for fact in facts if isinstance(fact, SymBool)}
    if not set(table.symbols) - fixed:
        return None
    return Sized(name, made, table)


def drawn(meta: Any, seed: int) -> np.ndarray:
    """Small integers, whose sums are exact in every order. Places are 0 or 1."""
    least, end = (-3, 4) if meta.dtype.is_floating_point else (0, 2)
    values = np.random.default_rng(seed).integers(least, end, meta.shape)
    return (values * (4 if meta.dtype is al.uint64 else 1)).astype(meta.dtype.numpy)


def _stats(x: Any) -> Any:
    centered = x - x.mean(-1, True)
    return centered / (x.var(-1, keepdim=True) + 1e-5).sqrt()


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "pointwise": (lambda x, y: (x * 2 + y).exp(), ("a", "b"), ("a", "b")),
    "rows": (lambda x, y: x * 2 + y, ("a", "b"), ("b",)),
    "columns": (lambda x, y: (x * 2 + y).relu(), ("a", "b"), ("a", 1)),
    "transposed": (lambda x, y: x.t() * 2 + y, ("a", "b"), ("b", "a")),
    "permuted": (lambda x: x.permute(2, 0, 1) + 1.0, ("a", "b", "c")),
    "three": (lambda x, y: (x + y).sigmoid(), ("a", "b", "c"), ("b", 1)),
    "number": (lambda x: x * x.meta.shape[0] + x.meta.shape[1], ("a", "b")),
    "sum rows": (lambda x: x.sum(1), ("a", "b")),
    "sum columns": (lambda x: x.sum(0), ("a", "b")),
    "sum all": (lambda x: x.sum(), ("a", "b")),
    "sum middle": (lambda x: x.sum(1), ("a", "b", "c")),
    "sum outside": (lambda x: x.sum((0, 2)), ("a", "b", "c")),
    "sum of transposed": (lambda x: x.t().sum(), ("a", "b")),
    "mean": (lambda x: x.mean(), ("a", "b")),
    "mean rows": (lambda x: (x - x.mean(1, True)) * 2, ("a", "b")),
    "amax": (lambda x: x.amax(1), ("a", "b")),
    "amax all": (lambda x: x.amax(), ("a", "b")),
    "argmax": (lambda x: x.argmax(1), ("a", "b")),
    "var": (lambda x: x.var(1), ("a", "b")),
    "softmax": (lambda x: x.softmax(-1), ("a", "b")),
    "softmax columns": (lambda x: x.softmax(0), ("a", "b")),
    "log_softmax": (lambda x: x.log_softmax(-1), ("a", "b")),
    "layer norm": (lambda x, w, b: _stats(x) * w + b, ("a", "b"), ("b",), ("b",)),
    "matmul": (lambda x, w, b: ((x @ w) + b).relu(), ("a", "b"), ("b", "c"), ("c",)),
    "matmul transposed": (lambda x, w: (x @ w.t()).relu(), ("a", "b"), ("c", "b")),
    "matvec": (lambda x, v: x @ v, ("a", "b"), ("b",)),
    "batches": (lambda x, y: x @ y, ("d", "a", "b"), ("d", "b", "c")),
    "linear": (lambda x, w: (x @ w) * 2, ("d", "a", "b"), ("b", "c")),
    "flip": (lambda x: x.flip(0, 1) * 2, ("a", "b")),
    "narrow": (lambda x: x.narrow(0, 1, x.meta.shape[0] - 1) * 2, ("a", "b")),
    "reshape": (lambda x: (x * 2).reshape(x.meta.shape[0] * x.meta.shape[1]) + 1, ("a", "b")),
    "split": (
        lambda x, y: (x * 2).reshape(x.meta.shape[0] * x.meta.shape[1]) * y + 1,
        ("a", "b"),
        (1,),
    ),
    "heads": (
        lambda x: (x * 2).view(x.meta.shape[0], x.meta.shape[1], 2, 4).transpose(1, 2) + 1,
        ("a", "b", 8),
    ),
    "cumsum": (lambda x: x.cumsum(1), ("a", "b")),
    "sort": (lambda x: x.sort(1)[0] * 2, ("a", "b")),
    "several": (lambda x: (x.sum(1), x * 2, (x + 1).amax(0)), ("a", "b")),
    "chain": (lambda x, y: ((x * y).sum(1, True) * x).exp().sum(0), ("a", "b"), ("a", "b")),
}


def programs(low: int) -> Iterator[Sized]:
    """The programs above, with symbols of at least `low`."""
    for name, (function, *shapes) in PROGRAMS.items():
        yield sized(name, function, *shapes, low=low)
