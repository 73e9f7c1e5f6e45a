"""Values of no declared type: numbers, texts and built-in containers, each with a tag.

A result that is no tensor, a key in an access path, the arguments of an error, and what a snapshot
compares are such values. Objects of users are none of them: a caller may name some (`outside`),
and finds them again by these names. Spec: `specs/record_files.md`, REC-4.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from types import EllipsisType
from typing import Any, Final

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import Device, is_cuda
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, UnsupportedError, noted
from aotlite.ir.graph.files.limits import DIGITS
from aotlite.ir.graph.files.values import Said, Unread, each, number_from, role_from
from aotlite.ir.graph.files.writer import role_entry
from aotlite.ir.graph.role import ROLES, Piece
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.text import HOST
from aotlite.ir.symbols.symint import SymInt
from aotlite.pipeline.record_files.schema import Given, Out, read_text, written_text
from aotlite.pipeline.record_files.table import ENUMS, RECORDS, TYPES
from aotlite.stages.records.guards.snapshots import ModuleForm, Same

DEEPEST: Final = 16
"""The deepest nesting of containers in a value."""
_TOO_LARGE: Final = 10**DIGITS
_DTYPES: Final = {dtype.name: dtype for dtype in dtypes.DTYPES}
_TYPE_NAMES: Final = {kind: name for name, kind in TYPES.items()}
_CONTAINERS: Final[Mapping[type[Any], str]] = {
    tuple: "tuple",
    list: "list",
    set: "set",
    frozenset: "frozenset",
}
_PLAIN: Final = (bool, str, type(None))


# --------------------------------------------------------------------------------------- writing
def write_data(value: Any, out: Out, outside: Mapping[int, str], depth: int = 0) -> Any:
    """The JSON of a value. Raises UnsupportedError for one that is no data."""
    if depth > DEEPEST:
        raise UnsupportedError(
            f"records: a value is nested more than {DEEPEST} deep, expected less"
        )
    kind = type(value)
    if id(value) in outside:
        return {"outside": outside[id(value)]}
    if kind in _PLAIN:
        return written_text(value, out) if kind is str else value
    if kind is int or kind is SymInt:
        return out.size(value)
    if kind in _CONTAINERS:
        items = [write_data(item, out, outside, depth + 1) for item in value]
        return {_CONTAINERS[kind]: sorted(items, key=json.dumps) if kind in _SETS else items}
    if kind in (dict, OrderedDict):
        pairs = [[write_data(x, out, outside, depth + 1) for x in pair] for pair in value.items()]
        return {"dict" if kind is dict else "OrderedDict": pairs}
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value)
    if kind is TensorMeta:
        return {"meta": out.meta(value)}
    if kind is Same:
        return {"same": write_data(value.thing, out, outside, depth + 1)}
    if isinstance(value, (*ROLES, Piece)):
        return {"of": role_entry(value)}
    if isinstance(value, Enum) and kind in ENUMS.values():
        return {"enum": f"{kind.__name__}.{value.name}"}
    if isinstance(value, Device):
        return {"device": value.name}
    if isinstance(value, np.generic):
        return _scalar(value)
    if isinstance(value, type) and value in _TYPE_NAMES:
        return {"type": _TYPE_NAMES[value]}
    if kind is ModuleForm:
        parts = value.kind, value.parts
        return {"module": write_data(parts, out, outside, depth + 1)}
    if kind in RECORDS.values():
        return out.reference(value)
    if isinstance(value, Exception):
        return out.error(value)
    raise _no_data(value)


_SETS: Final = (set, frozenset)


def _no_data(value: object) -> UnsupportedError:
    kind = value.__qualname__ if isinstance(value, type) else f"a {type(value).__qualname__}"
    return noted(
        UnsupportedError(f"records: a value is {kind}, which is no data, expected numbers, texts"),
        "A program in a file holds tensors, numbers, texts and built-in containers. Return those, "
        "and make objects of them outside.",
    )


def _float(value: float) -> object:
    found = repr(value)
    return {"float": found} if found in ("nan", "inf", "-inf") else value


def _complex(value: complex) -> object:
    return {"complex": [repr(value.real), repr(value.imag)]}


def _bytes(value: bytes) -> object:
    return {"bytes": base64.b64encode(value).decode()}


def _slice(value: slice) -> object:
    parts = value.start, value.stop, value.step
    if not all(type(each) in (int, type(None)) for each in parts):
        raise _no_data(value)
    return {"slice": list(parts)}


def _range(value: range) -> object:
    return {"range": [value.start, value.stop, value.step]}


def _scalar(value: np.generic) -> object:
    try:
        dtype = dtypes.from_numpy(value.dtype)
    except DTypeError:
        raise _no_data(value) from None
    return {"scalar": [dtype.name, base64.b64encode(value.tobytes()).decode()]}


_WRITERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    float: _float,
    complex: _complex,
    bytes: _bytes,
    slice: _slice,
    range: _range,
    DType: lambda value: {"dtype": value.name},
    EllipsisType: lambda value: {"ellipsis": True},
}


# --------------------------------------------------------------------------------------- reading
def read_data(value: Any, given: Given, outside: Mapping[str, object]) -> Any:
    """The value of JSON. Raises Unread; the parser has bounded the nesting."""
    kind = type(value)
    if kind is str:
        return read_text(value, given)
    if kind is int:
        return given.size(value)
    if value is None or kind in (bool, float):
        return number_from(value) if kind is float else value
    if kind is not dict or len(value) != 1:
        if kind is dict and "error" in value:
            return given.error(value)
        raise Unread(value, "data")
    ((tag, inside),) = value.items()
    if tag in _OF_READER:
        found = getattr(given, _OF_READER[tag])(value)
        if tag == "ref" and type(found) not in RECORDS.values():
            raise Unread(Said(f"a {type(found).__name__}"), "a record")
        return found
    if tag == "outside":
        if type(inside) is not str or inside not in outside:
            raise Unread(inside, "the name of an object that the caller gives", ".outside")
        return outside[inside]
    if tag in _MANY:
        made = each(lambda item: read_data(item, given, outside), inside, f".{tag}")
        return _made(_MANY[tag], made, value)
    if tag in ("dict", "OrderedDict"):
        return _dict(tag, inside, given, outside)
    if tag == "same":
        return Same(read_data(inside, given, outside))
    if tag == "module":
        return _module(read_data(inside, given, outside), value)
    reader = _READERS.get(tag)
    if reader is None:
        raise Unread(value, "data with a known tag")
    try:
        return reader(inside)
    except Unread as error:
        raise error.below(f".{tag}") from None


_OF_READER: Final = {"ref": "reference", "size": "size", "meta": "meta"}
"""Tag -> the method of the reader that takes it."""
_MANY: Final = {name: kind for kind, name in _CONTAINERS.items()}


def _made(kind: type, items: list[Any], value: object) -> Any:
    try:
        made = kind(items)
    except TypeError:
        raise Unread(value, "items that are hashable") from None
    if len(made) != len(items):
        raise Unread(value, "no item twice")
    return made


def _dict(tag: str, inside: object, given: Given, outside: Mapping[str, object]) -> Any:
    def pair(item: object) -> tuple[Any, ...]:
        if type(item) is not list or len(item) != 2:
            raise Unread(item, "a key and a value")
        return tuple(each(lambda x: read_data(x, given, outside), item, ""))

    pairs = each(pair, inside, f".{tag}")
    made = _made(dict if tag == "dict" else OrderedDict, pairs, inside)
    return made


def _module(parts: Any, value: object) -> ModuleForm:
    match parts:
        case (type() as kind, tuple() as named) if all(map(_is_part, named)):
            return ModuleForm(kind, named)
    raise Unread(value, "a class, and the names and types of attributes")


def _is_part(value: object) -> bool:
    return (
        type(value) is tuple
        and len(value) == 2
        and type(value[0]) is str
        and isinstance(value[1], type)
    )


def _of_word(table: Mapping[str, object], what: str) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if type(value) is not str or value not in table:
            raise Unread(value, what)
        return table[value]

    return read


def _floats(value: object, count: int) -> list[float]:
    if type(value) is not list or len(value) != count or not all(type(x) is str for x in value):
        raise Unread(value, f"{count} numbers as texts")
    try:
        return [float(x[:40]) for x in value]
    except ValueError:
        raise Unread(value, f"{count} numbers as texts") from None


def _read_bytes(value: object) -> bytes:
    if type(value) is not str:
        raise Unread(value, "bytes in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        raise Unread(Said("no base64"), "bytes in base64") from None


def _three(value: object, *, may_be_none: bool) -> list[Any]:
    kinds = (int, type(None)) if may_be_none else (int,)
    if type(value) is not list or len(value) != 3 or not all(type(x) in kinds for x in value):
        raise Unread(value, "three integers")
    return value


def _read_range(value: object) -> range:
    parts = _three(value, may_be_none=False)
    if not parts[2]:
        raise Unread(value, "a step that is not 0")
    return range(*parts)


def _read_scalar(value: object) -> np.generic:
    if type(value) is not list or len(value) != 2:
        raise Unread(value, "a dtype and bytes")
    dtype: DType = _of_word(_DTYPES, "a dtype")(value[0])
    data = _read_bytes(value[1])
    if len(data) != dtype.itemsize or (dtype is dtypes.bool_ and data not in (b"\0", b"\1")):
        raise Unread(Said(f"{len(data)} bytes"), f"the {dtype.itemsize} of one {dtype.name}")
    found: np.generic = np.frombuffer(data, dtype.numpy)[0]
    return found


def read_device(value: object) -> Device:
    """A device by its name."""
    if type(value) is str and is_cuda(value):
        return device_named(value, op="load")
    found: Device = _of_word(HOST, f"a device: {', '.join(HOST)}")(value)
    return found


def _read_true(value: object) -> EllipsisType:
    if value is not True:
        raise Unread(value, "true")
    return ...


_ALL_ENUMS: Final = {
    f"{name}.{member}": value
    for name, kind in ENUMS.items()
    for member, value in kind.__members__.items()
}
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float": _of_word({"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")}, "a float"),
    "complex": lambda value: complex(*_floats(value, 2)),
    "bytes": _read_bytes,
    "slice": lambda value: slice(*_three(value, may_be_none=True)),
    "range": _read_range,
    "dtype": _of_word(_DTYPES, "a dtype"),
    "device": read_device,
    "ellipsis": _read_true,
    "scalar": _read_scalar,
    "type": _of_word(TYPES, "a type"),
    "enum": _of_word(_ALL_ENUMS, "a member of an enum"),
    "of": role_from,
}
"""Tag -> the reader of its value."""
