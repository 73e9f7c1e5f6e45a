"""Metamorphic relations: changes of programs that must not change their observations.

    check(program)                         eagerly in aotlite, all relations: the differences
    check(program, on="torch")             eagerly in PyTorch
    check(program, {"partition": "min_cut"})   compiled by aotlite with these options
    check(program, make=wrapper)           with `wrapper(body)` as the function
    check_relation(relation, program, ...) the same for one of `RELATIONS`

A program and its variant run on one engine, so that no second one is needed. The claim of a
relation says which differences it allows, and why. Whether a relation applies depends on the exact
effects of the steps on memory in an eager run (`step_facts`). Rules: GEN-1, GEN-11, GEN-13.

>>> from aotlite.testing import Call, Program
>>> call = Call([["make", [0, [2, 2], "float64", False]]], ["$0"])
>>> body = [["select", ["$0", 0, 0]], ["select", ["$0", 0, 1]], ["mul_", ["$1", 2]]]
>>> program = Program([*body, ["add_", ["$2", 1]]], ["$1"], [call])
>>> [variant] = relation("reorder disjoint writes").transform(program)
>>> [step.op for step in variant.program.body]
['select', 'select', 'add_', 'mul_']
>>> check(program), check(program, {})
([], [])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotlite.ir.errors import ArgumentError
from aotlite.testing.engines import Engine
from aotlite.testing.programs.program import Program
from aotlite.testing.relations.argument_passing import COPY_BACK, DUPLICATE, MERGE, PERMUTE, UNUSED
from aotlite.testing.relations.comparison import Examined, Maker, Subject, examined, subject
from aotlite.testing.relations.compilers import PARTITIONED, REVERSED, SPLIT, TWICE
from aotlite.testing.relations.equivalent_views import LOOKED_AT, READ, STRIDED, THROUGH_ALIAS
from aotlite.testing.relations.equivalent_writes import (
    COPIED_IN,
    NAMED_ANEW,
    NO_GRAD,
    WRITTEN_AGAIN,
)
from aotlite.testing.relations.relation import Relation, Same, Traced, Variant
from aotlite.testing.relations.sequence import MIXED
from aotlite.testing.relations.step_order import (
    DISJOINT_WRITES,
    READS_PAST_WRITES,
    VIEWS_PAST_WRITES,
)

__all__ = [
    "RELATIONS",
    "Examined",
    "Relation",
    "Same",
    "Subject",
    "Traced",
    "Variant",
    "check",
    "check_relation",
    "examined",
    "relation",
    "subject",
]

RELATIONS: tuple[Relation, ...] = (
    COPY_BACK,
    DISJOINT_WRITES,
    READS_PAST_WRITES,
    VIEWS_PAST_WRITES,
    PERMUTE,
    DUPLICATE,
    MERGE,
    UNUSED,
    SPLIT,
    STRIDED,
    PARTITIONED,
    THROUGH_ALIAS,
    LOOKED_AT,
    READ,
    NAMED_ANEW,
    NO_GRAD,
    COPIED_IN,
    WRITTEN_AGAIN,
    TWICE,
    REVERSED,
    MIXED,
)


def relation(name: str) -> Relation:
    """The relation with this name. Raises `ArgumentError` if there is none."""
    for each in RELATIONS:
        if each.name == name:
            return each
    known = ", ".join(repr(each.name) for each in RELATIONS)
    raise ArgumentError(f"relation: the name is {name!r}, expected one of {known}")


def check(
    program: Program,
    options: Mapping[str, Any] | None = None,
    *,
    on: str | Engine = "aotlite",
    make: Maker | None = None,
    limit: int | None = 2,
    seed: int = 0,
) -> list[str]:
    """Returns the differences between a program and its variants, over all relations.

    Of each relation at most `limit` variants run, drawn by `seed`; None runs all. `options` are
    those of `aotlite.compile`; without `options` and `make`, the engine's eager mode runs. Calls
    that raise eagerly, or that the compiled function refuses, are left out.
    """
    whose = subject(on, options, make)
    traced = Traced.of(whose.library, program)
    found: list[str] = []
    for each in RELATIONS:
        found += examined(each, traced, whose, limit=limit, seed=seed).found
    return found


def check_relation(
    which: Relation | str,
    program: Program,
    options: Mapping[str, object] | None = None,
    *,
    on: str | Engine = "aotlite",
    make: Maker | None = None,
    limit: int | None = None,
) -> list[str]:
    """Returns the differences between a program and its variants by one relation."""
    chosen = relation(which) if isinstance(which, str) else which
    whose = subject(on, options, make)
    return examined(chosen, Traced.of(whose.library, program), whose, limit=limit).found
