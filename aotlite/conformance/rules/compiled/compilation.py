"""Compiled functions: every call has the effects of the plain call (GEN-1).

Each rule runs programs plain and compiled, and compares some facets of the calls. A witness defines
the function first, and makes new arguments for each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.call_effects import (
    CallInputs,
    compare,
    counts,
    identity,
    program,
    shapes,
    sharing,
    strides,
    values,
)
from aotlite.conformance.models.compiled_functions import (
    Programs,
    apart,
    base_and_view,
    computed,
    doubled,
    doubled_and_read,
    inner_base_write,
    inner_write,
    interleaved,
    itself,
    new,
    new_and_tail,
    new_tail_twice,
    new_twice,
    one,
    overlapping,
    overlapping_with_history,
    part,
    read_and_doubled,
    same,
    tail,
    tail_twice,
    through,
    twice,
    two,
    two_tails,
)
from aotlite.conformance.models.random_writes import Program, enact, few, smaller
from aotlite.conformance.rules import attempt, expect, rule
from aotlite.conformance.witnesses.functions import tried_on_copies


@same("META-14", "a returned argument is the same object", values, identity)
def returned() -> Programs:
    """A function that returns its argument returns the object that was passed."""
    return {
        "returned": program(itself, one(1)),
        "two returned": program(itself, two),
        "written": program(doubled, one(1)),
        "one array given twice": program(itself, twice),
        "written, beside another": program(doubled, two),
        "overlapping": program(itself, overlapping),
        "overlapping and written": program(doubled, overlapping),
        "with a history": program(itself, computed),
        "with a history, and written": program(doubled, computed),
    }


@same("META-13a", "results that share memory plain share it compiled", values, sharing)
def shared() -> Programs:
    """A write of one result shows in the same other results as after a plain call."""
    return {
        "base and view": program(new_and_tail, one(2)),
        "two views": program(two_tails, one(2)),
        "base and view, with a history": program(new_and_tail, computed),
        "two views, with a history": program(two_tails, computed),
        "array and detached": program(lambda on, a: (y := on.mul(a, 2.0), on.detach(y)), computed),
    }


@same("META-13b", "one object returned twice is one object", values, identity)
def returned_twice() -> Programs:
    """One array that a function returns twice is one object for the caller."""
    return {
        "new": program(new_twice, one(2)),
        "argument": program(lambda on, a: (a, a), one(2)),
        "view of the argument": program(tail_twice, one(2)),
        "view of a new array": program(new_tail_twice, one(2)),
        "with a history": program(new_twice, computed),
        "view, with a history": program(new_tail_twice, computed),
    }


@same("RT-6", "a result that views an argument shares its memory", values, sharing)
def view_results() -> Programs:
    """A write of the result shows in the argument and its aliases, and the reverse."""
    return {
        "narrow": program(tail, one(2)),
        "of a view": program(tail, part),
        "transpose": program(lambda on, a: on.transpose(a, 0, 1), one(1, 2)),
        "chain": program(lambda on, a: on.select(on.unsqueeze(a, 0), 1, 1), one(2)),
        "expand": program(lambda on, a: on.expand(a, (2, 2)), one(2)),
        "after a write": program(lambda on, a: (on.mul_(a, 2.0), on.narrow(a, 0, 1, 1))[1], part),
        "with a history": program(tail, computed),
    }


@same("CMP-1", "results have the geometry of the plain results", values, shapes, strides)
def geometry() -> Programs:
    """Results have the shapes and strides of the plain call."""
    return {
        "new": program(lambda on, a: on.mul(a, 2.0), one(2, 2)),
        "of a transpose": program(lambda on, a: on.mul(on.transpose(a, 0, 1), 2.0), one(2, 3)),
        "view": program(lambda on, a: on.transpose(a, 0, 1), one(2, 3)),
        "expanded": program(lambda on, a: on.expand(a, (2, 2)), one(2)),
        "clone of a transpose": program(lambda on, a: on.clone(on.transpose(a, 0, 1)), one(2, 3)),
    }


VIEWS: dict[str, Callable[[Adapter, Array], Array]] = {
    "itself": lambda on, a: a,
    "narrow": lambda on, a: on.narrow(a, 0, 0, 1),
    "select": lambda on, a: on.select(a, 0, 1),
    "unsqueeze": lambda on, a: on.unsqueeze(a, 0),
    "detach": lambda on, a: on.detach(a),
    "slice": lambda on, a: on.slice(a, 0, 0, 2, 2),
    "view": lambda on, a: on.view(a, (2, 1)),
    "split": lambda on, a: on.split(a, 1, 0)[1],
    "as_strided": lambda on, a: on.as_strided(a, (1,), (1,), 1),
}


@same("FUN-17", "a write of an argument reaches the caller", values)
def writes() -> Programs:
    """A write of an argument, or of a view of it, shows in all aliases of the argument."""
    argument = {f"through {name}": program(through(view), one(2)) for name, view in VIEWS.items()}
    of_view = {
        f"of a view, through {name}": program(through(view), part)
        for name, view in VIEWS.items()
        if name != "as_strided"  # as it reads the base
    }
    return argument | of_view


@same("FUN-7", "writes of a new array show in its views, and the reverse", values)
def inner() -> Programs:
    """Inside the function, a new array and its views show each other's writes."""
    return {
        "through a view": program(inner_write, one(2)),
        "of the base of a view": program(inner_base_write, one(2)),
        "through a view, with a history": program(inner_write, computed),
        "of the base of a view, with a history": program(inner_base_write, computed),
    }


