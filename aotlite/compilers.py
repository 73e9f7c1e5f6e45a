"""`aotlite.compilers`: compilers for `aot_function`, under PyTorch's names.

A compiler is a function of a graph and its example inputs, or of the graph alone. It returns a
function of arrays, a boxed function (`_boxed_call = True`: it takes one list, and empties it), or a
graph. Spec: `specs/s9_lower.md`. Rules: BOX-1, LOW-5, LOW-7, LOW-8.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from aotlite.backends.calling_convention import Window
from aotlite.backends.functions import ExampleInput, GraphFunction, graph_function
from aotlite.backends.reference import REFERENCE
from aotlite.ir.graph import Graph
from aotlite.ir.run.interpreter import ArrayValue, Interpreter

__all__ = [
    "ExampleInput",
    "boxed_nop",
    "debug_nop",
    "make_boxed_compiler",
    "make_boxed_func",
    "nop",
    "print_compile",
]

Compiler = Callable[..., Any]
"""A function of a graph, or of a graph and its example inputs."""


def nop(graph: Graph, example_inputs: Sequence[ExampleInput]) -> GraphFunction:
    """Runs the graph unchanged on the reference backend: a boxed function from arrays to arrays.

    A compiler of your own may return its result.

    >>> import aotlite as al
    >>> def counting(graph, example_inputs):
    ...     print(len(graph.calls), "ops,", *example_inputs)
    ...     return nop(graph, example_inputs)
    >>> al.aot_function(lambda x: (x * 2.0).sin(), counting)(al.zeros(2)).tolist()
    2 ops, ExampleInput(primals_0: f32[2])
    [0.0, 0.0]
    """
    return graph_function(graph)


nop.backend = REFERENCE  # type: ignore[attr-defined]
boxed_nop = nop
"""`nop`, whose result is boxed."""


def print_compile(graph: Graph, example_inputs: Sequence[ExampleInput]) -> GraphFunction:
    """Prints the graph, and compiles it like `nop`.

    >>> import aotlite as al
    >>> f = al.aot_function(lambda x: (x * 2.0).sin(), print_compile)
    >>> _ = f(al.zeros(2))
    def _lambda_(primals_0: "f32[2]"):
        mul = ops.mul(primals_0, 2.0)
        sin = ops.sin(mul)
        return (sin,)
    """
    print(graph.code)
    return nop(graph, example_inputs)


def debug_nop(graph: Graph, example_inputs: Sequence[ExampleInput]) -> GraphFunction:
    """Interprets the graph node by node, slowly: an error names the node and the user's line.

    In a debugger, the interpreter's `node` is the node that runs.
    """
    return GraphFunction(graph, _Debugged(graph))


class _Debugged:
    """A callable on windows that interprets a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, windows: list[Window]) -> list[Window | None]:
        pairs = zip(windows, self.graph.placeholders, strict=True)
        values = [ArrayValue(buffer, node.meta, start) for (buffer, start), node in pairs]  # type: ignore[arg-type]
        windows.clear()
        found: list[Any] = _Values(self.graph).run(*values)
        return [None if value is None else (value.buffer, value.start) for value in found]


class _Values(Interpreter):
    def output(self, target: object, args: tuple[Any, ...]) -> object:
        return list(args[0])


# -------------------------------------------------------------------------------------- boxing
def make_boxed_func(function: Callable[..., object]) -> Callable[[list[Any]], Any]:
    """A function of one list of arguments, which it empties before it calls `function` (BOX-1).

    >>> double = make_boxed_func(lambda a, b: a + b)
    >>> args = [1, 2]
    >>> double(args), args
    (3, [])
    """
    if getattr(function, "_boxed_call", False):
        return function

    @functools.wraps(function, updated=())
    def boxed(args: list[object]) -> object:
        given = tuple(args)
        args.clear()
        return function(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler that boxes the result of `compiler`."""

    @functools.wraps(compiler)  # its signature too: it may take the graph alone
    def boxed(*args: object) -> object:
        result = compiler(*args)
        return result if isinstance(result, Graph) else make_boxed_func(result)

    return boxed
