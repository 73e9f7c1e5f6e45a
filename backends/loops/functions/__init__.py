"""The function library of the loop IR: exp, erf, pow, ... as trees of primitives.

Printers and the interpreter compute the same tree, and so the same bits. Spec:
`specs/functions.md`.
"""

from aotlite.backends.loops.functions import (
    choices,
    division,
    error_function,
    exponentials,
    hyperbolic,
    integers,
    logarithms,
    powers,
    traced,
    trigonometry,
)
from aotlite.backends.loops.functions.number_bases import power_of_number
from aotlite.backends.loops.functions.powers import power_of_constant
from aotlite.backends.loops.functions.registry import (
    Function,
    Usual,
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
    hyperbolic,
    integers,
    logarithms,
    powers,
    traced,
    trigonometry,
)
"""The modules of the library: each declares its functions when it is imported."""

__all__ = [
    "Function",
    "Usual",
    "declared",
    "expand",
    "expanded_body",
    "find",
    "has",
    "power_of_constant",
    "power_of_number",
    "substituted",
]
