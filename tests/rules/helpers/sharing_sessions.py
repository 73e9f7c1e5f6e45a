"""Random sessions: one function of several tensors, called with this and that pattern of aliases.

A pattern says of each argument which tensor it is: a part of a buffer, memory of its own, or the
object that an earlier argument is. Shapes are equal throughout, so that what decides whether two
calls share an entry is the pattern alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import AliasError
from tests.end_to_end.helpers.cases import Call
from tests.end_to_end.helpers.worlds import World, differences, world_of

SIZE = 3
ROOM = 12
Place = tuple[str, int, int]
"""(kind, number, stride): ("part", start, stride) of the buffer, ("own", k, 1), ("same", i, 1), or
("hidden", start, 1): a hidden alias of a part of another buffer, a storage of its own.
"""

STEPS: dict[str, Callable[..., Any]] = {
    "read": lambda a, b: a * 2 + b,
    "write": lambda a, b: a.mul_(3),
    "add": lambda a, b: a.add_(b),
    "copy": lambda a, b: a.copy_(b),
    "write a part": lambda a, b: a[1:].mul_(5),
    "bytes alone": lambda a, b: _without_grad(a),
    "view": lambda a, b: a[1:],
    "itself": lambda a, b: a,
    "is": lambda a, b: a + 100 if a is b else a + 1000,
}
WRITES = {"write", "add", "copy", "write a part", "bytes alone"}


def _without_grad(a: Any) -> Any:
    with al.no_grad():
        return a.mul_(7)


@attrs.frozen
class Session:
    """Steps (what, on which argument, with which), and the patterns that it is called with."""

    steps: tuple[tuple[str, int, int], ...]
    patterns: tuple[tuple[Place, ...], ...]
    history: bool
    """Whether what is passed is computed from leaves that require grad."""

    def body(self, *arguments: Any) -> tuple[Any, ...]:
        results = [STEPS[what](arguments[i], arguments[k]) for what, i, k in self.steps]
        return tuple(results)

    @property
    def written(self) -> set[int]:
        """The arguments that steps write."""
        return {i for what, i, _ in self.steps if what in WRITES}

    def setup(self, pattern: tuple[Place, ...]) -> tuple[list[Any], tuple[int, ...]]:
        """The tensors of one call, and the numbers of those that are passed."""
        root: Any = al.arange(ROOM, dtype=al.float64).requires_grad_(self.history)
        made: list[Any] = [root, root * 1, al.arange(ROOM, dtype=al.float64) * 10]
        passed: list[int] = []
        for kind, number, stride in pattern:
            if kind == "same":
                passed.append(passed[number])
                continue
            own = al.full((SIZE,), float(number + 2), dtype=al.float64)
            own = own.requires_grad_() * 1 if self.history else own
            window = slice(number, number + stride * SIZE, stride)
            passed.append(len(made))
            if kind == "own":
                made.append(own)
            else:
                made.append(made[1][window] if kind == "part" else made[2][window].hidden_alias())
        return made, tuple(passed)

    def world(self, function: Callable[..., Any], pattern: tuple[Place, ...]) -> World:
        """The observation of one call."""
        made, passed = self.setup(pattern)
        return world_of(function, made, Call(passed))

    def play(self, compiled: Any) -> tuple[list[str], int]:
        """Differences from eager over all calls of one compiled object; how many were refused."""
        found, refused = [], 0
        for pattern in self.patterns:
            mine, its = self.world(compiled, pattern), self.world(self.body, pattern)
            if isinstance(mine.error, AliasError) and its.error is None:
                refused += 1
                found += [] if mine.untouched else [f"{pattern}: refused, and touched"]
                continue
            found += [f"{pattern}: {line}" for line in differences(mine, its)]
        return found, refused

    # --- which calls may share an entry, by what the rules say and nothing else
    def key(self, pattern: tuple[Place, ...]) -> Any:
        """Equal for calls that are to share an entry (GRD-1, GRD-2, DUP-5)."""
        objects = objects_of(pattern)
        strides = tuple(stride for _, _, stride in pattern)
        kinds = tuple(pattern[i][0] for i in objects) if self.history else ()
        shared = (self._shared(pattern), self._hidden(pattern)) if self.written else None
        return objects, strides, kinds, shared

    def _hidden(self, pattern: tuple[Place, ...]) -> Any:
        """Which hidden aliases overlap, of which one is written, and at what distance."""
        objects = objects_of(pattern)
        places = [i for i in dict.fromkeys(objects) if pattern[i][0] == "hidden"]
        written = {objects[i] for i in self.written}
        return tuple(
            (a, b, pattern[b][1] - pattern[a][1])
            for k, a in enumerate(places)
            for b in places[k + 1 :]
            if overlap(pattern[a], pattern[b]) and not written.isdisjoint((a, b))
        )

    def _shared(self, pattern: tuple[Place, ...]) -> Any:
        """The arguments in the written buffer, and the distances at which they overlap."""
        objects = objects_of(pattern)
        parts = [i for i in dict.fromkeys(objects) if pattern[i][0] == "part"]
        if len(parts) < 2 or not any(objects[i] in parts for i in self.written):
            return None
        distances = [
            pattern[b][1] - pattern[a][1] if overlap(pattern[a], pattern[b]) else "apart"
            for k, a in enumerate(parts)
            for b in parts[k + 1 :]
        ]
        return tuple(parts), tuple(distances)


def objects_of(pattern: tuple[Place, ...]) -> tuple[int, ...]:
    """For each argument the first one that is the same object."""
    found: list[int] = []
    for i, (kind, number, _) in enumerate(pattern):
        found.append(found[number] if kind == "same" else i)
    return tuple(found)


def overlap(a: Place, b: Place) -> bool:
    """Brute force."""
    spots = [{start + k * stride for k in range(SIZE)} for _, start, stride in (a, b)]
    return not spots[0].isdisjoint(spots[1])


def written_overlap(session: Session, pattern: tuple[Place, ...]) -> bool:
    """Whether an argument that is written overlaps another object's memory."""
    objects = objects_of(pattern)
    parts = [i for i in dict.fromkeys(objects) if pattern[i][0] == "part"]
    written = {objects[i] for i in session.written}
    return any(
        (a in written or b in written) and overlap(pattern[a], pattern[b])
        for k, a in enumerate(parts)
        for b in parts[k + 1 :]
    )


