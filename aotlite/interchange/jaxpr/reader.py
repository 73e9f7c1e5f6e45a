"""`from_jaxpr`: a jaxpr, or a function that JAX traces, as a graph.

    { lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) }      sin = ops.sin(arg_0)

Calls, also those with derivatives of their own, are inlined. The shape and the
dtype of each result are compared with the jaxpr's. Spec: `specs/jaxpr.md`. Rules: JXP-1 to JXP-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import aotlite.ir.ops  # noqa: F401  (fills OPS)
from aotlite.interchange.jaxpr.geometry import GEOMETRY, WITHOUT_OPERANDS
from aotlite.interchange.jaxpr.indexing import INDEXING
from aotlite.interchange.jaxpr.pointwise import POINTWISE
from aotlite.interchange.jaxpr.products import PRODUCTS
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import from_numpy, int64
from aotlite.ir.errors import (
    AotliteError,
    ArgumentError,
    MissingExtraError,
    UnsupportedError,
    noted,
)
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder, Proxy, Results
from aotlite.ir.graph.graph import name_from
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS

FORMS = {**POINTWISE, **GEOMETRY, **INDEXING, **PRODUCTS, **WITHOUT_OPERANDS}
"""Primitive -> its form."""

INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameters of calls that hold what is called."""

LOOPS = ("scan", "while", "cond")
"""Primitives that hold jaxprs and are no calls of them."""


def from_jaxpr(source: Any, *examples: Any) -> Graph:
    """A `ClosedJaxpr` as a graph; or a function of arrays, traced by JAX for these examples.

    The leaves of the arguments are inputs, in JAX's order, and those of the result are outputs.
    Constants of the jaxpr become constants of the graph.
    Raises UnsupportedError that names all primitives which have no form, before anything is made,
    and MissingExtraError where JAX is not installed.
    """
    closed, name = _closed(source, examples)
    unknown = sorted(set(_unknown(closed.jaxpr)))
    if unknown:
        raise noted(
            UnsupportedError(
                f"from_jaxpr: {name} has primitives without a form: {', '.join(unknown)}, expected "
                "primitives that aotlite has"
            ),
            "Instead: keep loops and random numbers out of what crosses; unroll a loop by `for` in "
            "Python, and give random numbers as arguments. (JXP-2)",
        )
    reader = JaxprReader(name)
    return reader.graph_of(closed)


def _closed(source: Any, examples: tuple[Any, ...]) -> tuple[Any, str]:
    """The jaxpr with its constants, and a name for the graph."""
    try:
        import jax
        from jax.extend.core import ClosedJaxpr
    except ImportError as error:
        raise MissingExtraError(
            "from_jaxpr: jax is not installed, expected it; install aotlite[stablehlo]"
        ) from error
    if isinstance(source, ClosedJaxpr):
        return source, "jaxpr"
    if not callable(source):
        raise ArgumentError(
            f"from_jaxpr: the source is a {type(source).__name__}, expected a ClosedJaxpr, or a "
            "function with examples of its arguments"
        )
    closed = jax.make_jaxpr(source)(*examples)
    return closed, name_from(getattr(source, "__name__", "jaxpr"))


def _inner(equation: Any) -> Any:
    """The jaxpr that an equation calls, if it is a call."""
    if equation.primitive.name in LOOPS:
        return None
    return next((equation.params[key] for key in INLINED if key in equation.params), None)


def _open(jaxpr: Any) -> tuple[Any, list[Any]]:
    """(jaxpr, constants) of a jaxpr that may be closed."""
    return (jaxpr.jaxpr, list(jaxpr.consts)) if hasattr(jaxpr, "consts") else (jaxpr, [])


def _unknown(jaxpr: Any) -> Iterator[str]:
    """The names of primitives without a form, also in calls."""
    for equation in jaxpr.eqns:
        inner = _inner(equation)
        if inner is not None:
            yield from _unknown(_open(inner)[0])
        elif equation.primitive.name not in FORMS:
            yield equation.primitive.name


