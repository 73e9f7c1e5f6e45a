"""Ops that belong to the IR itself: taking one result of an op that has several."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, Op, register, schema_of


@attrs.define(eq=False, slots=True, repr=False)
class ResultOp(Op):
    """`getitem(node, k)`: result number k of a node with several results."""

    pure: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        meta: TensorMeta = args[0].meta[args[1]]
        return meta

    def bind(self, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, ...]:
        return args


def _no_rule(*_: Any) -> Any:
    raise TypeError("getitem reads the metas of its operand, it has no rule of its own")


GETITEM: ResultOp = register(
    ResultOp(schema_of("getitem(Tensor self, int index) -> Tensor"), _no_rule, cost=Cost.VIEW)
)
