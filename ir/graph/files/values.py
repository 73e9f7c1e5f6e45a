"""Readers of single values of a saved graph: words, numbers, records, roles.

Ground floor, for `ir/graph/files/reader.py`. A reader takes a JSON value and returns the Python
value that it encodes. For any other value it raises `Unread`; the readers of the values around it
add their keys and indices to its path. Spec: `specs/serialize.md`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import attrs

from aotlite.ir.errors import FormatError
from aotlite.ir.graph.files.limits import INTEGER, TEXT, Json, role_fits
from aotlite.ir.graph.files.parser import Misfit
from aotlite.ir.graph.role import Hidden, Output, Role, Saved
from aotlite.ir.graph.text.roles import parse_role
from aotlite.ir.provenance.location import Place

Read = Callable[[Any], Any]
"""JSON value -> the Python value that it encodes. Raises Unread."""

_WORDS: Final = {word: float(word) for word in ("nan", "inf", "-inf")}
_PLACE: Final = frozenset(("file", "line", "function", "text"))


# ---------------------------------------------------------------------------------------- errors
class Unread(Exception):
    """A value that is not of the expected form; `graph_of` makes a FormatError of it."""

    def __init__(self, got: object, expected: object, at: str = "") -> None:
        self.got = got
        self.expected = expected
        self.at = at
        """Its path, relative to the value that is being read: `.nodes[2].args[0]`."""

    def below(self, at: str) -> Unread:
        """The same error, with the path relative to the value around it."""
        return Unread(self.got, self.expected, at + self.at)

    def error(self) -> FormatError:
        """The error that users see."""
        at = self.at.removeprefix(".") or "the text"
        return FormatError(f"serialize: {at} is {shown(self.got)}, expected {self.expected}")


@attrs.frozen
class Said:
    """The description of a value in an error, where its JSON would not help."""

    text: str


def shown(value: object) -> str:
    """A JSON value in a few words."""
    match value:
        case Misfit():
            return value.what
        case Said():
            return value.text
        case dict():
            return f"an object with the keys {cut(', '.join(map(ascii, islice(value, 20))))}"
        case list():
            return f"a list of {len(value)}"
        case str():
            return cut(json.dumps(value[:60]))
    return cut(json.dumps(value))


def cut(text: str, most: int = 60) -> str:
    """The text, cut to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def each(read: Read, values: object, name: str) -> list[Any]:
    """The items of a list, each read; an error has the item's index."""
    if type(values) is not list:
        raise Unread(values, "a list", name)
    done: list[object] = []
    try:
        for value in values:
            done.append(read(value))
    except Unread as error:
        raise error.below(f"{name}[{len(done)}]") from None
    return done


def record(value: object, keys: frozenset[str]) -> Json:
    """An object with exactly these keys."""
    if type(value) is not dict:
        raise Unread(value, f"an object with the keys {', '.join(sorted(keys))}")
    if value.keys() != keys:
        for key in sorted(keys - value.keys()):
            raise Unread(Said("missing"), "a value", f".{key}")
        surplus = ascii(next(iter(value.keys() - keys)))
        raise Unread(Said(f"an object with the key {cut(surplus)}"), ", ".join(sorted(keys)))
    return value


def field(value: Json, key: str, read: Read) -> Any:
    """The value of a key that exists, read; an error has the key."""
    try:
        return read(value[key])
    except Unread as error:
        raise error.below(f".{key}") from None


# ----------------------------------------------------------------------------------- small values
def count_from(value: object) -> int:
    """A size, a stride, a line."""
    if type(value) is int and 0 <= value <= INTEGER:
        return value
    raise Unread(value, "an integer of 0 to 2**63 - 1")


def integer_from(value: object) -> int:
    """An integer of the sizes' range."""
    if type(value) is int and -INTEGER <= value <= INTEGER:
        return value
    raise Unread(value, "an integer of less than 2**63")


def bool_from(value: object) -> bool:
    """A truth value."""
    if type(value) is bool:
        return value
    raise Unread(value, "true or false")