class JaxprReader:
    """A graph under construction."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)

    def graph_of(self, closed: Any) -> Graph:
        """The graph of a closed jaxpr."""
        inputs = [self.builder.placeholder(meta_of(var.aval)) for var in closed.jaxpr.invars]
        results = self._run(closed.jaxpr, list(closed.consts), inputs)
        graph = self.builder.finish([self._tensor(each, None) for each in results])
        verify(graph)
        return graph

    def _run(self, jaxpr: Any, constants: list[Any], inputs: list[Any]) -> list[Any]:
        """The results of a jaxpr: values, and numbers for literals."""
        env: dict[Any, Any] = {}

        def read(atom: Any) -> Any:
            if not hasattr(atom, "val"):
                return env[atom]
            array = np.asarray(atom.val)
            return self._constant(array) if array.shape else JaxprLiteral(array)

        env.update(zip(jaxpr.constvars, map(self._constant, constants), strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))
        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            try:
                made = self._made(equation, operands)
                for var, value in zip(equation.outvars, made, strict=True):
                    env[var] = self._checked(equation, var.aval, value)
            except AotliteError as error:
                error.add_note(f"while reading: {str(equation).splitlines()[0]}")
                raise
        return [read(atom) for atom in jaxpr.outvars]

    def _made(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The results of an equation."""
        inner = _inner(equation)
        if inner is not None:
            jaxpr, constants = _open(inner)
            return self._run(jaxpr, constants, operands)
        name = equation.primitive.name
        if name in WITHOUT_OPERANDS:
            return [WITHOUT_OPERANDS[name](_plain(equation.params), self.builder)]
        given = [self._tensor(x, equation) for x in operands]
        if name in POINTWISE and any(isinstance(x, Proxy) for x in operands):
            given = [x.value if isinstance(x, JaxprLiteral) else x for x in operands]
        given, narrow = _widened(name, given)
        found = FORMS[name](_plain(equation.params), *given)
        if found is NotImplemented:
            raise UnsupportedError(
                f"from_jaxpr: {name} with {_told(equation)} has no form, expected parameters that "
                "aotlite has"
            )
        if narrow:
            (var,) = equation.outvars
            found = found._do("cast", from_numpy(np.dtype(var.aval.dtype)))
        found = tuple(found) if isinstance(found, (tuple, list, Results)) else (found,)
        return list(found)[: len(equation.outvars)]

    def _checked(self, equation: Any, aval: Any, value: Any) -> Any:
        """The value. Raises ArgumentError where it has not the jaxpr's shape and dtype."""
        if isinstance(value, JaxprLiteral):
            value = self._tensor(value, equation)
        wanted = meta_of(aval)
        if (value.meta.shape, value.meta.dtype) != (wanted.shape, wanted.dtype):
            raise ArgumentError(
                f"from_jaxpr: {equation.primitive.name} gives {wanted} in JAX, expected "
                f"{value.meta}"
            )
        return value

    def _constant(self, value: Any) -> Any:
        array = np.array(value)
        name = f"constant_{sum(node.op == 'get_attr' for node in self.builder.nodes)}"
        return self.builder.constant(
            name, array, tensor_meta(array.shape, None, from_numpy(array.dtype))
        )

    def _tensor(self, value: Any, equation: Any) -> Any:
        if not isinstance(value, JaxprLiteral):
            return value
        dtype = from_numpy(value.array.dtype)
        return self.builder.call(OPS["full"], ((), value.value, dtype, CPU))


class JaxprLiteral:
    """A literal of a jaxpr."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.value: Any = array.item()


def meta_of(aval: Any) -> TensorMeta:
    """The meta of an abstract value. Raises UnsupportedError for symbols, and for what is no array
    of numbers."""
    shape = tuple(aval.shape)
    if not all(isinstance(size, int) for size in shape):
        raise UnsupportedError(f"from_jaxpr: a value has the shape {shape}, expected numbers")
    return tensor_meta(shape, None, from_numpy(np.dtype(aval.dtype)))


WRAPS = frozenset("add sub mul max min add_any eq ne lt le gt ge and or xor rem".split())
"""Primitives that give the same of wider integers, cast back."""


def _widened(name: str, operands: list[Any]) -> tuple[list[Any], bool]:
    """Operands of an unsigned dtype that has no arithmetic here, as int64; whether there are."""
    narrow = [isinstance(x, Proxy) and x.meta.dtype.name in ("uint16", "uint32") for x in operands]
    if name not in WRAPS or not any(narrow):
        return operands, False
    return [x._do("cast", int64) if n else x for x, n in zip(operands, narrow, strict=True)], True


def _plain(value: Any) -> Any:
    """Parameters with Python's ints in the place of NumPy's."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if type(value) in (tuple, list):
        return tuple([_plain(each) for each in value])
    return int(value) if isinstance(value, np.integer) else value


def _told(equation: Any) -> str:
    shown = {key: value for key, value in equation.params.items() if value is not None}
    return ", ".join(f"{key}={value}" for key, value in shown.items())
