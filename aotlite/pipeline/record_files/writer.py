"""`Writer`: the entries of records, one for each object, in an order in which each is known before
it is referred to.

An object is written once, and one object is one object again when it is read: an effect of a
backward is found by its identity. Spec: `specs/record_files.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from optree import PyTreeSpec

from aotlite.eager.base.tape.view_chain import PartStep, ViewChain
from aotlite.ir.errors import AotliteError, UnsupportedError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files import dumps
from aotlite.ir.graph.files.limits import DIGITS
from aotlite.ir.graph.files.symbol_writer import WrittenSymbols
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable
from aotlite.pipeline.record_files.containers import written_spec
from aotlite.pipeline.record_files.data import write_data
from aotlite.pipeline.record_files.schema import fields_of, written, written_text
from aotlite.pipeline.record_files.table import ERRORS, OMITTED, RECORDS
from aotlite.stages.records.guards.snapshots import TESTS, Snapshot
from aotlite.stages.records.rng_state import Advanced, Reseeded

FORMAT: Final = "aotlite records"
VERSION: Final = 1
"""Raised when the meaning of a file changes, or the format gains something."""
_TEST_NAMES: Final = {test: name for name, test in TESTS.items()}


class Writer:
    """Writes records: `reference` writes one with all that it refers to."""

    def __init__(self, outside: Mapping[str, object], *, places: bool, checks: bool = True) -> None:
        self.entries: list[dict[str, Any]] = []
        self.metas: dict[TensorMeta, int] = {}
        self.graphs: list[str] = []
        self._places, self._checks = places, checks
        self._outside = {id(value): name for name, value in outside.items()}
        self._known: dict[int, tuple[object, int]] = {}
        """By id: the object, which is kept alive, and its entry."""
        self._chains: dict[tuple[int, int], int] = {}
        """(entry of the chain before the last step, id of that step) -> entry of the chain."""
        self._graphs: dict[int, tuple[Graph, int]] = {}
        self._table: SymbolTable | None = None
        self._sizes: list[SymInt] = []

    def text(self, root: object, guards: Sequence[Assumption]) -> str:
        """The text of a file with this root."""
        top = self.data(root)
        metas = [self._meta_entry(meta) for meta in self.metas]
        document = {
            "format": FORMAT,
            "version": VERSION,
            **self._symbols(guards),
            "metas": metas,
            "entries": self.entries,
            "root": top,
        }
        return _lines(json.dumps(document, separators=(",", ":"), allow_nan=False)) + "\n"

    def _symbols(self, guards: Sequence[Assumption]) -> dict[str, object]:
        sizes = list(self._sizes)
        if self._table is None:
            return {}
        return WrittenSymbols.of(self._table, sizes, guards).tables(None, str)

    # --- what forms ask
    def size(self, value: int) -> object:
        """An integer, or the text of a size with symbols."""
        if isinstance(value, SymInt):
            if self._table is None:
                self._table = value.table
            self._sizes.append(value)
            return {"size": WrittenSymbols.of(self._table, (), ()).size(value)}
        if abs(value) >= 10**DIGITS:
            raise UnsupportedError(
                f"records: an integer has more than {DIGITS} digits, expected fewer"
            )
        return int(value)

    def meta(self, value: TensorMeta) -> int:
        """The position of a meta."""
        return self.metas.setdefault(value, len(self.metas))

    def _meta_entry(self, meta: TensorMeta) -> object:
        return {
            "dtype": meta.dtype.name,
            "shape": list(map(self.size, meta.shape)),
            "stride": list(map(self.size, meta.stride)),
            "device": meta.device.name,
        }

    def graph(self, value: Graph) -> int:
        """The number of a graph."""
        known = self._graphs.get(id(value))
        if known is None:
            known = self._graphs[id(value)] = value, len(self.graphs)
            self.graphs.append(dumps(value, places=self._places, checks=self._checks))
        return known[1]

    @property
    def written(self) -> list[Graph]:
        """The graphs whose texts are in `graphs`, in order."""
        return [graph for graph, _ in self._graphs.values()]

    def spec(self, value: PyTreeSpec) -> object:
        """Containers."""
        return written_spec(value, self.data)

    def data(self, value: object) -> object:
        """A value of no declared type."""
        return write_data(value, self, self._outside)

    def error(self, value: BaseException) -> object:
        """An error of eager's backward, by its class and arguments."""
        name = type(value).__name__
        if ERRORS.get(name) is not type(value):
            raise noted(
                UnsupportedError(
                    f"records: a backward raises {type(value).__qualname__}, which is no data, "
                    "expected an error of aotlite or Python"
                ),
                "Raise one of these in the custom function or hook.",
            )
        args = [self.data(each) for each in value.args]
        notes = [written_text(str(each), self) for each in getattr(value, "__notes__", ())]
        return {"error": name, "args": args, "notes": notes}

    # --- entries
    def reference(self, value: object) -> object:
        """A reference to the entry of a record, which is added if it is not there."""
        for each in _inner(value):
            if id(each) not in self._known:
                self._known[id(each)] = each, self._position(each)
        return {"ref": self._known[id(value)][1]}

    def _position(self, value: Any) -> int:
        """The position of an entry, which is added; chains of the same steps have one (REC-1)."""
        key = None
        if isinstance(value, ViewChain) and value:
            key = self._known[id(value.before)][1], id(value[-1])
            if key in self._chains:
                return self._chains[key]
        entry = self._entry(value)
        position = len(self.entries)
        self.entries.append(entry)
        if key is not None:
            self._chains[key] = position
        return position

    def _entry(self, value: Any) -> dict[str, Any]:
        if isinstance(value, ViewChain):
            return self._chain(value)
        if isinstance(value, Snapshot):
            return self._snapshot(value)
        kind = type(value)
        if RECORDS.get(kind.__name__) is not kind:
            raise UnsupportedError(f"records: a {kind.__name__} is no record that a file has")
        entry: dict[str, Any] = {"record": kind.__name__}
        for each in fields_of(kind):
            found = getattr(value, each.name)
            if each.form is None:
                _check_omitted(kind.__name__, each.name, found, each.default)
                continue
            try:
                entry[each.name] = written(each.form, found, self)
            except AotliteError as error:
                noted(error, f"in {kind.__name__}.{each.name}")
                raise
        return entry

    def _chain(self, chain: ViewChain) -> dict[str, Any]:
        entry: dict[str, Any] = {"record": "ViewChain"}
        if not chain:
            return entry
        step = chain[-1]
        if chain.before:
            entry["before"] = self._known[id(chain.before)][1]
        if OPS.get(step.op.name) is not step.op:
            raise UnsupportedError(
                f"records: a view is {step.op.name}, expected an op of the table"
            )
        entry |= {"op": step.op.name, "args": [self.data(each) for each in step.args]}
        entry |= {"operand": self.meta(step.operand), "result": self.meta(step.result)}
        if isinstance(step, PartStep):
            entry |= {"index": step.index, "call": self._call(step)}
        return entry

    def _call(self, step: PartStep) -> int:
        """The entry of a call whose results share it."""
        call = step.parts
        if id(call) not in self._known:
            args = [self.data(each) for each in call.args]
            entry = {"record": "MultiViewCall", "op": call.op.name, "args": args}
            self._known[id(call)] = call, len(self.entries)
            self.entries.append(entry)
        return self._known[id(call)][1]

    def _snapshot(self, value: Snapshot) -> dict[str, Any]:
        looks, values, start = value.content
        rows = []
        for holder, key, test, expected, number in looks:
            name = None if test is None else _TEST_NAMES[test]
            rows.append([holder, self.data(key), name, self.data(expected), number])
        return {"record": "Snapshot", "looks": rows, "values": list(values), "start": start}


def _inner(value: Any) -> list[Any]:
    """The object, behind those of its own kind on which it is built: chains of any length."""
    found = [value]
    while True:
        last = found[-1]
        if isinstance(last, ViewChain) and last:
            found.append(last.before)
        elif isinstance(last, (Advanced, Reseeded)):
            found.append(last.before)
        else:
            return found[::-1]


def _check_omitted(kind: str, name: str, found: object, default: object) -> None:
    if found is default or found == default:
        return
    raise noted(
        UnsupportedError(
            f"records: {kind}.{name} has {OMITTED[kind, name]}, which is no data, expected none"
        ),
        "`at_rest` gives the records without what lives in one process. A function that registers "
        "hooks has none: register them outside.",
    )


def _lines(text: str) -> str:
    """The same JSON with a line for each entry: the patterns do not match inside a string."""
    for key in ("record", "dtype", "symbol", "left", "function"):
        text = text.replace(f'{{"{key}":', f'\n{{"{key}":')
    return text
