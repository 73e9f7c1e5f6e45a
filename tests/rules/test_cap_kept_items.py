"""CAP-17: of a container that a function changes, the items that it reads and keeps are guarded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

pytestmark = pytest.mark.rules("CAP-17")

ONE = al.ones(1)


def test_another_item_of_a_table_that_counts_is_noticed():
    table = {"scale": 2.0, "calls": 0, "seen": 0}

    def f(x):
        table["calls"] += 1
        return x * table["scale"]

    compiled = al.compile(f, backend="reference")
    assert [2.0] == compiled(ONE).tolist()
    table["scale"] = 3.0
    assert [3.0] == compiled(ONE).tolist()
    assert 2 == len(compiled.entries)
    table["seen"] = table["calls"] = 7  # nobody reads them
    assert [3.0] == compiled(ONE).tolist()
    assert 2 == len(compiled.entries)


def test_an_item_of_a_list_that_grows_is_noticed():
    log = [2.0]

    def f(x):
        log.append(1.0)
        return x * log[0]

    compiled = al.compile(f, backend="reference")
    assert [2.0] == compiled(ONE).tolist()
    log[0] = 3.0
    assert [3.0] == compiled(ONE).tolist()
    del log[:]
    log.append(4.0)
    assert [4.0] == compiled(ONE).tolist()


def largest(o, n):
    o.k = max(o.k, n)
    return o.k


def flag(o, n):
    if n > 3:
        o.k = 7
    return o.k


def only_larger(o, n):
    if n > o.k:
        o.k = n
    return o.k


def seen(o, n):
    o.seen.add(n)
    return len(o.seen)


def late(o, n):
    if n > 2 and not hasattr(o, "late"):
        o.late = 5
    return o.late if hasattr(o, "late") else 1


@pytest.mark.parametrize("state", [largest, flag, only_larger, seen, late])
@pytest.mark.parametrize("sizes", [(2, 3, 2, 3, 2), (2, 5, 2, 3, 2, 5)])
def test_an_attribute_that_a_call_of_another_size_changes_is_noticed(state, sizes):
    """An entry of the first size must not go on with the state that it has found."""

    def function():
        holder = Holder()
        return lambda x: x * state(holder, x.shape[0])

    eager, compiled = function(), al.compile(function(), backend="reference")
    for n in sizes:
        assert eager(al.ones(n)).tolist() == compiled(al.ones(n)).tolist()


class Holder:
    def __init__(self) -> None:
        self.k = 0
        self.seen: set[int] = set()


def test_what_is_not_watched_does_not_settle():
    """Attributes of functions are not guarded."""

    def f(x):
        f.k = max(f.k, x.shape[0])
        return x * f.k

    f.k = 0
    with pytest.raises(al.UnsupportedError, match="a read of f.k"):
        al.compile(f, backend="reference")(ONE)


KEYS = ("a", "b", "c")


@settings(max_examples=25)
@given(
    st.sampled_from(KEYS),
    st.sampled_from(KEYS),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(KEYS), st.integers(2, 4)), min_size=1, max_size=4),
)
@pytest.mark.draws(long=2000)
def test_a_table_is_changed_inside_and_outside(counted, read, is_nested, changes):
    """After each change outside, the result is eager's."""
    inner: dict[str, Any] = dict.fromkeys(KEYS, 1)
    names = {"inner": inner, "table": {"inner": inner, "calls": 0}, "__name__": "users_program"}
    count = f"inner['{counted}'] += 1" + "; table['calls'] += 1" * is_nested
    result = f"x * table['inner']['{read}']" if is_nested else f"x * inner['{read}']"
    exec(f"def f(x):\n    {count}\n    return {result}", names)

    compiled = al.compile(names["f"], backend="reference")
    try:
        compiled(ONE)
    except al.UnsupportedError:
        assert counted == read
        return
    for key, value in changes:
        inner[key] = value
        assert [float(inner[read])] == compiled(ONE).tolist()


class Slotted:
    __slots__ = ("n",)


class Meta(type):
    n = 1


def test_what_one_size_sets_another_size_reads():
    """A compiled call does not set it again: the other entry compares it, or there is none."""

    def slot():
        box = Slotted()
        box.n = 1

        def f(x):
            if x.shape[0] == 3:
                box.n = x.shape[0]
            if box.n < x.shape[0]:
                box.n = 2
            return x * box.n

        return f

    def metaclass():
        kind = Meta("kind", (), {})

        def f(x):
            if x.shape[0] == 3:
                kind.n = 2
            return x * kind.n

        return f

    for make in (slot, metaclass):
        eager, compiled = make(), al.compile(make(), backend="reference")
        for size in (2, 3, 2, 5, 3, 2):
            expected = eager(al.ones(size)).tolist()
            try:
                assert expected == compiled(al.ones(size)).tolist()
            except al.UnsupportedError:
                break