@st.composite
def patterns(draw: Any, count: int, hidden: bool) -> tuple[Place, ...]:
    places: list[Place] = []
    for index in range(count):
        more = ["hidden"] * hidden + ["same"] * (index > 0)
        kind = draw(st.sampled_from(["part", "part", "own", *more]))
        stride = draw(st.sampled_from([1, 1, 2])) if kind == "part" else 1
        last = ROOM - stride * (SIZE - 1) - 1
        highest = {"part": last, "hidden": last, "own": 3, "same": index - 1}[kind]
        places.append((kind, draw(st.integers(0, highest)), stride))
        if kind == "same":
            places[-1] = (*places[-1][:2], places[places[-1][1]][2])
    return tuple(places)


def elsewhere(pattern: tuple[Place, ...]) -> list[tuple[Place, ...]]:
    """The pattern with one part moved; first where that changes no overlap, if there are such.

    Of patterns that are drawn apart hardly two have so much in common.
    """
    found = [
        (*pattern[:index], ("part", start, stride), *pattern[index + 1 :])
        for index, (kind, now, stride) in enumerate(pattern)
        for start in range(ROOM - stride * (SIZE - 1))
        if kind == "part" and start != now
    ]
    alike = [each for each in found if _overlaps(each) == _overlaps(pattern)]
    return alike or found or [pattern]


def _overlaps(pattern: tuple[Place, ...]) -> list[int | None]:
    """The distance of each pair of parts that overlap; None of others."""
    parts = [place for place in pattern if place[0] == "part"]
    return [
        b[1] - a[1] if overlap(a, b) else None for k, a in enumerate(parts) for b in parts[k + 1 :]
    ]


@st.composite
def sessions(
    draw: Any, *, history: bool = False, writes: bool = True, hidden: bool = True
) -> Session:
    """Two to five arguments, up to four steps, up to five calls."""
    count = draw(st.sampled_from([2, 2, 3, 5]))  # more than three are known by marks (GRD-6)
    index = st.integers(0, count - 1)
    kinds = sorted(STEPS if writes else STEPS.keys() - WRITES)
    steps = draw(st.lists(st.tuples(st.sampled_from(kinds), index, index), max_size=4))
    calls = [draw(patterns(count, hidden))]
    for _ in range(draw(st.integers(1, 4))):
        near = st.sampled_from(elsewhere(calls[-1]))
        calls.append(draw(st.one_of(near, near, patterns(count, hidden))))
    return Session(tuple(steps), tuple(calls), history)
