"""The C functions of a line of points, which a text has once.

    static NEVER_INLINE void line_sin_f32_f32(const f32 *restrict x0, f32 *restrict y, i64 count)

computes `count` sines, rounded up to whole vectors: behind the last point of a line are copies of
it (`filler`). Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.c_family.loop_body import array_type
from aotlite.backends.c_family.scalar_text import CScope, FunctionTexts, KernelFacts, ScalarWriter
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Scalar, function, parameter
from aotlite.ir.scalar.functions import find
from aotlite.ir.scalar.functions.function_registry import USUAL

ROUND = 16
"""Lines are computed to a multiple of so many points."""
HEAD = "static NEVER_INLINE void"
PLACE = "POINTS"
"""The name of a function in the text that tells whether another one is the same."""


def whole(count: str) -> str:
    """Returns the C text of the points to which a line of `count` is computed.

    >>> whole("n")
    '(n + 15) & -16'
    """
    return f"({count} + {ROUND - 1}) & -{ROUND}"


def filler(library: FunctionTexts, kind: DType) -> str:
    """Returns the name of the C function that copies a line's last point behind it."""
    name, array = f"filled_{kind.short}", array_type(kind)
    loop = f"for (i64 k = n; k & {ROUND - 1}; ++k) x[k] = x[n - 1];"
    library.texts[name] = "\n".join([f"{HEAD} {name}({array} *x, i64 n)", "{", loop, "}"])
    return name


def line_function(library: FunctionTexts, call: Scalar, still: Sequence[bool]) -> str:
    """Returns the name of the C function that computes a call for a line of points, and prints it
    if it is new. Operands that are `still` are values, the others lines."""
    marks = "_" + "".join("s" if each else "l" for each in still) if any(still) else ""
    name = f"line{library.name(call)[2:]}{marks}"
    if name in library.texts:
        return name
    kinds, result = [each.dtype for each in call.args], array_type(call.dtype)
    given = [
        f"const {array_type(kind)} {'' if is_still else '*restrict '}x{k}"
        for k, (kind, is_still) in enumerate(zip(kinds, still, strict=True))
    ]
    texts = [f"x{k}" if is_still else f"x{k}[k]" for k, is_still in enumerate(still)]
    loop = f"for (i64 k = 0; k < n; ++k) y[k] = {{}}({', '.join(texts)});"
    lines = [loop.format(library.name(call))]
    usual = find(call.op, kinds).usual
    if usual is not None:
        scope, operands = CScope(None), [parameter(k, kind) for k, kind in enumerate(kinds)]
        scope.known.update(zip(operands, texts, strict=True))
        condition = ScalarWriter(KernelFacts(), library).value(usual.condition, scope)
        short = library.name(function(call.op + USUAL, call.dtype, *operands))
        test = ["for (i64 k = 0; k < n; ++k) {", *scope.lines, f"usual &= {condition};", "}"]
        both = ["if (usual) {", loop.format(short), "} else {", *lines, "}"]
        lines = ["u32 usual = 1;", *test, *both]
    head = f"{HEAD} {name}({', '.join(given)}, {result} *restrict y, i64 count)"
    rounded = f"const i64 n = count & -{ROUND};"
    library.texts[name] = "\n".join([head, "{", rounded, *lines, "}"])
    return name


def shared_function(library: FunctionTexts, parameters: Sequence[str], lines: list[str]) -> str:
    """Returns the name of a C function with these lines, and prints it unless there is one."""
    text = "\n".join([f"{HEAD} {PLACE}({', '.join(parameters)})", "{", *lines, "}"])
    for name, known in library.texts.items():
        if name.startswith("points") and known.replace(f" {name}(", f" {PLACE}(", 1) == text:
            return name
    name = f"points{sum(each.startswith('points') for each in library.texts)}"
    library.texts[name] = text.replace(f" {PLACE}(", f" {name}(", 1)
    return name
