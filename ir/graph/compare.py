"""Whether two graphs are the same program, where they differ first, and the digest of a program.

Spec: `specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

try:  # hashlib would load all of OpenSSL, 3 ms of a first call
    from _blake2 import blake2b
except ImportError:  # another Python
    from hashlib import blake2b

from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.graph.graph import Constant, Graph, Node
from aotlite.ir.graph.node_text import literal
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import meta_text
from aotlite.ir.op import Op
from aotlite.ir.ops import BUILT_IN

__all__ = ["digest_of", "equal_graphs", "structurally_equal"]

Positions = dict[Node, int]
MOST_BYTES = 1 << 20
"""The most bytes of constants of a graph that has a digest."""
_MOST_BITS = 4096


def equal_graphs(a: Graph, b: Graph) -> bool:
    """Whether both graphs have the same nodes in the same order (`structurally_equal`)."""
    return structurally_equal(a, b) is None


def structurally_equal(a: Graph, b: Graph) -> str | None:
    """The first difference between two graphs, as a sentence; None if they are the same program.

    It compares ops, arguments (exactly: nan equals nan, 0.0 differs from -0.0 and from 0), metas,
    roles and constants (same name and same object). It ignores graph names, phases, source lines,
    scopes, sequence numbers and `recompute`.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> def scaled(factor):
    ...     build = Builder()
    ...     return build.finish([build.placeholder(tensor_meta((2,))) * factor])
    >>> structurally_equal(scaled(2.0), scaled(2.0))
    >>> structurally_equal(scaled(2.0), scaled(3.0))
    "node 1 (mul): argument 'other' is 2.0 in the first graph and 3.0 in the second"
    """
    if len(a) != len(b):
        return f"the number of nodes is {len(a)} in the first graph and {len(b)} in the second"
    at_a: Positions = {}
    at_b: Positions = {}
    for index, (x, y) in enumerate(zip(a.nodes, b.nodes, strict=True)):
        found = _difference(x, y, at_a, at_b)
        if found is not None:
            what, first, second = found
            where = f"node {index} ({a.names[x]})"
            return f"{where}: {what} is {first} in the first graph and {second} in the second"
        at_a[x] = at_b[y] = index
    return None


def _difference(
    x: Node, y: Node, at_a: Positions, at_b: Positions
) -> tuple[str, object, object] | None:
    """(what, in the first, in the second) of the first difference between two nodes."""
    if x.op != y.op:
        return "its kind", x.op, y.op
    if x.op in ("call", "get_attr") and not _same_target(x.target, y.target):
        return "its target", x.target, y.target
    if x.meta is not y.meta and x.meta != y.meta:
        return "its meta", meta_text(x.meta), meta_text(y.meta)
    if x.role != y.role:
        return "its role", x.role, y.role
    return _argument_difference(x, y, at_a, at_b)


def _same_target(x: object, y: object) -> bool:
    if type(x) is Constant and type(y) is Constant:
        return x.name == y.name and x.value is y.value
    return x is y


def _argument_difference(
    x: Node, y: Node, at_a: Positions, at_b: Positions
) -> tuple[str, object, object] | None:
    args_a, args_b = (x.args[0], y.args[0]) if x.op == "output" else (x.args, y.args)
    if len(args_a) != len(args_b):
        return "the number of its arguments", len(args_a), len(args_b)
    for index, (value_a, value_b) in enumerate(zip(args_a, args_b, strict=True)):
        if not _same_value(value_a, value_b, at_a, at_b):
            return _argument_name(x, index), _shown(value_a, at_a), _shown(value_b, at_b)
    return None


def _same_value(x: Any, y: Any, at_a: Positions, at_b: Positions) -> bool:
    kind = type(x)
    if kind is not type(y):
        return False
    if kind is Node:
        return at_a.get(x, -1) == at_b.get(y, -2)
    if kind is tuple:
        same = (_same_value(p, q, at_a, at_b) for p, q in zip(x, y, strict=False))
        return len(x) == len(y) and all(same)
    # Numbers by their text: == would make nan unequal to itself and -0.0 equal to 0.0.
    return x is y or (literal(x, {}) == literal(y, {}) if kind in (float, complex) else x == y)


def _argument_name(node: Node, index: int) -> str:
    if node.op == "output":
        return f"output {index}"
    if isinstance(node.target, Op) and index < len(node.target.schema.parameters):
        return f"argument '{node.target.schema.parameters[index].name}'"
    return f"argument {index}"


def _shown(value: object, positions: Positions) -> str:
    return literal(value, {node: f"node {index}" for node, index in positions.items()})


# ----------------------------------------------------------------------------------------- digests
class _NoDigest(Exception):
    """Raised for a graph without a digest. Never leaves this module."""


def digest_of(graph: Graph) -> str | None:
    """A hash of all that decides what a graph computes, which is not its names, phases and lines.

    None for a graph with ops of the user's own, symbolic sizes, values on other devices than the
    CPU, or large constants.
    """
    if graph.header is not None:
        return graph.header.digest
    try:
        words = [f"{len(each)}:{each}" for each in _words(graph)]
    except _NoDigest:
        return None
    text = "\0".join(words).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=32).hexdigest()


def _words(graph: Graph) -> Iterator[str]:
    numbers: _Texts = {node: f"%{k}" for k, node in enumerate(graph.nodes)}
    constant_bytes = 0
    for node in graph.nodes:
        if node.op == "get_attr":
            constant_bytes += getattr(node.target.value, "nbytes", 0)
            if constant_bytes > MOST_BYTES:
                raise _NoDigest
            target = _array(node.target.value)
        elif node.op == "call":
            if node.target not in BUILT_IN:
                raise _NoDigest
            target = node.target.name
        else:
            target = str(node.role) if node.op == "placeholder" else _roles(graph)
        yield f"{node.op} {target} {_word(node.args, numbers)} {_word(node.meta, numbers)}"


def _roles(graph: Graph) -> str:
    return " ".join([type(role).__name__ for role in graph.output_roles])


def _array(value: object) -> str:
    if type(value) is not np.ndarray or value.dtype.hasobject:
        raise _NoDigest
    return f"{value.dtype.name} {value.shape} {value.strides} {value.tobytes().hex()}"


_Texts = dict[Node | TensorMeta, str]
"""The numbers of nodes, and the texts of metas that have been met."""


def _word(value: Any, numbers: _Texts) -> str:
    """A text that differs for different values of any type: 1, 1.0 and True differ."""
    kind = type(value)
    if kind is Node:
        return numbers[value]
    if kind is tuple:
        return f"({','.join([_word(item, numbers) for item in value])})"
    if kind is TensorMeta:
        found = numbers.get(value)
        if found is None:
            found = numbers[value] = _meta(value)
        return found
    if kind is int and value.bit_length() > _MOST_BITS:  # Python refuses to write its digits
        raise _NoDigest
    if kind in _PLAIN:
        return repr(value)
    if kind is DType or kind is MemoryFormat:
        return f"{kind.__name__} {value!r}"
    if value is CPU:
        return "CPU"
    raise _NoDigest


_PLAIN = frozenset((bool, int, float, complex, str, type(None)))


def _meta(meta: TensorMeta) -> str:
    sizes = (*meta.shape, *meta.stride)
    if meta.device is not CPU or any(type(size) is not int for size in sizes):
        raise _NoDigest
    return f"{meta.dtype.name}{meta.shape}{meta.stride}"
