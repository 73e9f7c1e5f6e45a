"""Version counters: which calls count as a write, and of which arrays (TEN-10, TEN-11)."""

from __future__ import annotations

import itertools
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.model_arrays import Chain
from aotlite.conformance.models.scenarios import VIEWS, leaf, numbers, viewed
from aotlite.conformance.rules import attempt, expect, rule

WRITES: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("fill_", (5.0,)),
    ("add_", (1.0,)),
    ("mul_", (2.0,)),
    ("mul_", ("another",)),
    ("copy_", ("another",)),
    ("copy_", ("itself",)),
    ("setitem", (..., 5.0)),
    ("setitem", (slice(0, 0), 5.0)),
    ("put", ([0], 5.0)),
    ("put_mask", ([True, False], 5.0)),
    ("put_add", ([0, 0], 5.0)),
    ("uniform_", ()),
)
"""Methods that write an array of two elements, their first argument; the other arguments."""


def new(on: Adapter, shape: tuple[int, ...] = (2,)) -> Array:
    """A new array."""
    return on.from_list(numbers(shape), "float64")


def write(on: Adapter, a: Array, case: tuple[str, tuple[object, ...]]) -> None:
    """Calls one of `WRITES` on an array of two elements."""
    method, arguments = case
    given = {"itself": a, "another": None}
    operands = [given.get(each, each) if isinstance(each, str) else each for each in arguments]
    operands = [new(on) if each is None else each for each in operands]
    getattr(on, method)(a, *operands)


def counted(on: Adapter, a: Array, before: int, expected: int, what: str) -> None:
    """Compares the increase of an array's version with the expected one."""
    expect(on.write_count(a) - before, expected, f"the increase of the version {what}")


@rule("TEN-10a", "each write counts once", WRITES)
def counts_once(on: Adapter, case: tuple[str, tuple[object, ...]]) -> None:
    """Each in-place op increases the version by one, whatever it writes."""
    a = new(on)
    before = on.write_count(a)
    write(on, a, case)
    counted(on, a, before, 1, "by a write")


@rule("TEN-10b", "an `out` argument counts", ("add_out", "sum_out", "cumsum_out", "matmul_out"))
def out_counts(on: Adapter, case: str) -> None:
    """An op increases the version of its `out` argument by one."""
    a, out = (
        new(on, (2, 2)),
        on.from_list([9.0, 9.0] if case == "sum_out" else [[9.0] * 2] * 2, "float64"),
    )
    second = {"add_out": a, "matmul_out": a}.get(case, 0)
    before = on.write_count(out)
    getattr(on, case)(a, second, out)
    counted(on, out, before, 1, "by a result written into it")


@rule("TEN-10c", "views and their base count together", VIEWS)
def views_count(on: Adapter, case: Chain) -> None:
    """A write of a view, the base or a detached alias increases the version of all three."""
    base = new(on, case[0])
    view = viewed(on, base, case[1])
    alias = on.detach(base)
    for target in (base, view, alias):
        counts = [on.write_count(each) for each in (base, view, alias)]
        on.fill_(target, 5.0)
        for each, before in zip((base, view, alias), counts, strict=True):
            counted(on, each, before, 1, "by a write of one of them")


@rule("TEN-10d", "a write under no_grad counts", WRITES)
def no_grad_counts(on: Adapter, case: tuple[str, tuple[object, ...]]) -> None:
    """A write increases the version by one under no_grad too."""
    a = new(on)
    before = on.write_count(a)
    with on.no_grad():
        write(on, a, case)
    counted(on, a, before, 1, "by a write")


