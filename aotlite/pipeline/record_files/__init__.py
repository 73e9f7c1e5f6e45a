"""Records in files: what stages 2 to 8 have made of a function, as versioned data without code.

`encoded` writes records, and `decoded` reads them. A document is a JSON text, and a text for each
graph; it is safe to read one that anybody wrote. Programs and the artifact cache are kept so.
Spec: `specs/record_files.md`. Rules: REC-1 to REC-9.

    table       the classes, enums and errors that a file may name
    schema      the form of each field, by its declared type
    data        values of no declared type;  containers: those of results
    writer      records -> entries;  reader: entries -> records
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from aotlite.ir.collector import collector_paused
from aotlite.ir.errors import FormatError
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.files import MAX_BYTES, header_text, loads, loads_later
from aotlite.ir.graph.files.parser import parsed
from aotlite.ir.symbols.assumption import Assumption
from aotlite.pipeline.record_files.reader import records_of
from aotlite.pipeline.record_files.writer import FORMAT, VERSION, Writer
from aotlite.pipeline.size_regions.records import StageRecords
from aotlite.stages.records.backward.joint import Joint

__all__ = [
    "FORMAT",
    "VERSION",
    "Decoded",
    "Document",
    "at_rest",
    "decoded",
    "encoded",
    "joint_at_rest",
]

DEPTH: Final = 48
"""The deepest nesting of brackets in a document's text."""
MOST_GRAPHS: Final = 10_000
"""The most graphs of a document."""


@attrs.frozen
class Document:
    """Records as texts: one of the records, and one of each graph."""

    text: str
    graphs: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    """For each graph its header, empty for one without; or none at all. They are believed, so that
    such a graph is read when it is first asked for (REC-9)."""


@attrs.frozen
class Decoded:
    """What a document has."""

    root: Any
    """The object that was written: a record, or a container of records and data."""
    guards: tuple[Assumption, ...]
    """The conditions on the symbols of the records, in a symbol table of their own."""


def at_rest(records: StageRecords) -> StageRecords:
    """The records without what lives in one process: the kept tape, fakes, kernels, and the ops of
    the joint graph, which stages 9 and 10 do not read (REC-5)."""
    return attrs.evolve(records, joint=joint_at_rest(records.joint), kernels=(None, None), run=None)


def joint_at_rest(both: Joint) -> Joint:
    """The record of stage 4 without the ops of its graph, the tape and the fakes."""
    closing = output_node([], [])
    inputs = Graph((*both.graph.placeholders, closing), both.graph.name)
    return attrs.evolve(both, graph=inputs, late_inputs=(), kept_tape=None)


def encoded(
    root: object,
    *,
    guards: Sequence[Assumption] = (),
    outside: Mapping[str, object] | None = None,
    places: bool = True,
    with_headers: bool = False,
    checks: bool = True,
) -> Document:
    """The document of records: a record of `table`, or a container of such and of plain values.

    `guards` are the conditions on symbols that the document keeps. `outside` are objects that are
    no data, by the names under which the reader is given them again: the function of access paths,
    classes of Modules. `places=False` leaves out the users' lines of graphs. `with_headers` adds
    the headers of graphs; `checks=False` leaves the checks of graphs to who reads them back. Equal
    records give equal documents (REC-1). Raises UnsupportedError for what is no data, and says what
    it is.
    """
    with collector_paused():
        writer = Writer(outside or {}, places=places, checks=checks)
        text = writer.text(root, guards)
        headers = tuple(map(header_text, writer.written)) if with_headers else ()
    return Document(text, tuple(writer.graphs), headers)


def decoded(
    document: Document,
    *,
    outside: Mapping[str, object] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Decoded:
    """The records of a document. Raises FormatError, which says where it is wrong (REC-6).

    `outside` has the objects that were named so when it was written. Nothing of a document is
    imported, evaluated or looked up beyond the closed tables. `max_bytes` limits all texts
    together.
    """
    if len(document.graphs) > MOST_GRAPHS:
        raise FormatError(
            f"serialize: there are {len(document.graphs)} graphs, expected at most {MOST_GRAPHS}"
        )
    texts = document.text, *document.graphs, *document.headers
    if sum(map(len, texts)) > max_bytes:
        raise FormatError(
            f"serialize: the texts are longer than {max_bytes} bytes, expected no more"
        )
    with collector_paused():
        believed = bool(document.headers)
        root = json.loads(document.text) if believed else parsed(document.text, max_bytes, DEPTH)
        headers = document.headers or ("",) * len(document.graphs)
        pairs = zip(document.graphs, headers, strict=True)
        graphs = [
            loads_later(text, header, max_bytes=max_bytes)
            if header
            else loads(text, max_bytes=max_bytes)
            for text, header in pairs
        ]
        found, guards = records_of(root, graphs, outside or {})
    return Decoded(found, guards)
