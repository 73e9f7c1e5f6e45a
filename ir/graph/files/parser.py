"""JSON text as Python values, for text that anybody may have written.

Ground floor. Takes text or bytes, gives what `json` gives; where that is lenient or slow (keys that
repeat, `NaN`, integers of a million digits, brackets a million deep) the text is refused, or the
value replaced by a `Misfit`, which fits nowhere, so that the reader refuses it with its place.
Spec: `specs/serialize.md`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

from aotlite.ir.errors import FormatError, noted
from aotlite.ir.graph.files.limits import DEPTH, DIGITS

__all__ = ["Misfit", "parsed"]

BYTES_A_MARK: Final = 8
"""A file may hold one mark (quote, comma, colon, opening bracket) for so many bytes of the limit.

A value of two bytes becomes an object of fifty or more: this bounds the memory that it takes.
"""


@attrs.frozen
class Misfit:
    """A value that JSON's own rules or ours forbid. It is of no type that any reader takes."""

    what: str


def parsed(text: str | bytes, max_bytes: int) -> Any:
    """The value that the text spells. FormatError where it is no JSON, or beyond the limits."""
    data = _encoded(text)
    if len(data) > max_bytes:
        got = f"the text is longer than {max_bytes} bytes"
        error = FormatError(f"serialize: {got}, expected no more")
        raise noted(error, "a longer one is read with a larger max_bytes")
    marks = sum(map(data.count, (b'"', b",", b":", b"[", b"{")))
    if marks * BYTES_A_MARK > max_bytes:
        got = f"the text has {marks} quotes, commas, colons and brackets"
        error = FormatError(f"serialize: {got}, expected at most {max_bytes // BYTES_A_MARK}")
        raise noted(error, "more are read with a larger max_bytes")
    bare = _outside_strings(data)
    _check_depth(bare)
    # Asked for every number, these would take a fifth of the time.
    long = _has_long_number(bare)
    try:
        return json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_int=_integer if long else None,
            parse_float=_real if long else None,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        got = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise FormatError(f"serialize: {got}, expected text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise _no_json(error) from None


def _no_json(error: json.JSONDecodeError) -> FormatError:
    """The error says where the parser gave up, and whether the text ends there or in that word."""
    end = error.pos > len(error.doc.rstrip()) - len("-Infinity") or "Unterminated" in error.msg
    where = f"line {error.lineno} column {error.colno}: {error.msg}"
    found = FormatError(f"serialize: {where}, expected JSON as dumps writes it")
    return noted(found, "the text ends there: it may have been cut off" if end else None)


def _encoded(text: str | bytes) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        got = f"character {error.start} is a surrogate"
        raise FormatError(f"serialize: {got}, expected text that UTF-8 can spell") from None


def _outside_strings(data: bytes) -> bytes:
    """The text without its strings; of text that is no JSON, up to where the parser gives up."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _check_depth(bare: bytes) -> None:
    """Refuses brackets that are nested deeply, which the parser would follow by recursion.

    Pairs are taken out from the inside. What is left of text that is cut off, or has one bracket
    too many, is short.
    """
    marks = bare.translate(None, _NO_BRACKETS)
    for _ in range(DEPTH):
        marks = marks.replace(b"[]", b"").replace(b"{}", b"")
    if len(marks) > 2 * DEPTH:
        got = "the brackets are nested too deeply or do not match"
        raise FormatError(f"serialize: {got}, expected at most {DEPTH} inside one another")


def _has_long_number(bare: bytes) -> bool:
    return b"0" * (DIGITS + 1) in bare.translate(_ONLY_ZEROS)


_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONLY_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    return Misfit(f"an object with the key {key!a:.50} twice")


def _integer(text: str) -> Any:
    digits = len(text) - (text[0] == "-")
    return int(text) if digits <= DIGITS else Misfit(f"an integer of {digits} digits")


def _real(text: str) -> Any:
    return float(text) if len(text) <= DIGITS else Misfit(f"a number of {len(text)} characters")


def _constant(text: str) -> Misfit:
    return Misfit(f"the word {text}, which is no JSON")
