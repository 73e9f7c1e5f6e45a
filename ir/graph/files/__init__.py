"""Graphs in files: versioned JSON that is data, and no code.

Ground floor. `dumps` and `loads` work on text, `save` and `load` on files. It is safe to load a
file that anybody wrote. No code from the file runs: ops are looked up by name in the op table, and
every other word in a closed list. Time and memory are linear in the length of the file. The graph
is verified. Spec: `specs/serialize.md`.

    limits   limits that both sides check
    writer   graph -> text
    parser   text -> JSON values, with bounded memory
    reader   JSON values -> graph;  values: its words, numbers and records
    symbol_writer, symbol_reader  symbols, sizes and guards;  size_texts: the texts of sizes
    headers what is known of a graph before its text is read
    windows  checks that no view leaves the memory of its operand
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from aotlite.ir.arrays.device import Device
from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import ArgumentError, FormatError, GraphError, UnsupportedError, noted
from aotlite.ir.graph.files.headers import header_text, unread
from aotlite.ir.graph.files.parser import parsed
from aotlite.ir.graph.files.reader import graph_of
from aotlite.ir.graph.files.windows import stray_window
from aotlite.ir.graph.files.writer import text_of
from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta, table_in
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.meta.text import HOST

__all__ = ["MAX_BYTES", "dumps", "header_text", "load", "loads", "loads_later", "save"]

MAX_BYTES: Final = 1 << 28
"""The default limit on the length of a file: 256 MiB."""


def dumps(graph: Graph, *, places: bool = True, checks: bool = True) -> str:
    """The text of a graph, one line a node; equal graphs give equal texts.

    `places=False` leaves out the user's files and lines, which differ from machine to machine;
    `checks=False` leaves the checks to `loads`, for who reads the text back at once.
    Raises GraphError for an invalid graph, UnsupportedError for one that no file can hold.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(dumps(build.finish([x * 2.0])), end="")
    {"format":"aotlite graph","version":1,
    "name":"double",
    "metas":[
    {"dtype":"float32","shape":[2],"stride":[1],"device":"cpu"}],
    "places":[],
    "constants":[],
    "nodes":[
    {"op":"placeholder","role":"arg_0","meta":0},
    {"op":"call","target":"mul","args":["%0",2.0],"meta":0},
    {"op":"output","args":["%1"],"role":["output_0"]}]}
    """
    with collector_paused():
        if not checks:
            return text_of(graph, places=places)
        if graph.symbols:
            return _symbolic_text(graph, places=places)
        verify(graph, stage="serialize")
        if (stray := stray_window(graph.nodes)) is not None:
            raise UnsupportedError(_stray(f"node {stray[0]}", stray[1]))
        return text_of(graph, places=places)


def _symbolic_text(graph: Graph, *, places: bool) -> str:
    """The text of a graph with symbols. The graph itself is verified at its hints: where all is
    known, its rules might ask more, and its trace is over."""
    table = table_in([node.meta for node in graph.nodes])
    try:
        numbers = None if table is None else at_sizes(graph, table.hints)
    except Exception:  # what `verify` finds
        numbers = None
    verify(graph if numbers is None else numbers, stage="serialize")
    text = text_of(graph, places=places)
    _read_back(text, graph)
    return text


def _read_back(text: str, graph: Graph) -> None:
    """Raises UnsupportedError if the text of a graph with symbols is refused: what a rule asks
    where all guards are known may need a proof that there was no need for in the trace (SER-17)."""
    metas: list[object] = [node.meta for node in graph.nodes]
    metas += [part for meta in metas if type(meta) is tuple for part in meta]
    devices = {each.device.name: each.device for each in metas if type(each) is TensorMeta}
    try:
        loads(text, max_bytes=max(MAX_BYTES, 16 * len(text)), devices={**HOST, **devices})
    except FormatError as error:
        raise noted(
            UnsupportedError(
                f"serialize: the sizes of graph {graph.name} are not proved by its guards alone, "
                "expected guards that decide what its ops ask"
            ),
            str(error),
        ) from error


def loads(
    text: str | bytes, *, max_bytes: int = MAX_BYTES, devices: Mapping[str, Device] = HOST
) -> Graph:
    """The graph of a text that `dumps` wrote. Raises FormatError, which says where it is wrong.

    `devices` are those that the text may name. Constants are read-only arrays.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> print(loads(dumps(build.finish([x * 2.0]))).code)
    def double(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 2.0)
        return (mul,)
    """
    if not isinstance(text, (str, bytes)):
        raise ArgumentError(f"loads: the text is a {type(text).__name__}, expected str or bytes")
    return _loaded(text, max_bytes, devices)


def loads_later(text: str, header: str, *, max_bytes: int = MAX_BYTES) -> Graph:
    """The graph of a text that `dumps` wrote, which is read, with all checks of `loads`, when a
    node is first asked for. `header` is its `header_text`, which is believed until then (SER-19).
    """
    return unread(header, partial(_loaded, text, max_bytes, HOST))


def _loaded(
    text: str | bytes, max_bytes: int, devices: Mapping[str, Device], inputs: Sequence[Node] = ()
) -> Graph:
    with collector_paused():
        graph, symbols = graph_of(parsed(text, max_bytes), devices, max_bytes, inputs)
        same = always_same_meta if symbols is None else symbols.same_meta
        try:
            verify(graph, stage="serialize", same_meta=same)
        except GraphError as error:
            # `dumps` did not write this graph: its lines may have any length.
            notes = [note[:1_000] for note in error.__notes__]
            raise noted(FormatError(str(error)[:1_000]), *notes) from None
        holds = None if symbols is None else symbols.holds
        if (stray := stray_window(graph.nodes, holds)) is not None:
            raise FormatError(_stray(f"nodes[{stray[0]}]", stray[1]))
        if symbols is not None:
            symbols.end(graph)
    return graph


def _stray(node: str, shown: str) -> str:
    return f"serialize: {node} is a window on {shown}, expected one inside its operand's storage"


def save(graph: Graph, path: str | os.PathLike[str], *, places: bool = True) -> None:
    """Writes `dumps(graph)` to a file, which it replaces if it exists."""
    text = dumps(graph, places=places)
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(text)


def load(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MAX_BYTES,
    devices: Mapping[str, Device] = HOST,
) -> Graph:
    """The graph in a file, by `loads`. It reads at most `max_bytes + 1` bytes."""
    with open(path, "rb") as file:
        text = file.read(max_bytes + 1)
    try:
        return loads(text, max_bytes=max_bytes, devices=devices)
    except FormatError as error:
        noted(error, f"in the file {os.fspath(path)!r}")
        raise