@rule(
    "TEN-10e", "a change of geometry counts as a write of every alias", ("transpose_", "unsqueeze_")
)
def geometry_counts(on: Adapter, case: str) -> None:
    """`transpose_` and `unsqueeze_` increase the version of all aliases by one."""
    a = new(on, (1, 2))
    view = on.select(a, 0, 0)
    before, of_view = on.write_count(a), on.write_count(view)
    getattr(on, case)(a, 0, *([1] if case == "transpose_" else []))
    counted(on, a, before, 1, "by a change of geometry")
    counted(on, view, of_view, 1, "of a view, by its base's geometry")


READS = ("add", "mul", "clone", "view", "detach", "requires_grad_", "detach_", "to_list")


@rule("TEN-10f", "a call that writes nothing counts nothing", READS)
def reads_count_nothing(on: Adapter, case: str) -> None:
    """Functional ops, views, reads and changes of history leave the version unchanged."""
    a = new(on)
    before = on.write_count(a)
    given: tuple[Any, ...] = {"add": (1.0,), "mul": (2.0,), "view": ((2, 1),)}.get(case, ())
    getattr(on, case)(a, *((True,) if case == "requires_grad_" else given))
    counted(on, a, before, 0, f"by {case}")


@rule("TEN-10g", "a write of an empty array counts", ("fill_", "add_", "mul_"))
def empty_counts(on: Adapter, case: str) -> None:
    """A write of an array without elements increases its version by one."""
    a = on.from_list([], "float64")
    before = on.write_count(a)
    getattr(on, case)(a, 2.0)
    counted(on, a, before, 1, "by a write of no elements")


@rule("TEN-10h", "a copy has its own version", ("clone", "mul"))
def copies_count_apart(on: Adapter, case: str) -> None:
    """A write of a copy leaves the version of the original unchanged."""
    a = new(on)
    made = on.clone(a) if case == "clone" else on.mul(a, 2.0)
    before = on.write_count(a)
    on.fill_(made, 5.0)
    counted(on, a, before, 0, "by a write of its copy")


def _bad_shape(on: Adapter) -> tuple[Array, tuple[object, ...]]:
    return new(on), (new(on, (3,)),)


def _leaf(on: Adapter) -> tuple[Array, tuple[Any, ...]]:
    return leaf(on, (2,)), (2.0,)


def _overlapping(on: Adapter) -> tuple[Array, tuple[object, ...]]:
    return on.expand(new(on, (1,)), (2,)), (2.0,)


def _partly(on: Adapter) -> tuple[Array, tuple[object, ...]]:
    base = new(on, (3,))
    return on.narrow(base, 0, 1, 2), (on.narrow(base, 0, 0, 2),)


REFUSED = {"shape": _bad_shape, "leaf": _leaf, "expanded": _overlapping, "overlap": _partly}


@rule(
    "TEN-10i", "a refused write counts nothing", tuple(itertools.product(REFUSED, ("add_", "mul_")))
)
def refused_counts_nothing(on: Adapter, case: tuple[str, str]) -> None:
    """A write that raises leaves the version unchanged."""
    a, operands = REFUSED[case[0]](on)
    before = on.write_count(a)
    error = attempt(getattr(on, case[1]), a, *operands)
    counted(on, a, before, 0 if error else 1, "by a write that was refused" if error else "by it")


@rule("TEN-5b", "a hidden write is not counted", ("fill_", "add_"))
def hidden_uncounted(on: Adapter, case: str) -> None:
    """A write through a hidden alias increases the version of the alias, not of the array."""
    a = new(on)
    alias = on.hidden_alias(a)
    before, of_alias = on.write_count(a), on.write_count(alias)
    getattr(on, case)(alias, 5.0)
    counted(on, a, before, 0, "by a hidden write")
    counted(on, alias, of_alias, 1, "of the hidden alias")


@rule("TEN-11", "inference arrays have no version", (1, 2))
def inference_count(on: Adapter, case: int) -> None:
    """A read of the version of an array made in inference mode is refused."""
    with on.inference_mode():
        a = new(on, (case,))
    error = attempt(on.write_count, a)
    expect(error is not None, True, "whether the read of the version is refused")
