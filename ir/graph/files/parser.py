"""`parsed`: JSON text as Python values, for text from an untrusted source.

Ground floor. It returns what the `json` module returns, but does not share its weaknesses: repeated
keys, `NaN`, integers of a million digits, brackets nested a million deep. It refuses such a text,
or puts a `Misfit` in the place of the value; no reader accepts that, so that the error names the
value's path. Spec: `specs/serialize.md`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import attrs

from aotlite.ir.errors import FormatError, noted
from aotlite.ir.graph.files.limits import DEPTH, DIGITS

__all__ = ["Misfit", "parsed"]

BYTES_A_MARK: Final = 8
"""A file may have one mark (quote, comma, colon, opening bracket) per this many bytes of the limit.

A value of two bytes becomes a Python object of fifty or more, so this bounds the memory.
"""


@attrs.frozen
class Misfit:
    """Stands for a value that JSON or this format forbids. No reader accepts its type."""

    what: str


def parsed(text: str | bytes, max_bytes: int, depth: int = DEPTH) -> object:
    """The value of a JSON text. Raises FormatError for other text, and beyond the limits."""
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
    _check_depth(bare, depth)
    # Hooks for every number would take a fifth of the time.
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
    """The error with the position at which parsing failed, and a note if the text ends there."""
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
    """The text without its strings; for invalid JSON, correct up to where parsing fails."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _check_depth(bare: bytes, depth: int) -> None:
    """Refuses deeply nested brackets, on which the recursive parser would overflow the stack.

    It removes pairs from the inside out, `depth` times. Text that is cut off or has a bracket too
    many leaves a few brackets, which the parser reports.
    """
    marks = bare.translate(None, _NO_BRACKETS)
    for _ in range(depth):
        marks = marks.replace(b"[]", b"").replace(b"{}", b"")
    if len(marks) > 2 * depth:
        got = "the brackets are nested too deeply or do not match"
        raise FormatError(f"serialize: {got}, expected at most {depth} inside one another")


def _has_long_number(bare: bytes) -> bool:
    return b"0" * (DIGITS + 1) in bare.translate(_ONLY_ZEROS)


_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONLY_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)


def _object(pairs: Sequence[tuple[str, object]]) -> object:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    return Misfit(f"an object with the key {key!a:.50} twice")


def _integer(text: str) -> int | Misfit:
    digits = len(text) - (text[0] == "-")
    return int(text) if digits <= DIGITS else Misfit(f"an integer of {digits} digits")


def _real(text: str) -> float | Misfit:
    return float(text) if len(text) <= DIGITS else Misfit(f"a number of {len(text)} characters")


def _constant(text: str) -> Misfit:
    return Misfit(f"the word {text}, which is no JSON")
