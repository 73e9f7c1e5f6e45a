"""One kept entry: its read set, its guards, and the records of stages 2 to 8, as one JSON document.

The document is data: reading it runs no code, and a fault in it raises `FormatError`. The run-time
layers are not in it: stages 9 and 10 make them again, and find kernels by keys of their own.
Rules: CACHE-1, CACHE-5, CACHE-11. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.artifacts.files.guard_words import role_of, words_of_role
from aotlite.artifacts.files.symbol_words import KeptSymbols, symbols_of
from aotlite.artifacts.reads.access_path_words import path_of
from aotlite.artifacts.reads.call_images import STATES
from aotlite.artifacts.reads.read_set import ReadSet
from aotlite.ir.errors import FormatError
from aotlite.pipeline.record_files import Document
from aotlite.stages.s10_runtime.guards.guard_sources import GuardedFacts

FORMAT = 3
"""The version of the document."""
MOST_BYTES = 1 << 28
"""The most bytes of a document that is read."""


@attrs.frozen(eq=False)
class KeptEntry:
    """A kept entry, with its records still as text."""

    function: str
    reads: ReadSet
    guards: list[Any]
    facts: Mapping[str, Any]
    """The `GuardedFacts` but for the guards."""
    rest: bytes
    """The document of the records (REC-1): `StageRecords`, and the inputs that derivatives of the
    backward may reach, None if it has none; and metas and numbers with symbols, if it has some."""
    headers: tuple[str, ...] = ()
    """For each graph its header (REC-9), of an entry that this cache has written itself; else
    none, and all graphs are read before the entry serves a call."""
    symbols: KeptSymbols | None = None
    """The symbols of its sizes; None where all sizes are numbers."""

    def written(self) -> bytes:
        """The document: one line of reads and guards, which a look-up needs; the records behind."""
        made = {
            "format": FORMAT,
            "function": self.function,
            "reads": _reads_written(self.reads),
            "guards": self.guards,
            "facts": self.facts,
            "symbols": None if self.symbols is None else self.symbols.written(),
        }
        return json.dumps(made, ensure_ascii=True).encode() + b"\n" + self.rest

    def needs(self) -> str:
        """What the function alone leads to and a call needs, in words; empty if it needs nothing:
        the tensors that the function reaches outside its arguments (CACHE-18)."""
        function = types.SimpleNamespace(__name__=self.function.rpartition(":")[2])
        with faults():
            found = [at for _, at in self.reads.inputs if type(at) is not int]
            found += [guard[1] for guard in self.guards if guard[0] in ("same", "grad")]
            paths = [path_of(words, function) for words in found]
            return ", ".join(dict.fromkeys([str(p) for p in paths if p.argument is None]))

    def guards_of_arguments(self) -> list[Any]:
        """The guards but those on what the function alone leads to."""
        with faults():
            return [left for left in map(_of_arguments, self.guards) if left]

    def records(self) -> Document:
        """The document of the records. Raises FormatError."""
        with faults():
            line, _, texts = self.rest.partition(b"\n")
            sizes, found, at = json.loads(line), [], 0
            for size in sizes:
                found.append(texts[at : at + _count(size)].decode())
                at += size
            if at != len(texts) or not found:
                raise ValueError(f"{len(texts)} bytes of texts")
            return Document(found[0], tuple(found[1:]), self.headers)


def _of_arguments(guard: Any) -> list[Any] | None:
    """A guard as far as arguments lead to its values; None if they lead to none."""
    match guard:
        case ["value", [None, _]]:
            return None
        case ["environment", places, roles]:
            left = [place for place in places if place[0] is not None]
            return ["environment", left, roles] if left else None
    return list(guard)


def records_written(records: Document) -> bytes:
    """The records as the end of a document: a line with the sizes of the texts, and these."""
    texts = [text.encode() for text in (records.text, *records.graphs)]
    return json.dumps(list(map(len, texts))).encode() + b"\n" + b"".join(texts)


@contextmanager
def faults() -> Iterator[None]:
    """Raises FormatError for the errors of other JSON than is written."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"artifact: the document is no kept entry of format {FORMAT} "
            f"({type(error).__name__}: {str(error)[:100]}), expected one that aotlite wrote"
        ) from None


def facts_in_words(facts: GuardedFacts) -> dict[str, Any]:
    """The facts of guards as plain data. Raises NoImage."""
    return {
        "inputs": [words_of_role(role) for role in facts.inputs],
        "offsets": [words_of_role(role) for role in facts.offset_read],
        "sizes": [[words_of_role(role), size] for role, size in facts.sizes.items()],
        "viewed": [words_of_role(role) for role in facts.viewed],
    }


def facts_of_words(words: Mapping[str, Any], guards: tuple[Any, ...]) -> GuardedFacts:
    """The facts of these words. Raises ValueError, KeyError and TypeError for others."""
    return GuardedFacts(
        tuple([role_of(role) for role in words["inputs"]]),
        guards,
        frozenset([role_of(role) for role in words["offsets"]]),
        {role_of(role): int(size) for role, size in words["sizes"]},
        frozenset([role_of(role) for role in words["viewed"]]),
        (),
    )


def _reads_written(reads: ReadSet) -> dict[str, Any]:
    return {
        "lines": reads.lines,
        "ran": sorted(reads.ran),
        "names": None if reads.names is None else sorted(reads.names),
        "places": reads.places,
        "found": reads.found,
        "environment": reads.environment,
        "inputs": reads.inputs,
        "offsets": reads.offsets,
        "states": reads.states,
        "sized": reads.sized,
    }


def kept_entry_of(data: bytes) -> KeptEntry:
    """The entry of a document. Raises FormatError for any other bytes."""
    with faults():
        head, _, rest = data.partition(b"\n")
        return _entry(json.loads(head), rest)


def _entry(made: Any, rest: bytes) -> KeptEntry:
    if made["format"] != FORMAT:
        raise ValueError(f"format {made['format']!r}")
    reads = made["reads"]
    names = reads["names"]
    found = ReadSet(
        tuple([(_text(name), _text(image)) for name, image in reads["lines"]]),
        frozenset(map(_text, reads["ran"])),
        None if names is None else frozenset(map(_text, names)),
        tuple(reads["places"]),
        tuple([(_text(name), tuple(paths)) for name, paths in reads["found"]]),
        tuple(map(_text, reads["environment"])),
        tuple([(_text(name), at) for name, at in reads["inputs"]]),
        tuple(map(_text, reads["offsets"])),
        _states(reads["states"]),
        tuple(map(int, reads["sized"])),
    )
    guards, facts = made["guards"], made["facts"]
    if type(guards) is not list or type(facts) is not dict:
        raise TypeError("guards and facts")
    symbols = None if made["symbols"] is None else symbols_of(made["symbols"])
    return KeptEntry(_text(made["function"]), found, guards, facts, rest, symbols=symbols)


def _states(words: object) -> tuple[str, ...]:
    if not isinstance(words, list) or not STATES.keys() >= set(words):
        raise ValueError(f"the states {words!r:.40}")
    return tuple(words)


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.40} is no size")
    return value
