"""PyTorch's second names of ops, as composites: `multiply` for `mul`, `arccos` for `acos`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES, Composite
from aotlite.ir.ops.elementwise import (  # noqa: F401  (they declare what is named here)
    bitwise,
    bounds,
    comparisons,
    complexes,
    elementary,
    error_functions,
    multi_operand,
    rounding,
)

ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
}
"""Second name -> op. A second name has an in-place form if its op has one."""


def _alias(name: str, target: str) -> None:
    made = COMPOSITES.get(target)
    schema = OPS[target].schema if made is None else made.schema
    assert schema is not None
    schema = attrs.evolve(schema, name=name)
    function = _op_caller(target) if made is None else made.function
    COMPOSITES[name] = Composite(
        name, function, schema=schema, spread=False, is_property=False, is_method=True
    )


def _op_caller(target: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any) -> Any:
        return self._do(target, *args)

    call.__doc__ = f"Another name of `{target}`."
    return call


for _name, _target in ALIASES.items():
    _alias(_name, _target)
    if _target + "_" in OPS:
        _alias(_name + "_", _target + "_")
