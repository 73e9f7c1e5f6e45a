"""The function library of the loop IR: exp, erf, pow, ... as trees of primitives.

No libm is called: it differs between systems, and C compilers cannot vectorize it. Printers and the
interpreter compute the same tree, and so the same bits. Spec: `specs/functions.md`.
"""

from aotlite.ir.scalar.functions.bodies import (
    choices,
    division,
    error_function,
    exponentials,
    gamma,
    hyperbolic,
    integers,
    logarithms,
    powers,
    trigonometry,
)
from aotlite.ir.scalar.functions.bodies.number_bases import power_of_number
from aotlite.ir.scalar.functions.bodies.powers import power_of_constant
from aotlite.ir.scalar.functions.function_registry import (
    FiniteVersion,
    ScalarFunction,
    declared,
    expand,
    expanded_body,
    find,
    has,
    substituted,
)

DECLARING = (
    choices,
    division,
    error_function,
    exponentials,
    gamma,
    hyperbolic,
    integers,
    logarithms,
    powers,
    trigonometry,
)
"""The modules that declare the library's functions when they are imported."""

__all__ = [
    "FiniteVersion",
    "ScalarFunction",
    "declared",
    "expand",
    "expanded_body",
    "find",
    "has",
    "power_of_constant",
    "power_of_number",
    "substituted",
]