@same("FUN-9", "a write of an unfold with gaps keeps the gaps", values)
def windows() -> Programs:
    """Elements between the windows of `unfold` keep their values."""
    return {
        "of size 1": program(through(lambda on, a: on.unfold(a, 0, 1, 2)), one(3)),
        "of size 2": program(through(lambda on, a: on.unfold(a, 0, 2, 3)), one(5)),
    }


@same("FUN-12", "a written argument keeps its strides inside", values)
def strided() -> Programs:
    """`as_strided` after a write reads the elements that the plain function reads."""
    return {
        "as_strided of a gapped view": program(
            lambda on, a: (on.add_(a, 1.0), on.clone(on.as_strided(a, (2,), (2,), 0)))[1],
            lambda on: CallInputs([on.slice(new(on, (3,)), 0, 0, 3, 2)]),
        ),
        "as_strided of a transpose": program(
            lambda on, a: (on.add_(a, 1.0), on.clone(on.as_strided(a, (3,), (1,), 0)))[1],
            lambda on: CallInputs([on.transpose(new(on, (2, 3)), 0, 1)]),
        ),
    }


@same("DUP-2", "one array given as two arguments is written once", values, identity)
def duplicates() -> Programs:
    """A write of one of the two arguments is a write of both."""
    return {
        "written, then read": program(doubled_and_read, twice),
        "both written": program(read_and_doubled, twice),
        "returned": program(doubled, twice),
    }


@same("SYN-1", "a write of an argument shows in overlapping arguments", values)
def overlaps() -> Programs:
    """Arguments show each other's writes exactly where they share elements."""
    return {
        f"{name}, {order}": program(body, make)
        for name, make in (
            ("base and view", base_and_view),
            ("overlapping", overlapping),
            ("apart", apart),
            ("interleaved", interleaved),
            ("with a history", overlapping_with_history),
        )
        for order, body in (("written and read", doubled_and_read), ("both", read_and_doubled))
    }


@same(
    "SYN-9",
    "a result that views one of two overlapping arguments has its elements",
    values,
    sharing,
)
def overlap_views() -> Programs:
    """The result has the elements of the argument that it views, not of the other one."""
    return {
        "overlapping": program(
            lambda on, a, b: (on.mul_(a, 2.0), on.narrow(b, 0, 0, 1))[1], overlapping
        ),
        "select": program(lambda on, a, b: (on.mul_(a, 2.0), on.select(b, 0, 0))[1], overlapping),
        "base and view": program(
            lambda on, a, b: (on.mul_(a, 2.0), on.narrow(b, 0, 0, 1))[1], base_and_view
        ),
    }


@same("DUP-5", "a second call with other aliases is right", values, identity)
def other_aliases() -> Programs:
    """Each call of a compiled function checks which of its arguments share memory."""
    return {
        "apart, then one": program(doubled_and_read, two, twice),
        "one, then apart": program(doubled_and_read, twice, two),
        "apart, then overlapping": program(doubled_and_read, two, overlapping),
        "overlapping, then apart, then one": program(doubled_and_read, overlapping, two, twice),
        "one base, then overlapping": program(doubled_and_read, apart, overlapping),
        "interleaved, then overlapping": program(doubled_and_read, interleaved, overlapping),
        "base and view, then two": program(read_and_doubled, base_and_view, two),
    }


def _times_two(on: Adapter, a: Array) -> object:
    return on.mul(a, 2.0)


@same(
    "GRD-1a",
    "a second call with other sizes or dtypes is right",
    values,
    shapes,
)
def other_sizes() -> Programs:
    """One compiled function can be called with other shapes, layouts and dtypes."""
    return {
        "size": program(_times_two, one(2), one(3), one(1), one(0)),
        "dimensions": program(_times_two, one(2), one(2, 2), one(1, 2), one()),
        "size, written": program(doubled, one(2), one(3), one(1), one(0)),
        "dimensions, written": program(doubled, one(2), one(2, 2), one(1, 2)),
        "layout": program(
            doubled, one(2, 2), lambda on: CallInputs([on.transpose(new(on, (2, 2)), 0, 1)])
        ),
        "dtype": program(
            lambda on, a: on.add(a, a),
            one(2),
            lambda on: CallInputs([on.from_list([1, 2], "int64")]),
        ),
        "number": program(
            lambda on, a, n: on.mul(a, n), lambda on: CallInputs([new(on), new(on, ())]), two
        ),
    }


