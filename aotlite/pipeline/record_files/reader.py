"""`records_of`: the records of a parsed file.

Entries come one after the other, and refer to earlier ones alone: so nothing is nested, and nothing
goes in circles. Each value is checked against the declared type of its field, and each view against
its op. Spec: `specs/record_files.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import attrs
from optree import PyTreeSpec

from aotlite.eager.base.tape.view_chain import (
    EMPTY_CHAIN,
    MultiViewCall,
    PartStep,
    ViewChain,
    ViewStep,
)
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import AotliteError, noted
from aotlite.ir.graph import Graph
from aotlite.ir.graph.files.limits import DIGITS, INTEGER, RANK, Work, geometry_fault
from aotlite.ir.graph.files.size_texts import Hinted, product_fault
from aotlite.ir.graph.files.symbol_reader import SymbolReader
from aotlite.ir.graph.files.values import (
    Said,
    Unread,
    count_from,
    each,
    field,
    indexed,
    integer_from,
    named,
    record,
)
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, MultiViewOp, ViewOp
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.symint import SymInt
from aotlite.pipeline.record_files.containers import MOST_KINDS, named_type, spec_from
from aotlite.pipeline.record_files.data import read_data, read_device
from aotlite.pipeline.record_files.schema import ValueForm, fields_of, read_text
from aotlite.pipeline.record_files.table import ERRORS, RECORDS
from aotlite.pipeline.record_files.writer import FORMAT, VERSION
from aotlite.stages.records.guards.snapshots import TESTS, Snapshot

MOST_PARTS: Final = 1 << 20
"""The most results of one view."""
_ROOT: Final = frozenset(("format", "version", "metas", "entries", "root"))
_SYMBOLIC: Final = _ROOT | {"symbols", "sizes", "guards"}
_META: Final = frozenset(("dtype", "shape", "stride", "device"))
_STEP: Final = frozenset(("record", "op", "args", "operand", "result"))
_PART: Final = frozenset(("index", "call"))
_DTYPE: Final = named({dtype.name: dtype for dtype in dtypes.DTYPES}, "a dtype")


def records_of(
    document: object, graphs: Sequence[Graph], outside: Mapping[str, object]
) -> tuple[Any, tuple[Assumption, ...]]:
    """The root of a parsed file, and the guards on its symbols. Raises FormatError."""
    try:
        _check_version(document)
        root: Any = record(document, _SYMBOLIC if "symbols" in document else _ROOT)  # type: ignore[operator]
        reader = Reader(root, graphs, outside)
        each(reader.entry, root["entries"], ".entries")
        found = field(root, "root", reader.data)
        if len(reader.used) != len(graphs):
            raise Unread(Said(f"{len(reader.used)} graphs"), f"{len(graphs)}, as there are")
        return found, () if reader.symbols is None else reader.symbols.guards
    except Unread as error:
        raise error.error() from None


def _check_version(document: object) -> None:
    if type(document) is not dict or document.get("format") != FORMAT:
        raise Unread(document, f'an object whose "format" is "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unread(version, f"an integer of 1 to {VERSION}", ".version")
    if version > VERSION:
        raise noted(
            Unread(version, f"at most {VERSION}", ".version").error(),
            "a newer aotlite wrote this: read it with that one, or write it again with this",
        )


@attrs.frozen
class _Operand:
    meta: TensorMeta


class Reader:
    """Reads entries in order, and keeps the records."""

    def __init__(
        self, root: Mapping[str, Any], graphs: Sequence[Graph], outside: Mapping[str, object]
    ) -> None:
        self.symbols = SymbolReader(dict(root), _no_place) if "symbols" in root else None
        self.used: set[int] = set()
        """The numbers of the graphs that some record has."""
        self._outside = outside
        self._graphs = graphs
        self._hinted = Hinted()
        self._made: list[Any] = []
        self._kinds: set[tuple[str, tuple[str, ...]]] = set()
        self._metas: list[TensorMeta] = each(self._meta, root["metas"], ".metas")
        self._meta_at = indexed(self._metas, "metas")
        self._work = Work(len(root["entries"]) if type(root["entries"]) is list else 0)

    def entry(self, value: object) -> None:
        """Reads an entry."""
        if type(value) is not dict or type(value.get("record")) is not str:
            raise Unread(value, "an object with the name of a record")
        kind = value["record"]
        special = _SPECIAL.get(kind)
        self._made.append(self._record(kind, value) if special is None else special(self, value))

    def _record(self, name: str, value: dict[str, Any]) -> Any:
        kind = RECORDS.get(name)
        if kind is None:
            raise Unread(name, "the name of a record", ".record")
        read, omitted = _fields_in_files(name)
        record(value, _keys_of(name))
        made = dict(omitted)
        for key, form, same in read:
            given = value[key]
            if type(given) in same:
                made[key] = given
                continue
            try:
                if not (form.refuses or form.fits(given)):
                    raise Unread(given, form.name)
                made[key] = form.read(given, self)
            except Unread as error:
                raise error.below(f".{key}") from None
        try:
            return kind(**made)
        except (TypeError, ValueError, AotliteError) as error:
            raise Unread(Said(f"a {name} that its class refuses: {error}"[:200]), "one") from None

    # --- what forms ask
    def size(self, value: object) -> int:
        """An integer, or a size with symbols."""
        if type(value) is int:
            if abs(value) >= 10**DIGITS:
                raise Unread(Said("a long integer"), f"one of at most {DIGITS} digits")
            return value
        if type(value) is dict and value.keys() == {"size"} and self.symbols is not None:
            if type(value["size"]) is str:
                return self.symbols.word(value["size"])  # type: ignore[return-value]
        raise Unread(value, "an integer")

    def _meta(self, value: object) -> TensorMeta:
        entry = record(value, _META)
        dtype = field(entry, "dtype", _DTYPE)
        shape, stride = (
            tuple(field(entry, key, lambda x: each(self.size, _short(x), "")))
            for key in ("shape", "stride")
        )
        numbers, steps = self._hinted((shape, stride))
        fault = product_fault(shape) or geometry_fault(numbers, steps, dtype.itemsize)
        if fault is not None:
            raise Unread(Said(f"a meta with {fault[0]}"), fault[1])
        try:
            return tensor_meta(shape, stride, dtype, field(entry, "device", read_device))
        except (AotliteError, MemoryError) as error:
            raise Unread(Said(f"a meta ({error})"[:200]), "one that memory holds") from None

    def meta(self, value: Any) -> TensorMeta:
        """A meta by its position."""
        number = _only(value, "meta")
        if type(number) is int and 0 <= number < len(self._metas):
            return self._metas[number]
        found: TensorMeta = self._meta_at(number)  # raises
        return found

    def graph(self, value: Any) -> Graph:
        """A graph by its number."""
        number = _only(value, "graph")
        found: Graph = indexed(self._graphs, "graphs")(number)
        self.used.add(number)
        return found

    def reference(self, value: Any) -> object:
        """An earlier record."""
        number = _only(value, "ref")
        if type(number) is int and 0 <= number < len(self._made):
            return self._made[number]
        return indexed(self._made, "entries before it")(number)  # raises

    def data(self, value: object) -> object:
        """A value of no declared type."""
        return read_data(value, self, self._outside)

    def spec(self, value: object) -> PyTreeSpec:
        """Containers."""
        return spec_from(value, self.data, self._named_tuple)

    def _named_tuple(self, name: str, fields: tuple[str, ...]) -> Any:
        """The class of a named tuple; None for one too many, or without such a class."""
        self._kinds.add((name, fields))
        return named_type(name, fields) if len(self._kinds) <= MOST_KINDS else None

    def error(self, value: object) -> Exception:
        """An error by its class and arguments."""
        entry = record(value, frozenset(("error", "args", "notes")))
        kind = field(entry, "error", named(ERRORS, "an error"))
        args = field(entry, "args", lambda x: each(self.data, x, ""))
        notes = field(entry, "notes", lambda x: each(lambda y: read_text(y, self), x, ""))
        try:
            made: Exception = kind(*args)
        except Exception:
            raise Unread(value, f"arguments of {kind.__name__}") from None
        return noted(made, *notes)

    # --- views
    def chain(self, value: dict[str, Any]) -> ViewChain:
        """A chain of views: an earlier one, with one step more."""
        if value.keys() == {"record"}:
            return EMPTY_CHAIN
        is_part = not _PART.isdisjoint(value)
        extra = {"before"} & value.keys()
        entry = record(value, _STEP | extra | (_PART if is_part else frozenset()))
        if extra:
            before = field(entry, "before", indexed(self._made, "entries before it"))
        else:
            before = EMPTY_CHAIN
        if type(before) is not ViewChain:
            raise Unread(Said(f"a {type(before).__name__}"), "a chain of views", ".before")
        op, args = self._op(entry, ViewOp)
        operand, result = (field(entry, key, self._meta_at) for key in ("operand", "result"))
        if before and before[-1].result is not operand:
            raise Unread(Said(f"{operand}"[:100]), f"{before[-1].result}, as before", ".operand")
        self._check_view(op, args, operand, result)
        if not is_part:
            return before.then(ViewStep(op, args, operand, result))
        call = field(entry, "call", indexed(self._made, "entries before it"))
        index = field(entry, "index", count_from)
        if type(call) is not MultiViewCall:
            raise Unread(Said(f"a {type(call).__name__}"), "a call of several views", ".call")
        self._check_part(call, index, operand, result)
        return before.then(PartStep(op, args, operand, result, call, index))

    def call(self, value: dict[str, Any]) -> MultiViewCall:
        """A call of an op with several views as results."""
        return MultiViewCall(
            *self._op(record(value, frozenset(("record", "op", "args"))), MultiViewOp)
        )

    def _op(self, entry: dict[str, Any], kind: type[Any]) -> tuple[Any, tuple[Any, ...]]:
        op = field(entry, "op", named(OPS, "an op"))
        if not isinstance(op, kind):
            raise Unread(op.name, "an op that makes views", ".op")
        args = tuple(field(entry, "args", lambda x: each(self.data, x, "")))
        kinds = [parameter.type.text for parameter in op.schema.parameters[1:]]
        if len(args) != len(kinds):
            raise Unread(entry["args"], f"the arguments of {op.schema}", ".args")
        for place, (word, value) in enumerate(zip(kinds, args, strict=True)):
            if not _is_argument(value, word):
                raise Unread(entry["args"][place], f"a {word}", f".args[{place}]")
        return op, args

    def _check_view(self, op: Any, args: Any, operand: TensorMeta, result: TensorMeta) -> None:
        """Compares the result with the op's rule, at the hints where it has symbols."""
        numbers = self._hinted((args, operand, result))
        args, operand, result = numbers
        if op is AS_STRIDED:  # a window may begin before its operand, which the rule refuses
            given = (args[0], args[1], operand.dtype, operand.device)
            if given != (result.shape, result.stride, result.dtype, result.device):
                raise Unread(Said(f"{result}"[:100]), "a window of these sizes", ".result")
            return
        found = self._inferred(op, args, operand)
        if found is not result:
            raise Unread(Said(f"{result}"[:100]), f"{found}"[:100], ".result")

    def _inferred(self, op: Any, args: tuple[Any, ...], operand: TensorMeta) -> Any:
        try:
            return op.infer((_Operand(operand), *args))
        except Exception as error:  # a rule may fail in any way on arguments that no program has
            text = str(error)[:200] or type(error).__name__
            raise Unread(Said(f"a view that {op.name} refuses"), f"one it takes: {text}") from None

    def _check_part(
        self, call: MultiViewCall, index: int, operand: TensorMeta, result: TensorMeta
    ) -> None:
        args, operand, result = self._hinted((call.args, operand, result))
        work: Any = self._work
        # The rule of a split makes so many results as it is asked for.
        numbers = [x for item in args for x in (item if type(item) is tuple else (item,))]
        if any(type(x) is int and abs(x) > MOST_PARTS for x in numbers):
            raise Unread(Said("a view with many results"), f"at most {MOST_PARTS}")
        count = max(operand.shape, default=0)
        if count > MOST_PARTS:
            raise Unread(Said("a view with many results"), f"at most {MOST_PARTS}")
        work.left -= count
        if work.left < 0:
            raise Unread(Said("views that take long"), f"at most {work.most} steps")
        found = self._inferred(call.op, args, operand)
        if index >= len(found) or found[index] is not result:
            raise Unread(index, "the number of a result like this", ".index")

    # --- snapshots
    def snapshot(self, value: dict[str, Any]) -> Snapshot:
        """A snapshot, as a list of tests."""
        entry = record(value, frozenset(("record", "looks", "values", "start")))
        looks = field(entry, "looks", lambda x: each(self._look, x, ""))
        values = field(entry, "values", lambda x: each(integer_from, x, ""))
        return Snapshot(looks, values, field(entry, "start", count_from))

    def _look(self, value: object) -> Any:
        if type(value) is not list or len(value) != 5:
            raise Unread(value, "a list of five")
        holder, key, test, expected, number = value
        found = None if test is None else named(TESTS, "a test")(test)
        wanted = count_from(expected) if test is None else self.data(expected)
        return count_from(holder), self.data(key), found, wanted, count_from(number)