def text_from(value: object) -> str:
    """A free text, such as a name."""
    if type(value) is not str or len(value) > TEXT:
        got = Said(f"a text of {len(value)} characters") if type(value) is str else value
        raise Unread(got, f"a text of at most {TEXT} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unread(value, "text without surrogates") from None
    return value


def float_from(value: object) -> float:
    """A float, also nan and infinities, which are strings in the file."""
    if type(value) is float:
        return _finite(value)
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    raise Unread(value, 'a number with a fraction, "nan", "inf" or "-inf"')


def number_from(value: Any) -> bool | int | float | complex:
    """A number of any of Python's types."""
    kind = type(value)
    if kind is float:
        return _finite(value)
    if kind is int or kind is bool:
        number: bool | int = value
        return number
    if kind is dict and value.keys() == {"complex"}:
        parts = value["complex"]
        if type(parts) is list and len(parts) == 2:
            return complex(*each(float_from, parts, ".complex"))
    if kind is str and value in _WORDS:
        return _WORDS[value]
    raise Unread(value, "a number")


def _finite(value: float) -> float:
    """The float itself; an error for an infinity, which Python reads for `1e999`."""
    if math.isfinite(value):
        return value
    raise Unread(Said("a number of more than 1e308"), "one that a float holds")


def named(table: Mapping[str, object], what: str) -> Read:
    """A reader of the words of a table."""

    def read(value: object) -> Any:
        if type(value) is str and value in table:
            return table[value]
        raise Unread(value, f"{what}: {', '.join(table)}")

    return read


def indexed(table: Sequence[object], what: str) -> Read:
    """A reader of positions in a table of the file."""

    def read(value: object) -> object:
        if type(value) is int and 0 <= value < len(table):
            return table[value]
        raise Unread(value, f"the position of one of the {len(table)} {what}")

    return read


def role_from(value: object) -> Role:
    """A role: its text, or an object with the text and the field that the text leaves out."""
    text, key, extra = value, "", ""
    if type(value) is dict:
        key = "name" if "name" in value else "symbol" if "symbol" in value else "place"
        record(value, _KEYS_OF_ROLE[key])
        text, extra = value["role"], field(value, key, text_from)
    # The length also bounds the recursion of `parse_role`.
    role = _role(text) if type(text) is str and len(text) <= 60 else None
    if role is None:
        raise Unread(text, "the text of a role, such as primals_0")
    if not key:
        return role
    return _named(text, key, extra) if len(extra) <= 60 else _completed(role, key, extra)


_KEYS_OF_ROLE: Final = {key: frozenset(("role", key)) for key in ("name", "symbol", "place")}


@lru_cache(maxsize=8192)  # forward, backward and joint graph name the same inputs
def _role(text: str) -> Role | None:
    """The role of a text that a file may have."""
    role = parse_role(text)
    return role if role is not None and role_fits(role) else None


@lru_cache(maxsize=8192)  # what the forward saves, the backward takes
def _named(text: str, key: str, extra: str) -> Role:
    role: Role = _completed(_role(text), key, extra)
    return role


_SYMBOL: Final = re.compile(r"[su]\d{1,9}")


def _completed(role: Any, key: str, extra: str) -> Any:
    """The role with the field that its text leaves out."""
    if hasattr(role, "of"):
        return attrs.evolve(role, of=_completed(role.of, key, extra))
    kind: Any = {"place": Hidden, "name": Saved, "symbol": Output}[key]
    if type(role) is not kind:
        raise Unread(str(role), f"a role with a {key}", ".role")
    if key == "name" and not f"_{extra}".isidentifier():  # it is part of a variable's name
        raise Unread(extra, "a name of Python's", ".role")
    if key == "symbol" and not _SYMBOL.fullmatch(extra):
        raise Unread(extra, "a symbol, such as u0", ".role")
    return kind(role.index, extra)


def optional(read: Read) -> Read:
    """The reader that also takes null, as None."""
    return lambda value: None if value is None else read(value)


def place_from(value: object) -> Place:
    """A line of the user's source."""
    entry = record(value, _PLACE)
    texts = [field(entry, key, text_from) for key in ("file", "function", "text")]
    return Place(texts[0], field(entry, "line", count_from), *texts[1:])


def bytes_from(text: object, size: int) -> bytes:
    """The bytes of a base64 text, exactly `size` of them."""
    wanted = -(-size // 3) * 4
    if type(text) is not str or len(text) != wanted:
        got = Said(f"{len(text)} characters") if type(text) is str else text
        raise Unread(got, f"{wanted} of base64, for {size} bytes")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise Unread(Said("no base64"), f"{size} bytes in base64") from None
    if len(data) != size:
        raise Unread(Said(f"{len(data)} bytes"), f"{size} bytes")
    return data
