"""Inputs that share memory by ndarrays: each has a storage of its own, so that none is their base.

Rules: ALI-1 (refused where one that overlaps another is written); what read-only memory refuses.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

ROOM = 12


@attrs.frozen
class Window:
    """A part of one array: where it starts, its size and its step."""

    start: int
    size: int
    step: int

    @property
    def places(self) -> set[int]:
        return {self.start + k * self.step for k in range(self.size)}

    def of(self, array: Any) -> Any:
        return array[self.start : self.start + self.size * self.step : self.step]


@st.composite
def windows(draw: Any) -> Window:
    size, step = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    return Window(draw(st.integers(0, ROOM - max(size * step, 1))), size, step)


@attrs.frozen
class Program:
    """Windows of one array and of others, which of them are written, and how."""

    windows: tuple[Window, ...]
    apart: tuple[bool, ...]
    """Whether a window is of an array of its own."""
    writes: tuple[tuple[int, str], ...]
    frozen: bool
    """Whether the shared array is read-only."""

    def body(self, *xs: Any) -> Any:
        total = xs[0].sum() * 0.0
        for place, how in self.writes:
            x = xs[place % len(xs)]
            match how:
                case "write":
                    x.mul_(2.0)
                case "write a part":
                    x[:1].add_(3.0)
                case "write quietly":
                    x.detach().add_(1.0)
                case "read":
                    total = total + (x * x).sum()
        return total, xs[-1], xs[0] + 1.0

    @property
    def written(self) -> set[int]:
        return {place % len(self.windows) for place, how in self.writes if how != "read"}

    def given(self) -> tuple[list[Any], list[Any]]:
        """The arrays, and the tensors over their windows."""
        shared = np.arange(float(ROOM))
        shared.flags.writeable = not self.frozen
        arrays = [shared if not own else np.arange(float(ROOM)) for own in self.apart]
        tensors = [al.from_numpy(w.of(a)) for w, a in zip(self.windows, arrays, strict=True)]
        return arrays, tensors

    def overlaps(self) -> bool:
        """Whether a written window overlaps another, by brute force."""
        pairs = [
            (i, j)
            for i, one in enumerate(self.windows)
            for j, other in enumerate(self.windows[:i])
            if not (self.apart[i] or self.apart[j]) and one.places & other.places
        ]
        return any(i in self.written or j in self.written for i, j in pairs)

    def seen(self, run: Any) -> Any:
        """What is seen of a call."""
        arrays, tensors = self.given()
        before = [array.tolist() for array in arrays]
        try:
            total, last, other = run(*tensors)
        except al.AotliteError as error:
            assert before == [array.tolist() for array in arrays]
            assert [0] * len(tensors) == [t.version for t in tensors]
            return type(error)
        same = [last is t for t in tensors]
        values = [array.tolist() for array in arrays]
        return values, total.tolist(), other.tolist(), same, [t.version for t in tensors]


programs = st.integers(2, 3).flatmap(
    lambda count: st.builds(
        Program,
        st.tuples(*[windows()] * count),
        st.tuples(*[st.sampled_from([False, False, True])] * count),
        st.lists(
            st.tuples(
                st.integers(0, 2),
                st.sampled_from(["write", "write a part", "write quietly", "read"]),
            ),
            max_size=3,
        ).map(tuple),
        st.booleans() if count == 2 else st.just(False),
    )
)


@pytest.mark.draws(long=300)
@pytest.mark.rules("ALI-1", "GEN-2")
@settings(max_examples=50)
@given(programs)
def test_windows_of_one_array_are_refused_where_a_written_one_overlaps(program: Program) -> None:
    """Everything else is as in eager; a refused call leaves all as it was, and so does the next."""
    compiled = al.compile(program.body)
    found = [program.seen(compiled) for _ in range(2)]
    assert found[0] == found[1]
    if program.overlaps() and not program.frozen:
        assert al.AliasError is found[0]
    elif not program.frozen:
        assert program.seen(program.body) == found[0]


@pytest.mark.draws(long=120)
@pytest.mark.rules("GEN-2")
@settings(max_examples=40)
@given(programs)
def test_read_only_memory_is_refused_where_it_is_written(program: Program) -> None:
    """Before anything, also where a function was compiled for memory that may be written."""
    program = attrs.evolve(program, frozen=True)
    free = attrs.evolve(program, frozen=False)
    shared = {i for i, own in enumerate(program.apart) if not own}
    elements = [window.size for window in program.windows]
    if program.overlaps():
        return
    compiled = al.compile(program.body)
    expected = free.seen(program.body)
    assert expected == free.seen(compiled)
    found = program.seen(compiled)
    if not program.written & shared:
        assert expected == found
    elif any(elements[i] for i in program.written & shared):
        assert al.ArgumentError is found


@pytest.mark.rules("GEN-7", "ALI-1")
@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["array", "array", "tensor", "same"]), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(["write", "view", "read"]), st.integers(0, 2)), max_size=3),
    st.lists(st.sampled_from(["argument", "view", "new", "number", "tracked"]), max_size=3),
)
def test_ndarrays_among_tensors_are_what_eager_has(
    kinds: list[str], steps: list[tuple[str, int]], wanted: list[str]
) -> None:
    """What is made of ndarrays are ndarrays, of tensors tensors; arguments stay themselves."""
    weight = al.ones(3, requires_grad=True)

    def body(*xs: Any) -> Any:
        total = al.zeros(3)
        for how, place in steps:
            x = xs[place % len(xs)]
            match how:
                case "write":
                    x *= 2.0
                case "view":
                    part = x[1:]
                    part += 1.0
                case _:
                    total = total + _as_tensor(x)
        new = total + _as_tensor(xs[0])
        made = {"argument": xs[-1], "view": xs[0][1:], "new": new, "number": 3}
        return {
            f"{i}": total * weight if name == "tracked" else made[name]
            for i, name in enumerate(wanted)
        }

    both = []
    for run in (body, al.compile(body)):
        arrays = [np.arange(3.0, dtype=np.float32) + i for i in range(len(kinds))]
        pairs = zip(kinds, arrays, strict=True)
        given_: list[Any] = [al.from_numpy(array) if k == "tensor" else array for k, array in pairs]
        given_ = [given_[0] if kind == "same" else x for kind, x in zip(kinds, given_, strict=True)]
        found = run(*given_).values()
        seen = [(type(x), np.asarray(_plain(x)).tolist(), x is given_[-1]) for x in found]
        both.append((seen, [array.tolist() for array in arrays]))
    assert both[0] == both[1]


def _plain(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, al.Tensor) else x


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, al.Tensor) else al.from_numpy(x)


# --------------------------------------------------------------------------------------- exhaustive
Part = tuple[Any, int]
"""A dtype, and the first byte of two elements of it."""
PARTS: tuple[Part, ...] = tuple(product((np.uint8, np.int16), range(5)))


def _parts(parts: tuple[Part, ...], shift: int, *, frozen: bool) -> tuple[Any, list[Any]]:
    """Parts of an array of bytes that begins so many behind an even address."""
    owner = np.frombuffer(bytearray(range(1, 17)), np.uint8, offset=shift)
    found = [owner[at : at + 2 * np.dtype(kind).itemsize].view(kind) for kind, at in parts]
    found[1].flags.writeable = not frozen
    return owner, found


def _doubled(x: Any, y: Any) -> Any:
    x *= 2
    return y + 1, x


def _seen_of_parts(run: Any, given_: tuple[Any, list[Any]]) -> Any:
    owner, parts = given_
    try:
        results = run(*parts)
    except al.AotliteError as error:
        return type(error)
    return [np.asarray(each).tolist() for each in results], owner.tolist()


def _reach(part: Part) -> set[int]:
    return set(range(part[1], part[1] + 2 * np.dtype(part[0]).itemsize))


@pytest.mark.rules("ALI-1", "GEN-7")
def test_parts_of_one_array_are_one_memory_where_elements_fall_on_elements() -> None:
    """Passed as ndarrays, of any two dtypes, on even and on odd addresses; one may be read-only.

    They are refused together only where the written one overlaps what cannot be seen with it.
    """
    for parts, shift, frozen in product(product(PARTS, repeat=2), (0, 1), (False, True)):
        found = _seen_of_parts(al.compile(_doubled), _parts(parts, shift, frozen=frozen))
        eager = _seen_of_parts(
            lambda *arrays: _doubled(*map(al.from_numpy, arrays)),
            _parts(parts, shift, frozen=frozen),
        )
        apart = any(at % np.dtype(kind).itemsize for kind, at in parts) or frozen
        if eager is not al.ArgumentError and apart and _reach(parts[0]) & _reach(parts[1]):
            eager = al.AliasError
        assert eager == found, (parts, shift, frozen)


@pytest.mark.rules("ALI-1")
def test_tensors_over_parts_of_one_array_are_refused_if_they_overlap_and_one_is_written() -> None:
    for first, second, writes in product(range(4), range(4), (False, True)):
        array = np.arange(6.0)
        tensors = [al.from_numpy(array[at : at + 2]) for at in (first, second)]
        body = _doubled if writes else lambda x, y: (y + 1, x)
        found = _seen_of_parts(al.compile(body), (array, tensors))
        assert (found is al.AliasError) == (writes and abs(first - second) < 2)
