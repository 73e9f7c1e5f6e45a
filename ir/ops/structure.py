"""Ops of the IR itself: `getitem`, which takes one of several results, and `wrap`.

Spec: `specs/graph.md`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, Op, register, schema_of


@attrs.define(eq=False, slots=True, repr=False)
class ResultOp(Op):
    """`getitem(node, k)`: result number k of a node with several results."""

    pure: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        meta: TensorMeta = args[0].meta[args[1]]
        return meta

    def bind(self, args: tuple[object, ...], kwargs: object) -> tuple[Any, ...]:
        return args


def _no_rule(*_: object) -> Any:
    raise TypeError("ops of the IR itself have no meta rule of their own")


GETITEM: ResultOp = register(
    ResultOp(schema_of("getitem(Tensor self, int index) -> Tensor"), _no_rule, cost=Cost.VIEW)
)


@attrs.define(eq=False, slots=True, repr=False)
class WrapOp(Op):
    """`wrap(parts, kind, ...)`: a wrapper subclass built from tensors. Not in pure graphs."""

    pure: ClassVar[bool] = True

    def infer(self, args: tuple[Any, ...]) -> TensorMeta:
        _, _, size, stride, dtype, device = args
        return tensor_meta(size, stride, dtype, device)

    def bind(self, args: tuple[object, ...], kwargs: object) -> tuple[Any, ...]:
        return args


WRAP = WrapOp(
    schema_of(
        "wrap(Tensor[] parts, str kind, int[] size, int[] stride, dtype dtype, device device) "
        "-> Tensor"
    ),
    _no_rule,
    cost=Cost.FACTORY,
)
"""Not in the op table: programs make a wrapper by its class (SUB-1)."""
