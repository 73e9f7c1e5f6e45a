"""The programs of `benchmarks.sized`: graphs with symbolic sizes.

A letter is a size: a program that takes "ab" and "b" takes a matrix, and a row as long as its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.ir import dtypes
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.symbols.table import SymbolTable

HINTS = {"a": 200, "b": 300, "c": 100}
WIDE = ((64, 64), (61, 67), (256, 512), (250, 509), (1000, 1024), (1003, 1021), (16, 30000))
NARROW = ((40, 7), (1003, 7), (1000, 16), (20000, 33), (500, 100))


@attrs.frozen
class Program:
    """A function of tensors, given by the letters of their sizes."""

    function: Callable[..., Any]
    shapes: tuple[str, ...]
    backward: bool = False
    """Whether the graph is that of the backward, for the gradients of all tensors."""
    sizes: tuple[tuple[int, int], ...] = WIDE
    """The sizes a and b that are compared; c is 200."""
    indices: tuple[int, ...] = ()
    """The tensors of int64: of indices below c."""


@attrs.frozen
class SizedGraph:
    """The graph of a program with symbolic sizes, and the names of its symbols by letter."""

    graph: Graph
    names: dict[str, str]


def sized_graph(program: Program) -> SizedGraph:
    """Returns the graph of a program."""
    return _of_backward(program) if program.backward else _of_forward(program)


def letters(program: Program) -> list[str]:
    """Returns the sizes of a program, in the order of the arguments."""
    return list(dict.fromkeys("".join(program.shapes)))


def _of_forward(program: Program) -> SizedGraph:
    symbols, build = SymbolTable(), Builder("program")
    found: dict[str, Any] = {k: symbols.symbol(HINTS[k], k, lower=2) for k in letters(program)}
    inputs = [build.placeholder(_meta(program, k, found)) for k in range(len(program.shapes))]
    graph = build.finish([program.function(*inputs)])
    return SizedGraph(graph, {letter: str(size) for letter, size in found.items()})


def _of_backward(program: Program) -> SizedGraph:
    names = signature(program.function).parameters
    dims = {letter: al.Dim(letter, min=2) for letter in letters(program)}
    shapes = {
        name: {k: dims[letter] for k, letter in enumerate(shape)}
        for name, shape in zip(names, program.shapes, strict=True)
    }
    compiled = al.compile(program.function, dynamic_shapes=shapes, backend="reference")
    metas = [_meta(program, k, HINTS) for k in range(len(program.shapes))]
    draws = np.random.default_rng(0)
    inputs = [
        al.tensor(drawn(draws, meta), requires_grad=meta.dtype.is_floating_point) for meta in metas
    ]
    compiled(*inputs).sum().backward()
    graph = compiled.backward_graph
    assert graph is not None
    return SizedGraph(graph, {letter: f"s{k}" for k, letter in enumerate(dims)})


def _meta(program: Program, k: int, sizes: dict[str, Any]) -> TensorMeta:
    dtype = dtypes.int64 if k in program.indices else dtypes.float32
    return tensor_meta(tuple(sizes[letter] for letter in program.shapes[k]), dtype=dtype)


def drawn(draws: np.random.Generator, meta: TensorMeta) -> np.ndarray:
    """Returns random numbers, or random indices."""
    if meta.dtype.is_floating_point:
        return draws.standard_normal(meta.shape).astype(np.float32)
    return draws.integers(0, 100, meta.shape)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centered = x - x.mean(-1, True)
    return centered / ((centered * centered).mean(-1, True) + 1e-5).sqrt() * weight + bias


def _variance(x: Any) -> Any:
    centered = x - x.mean(-1, True)
    return (centered * centered).mean(-1)


def _narrow(program: Program) -> Program:
    return attrs.evolve(program, sizes=NARROW)


_SUM = Program(lambda x: x.sum(1), ("ab",))
_SOFTMAX = Program(lambda x: x.softmax(-1), ("ab",))
_LAYER_NORM = Program(_layer_norm, ("ab", "b", "b"))

PROGRAMS: dict[str, Program] = {
    "pointwise": Program(lambda x, y: (x * 2 + y).tanh() * y, ("ab", "ab")),
    "bias, relu": Program(lambda x, b: (x + b).relu(), ("ab", "b")),
    "row reduction": _SUM,
    "column reduction": Program(lambda x: x.sum(0), ("ab",)),
    "whole reduction": Program(lambda x: x.sum(), ("ab",)),
    "softmax": _SOFTMAX,
    "layer norm": _LAYER_NORM,
    "matmul, bias, gelu": Program(lambda x, w, b: (x @ w + b).gelu(), ("ab", "bc", "c")),
    "variance": Program(lambda x: x.var(-1), ("ab",)),
    "cumsum": Program(lambda x: x.cumsum(-1), ("ab",)),
    "cat": Program(lambda x, y: al.ops.cat([x, y], 1), ("ab", "ac")),
    "pad": Program(lambda x: al.ops.constant_pad_nd(x, (1, 2)), ("ab",)),
    "transposed copy": Program(lambda x, y: x + y.t(), ("ab", "ba")),
    "embedding": Program(lambda w, x: al.ops.embedding(w, x), ("cb", "a"), indices=(1,)),
    "softmax, backward": attrs.evolve(_SOFTMAX, backward=True),
    "layer norm, backward": attrs.evolve(_LAYER_NORM, backward=True),
    "bias, relu, backward": Program(lambda x, b: (x + b).relu(), ("ab", "b"), backward=True),
    "variance, backward": Program(_variance, ("ab",), backward=True),
    "row reduction, narrow": _narrow(_SUM),
    "softmax, narrow": _narrow(_SOFTMAX),
    "layer norm, narrow": _narrow(_LAYER_NORM),
    "softmax, narrow, backward": attrs.evolve(_narrow(_SOFTMAX), backward=True),
}
