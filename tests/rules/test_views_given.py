"""Arguments of every kind, alone and as views of one memory: what is done to them is eager's.

Errors too, by their words: what forbids a write is a fact of the argument (TEN-15, TEN-19, TEN-20).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import aotlite as al
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import Setting, observe


def _leaf() -> Any:
    return al.arange(6, dtype=al.float64).requires_grad_()


def _quietly(action: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: Any) -> Any:
        with al.no_grad():
            return action(*given)

    return run


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "leaf": lambda leaf, base: leaf,
    "made": lambda leaf, base: base,
    "view of a leaf": lambda leaf, base: leaf[1:4],
    "view": lambda leaf, base: base[1:4],
    "view without grad": lambda leaf, base: _quietly(lambda: base[1:4])(),
    "view without grad of a leaf": lambda leaf, base: _quietly(lambda: leaf[1:4])(),
    "one of several": lambda leaf, base: base.split(3)[0],
    "view of a detached one": lambda leaf, base: base.detach()[1:],
    "expanded": lambda leaf, base: base[:1].expand(3),
}
BODIES: dict[str, Callable[[Any], Any]] = {
    "reads": lambda v: v * 2,
    "views": lambda v: v[1:],
    "writes": lambda v: v.mul_(2),
    "writes a part": lambda v: v[1:].mul_(2),
    "detaches": lambda v: (v.detach() * 2, v),
    "writes quietly": lambda v: (_quietly(v.mul_)(2), v * 1)[1],
}


def _setting(kind: str, *, written: bool) -> Setting:
    leaf = _leaf()
    base = leaf * 1
    given = KINDS[kind](leaf, base)
    if written:
        _quietly(lambda: (leaf if kind == "expanded" else given).mul_(2))()
    return Setting([leaf, base, given], [given], True, (0, "mul_"))


def _words(error: Any) -> str:
    return str(error).split("\n")[0]


@pytest.mark.rules("TEN-15", "TEN-19", "TEN-20", "TEN-32")
def test_an_argument_of_any_kind_may_do_what_it_may_in_eager() -> None:
    """Written before the call or not; where eager raises, the words are eager's."""
    for kind, (name, body), written in product(KINDS, BODIES.items(), (False, True)):
        its = observe(LIBRARY, _setting(kind, written=written), body)
        mine = observe(LIBRARY, _setting(kind, written=written), al.compile(body))
        assert [] == differences(mine, its), (kind, name, written)
        assert _words(its.error) == _words(mine.error), (kind, name, written)


MEMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "base": lambda base, other: base,
    "view": lambda base, other: base[1:],
    "detached": lambda base, other: other,
    "view of the detached one": lambda base, other: other[1:3],
}


def _write(*given: Any) -> Any:
    _quietly(given[0].mul_)(2)
    return [each * 3 for each in given]


def _relatives(names: tuple[str, ...]) -> Setting:
    """Views of a base, and of a part of it that is detached, which is a base of its own."""
    leaf = _leaf()
    base = leaf * 1
    other = base[2:].detach()
    made = [MEMBERS[name](base, other) for name in names]
    return Setting([leaf, base, other, *made], made, True, (0, "mul_"))


@pytest.mark.rules("SYN-2", "SYN-4", "SYN-7")
def test_views_of_a_base_and_of_a_detached_part_of_it_lie_where_they_lie() -> None:
    """Any of them, in any number and from either end, the first one written."""
    names = tuple(MEMBERS)
    choices = [names[first:last] for last in range(1, 5) for first in range(last)]
    for chosen in (*choices, *[each[::-1] for each in choices]):
        its = observe(LIBRARY, _relatives(chosen), _write)
        mine = observe(LIBRARY, _relatives(chosen), al.compile(_write))
        assert [] == differences(mine, its), chosen


MET_LATE: dict[str, Callable[[Any], Any]] = {
    "base": lambda base: base,
    "view": lambda base: base[2:],
    "view without grad": lambda base: _quietly(lambda: base[2:])(),
    "one of several": lambda base: base.split(3)[1],
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "with a history": lambda x: x.mul_(3),
    "quietly": lambda x: _quietly(x.mul_)(3),
    "twice": lambda x: x.mul_(3).mul_(2),
}
READS: dict[str, Callable[[Any], Any]] = {
    "a product": lambda h: h * 2,
    "a view": lambda h: h[1:],
    "itself": lambda h: h,
    "written": lambda h: h.mul_(2),
}


def _met_late(kind: str, write: Any, read: Any, *, compiles: bool) -> Any:
    leaf = _leaf()
    base = leaf * 1
    given, late = base[:4], MET_LATE[kind](base)

    def body(x: Any) -> Any:
        write(x)
        return read(late)

    try:
        result = (al.compile(body) if compiles else body)(given)
        found = None
        if result.requires_grad:
            (found,) = al.autograd.grad(result.sum(), [leaf], allow_unused=True)
    except al.AutogradError as error:
        return _words(error)
    return result.tolist(), late.tolist(), late.version, None if found is None else found.tolist()


@pytest.mark.rules("SYN-2", "TEN-20", "CAP-3")
def test_a_relative_that_is_met_after_a_write_was_written_too() -> None:
    """It is no argument, and the function reads it only then: what is stale in eager is stale."""
    for kind, write, read in product(MET_LATE, WRITES, READS):
        its, mine = (
            _met_late(kind, WRITES[write], READS[read], compiles=compiles)
            for compiles in (False, True)
        )
        assert its == mine, (kind, write, read)
