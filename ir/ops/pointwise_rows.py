"""Pointwise ops as rows of a table: `unary`, `binary`, `comparison`.

A row says the name and what does not follow from it. The kernel is the function of that name in the
array library, the scalar expression that of `ir/scalar`; each row may name others. All other
pointwise ops are declared by `pointwise` (`ir/ops/declare.py`). Spec: `specs/op_declaration.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from aotlite.ir import scalar as expressions
from aotlite.ir.op import PureOp
from aotlite.ir.ops.declare import pointwise, to_bool, to_float
from aotlite.ir.ops.kinds import COMPLEX, FLOAT8, Refused

Function = Callable[..., Any]


def unary(
    name: str,
    *,
    vjp: Function | None,
    parameters: str = "",
    inplace: bool = True,
    **facts: Any,
) -> PureOp:
    """Declares `name(Tensor self, parameters) -> Tensor`; `vjp` is the formula of the operand.

    `facts` are the other arguments of `pointwise`.
    """
    schema = f"{name}(Tensor self{', ' * bool(parameters)}{parameters}) -> Tensor"
    formulas = None if vjp is None else {"self": vjp}
    return pointwise(schema, vjp=formulas, inplace=inplace, **_completed(name, facts))


def binary(
    name: str,
    *,
    vjp: tuple[Function, Function] | None,
    operands: str = "Tensor self, Tensor|Scalar other",
    inplace: bool = True,
    **facts: Any,
) -> PureOp:
    """Declares `name(operands) -> Tensor`; `vjp` has the formulas of both operands, in order."""
    names = [each.split()[1] for each in operands.split(", ")[:2]]
    formulas = None if vjp is None else dict(zip(names, vjp, strict=True))
    facts = _completed(name, facts)
    return pointwise(f"{name}({operands}) -> Tensor", vjp=formulas, inplace=inplace, **facts)


def elementary(name: str, **facts: Any) -> PureOp:
    """Declares `name(Tensor self) -> Tensor`, which gives floats for integers, too."""
    return unary(name, result=to_float, **facts)


def comparison(name: str, *, refuses: Refused, **facts: Any) -> PureOp:
    """Declares `name(Tensor self, Tensor|Scalar other) -> Tensor`, whose results are bool."""
    return binary(name, vjp=None, result=to_bool, refuses=refuses, **facts)


def question(
    name: str, *, refuses: Refused = FLOAT8 | COMPLEX, inplace: bool = False, **facts: Any
) -> PureOp:
    """Declares `name(Tensor self) -> Tensor`, whose results are bool."""
    return unary(name, vjp=None, result=to_bool, refuses=refuses, inplace=inplace, **facts)


def _completed(name: str, facts: dict[str, object]) -> dict[str, Any]:
    """The facts with the kernel and the scalar expression of this name, unless they say others."""
    if "element" not in facts:
        facts.setdefault("kernel", name)
        if "scalar" not in facts:
            facts["scalar"] = _expression(name)
    return facts


def _expression(name: str) -> Function:
    """The function of scalar expressions of this name (`exp`, `abs_`), or Python's (`a + b`)."""
    own = getattr(expressions, name + "_", None) or getattr(expressions, name, None)
    found: Function = own or getattr(operator, name)
    return found
