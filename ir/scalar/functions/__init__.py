"""The function library of scalar expressions: exp, erf, pow, ... as trees of primitives.

No libm is called: it differs between systems, and C compilers cannot vectorize it. Printers and the
interpreter compute the same tree, and so the same bits. Spec: `specs/functions.md`.
"""

from aotlite.ir.scalar.functions import table as table
from aotlite.ir.scalar.functions.function_registry import (
    FUNCTIONS,
    FiniteVersion,
    FunctionRow,
    ScalarFunction,
    declared,
    expand,
    expanded_body,
    find,
    has,
    substituted,
)

__all__ = [
    "FUNCTIONS",
    "FiniteVersion",
    "FunctionRow",
    "ScalarFunction",
    "declared",
    "expand",
    "expanded_body",
    "find",
    "has",
    "substituted",
    "table",
]