@same(
    "RT-3",
    "a change of an argument's geometry reaches the caller",
    values,
    identity,
    shapes,
    strides,
)
def reshaped() -> Programs:
    """An argument has its new shape after the call; its aliases keep theirs."""
    return {
        "transposed": program(lambda on, a: on.transpose_(a, 0, 1), one(1, 2)),
        "transposed and written": program(
            lambda on, a: (on.transpose_(a, 0, 1), on.mul_(a, 2.0))[1], one(2, 2)
        ),
        "written and transposed": program(
            lambda on, a: (on.mul_(a, 2.0), on.transpose_(a, 0, 1))[1], one(2, 3)
        ),
        "with a new dimension": program(lambda on, a: on.unsqueeze_(a, 0), part),
        "and back": program(
            lambda on, a: (on.transpose_(a, 0, 1), on.transpose_(a, 0, 1))[1], one(1, 2)
        ),
        "with a history": program(lambda on, a: on.unsqueeze_(a, 0), computed),
    }


@same("CMP-10", "functional updates have the results of the plain call", values)
def updates() -> Programs:
    """`set_at` and `add_at` return the plain values, and do not change their operands."""
    return {
        "set": program(lambda on, a: on.set_at(a, 0, 5.0), one(2)),
        "set, of both": program(lambda on, a, b: (on.set_at(a, 0, 5.0), on.add(a, b)), twice),
        "set twice": program(lambda on, a: on.set_at(on.set_at(a, 0, 5.0), 0, 6.0), one(1)),
        "added": program(lambda on, a: on.add_at(a, [0, 0], 1.0), one(2)),
        "of itself": program(
            lambda on, a: on.set_at(a, slice(1, None), on.narrow(a, 0, 0, 2)), one(3)
        ),
    }


@rule("CMP-11", "random programs have the results of the plain call", few, smaller=smaller)
def drawn(on: Adapter, case: Program) -> None:
    """Any sequence of views and of writes through them has the values of the plain call."""

    def make(on: Adapter) -> CallInputs:
        return CallInputs([new(on, case[:1]), new(on, case[:1], 10.0)])

    facets = (values, shapes, identity)
    compare(on, program(lambda on, a, b: enact(on, case, a, b), make), facets)


# --- refusals


def _expanded(on: Adapter, a: Array) -> object:
    return on.mul_(on.expand(a, (2, 1)), 2.0)


@same("FUN-8", "a call that is refused plain is refused compiled", values)
def refusals() -> Programs:
    """The compiled call refuses the writes that the plain call refuses, and changes nothing."""
    return {
        "of an expanded array": program(_expanded, one(1)),
        "of a larger shape": program(
            lambda on, a, b: on.add_(a, b), lambda on: CallInputs([new(on, (1,)), new(on, (2,))])
        ),
        "by an operand that overlaps in part": program(
            lambda on, a: on.add_(on.narrow(a, 0, 1, 1), on.narrow(on.expand(a, (2, 2)), 1, 0, 2)),
            one(2),
        ),
        "of an array that overlaps itself": program(
            lambda on, a: on.add_(on.as_strided(a, (2, 2), (1, 1), 0), 1.0), one(3)
        ),
    }


@rule("RT-10", "a refused call does not change its arguments", ("shape", "index"))
def untouched(on: Adapter, case: str) -> None:
    """If a compiled call raises, the writes before the error have not happened."""
    a, b = new(on, (2,)), new(on, (3,))

    def body(on: Adapter, a: Array, b: Array) -> Any:
        on.mul_(a, 2.0)
        return on.add(a, b) if case == "shape" else on.select(a, 0, 5)

    compiled = on.compile(tried_on_copies(on, body, [a, b]))
    error = attempt(on.call, compiled, [a, b])
    expect(error is not None, True, "whether the call is refused")
    expect(on.to_list(a), [1.0, 2.0], "the argument after the refused call")


# --- versions


@same("FUN-23", "a call counts the writes that the plain call counts", values, counts)
def counted() -> Programs:
    """The versions of arguments and of their aliases increase as by the plain call."""
    return {
        "not written": program(lambda on, a: on.mul(a, 2.0), one(2)),
        "one write": program(doubled, one(2)),
        "two writes": program(lambda on, a: (on.mul_(a, 2.0), on.add_(a, 1.0))[1], one(2)),
        "a write of a view": program(through(lambda on, a: on.narrow(a, 0, 0, 1)), part),
        "two that overlap": program(doubled_and_read, overlapping),
        "with a history": program(doubled, computed),
        "geometry": program(lambda on, a: on.transpose_(a, 0, 1), one(1, 2)),
        "geometry and back": program(
            lambda on, a: (on.transpose_(a, 0, 1), on.transpose_(a, 0, 1))[1], one(1, 2)
        ),
        "of no elements": program(doubled, one(0)),
    }


@same("FUN-19", "a hidden write stays hidden", values, counts)
def hidden() -> Programs:
    """A write through a hidden alias of an argument reaches the caller and is not counted."""
    return {"hidden": program(through(lambda on, a: on.hidden_alias(a)), one(2))}
