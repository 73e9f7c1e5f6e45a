"""A bundle: the kept entries of one function in one file, to be loaded by another process.

    one line of JSON    format, version, function, options, versions, sizes, the digest of the rest
    entry, entry, ...   the documents of kept entries, as in the artifact cache

The file is data: nothing in it is code, and no name in it is a path. Sizes are compared with the
file before anything is read, so that time and memory are bounded by its length.
Rules: CACHE-15, CACHE-17. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

import attrs

from aotlite.artifacts.files.kept_entry import KeptEntry, kept_entry_of
from aotlite.artifacts.reads.call_images import Line
from aotlite.artifacts.reads.option_reads import options_from, portable_versions
from aotlite.ir.errors import ArgumentError, FormatError, noted
from aotlite.ir.graph.files.parser import parsed
from aotlite.pipeline.options import Options

FORMAT: Final = "aotlite bundle"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 28
"""The default limit on the bytes of a file."""
_MOST_HEAD: Final = 1 << 16
_MOST_ENTRIES: Final = 10_000
_KEYS: Final = frozenset(
    ("format", "version", "name", "function", "options", "versions", "sizes", "sha256")
)


@attrs.frozen(eq=False)
class Bundle:
    """The content of a file."""

    name: str
    """The name of the compiled function."""
    function: str
    """`module:qualname` of the function it was made of."""
    options: Mapping[str, Any]
    """Those of `options_as_data`."""
    entries: tuple[KeptEntry, ...]

    def written(self) -> bytes:
        """The bytes of the file."""
        documents = [entry.written() for entry in self.entries]
        rest = b"".join(documents)
        head = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "function": self.function,
            "options": self.options,
            "versions": portable_versions(),
            "sizes": [len(each) for each in documents],
            "sha256": sha256(rest).hexdigest(),
        }
        return json.dumps(head, ensure_ascii=True).encode() + b"\n" + rest

    def made_options(self) -> Options:
        """The options of the function. Raises FormatError for what are none."""
        try:
            return options_from(self.options)
        except (ArgumentError, TypeError, ValueError) as error:
            raise _wrong(f"the options are others ({error})"[:200], "those of compile") from None


def bundle_of(data: bytes) -> Bundle:
    """The bundle of a file's bytes. Raises FormatError for other bytes, and for those that another
    version of aotlite, Python or a library wrote."""
    if data.startswith(b"PK\3\4"):
        error = _wrong("the file is an archive, as of a program", "a bundle, as save() writes it")
        raise noted(error, "A program is read by aotlite.export.load(path).")
    line, _, rest = data.partition(b"\n")
    if len(line) > _MOST_HEAD:
        raise _wrong(f"the first line has {len(line)} bytes", f"at most {_MOST_HEAD}")
    head = _head(line)
    _check_versions(head["versions"])
    sizes = head["sizes"]
    if sum(sizes) != len(rest):
        got = f"{len(rest)} bytes follow the first line"
        raise noted(_wrong(got, f"{sum(sizes)}"), "the file may have been cut off")
    if sha256(rest).hexdigest() != head["sha256"]:
        raise _wrong("the digest of the entries is another", "that of the first line")
    entries, at = [], 0
    for size in sizes:
        entries.append(kept_entry_of(rest[at : at + size]))
        at += size
    return Bundle(head["name"], head["function"], head["options"], tuple(entries))


def _head(line: bytes) -> dict[str, Any]:
    with _as_bundle():
        head = parsed(line, _MOST_HEAD * 8, 4)
    if type(head) is not dict or head.get("format") != FORMAT:
        raise _wrong("the file has another format", f'"{FORMAT}", as save() writes it')
    version = head.get("version")
    if type(version) is int and version > VERSION:
        advice = "a newer aotlite wrote this: load it with that one, or save the function again"
        raise noted(_wrong(f"the version is {version}", f"at most {VERSION}"), advice)
    if head.keys() != _KEYS or version != VERSION:
        raise _wrong("the first line has other keys", ", ".join(sorted(_KEYS)))
    sizes = head["sizes"]
    texts = head["name"], head["function"], head["sha256"]
    if type(sizes) is not list or not 0 < len(sizes) <= _MOST_ENTRIES:
        raise _wrong("the sizes are no list", f"1 to {_MOST_ENTRIES} sizes of entries")
    if not all(type(size) is int and size > 0 for size in sizes):
        raise _wrong("a size is no number above 0", "the bytes of an entry")
    if type(head["options"]) is not dict or not all(type(text) is str for text in texts):
        raise _wrong("name, function, sha256 and options are of other types", "texts and a dict")
    return head


def _check_versions(found: object) -> None:
    mine: list[Line] = list(portable_versions())
    if found == [list(line) for line in mine]:
        return
    theirs = dict(found) if _are_lines(found) else {}  # type: ignore[call-overload]
    for name, version in mine:
        if theirs.get(name) != version:
            got = repr(theirs.get(name, "(none)"))[:100]
            error = _wrong(f"{name} is {got}", f"{version!r}, as here")
            raise noted(error, "Save the function again with these versions.")
    raise _wrong("the versions are others", "those of this process")


def _are_lines(found: object) -> bool:
    return type(found) is list and all(
        type(each) is list and [type(x) for x in each] == [str, str] for each in found
    )


@contextmanager
def _as_bundle() -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{error}".replace("serialize:", "bundle:", 1)) from None


def _wrong(got: str, expected: str) -> FormatError:
    return FormatError(f"bundle: {got}, expected {expected}")