_SPECIAL: Final = {
    "ViewChain": Reader.chain,
    "MultiViewCall": Reader.call,
    "Snapshot": Reader.snapshot,
}


def _is_argument(value: object, kind: str) -> bool:
    """Whether a value may be an argument of this type, by an op's schema."""
    if kind.endswith("?"):
        return value is None or _is_argument(value, kind[:-1])
    if kind == "int[]":
        items: Any = value
        return type(value) is tuple and all(_is_argument(x, "int") for x in items)
    is_short = not isinstance(value, int) or abs(value) <= INTEGER
    return type(value) in _ARGUMENTS.get(kind, ()) and is_short


_ARGUMENTS: Final = {"int": (int, SymInt), "bool": (bool,), "str": (str,), "dtype": (DType,)}


@cache
def _fields_in_files(
    name: str,
) -> tuple[list[tuple[str, ValueForm, frozenset[type]]], dict[str, Any]]:
    """The fields of a record that a file has, with their forms and the types of JSON that is the
    value; and the values of the others."""
    fields = fields_of(RECORDS[name])
    read = [(each.name, each.form, each.form.same) for each in fields if each.form is not None]
    return read, {each.name: each.default for each in fields if each.form is None}


@cache
def _keys_of(name: str) -> frozenset[str]:
    """The keys of an entry of a record."""
    return frozenset(("record", *[key for key, *_ in _fields_in_files(name)[0]]))


def _only(value: Any, tag: str) -> Any:
    if type(value) is not dict or value.keys() != {tag}:
        raise Unread(value, f"an object with the key {tag} alone")
    return value[tag]


def _short(value: Any) -> Any:
    if type(value) not in (list, tuple) or len(value) > RANK:
        raise Unread(Said("no list of sizes"), f"at most {RANK} sizes")
    return value


def _no_place(value: object) -> Any:
    raise Unread(value, "null: the guards of records have no places")
