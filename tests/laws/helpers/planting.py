"""Planting mistakes: changed copies of ops, each made for the law that has to reject it.

The table is never touched. Some mistakes cannot be made without breaking a second law: `also` names
it. `PLANTS` is filled by the modules `plants_*`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import attrs

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import (
    OPS,
    DataOp,
    Formula,
    GeometryOp,
    InplaceOp,
    MultiViewOp,
    Op,
    PureOp,
    RandomOp,
    ViewOp,
    Vjp,
    parse_vjp,
    schema_of,
)
from aotlite.testing.laws.ops.table import class_of

Change = Callable[[Any], Any]


@attrs.frozen(repr=False)
class Plant:
    """`make()` gives a fresh wrong op that the law named `law` has to reject."""

    law: str
    what: str
    make: Callable[[], Op]
    also: tuple[str, ...] = ()

    @property
    def op_class(self) -> str:
        return class_of(self.make())

    def __repr__(self) -> str:
        return f"{self.law}-{self.make().name}-{self.what.replace(' ', '_')}"


PLANTS: list[Plant] = []


def plant(law: str, what: str, make: Callable[..., Op], *names: str, also: Any = ()) -> None:
    """Adds the plant `make(op)` for each op named."""
    for name in names:
        PLANTS.append(Plant(law, what, partial(_made, make, name), also))


def _made(make: Callable[..., Op], name: str) -> Op:
    return make(OPS[name])


def inside(op: Any, change: Change) -> Any:
    """The op with the pure op or view that it rests on changed; a pure op or view itself."""
    match op:
        case PureOp() | ViewOp() | DataOp():
            return change(op)
        case InplaceOp() | RandomOp():
            return attrs.evolve(op, functional=change(op.functional))
        case GeometryOp():
            return attrs.evolve(op, view=change(op.view))
        case MultiViewOp():
            changed = cache(change)
            return attrs.evolve(
                op, rule=lambda *key: tuple((changed(v), rest) for v, rest in op.rule(*key))
            )
    raise TypeError(f"{op.name} rests on nothing that can be changed")


def with_rule(change: Callable[[Any, tuple[Any, ...]], Any]) -> Change:
    """Changes the result of the rule: `change(result, key)`."""
    return lambda op: inside(
        op, lambda o: attrs.evolve(o, rule=lambda *key: change(o.rule(*key), key))
    )


def with_kernel(change: Callable[[Any, tuple[Any, ...]], Any]) -> Change:
    """Changes the result of the kernel: `change(result, operands)`."""
    return lambda op: inside(
        op,
        lambda o: attrs.evolve(
            o, kernel=lambda arrays, meta, *args: change(o.kernel(arrays, meta, *args), args)
        ),
    )


def with_formula(change: Callable[[Formula], Formula], position: int = 0) -> Change:
    """Changes the gradient formula of one operand."""

    def changed(op: Any) -> Any:
        formulas = {**op.vjp.formulas, position: change(op.vjp.formulas[position])}
        return attrs.evolve(op, vjp=Vjp(formulas))

    return lambda op: changed(op) if isinstance(op, MultiViewOp) else inside(op, changed)


def with_formulas(**formulas: Any) -> Change:
    """Replaces gradient formulas by operand name."""

    def changed(op: Any) -> Any:
        own = {op.schema.parameters[i].name: f.function for i, f in op.vjp.formulas.items()}
        return attrs.evolve(op, vjp=parse_vjp(op.schema, {**own, **formulas}))

    return lambda op: inside(op, changed)


def with_schema(text: str) -> Change:
    return lambda op: attrs.evolve(op, schema=schema_of(text))
