"""The symbols of a kept entry as plain data: what asked for them, where a call finds their values,
bounds, which assumptions are guards, and the user's lines of these.

The sizes themselves, and the facts on them, are in the document of the records.
Rule: CACHE-20. Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.artifacts.reads.value_images import NoImage
from aotlite.ir.provenance.location import Place, place_of
from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.validation.verdict import Verdict
from aotlite.pipeline.size_regions.tensor_marks import ResultNote
from aotlite.stages.records.symbolic_sizes import (
    NumberSource,
    SizeRequest,
    SizeSource,
    Source,
    SymbolicSizes,
)

_PLAIN = (bool, int, str, type(None))


@attrs.frozen(eq=False)
class KeptSymbols:
    """The symbols of an entry, but for the expressions of sizes."""

    requests: Mapping[Source, SizeRequest]
    sources: Mapping[str, Source]
    """By the name of a symbol."""
    rooms: Mapping[str, tuple[int | None, int | None]]
    guards: tuple[int, ...]
    """Which of the assumptions are the guards."""
    places: tuple[Place | None, ...]
    """The user's line of each assumption."""
    notes: tuple[ResultNote, ...]
    proof: Verdict | None
    """How it was proved that the guards suffice; None where no proof was asked for."""

    @classmethod
    def of(
        cls, sizes: SymbolicSizes, guards: Sequence[Assumption], notes: Sequence[ResultNote]
    ) -> KeptSymbols:
        """Those of a capture. Raises NoImage for a proof that leaves something open."""
        proof, log = sizes.proof, sizes.table.log
        if proof is not None and not proof.is_proved:
            raise NoImage("it is not proved that the conditions on sizes suffice")
        if not all(type(key) in _PLAIN for path, _ in notes for key in path):
            raise NoImage("a result whose sizes are symbols has a key that is no plain value")
        numbers = {id(each): number for number, each in enumerate(log)}
        places = [None if each.location is None else place_of(each.location) for each in log]
        return cls(
            sizes.requests,
            sizes.sources,
            sizes.rooms,
            tuple([numbers[id(each)] for each in guards]),
            tuple(places),
            tuple(notes),
            proof,
        )

    def written(self) -> dict[str, Any]:
        """The symbols as JSON."""
        proof = self.proof
        return {
            "requests": [[_source(at), _request(asked)] for at, asked in self.requests.items()],
            "sources": [[name, _source(at)] for name, at in self.sources.items()],
            "rooms": [[name, *room] for name, room in self.rooms.items()],
            "guards": self.guards,
            "places": [None if each is None else attrs.astuple(each) for each in self.places],
            "notes": [[path, sorted(dims)] for path, dims in self.notes],
            "proof": proof and [proof.expanded, proof.solved, proof.by_cases],
        }


def request_words(sizes: SymbolicSizes | None) -> str:
    """What is asked to be symbols in a compilation, in words; `none` where all are numbers."""
    if sizes is None:
        return "none"
    return "; ".join([f"{at}: {_asked(asked)}" for at, asked in sizes.requests.items()])


def _asked(asked: SizeRequest) -> str:
    changed = [
        f"{field.name}={getattr(asked, field.name)!r}"
        for field in attrs.fields(SizeRequest)
        if getattr(asked, field.name) != field.default
    ]
    return ", ".join(changed) or "a symbol"


# ---------------------------------------------------------------------------------------- writing
def _source(source: Source) -> list[Any]:
    if isinstance(source, NumberSource):
        return [source.argument]
    if source.path:
        raise NoImage("a part of a wrapper has symbols for sizes")
    return [source.argument, source.dim]


def _request(asked: SizeRequest) -> list[Any]:
    if asked.same_as is not None:
        raise NoImage("a part of a wrapper has symbols for sizes")
    if asked.is_float:
        raise NoImage("a float argument is an input")
    flags = asked.is_marked, asked.in_shapes, asked.is_size
    return [asked.least, asked.most, asked.name, *flags, asked.gaps]


# ---------------------------------------------------------------------------------------- reading
def symbols_of(made: Any) -> KeptSymbols:
    """The symbols of JSON. Raises ValueError, TypeError or KeyError for other JSON."""
    proof = made["proof"]
    symbols = KeptSymbols(
        {_source_of(at): _request_of(asked) for at, asked in made["requests"]},
        {_text(name): _source_of(at) for name, at in made["sources"]},
        {_text(name): (_bound(least), _bound(most)) for name, least, most in made["rooms"]},
        tuple(map(_count, made["guards"])),
        tuple([None if each is None else _place(*each) for each in made["places"]]),
        tuple([_note(path, dims) for path, dims in made["notes"]]),
        None if proof is None else _verdict(*map(_count, proof)),
    )
    if symbols.sources.keys() != symbols.rooms.keys() or not symbols.sources:
        raise ValueError("symbols without bounds")
    if not all(each in symbols.requests for each in symbols.sources.values()):
        raise ValueError("a symbol that nobody asked for")
    if not all(number < len(symbols.places) for number in symbols.guards):
        raise ValueError("a guard that is no assumption")
    return symbols


def _source_of(words: Any) -> Source:
    match words:
        case [argument]:
            return NumberSource(_count(argument))
        case [argument, dim]:
            return SizeSource(_count(argument), _count(dim))
    raise ValueError(f"the source {words!r}")


def _request_of(words: Any) -> SizeRequest:
    least, most, name, is_marked, in_shapes, is_size, gaps = words
    found = []
    for each in gaps:
        dim, factor, rest, less = map(_integer, each)
        found.append((dim, factor, rest, less))
    return SizeRequest(
        _bound(least),
        _bound(most),
        None if name is None else _text(name),
        is_marked=_flag(is_marked),
        in_shapes=_flag(in_shapes),
        is_size=_flag(is_size),
        gaps=tuple(found),
    )


def _verdict(expanded: int, solved: int, by_cases: int) -> Verdict:
    return Verdict(expanded, solved, (), -1, 0, (), None, by_cases)


def _place(file: object, line: object, function: object, text: object) -> Place:
    return Place(_text(file), _count(line), _text(function), _text(text))


def _note(path: Any, dims: Any) -> ResultNote:
    if not all(type(key) in _PLAIN for key in path):
        raise TypeError("a key of a result")
    return tuple(path), frozenset(map(_count, dims))


def _bound(value: object) -> int | None:
    return None if value is None else _integer(value)


def _count(value: object) -> int:
    if _integer(value) < 0:
        raise ValueError("a number below 0")
    return value  # type: ignore[return-value]


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is no text")
    return value
