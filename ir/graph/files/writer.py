"""`text_of`: the JSON text of a graph.

Ground floor. It takes a verified graph and returns the text that `ir/graph/files/reader.py` reads.
It refuses whatever the reader would. Spec: `specs/serialize.md`.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from functools import cache
from typing import Any, Final, NoReturn

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, UnsupportedError
from aotlite.ir.graph.files.limits import (
    DIGITS,
    INTEGER,
    RANK,
    TEXT,
    Json,
    Work,
    geometry_fault,
    long_lists,
    role_fits,
)
from aotlite.ir.graph.files.size_texts import TABLES, Hinted, product_fault, unhinted
from aotlite.ir.graph.files.symbol_writer import WrittenSymbols, says_sizes
from aotlite.ir.graph.graph import Constant, Graph, Node, Phase
from aotlite.ir.graph.role import Hidden, Output, Saved
from aotlite.ir.graph.text.roles import parse_role
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Op
from aotlite.ir.provenance.location import Location, Place, Places
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

__all__ = ["FORMAT", "VERSION", "in_file_order", "role_entry", "text_of"]

FORMAT: Final = "aotlite graph"
VERSION: Final = 3
"""Incremented whenever the meaning of a file changes, or the format gains something. A graph
without symbols is written as version 1, which has no tables for them; one whose symbols are all
sizes of its inputs as version 2, which has no parameters."""

_PLAIN: Final = frozenset((int, bool, type(None), str))
_TOO_LARGE: Final = 10**DIGITS


def refuse(what: str, got: object, expected: object) -> NoReturn:
    raise UnsupportedError(f"serialize: {what} is {got}, expected {expected}")


def text_of(graph: Graph, *, places: bool) -> str:
    """The text of a valid graph, one line a node. Raises UnsupportedError for one that no file can
    hold."""
    writer = _Writer(graph, places=places)
    nodes = [writer.node(index, node) for index, node in enumerate(graph.nodes)]
    symbols = writer.symbols
    document = {
        "format": FORMAT,
        "version": writer.version,
        "name": _name("the name of the graph", graph.name),
        **({} if symbols is None else symbols.tables(writer.place if places else None, role_entry)),
        "metas": [writer.meta_entry(meta) for meta in writer.metas],
        "places": [attrs.asdict(place) for place in writer.places],
        "constants": list(writer.constants.values()),
        "nodes": nodes,
    }
    return _lines(json.dumps(document, separators=(",", ":"), allow_nan=False)) + "\n"


def _lines(text: str) -> str:
    """The same JSON with a line break before each table and entry.

    The patterns do not match inside a string: a quotation mark has a backslash before it there.
    """
    for key in ("dtype", "file", "name", "op", "symbol", "left", "function"):
        text = text.replace(f'{{"{key}":', f'\n{{"{key}":')
    for key in ("name", "parameters", *TABLES, "metas", "places", "constants", "nodes"):
        text = text.replace(f',"{key}":', f',\n"{key}":', 1)
    return text


# ------------------------------------------------------------------------------------- the nodes
class _Writer:
    """Makes the entries of nodes, and collects the tables that these refer to."""

    def __init__(self, graph: Graph, *, places: bool) -> None:
        self.graph = graph
        self.symbols = WrittenSymbols(graph) if graph.symbols else None
        self.hinted = unhinted if self.symbols is None else Hinted()
        self.refs: dict[Node, str] = {}
        self.metas: dict[TensorMeta, int] = {}
        self.places: dict[Place, int] = {}
        self.constants: dict[str, Json] = {}
        self.work = Work(len(graph))
        self._resolved = Places() if places else None
        self._found: dict[str, int] = {}
        """Positions of the constants by name."""
        self._placed: dict[int, int] = {}
        """id of a `Place`, which `Places` or a node keeps alive -> its position in the table."""

    @property
    def version(self) -> int:
        """The oldest version that has what the graph needs."""
        if self.symbols is None:
            return VERSION if says_sizes(self.graph.output_roles) else 1
        return 2 if self.symbols.is_closed else VERSION

    def node(self, index: int, node: Node) -> Json:
        """The entry of node number `index`."""
        match node.op:
            case "call":
                entry = self.call(index, node)
            case "placeholder":
                entry = {
                    "op": "placeholder",
                    "role": role_entry(node.role),
                    "meta": self.meta(node),
                }
            case "get_attr":
                entry = {
                    "op": "get_attr",
                    "target": self.constant(node),
                    "meta": self.meta(node),
                }
            case _:
                values = [self.argument(value) for value in node.args[0]]
                roles: Any = node.role
                entry = {"op": "output", "args": values, "role": list(map(role_entry, roles))}
        self.refs[node] = f"%{index}"
        self.records(node, entry)
        return entry

    def call(self, index: int, node: Node) -> Json:
        op: Op = node.target
        if OPS.get(op.name) is not op:
            refuse(f"the target of node {index}", f"{op!r}", "an op of the table")
        numbers, meta = self.hinted((node.args, node.meta))
        fault = self.work.fault(op, numbers, meta) or _integer_fault(op, numbers)
        if fault is not None:
            refuse(f"node {index}", f"a call of {op.name} with {fault[0]}", fault[1])
        args = [self.argument(value) for value in node.args]
        return {"op": "call", "target": op.name, "args": args, "meta": self.meta(node)}

    def argument(self, value: Any) -> Any:
        kind = type(value)
        if kind is Node:
            return self.refs[value]
        if kind is tuple:
            return [self.argument(item) for item in value]
        if kind is SymInt:
            return self.size(value)
        if kind is SizeFloat:
            refuse("an argument", f"{value.text}, a float made of sizes", "a number (SER-15)")
        if kind is int and abs(value) >= _TOO_LARGE:
            refuse("an argument", "an integer of too many digits", f"at most {DIGITS}")
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else repr(value)
        if kind is complex:
            return {"complex": [self.argument(value.real), self.argument(value.imag)]}
        if kind is DType or kind is Device:
            return value.name
        refuse("an argument", f"a {kind.__name__}", "a number, a text, a dtype, a device or None")

    def size(self, value: int) -> int | str:
        """A size, which may be symbolic."""
        return value if self.symbols is None else self.symbols.size(value)

    def meta(self, node: Node) -> int | list[int]:
        """The position of the node's meta in the table, or those of its results'."""
        found = self.metas
        meta: Any = node.meta
        if type(meta) is tuple:
            return [found.setdefault(part, len(found)) for part in meta]
        return found.setdefault(meta, len(found))

    def meta_entry(self, meta: TensorMeta) -> Json:
        """The entry of a meta."""
        shape, stride = self.hinted((meta.shape, meta.stride))
        fault = product_fault(meta.shape) or geometry_fault(shape, stride, meta.dtype.itemsize)
        if fault is not None:
            index = next(i for i, node in enumerate(self.graph.nodes) if _has(node, meta))
            refuse(f"the meta of node {index}", f"one with {fault[0]}", fault[1])
        return {
            "dtype": meta.dtype.name,
            "shape": list(map(self.size, meta.shape)),
            "stride": list(map(self.size, meta.stride)),
            "device": _name("the name of a device", meta.device.name),
        }

    def constant(self, node: Node) -> int:
        """The position of a constant in the table; adds it at its first node."""
        target: Constant = node.target
        meta: TensorMeta = node.meta  # type: ignore[assignment]
        shape = np.shape(target.value)
        if shape != meta.shape:
            refuse(f"the shape of the constant {target.name!r}", shape, f"{meta.shape}, its meta's")
        if target.name not in self.constants:
            self.constants[target.name] = _constant(target)
            self._found[target.name] = len(self._found)
        return self._found[target.name]

    def records(self, node: Node, entry: Json) -> None:
        """Adds the optional fields that differ from their defaults."""
        if not node.grad_mode:
            entry["grad_mode"] = False
        if node.phase is not Phase.FORWARD:
            entry["phase"] = node.phase.value
        if node.sequence != -1:
            entry["sequence"] = node.sequence
        if node.recompute is not None:
            entry["recompute"] = node.recompute
        if node.module:
            entry["module"] = _cut(node.module)
        if node.location is not None and self._resolved is not None:
            entry["place"] = self.place(node.location)

    def place(self, location: Location) -> int:
        """The position of a place in the table."""
        found = self._resolved(location)  # type: ignore[misc]
        known = self._placed.get(id(found))
        if known is None:
            known = self.places.setdefault(_printable(found), len(self.places))
            self._placed[id(found)] = known
        return known


def _integer_fault(op: Op, args: tuple[object, ...]) -> tuple[str, str] | None:
    """(got, expected) where an integer argument is too large, or a list of them too long."""
    for index in _integers(op):
        value = args[index]
        items = value if type(value) is tuple else () if value is None else (value,)
        if len(items) > RANK and not long_lists(op):
            return f"a list of {len(items)} numbers", f"at most {RANK}"
        if any(abs(item) > INTEGER for item in items):
            return f"the number {max(items, key=abs)}", "numbers of less than 2**63"
    return None


@cache
def _integers(op: Op) -> tuple[int, ...]:
    """Positions of the parameters of type int, or list of ints."""
    kinds = enumerate(parameter.type.text for parameter in op.schema.parameters)
    return tuple([index for index, kind in kinds if kind.startswith("int")])


# ------------------------------------------------------------------------------------ the tables
def _name(what: str, text: str) -> str:
    """The text itself; an error if no file can hold it."""
    if len(text) > TEXT:
        refuse(what, f"a text of {len(text)} characters", f"at most {TEXT}")
    if not _encodable(text):
        refuse(what, ascii(text), "text without surrogates")
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(place: Place) -> Place:
    """The place with its texts cut to what a file can hold: only people read them."""
    file, function, text = map(_cut, (place.file, place.function, place.text))
    return Place(file, place.line, function, text)


def _cut(text: str) -> str:
    return text[:TEXT].encode("utf-8", "replace").decode()


def _has(node: Node, meta: TensorMeta) -> bool:
    return meta in node.meta if type(node.meta) is tuple else node.meta is meta


def _constant(constant: Constant) -> Json:
    """Name, dtype, shape and bytes: row-major, little-endian, in base64."""
    what = f"the constant {constant.name!r}"
    if not isinstance(constant.value, (np.ndarray, np.generic)):
        refuse(what, f"a {type(constant.value).__name__}", "an array of NumPy's")
    value = np.asarray(constant.value)
    try:
        dtype = dtypes.from_numpy(value.dtype)
    except DTypeError:
        refuse(what, f"of dtype {value.dtype}", "a dtype of aotlite")
    return {
        "name": _name("the name of a constant", constant.name),
        "dtype": dtype.name,
        "shape": value.shape,
        "data": base64.b64encode(in_file_order(value.tobytes(), dtype)).decode(),
    }


def in_file_order(data: bytes, dtype: DType, order: str = sys.byteorder) -> bytes:
    """The bytes with each number converted between this machine's byte order and little-endian."""
    unit = dtype.to_real().itemsize
    if order == "little" or unit == 1:
        return data
    return np.frombuffer(data, np.uint8).reshape(-1, unit)[:, ::-1].tobytes()


def role_entry(role: object) -> str | Json:
    """The role's text; or an object with it and the field that the text leaves out."""
    bare, field, extra = _bared(role)
    if not role_fits(bare) or parse_role(str(bare)) != bare:
        refuse("a role", repr(role), "one whose text says what it is")
    if not extra:
        return str(bare)
    return {"role": str(bare), field: _name(f"the {field} of the role {role}", extra)}


def _bared(role: Any) -> tuple[Any, str, str]:
    """(the role without the field that its text leaves out, the name of that field, its value)."""
    match role:
        case Hidden():
            return attrs.evolve(role, place=""), "place", role.place
        case Saved():
            return attrs.evolve(role, name=""), "name", role.name
        case Output():
            return Output(role.index), "symbol", role.symbol
    if not hasattr(role, "of"):
        return role, "", ""
    bare, field, extra = _bared(role.of)
    return attrs.evolve(role, of=bare), field, extra
