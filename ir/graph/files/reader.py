"""`graph_of`: the graph of a parsed file.

Ground floor. It takes the JSON values of `ir/graph/files/parser.py` and builds the graph in one
pass. It trusts nothing: it checks the type of every value, looks up every word in a closed list,
and compares every meta with that of the op's meta rule. Spec: `specs/serialize.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import Device, is_cuda
from aotlite.ir.errors import OutOfMemoryError, ShapeError, noted
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.graph.files.limits import RANK, Json, Work, geometry_fault, long_lists
from aotlite.ir.graph.files.size_texts import TABLES, Hinted, product_fault, unhinted
from aotlite.ir.graph.files.symbol_reader import SymbolReader
from aotlite.ir.graph.files.values import (
    Read,
    Said,
    Unread,
    bool_from,
    bytes_from,
    count_from,
    cut,
    each,
    field,
    float_from,
    indexed,
    integer_from,
    named,
    number_from,
    optional,
    place_from,
    record,
    role_from,
    text_from,
)
from aotlite.ir.graph.files.writer import FORMAT, VERSION, in_file_order
from aotlite.ir.graph.graph import Constant, Graph, Node, Phase, Result, name_from
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.meta.text import HOST, meta_text
from aotlite.ir.op import OPS, Op
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.provenance.scope import Scope

__all__ = ["graph_of"]

Devices = Mapping[str, Device]
Record = tuple[str, str, Read]
"""An optional key of a node: (key, field of `Node`, reader of the value)."""

_ROOT: Final = frozenset(("format", "version", "name", "metas", "places", "constants", "nodes"))
_SYMBOLIC: Final = _ROOT.union(TABLES)
_OPEN: Final = _SYMBOLIC | {"parameters"}
_OF_INPUTS: Final = (
    *("role", "meta", "grad_mode", "phase"),
    *("sequence", "location", "scope", "recompute"),
)
_META: Final = frozenset(("dtype", "shape", "stride", "device"))
_CONSTANT: Final = frozenset(("name", "dtype", "shape", "data"))


def graph_of(
    document: object, devices: Devices, max_bytes: int, inputs: Sequence[Node] = ()
) -> tuple[Graph, SymbolReader | None]:
    """The graph of a parsed file, and its symbols, if it has some. `inputs` are the placeholders
    that it gets; they must be as in the file.

    Raises FormatError with the path of the value that is wrong.
    """
    try:
        _check_version(document)
        root = record(document, _keys(document))  # type: ignore[arg-type]
        name = field(root, "name", text_from)
        tables = _Tables(root, devices)
        nodes = _NodeReader(tables, max_bytes, inputs).nodes(root["nodes"])
        if name != name_from(name):
            raise Unread(name, "a name without NUL", ".name")
        saved = () if tables.symbols is None else tables.symbols.saved_sizes
        return Graph(nodes, name, saved_sizes=saved), tables.symbols
    except Unread as error:
        raise error.error() from None


def _check_version(document: object) -> None:
    """Checks format and version first: another version may have other keys."""
    if type(document) is not dict or document.get("format") != FORMAT:
        raise Unread(document, f'an object whose "format" is "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unread(version, f"an integer of 1 to {VERSION}", ".version")
    if version > VERSION:
        raise noted(
            Unread(version, f"at most {VERSION}", ".version").error(),
            "a newer aotlite wrote this: read it with that one, or make the graph again with this",
        )


def _keys(document: Json) -> frozenset[str]:
    """The keys of a file of its version; of the last one with symbols or without."""
    if document["version"] == 1 or (document["version"] == VERSION and "symbols" not in document):
        return _ROOT
    return _SYMBOLIC if document["version"] == 2 else _OPEN


# -------------------------------------------------------------------------------------- the tables
def _device_of(devices: Devices) -> Any:
    """A reader of device names: those of `devices`, and any CUDA device where that is `HOST`."""
    given = named(devices, "one of the devices given")

    def read(value: object) -> Any:
        if devices is HOST and type(value) is str and is_cuda(value):
            return device_named(value, op="load")
        return given(value)

    return read


class _Tables:
    """The tables of a file (metas, places, constants), and readers of references to them."""

    def __init__(self, root: Json, devices: Devices) -> None:
        self.device = _device_of(devices)
        self.dtype = named({dtype.name: dtype for dtype in dtypes.DTYPES}, "a dtype")
        self.place = indexed(each(place_from, root["places"], ".places"), "places")
        self.symbols = SymbolReader(root, self.place) if "symbols" in root else None
        self.size: Read = count_from if self.symbols is None else self.symbols.size_from
        self.hinted = unhinted if self.symbols is None else Hinted()
        self.metas: list[TensorMeta] = each(self._meta, root["metas"], ".metas")
        self.meta = indexed(self.metas, "metas")
        self._names: set[str] = set()
        self.constant = indexed(each(self._constant, root["constants"], ".constants"), "constants")

    def _meta(self, value: object) -> TensorMeta:
        entry = record(value, _META)
        dtype = field(entry, "dtype", self.dtype)
        shape = _sizes(entry["shape"], ".shape", self.size)
        stride = _sizes(entry["stride"], ".stride", self.size)
        numbers, steps = self.hinted((shape, stride))
        fault = product_fault(shape) or geometry_fault(numbers, steps, dtype.itemsize)
        if fault is not None:
            raise Unread(Said(f"a meta with {fault[0]}"), fault[1])
        try:
            return tensor_meta(shape, stride, dtype, field(entry, "device", self.device))
        except (OutOfMemoryError, ShapeError) as error:
            raise Unread(Said(f"a meta ({error})"), "one that memory holds") from error

    def _constant(self, value: object) -> Constant:
        entry = record(value, _CONSTANT)
        name = field(entry, "name", text_from)
        if name in self._names:
            raise Unread(name, "a name that no other constant has", ".name")
        self._names.add(name)
        dtype = field(entry, "dtype", self.dtype)
        shape = _sizes(entry["shape"], ".shape")
        fault = geometry_fault(shape, (0,) * len(shape), dtype.itemsize)
        if fault is not None:
            raise Unread(Said(fault[0]), fault[1], ".shape")
        size = sizes.numel(shape) * dtype.itemsize
        data = field(entry, "data", lambda text: bytes_from(text, size))
        if dtype is dtypes.bool_ and data.translate(None, b"\0\1"):
            raise Unread(Said("bytes of other values"), "0 or 1 for each bool", ".data")
        array = np.frombuffer(in_file_order(data, dtype), dtype.numpy)
        return Constant(name, array.reshape(shape))


def _sizes(value: object, at: str, read: Read = count_from) -> tuple[int, ...]:
    """Sizes or strides. Their number is limited, as checks multiply them."""
    if type(value) is list and len(value) > RANK:
        raise Unread(value, f"at most {RANK} numbers", at)
    return tuple(each(read, value, at))


# --------------------------------------------------------------------------------------- the nodes
class _NodeReader:
    """Reads the nodes in order; keeps those read so far under their references, such as `%0`."""

    def __init__(self, tables: _Tables, max_bytes: int, inputs: Sequence[Node] = ()) -> None:
        self.tables = tables
        self.inputs = iter(inputs)
        self.max_bytes = max_bytes
        self.values: dict[str, Node] = {}
        """Nodes with one result."""
        self.results: dict[str, Node] = {}
        """Nodes with several results."""
        self.closed = False
        symbols = tables.symbols
        self._number = number_from if symbols is None else symbols.number_from
        self._integer = integer_from if symbols is None else symbols.integer_from
        self.readers: dict[Op, list[Read]] = {}
        self.forms: dict[tuple[str, ...], list[Record]] = {}
        """(kind of node, its keys in order) -> the optional keys among them."""
        self.scopes: dict[str, Scope] = {}
        self.optional: dict[str, tuple[str, Read]] = {
            "grad_mode": ("grad_mode", bool_from),
            "phase": ("phase", named({phase.value: phase for phase in Phase}, "a phase")),
            "sequence": ("sequence", integer_from),
            "recompute": ("recompute", bool_from),
            "module": ("scope", self._scope),
            "place": ("location", tables.place),
        }

    def nodes(self, entries: object) -> tuple[Node, ...]:
        """All nodes, in one pass; the last one is the output."""
        if type(entries) is not list or not entries:
            raise Unread(entries, "a list of at least one node", ".nodes")
        last = entries[-1]
        if type(last) is not dict or last.get("op") != "output":
            raise Unread(last, "the output node", f".nodes[{len(entries) - 1}]")
        self.work = Work(len(entries))
        return tuple(each(self._node, entries, ".nodes"))

    def _scope(self, value: object) -> Scope:
        path = text_from(value)
        return self.scopes.setdefault(path, Scope(path))

    def _node(self, entry: object) -> Node:
        if self.closed:
            raise Unread(entry, "nothing behind the output node")
        if type(entry) is not dict:
            raise Unread(entry, "an object")
        kind: Any = entry.get("op")
        form = _FORMS.get(kind) if type(kind) is str else None
        if form is None:
            got = kind if "op" in entry else Said("missing")
            raise Unread(got, "placeholder, get_attr, call or output", ".op")
        read, needed = form
        shape = (kind, *entry)
        records = self.forms.get(shape)
        if records is None:
            records = self.forms[shape] = self._records(entry, needed)
        node: Node = read(self, entry)
        for key, name, read_record in records:
            try:
                setattr(node, name, read_record(entry[key]))
            except Unread as error:
                raise error.below(f".{key}") from None
        if node.op == "placeholder":
            node = self._same(node, next(self.inputs, node))
        known = self.results if type(node.meta) is tuple else self.values
        known[f"%{len(self.values) + len(self.results)}"] = node
        return node

    @staticmethod
    def _same(node: Node, given: Node) -> Node:
        """The placeholder that is given, if it is as it is in the file."""
        if not all(getattr(node, name) == getattr(given, name) for name in _OF_INPUTS):
            raise Unread(Said(f"the input {node.role}: {node.meta}"), "the one that is known")
        return given

    def _records(self, entry: Json, needed: frozenset[str]) -> list[Record]:
        """The optional keys of a node. Raises Unread for a missing or an unknown key."""
        record({key: entry[key] for key in entry if key not in self.optional}, needed)
        return [(key, *self.optional[key]) for key in entry if key in self.optional]

    # --- kinds of nodes
    def placeholder(self, entry: Json) -> Node:
        """An input."""
        role = field(entry, "role", role_from)
        return Node("placeholder", role, meta=field(entry, "meta", self.tables.meta), role=role)

    def get_attr(self, entry: Json) -> Node:
        """A constant. Its strides may not span more memory than a file may have bytes."""
        constant = field(entry, "target", self.tables.constant)
        meta = field(entry, "meta", self.tables.meta)
        if is_symbolic(meta.shape + meta.stride) or constant.value.shape != meta.shape:
            got = Said(f"of shape {meta.shape}")
            raise Unread(got, f"{constant.value.shape}, that of its constant", ".meta")
        span = meta.span * meta.dtype.itemsize
        if span > self.max_bytes:
            got = Said(f"a meta that spans {span} bytes")
            raise Unread(got, f"at most {self.max_bytes} for a constant", ".meta")
        return Node("get_attr", constant, meta=meta)

    def output(self, entry: Json) -> Node:
        """The output node."""
        values = tuple(each(self._value, entry["args"], ".args"))
        roles = tuple(each(role_from, entry["role"], ".role"))
        if len(values) != len(roles):
            raise Unread(entry["role"], f"as many roles as values, {len(values)}", ".role")
        self.closed = True
        return Node("output", "output", (values,), role=roles)

    def call(self, entry: Json) -> Node:
        """A call, checked against the op's schema and meta rule."""
        target = entry["target"]
        op = OPS.get(target) if type(target) is str else None
        if op is None:
            raise Unread(target, "the name of an op", ".target")
        args = self._args(op, entry["args"])
        position = entry["meta"]
        if type(position) is list:
            meta: Result = tuple(each(self.tables.meta, position, ".meta"))
        else:
            meta = field(entry, "meta", self.tables.meta)
        self._check(op, args, meta)
        return Node("call", op, args, meta=meta)

    def _args(self, op: Op, given: object) -> tuple[Any, ...]:
        readers = self.readers.get(op)
        if readers is None:
            readers = self.readers[op] = self._readers(op)
        if type(given) is not list or len(given) != len(readers):
            raise Unread(given, f"{len(readers)} arguments: {op.schema}", ".args")
        args: list[Any] = []
        try:
            for read, value in zip(readers, given, strict=True):
                args.append(read(value))
        except Unread as error:
            raise error.below(f".args[{len(args)}]") from None
        return tuple(args)

    def _check(self, op: Op, args: tuple[object, ...], meta: Result) -> None:
        """Compares the claimed meta with that of the meta rule, after checking the rule's cost."""
        symbols = self.tables.symbols
        fault = self.work.fault(op, *self.tables.hinted((args, meta)))
        if fault is not None:
            raise Unread(Said(f"a call of {op.name} with {fault[0]}"), fault[1])
        try:
            found = op.infer(args)
        except Exception as error:  # a rule may fail in any way on arguments that no program has
            text = cut(str(error) or type(error).__name__, 300)
            raise Unread(Said(f"a call that {op.name} refuses"), f"one it takes: {text}") from None
        if symbols is not None:
            symbols.check(f"a call of {op.name}")
        same = always_same_meta if symbols is None else symbols.same_meta
        if not same(found, meta):
            raise Unread(Said(cut(meta_text(meta))), cut(meta_text(found)), ".meta")

    # --- arguments
    def _readers(self, op: Op) -> list[Read]:
        """A reader for each parameter of an op, by its schema."""
        if op is GETITEM:
            return [self._several, integer_from]
        kinds = [parameter.type.text for parameter in op.schema.parameters]
        long = self._long_list if long_lists(op) else self._list
        return [long if kind == "int[]" else self._reader(kind) for kind in kinds]

    def _reader(self, text: str) -> Read:
        if text.endswith("?"):
            return optional(self._reader(text[:-1]))
        return {
            "Tensor": self._tensor,
            "Tensor|Scalar": self._operand,
            "Tensor[]": lambda value: tuple(each(self._tensor, value, "")),
            "Tensor?[]": lambda value: tuple(each(optional(self._tensor), value, "")),
            "Scalar": self._number,
            "int": self._integer,
            "int[]": self._list,
            "float": float_from,
            "bool": bool_from,
            "str": text_from,
            "dtype": self.tables.dtype,
            "device": self.tables.device,
            "function": _no_function,
        }[text]

    def _tensor(self, value: object) -> Node:
        node = self.values.get(value) if type(value) is str else None
        if node is None:
            raise Unread(value, 'an earlier node with one result, such as "%0"')
        return node

    def _several(self, value: object) -> Node:
        node = self.results.get(value) if type(value) is str else None
        if node is None:
            raise Unread(value, 'an earlier node with several results, such as "%0"')
        return node

    def _operand(self, value: object) -> object:
        node = self.values.get(value) if type(value) is str else None
        return self._number(value) if node is None else node

    def _value(self, value: object) -> Any:
        return None if value is None else self._operand(value)

    def _list(self, value: object) -> tuple[int, ...]:
        if type(value) is list and len(value) > RANK:
            raise Unread(value, f"at most {RANK} integers")
        return self._long_list(value)

    def _long_list(self, value: object) -> tuple[int, ...]:
        return tuple(each(self._integer, value, ""))


def _no_function(value: object) -> Any:
    raise Unread(value, "no function of a program: a file cannot hold one")


_FORMS: Final[dict[str, tuple[Callable[[_NodeReader, Json], Node], frozenset[str]]]] = {
    "placeholder": (_NodeReader.placeholder, frozenset(("op", "role", "meta"))),
    "get_attr": (_NodeReader.get_attr, frozenset(("op", "target", "meta"))),
    "call": (_NodeReader.call, frozenset(("op", "target", "args", "meta"))),
    "output": (_NodeReader.output, frozenset(("op", "args", "role"))),
}
"""Kind of node -> (its reader, its required keys)."""
