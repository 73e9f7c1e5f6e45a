"""Keys of graphs in the disk cache: a hash of all that lowering, fusion and printing depend on.

That is the graph, the number of threads, and aotlite's own sources: a key changes with any file of
ops, loops or printer. Sizes and times stand for a file's contents, since reading all files would
take longer than the cache saves; users cannot set `st_ctime_ns`. Spec: `specs/cpu_backend.md`
(CPU-9).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import aotlite.backends
import aotlite.ir
from aotlite.backends.native.cache.disk_cache import key_of
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.graph import Graph, Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops import BUILT_IN

MOST_BYTES = 1 << 20
"""The most bytes of constants of a graph that is cached."""

_MOST_BITS = 4096


class Unkeyed(Exception):
    """Raised for a graph that is not cached. Never leaves the backend."""


def graph_key(graph: Graph, threads: int) -> str | None:
    """Returns the key of a graph; None for one that is not cached.

    Those are graphs with ops of the user's own, symbolic sizes or large constants.
    """
    sources = _sources()
    if not sources:
        return None
    try:
        words = list(_words(graph))
    except Unkeyed:
        return None
    return key_of("graph", sources, str(threads), graph.name, *words)


# ----------------------------------------------------------------------------------------- graphs
def _words(graph: Graph) -> Iterator[str]:
    numbers: Texts = {node: f"%{k}" for k, node in enumerate(graph.nodes)}
    constant_bytes = 0
    for node in graph.nodes:
        if node.op == "get_attr":
            constant_bytes += getattr(node.target.value, "nbytes", 0)
            if constant_bytes > MOST_BYTES:
                raise Unkeyed
            target = _array(node.target.value)
        elif node.op == "call":
            if node.target not in BUILT_IN:
                raise Unkeyed
            target = node.target.name
        else:
            target = str(node.role) if node.op == "placeholder" else _roles(graph)
        yield f"{node.op} {target} {_word(node.args, numbers)} {_word(node.meta, numbers)}"


def _roles(graph: Graph) -> str:
    return " ".join([type(role).__name__ for role in graph.output_roles])


def _array(value: object) -> str:
    if type(value) is not np.ndarray or value.dtype.hasobject:
        raise Unkeyed
    return f"{value.dtype.name} {value.shape} {value.strides} {value.tobytes().hex()}"


Texts = dict[Node | TensorMeta, str]
"""The numbers of nodes, and the texts of metas that have been met."""


def _word(value: Any, numbers: Texts) -> str:
    """Returns a text that differs for different values of any type: 1, 1.0 and True differ."""
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
        raise Unkeyed
    if kind in _PLAIN:
        return repr(value)
    if kind is DType or kind is MemoryFormat:
        return f"{kind.__name__} {value!r}"
    if value is CPU:
        return "CPU"
    raise Unkeyed


_PLAIN = frozenset((bool, int, float, complex, str, type(None)))


def _meta(meta: TensorMeta) -> str:
    sizes = (*meta.shape, *meta.stride)
    if meta.device is not CPU or any(type(size) is not int for size in sizes):
        raise Unkeyed
    return f"{meta.dtype.name}{meta.shape}{meta.stride}"


# ---------------------------------------------------------------------------------------- sources
@cache
def _sources() -> str:
    """Returns sizes and times of all files of ops and backends, with the versions of Python and
    NumPy; empty where there are no files, as in a zip archive."""
    try:
        files = [*_files(aotlite.ir.__path__[0]), *_files(aotlite.backends.__path__[0])]
    except OSError:
        return ""
    return "\n".join([sys.version, np.__version__, *sorted(files)])


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith((".py", ".c", ".h")):
                found = entry.stat()
                yield f"{entry.path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
