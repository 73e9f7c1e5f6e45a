"""Function bodies run two ways: on NumPy arrays, and as C that is compiled and loaded.

The smallest interpreter and printer there can be, of function bodies alone, so that what is tested
is the library and nothing else.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.backends.loops.expr import Scalar, walk
from aotlite.backends.loops.functions import Function, expanded_body

COMPILER = shutil.which("gcc")
FLAGS = (
    "-O3 -march=native -std=gnu11 -fPIC -shared -fno-math-errno -fno-trapping-math -fwrapv".split()
)

_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.bitwise_not,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "where": np.where,
}


def _divided(value: Scalar, a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        return rest if value.op == "irem" else (a - rest) // b


def evaluated(function: Function, *operands: Any) -> Any:
    """The function of each element, by NumPy."""
    found: dict[Scalar, Any] = {}
    with np.errstate(all="ignore"):
        for value in walk([expanded_body(function)]):
            found[value] = _evaluate(value, [found[o] for o in value.operands], operands)
    return found[expanded_body(function)]


def _evaluate(value: Scalar, args: list[Any], operands: Sequence[Any]) -> Any:
    target = value.dtype.numpy
    match value.op:
        case "const":
            return target.type(value.args[0])
        case "parameter":
            return operands[value.args[0]]
        case "cast":
            return np.asarray(args[0]).astype(target)
        case "bits":
            return np.asarray(args[0]).view(target)
        case "idiv" | "irem":
            return _divided(value, *args)
    return np.asarray(_UFUNCS[value.op](*args)).astype(target, copy=False)


# ----------------------------------------------------------------------------------------------- C
_TYPES = {
    "f32": "float",
    "f64": "double",
    "b8": "_Bool",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|",
    "bit_xor": "^", "idiv": "/", "irem": "%", "shl": "<<", "shr": ">>",
}  # fmt: skip
_CALLS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint"}


def c_function(function: Function) -> str:
    """The text of a static inline function."""
    names: dict[Scalar, str] = {}
    lines = []
    body = expanded_body(function)
    for k, value in enumerate(walk([body])):
        names[value] = f"x{value.args[0]}" if value.op == "parameter" else f"t{k}"
        if value.op == "const":
            names[value] = _constant(value)
        elif value.op != "parameter":
            text = _expression(value, [names[o] for o in value.operands])
            kind = _TYPES[value.dtype.short]
            lines.append(f"    {kind} {names[value]} = ({kind})({text});")
    taken = ", ".join(f"{_TYPES[d.short]} x{k}" for k, d in enumerate(function.parameters))
    head = f"static inline {_TYPES[body.dtype.short]} {function.name}({taken})"
    return "\n".join([head + " {", *lines, f"    return {names[body]};", "}", ""])


def _constant(value: Scalar) -> str:
    number = value.args[0]
    short = value.dtype.short
    if value.dtype.is_floating_point:
        if math.isfinite(number):
            return f"{number.hex()}{'f' * (short == 'f32')}"
        text = '__builtin_nan("")' if number != number else "__builtin_inf()"
        return f"(({_TYPES[short]}){'-' * (number < 0)}{text})"
    if short == "i64" and number == -(1 << 63):
        return "INT64_MIN"
    number = int(number)
    return f"(({_TYPES[short]}){number}{'u' * (short[0] == 'u')}ll)"


def _expression(value: Scalar, args: list[str]) -> str:
    kind = _TYPES[value.dtype.short]
    single = "f" * (value.dtype.short == "f32")
    match value.op:
        case "neg":
            return f"-{args[0]}"
        case "not":
            return f"!{args[0]}"
        case "bit_not":
            return f"~{args[0]}"
        case "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "cast":
            to_bool = value.dtype.short == "b8"
            return f"{args[0]} != 0" if to_bool else f"({kind}){args[0]}"
        case "bits":
            given = _TYPES[value.operands[0].dtype.short]
            return f"((union {{ {given} a; {kind} b; }}){{ .a = {args[0]} }}).b"
        case "abs" if value.dtype.is_floating_point:
            return f"__builtin_fabs{single}({args[0]})"
        case "abs":
            return f"{args[0]} < 0 ? -{args[0]} : {args[0]}"
        case op if op in _CALLS:
            return f"__builtin_{_CALLS[op]}{single}({args[0]})"
        case op:
            return f"{args[0]} {_INFIX[op]} {args[1]}"


def c_text(functions: Sequence[Function]) -> str:
    """A translation unit: for each function a loop over arrays, named as it."""
    lines = ["#include <stdint.h>", ""]
    for function in functions:
        lines.append(c_function(function))
        kinds = [_TYPES[d.short] for d in function.parameters]
        taken = "".join(f", const {kind} *restrict a{k}" for k, kind in enumerate(kinds))
        given = ", ".join(f"a{k}[i]" for k in range(len(kinds)))
        lines.append(
            f"void loop_{function.name}(int64_t n, {_TYPES[function.result.short]} *restrict out"
            f"{taken}) {{\n    for (int64_t i = 0; i < n; i++) "
            f"out[i] = {function.name}({given});\n}}\n"
        )
    return "\n".join(lines)


class Compiled:
    """A library of functions: called with a function and its operands, it gives the results."""

    def __init__(self, functions: Sequence[Function], folder: Path, *flags: str) -> None:
        self.text = c_text(functions)
        key = hashlib.sha256((self.text + " ".join(flags)).encode()).hexdigest()[:16]
        source, library = folder / f"{key}.c", folder / f"{key}.so"
        source.write_text(self.text, "utf-8")
        compiler = [COMPILER or "gcc", *FLAGS, *flags, "-fopt-info-vec"]
        files = [str(source), "-o", str(library), "-lm"]
        done = subprocess.run([*compiler, *files], check=True, capture_output=True, text=True)
        self._told = done.stderr
        self._library = ctypes.CDLL(str(library))

    def bound(self, function: Function, out: Any, *operands: Any) -> Callable[[], Any]:
        """The call that writes a function of these operands into `out`, ready to be timed."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *operands)]
        loop = self._library[f"loop_{function.name}"]
        return partial(loop, ctypes.c_int64(out.size), *pointers)

    def __call__(self, function: Function, *operands: Any) -> Any:
        out = np.empty(operands[0].shape, function.result.numpy)
        self.bound(function, out, *operands)()
        return out

    def scalar_loops(self) -> set[str]:
        """The names of functions of whose loops gcc makes no vectors."""
        found = re.findall(r":(\d+):\d+: optimized: loop vectorized", self._told)
        vectors = {int(number) for number in found}
        lines = enumerate(self.text.split("\n"), 1)
        heads = [(k, line) for k, line in lines if line.startswith("void loop_")]
        scalar = [line for k, line in heads if not {k, k + 1} & vectors]
        return {line.partition("loop_")[2].partition("(")[0] for line in scalar}
