"""The functions of scalar expressions, a row each: `function` enters one, `find` returns its body.

    exp = function("exp", np.exp, at_zero=1, floating=True, bodies=(exponentials.exp,))

    exp(x * 2.0)                        # an expression
    find("exp", (float64,)).body        # a tree of primitives, over parameter(0)

From a row follow the Python function, the evaluation by NumPy, with which laws compare kernels, and
the bodies that printers and the interpreter compute. Bodies may call other functions; `expand`
inlines those. Spec: `specs/functions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import overload

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array
from aotlite.ir.dtypes import DType, Number
from aotlite.ir.errors import ArgumentError, GraphError
from aotlite.ir.scalar.expression import Operand, Scalar, alike, cast, parameter, rebuilt, walk
from aotlite.ir.scalar.expression import function as called
from aotlite.ir.scalar.primitives import PRIMITIVE, PRIMITIVES

Accepts = Callable[[DType], bool]
Build = Callable[..., Scalar]


@attrs.frozen(eq=False)
class FunctionBody:
    """How a function is computed of operands of one dtype, of those that it accepts."""

    accepts: Accepts
    build: Build
    ulp: float
    domain: str
    usual: tuple[Build, Build] | None


def body(
    accepts: Accepts,
    *,
    ulp: float = 0.0,
    domain: str = "all",
    usual: tuple[Build, Build] | None = None,
) -> Callable[[Build], FunctionBody]:
    """Makes a body of the function that builds it.

    `ulp` bounds the error on `domain`. `usual` is a pair: a condition on the operands, and the
    builder of a shorter body, which has the same bits where the condition holds.
    """
    return lambda build: FunctionBody(accepts, build, ulp, domain, usual)


@attrs.frozen(eq=False)
class FunctionRow:
    """A function of scalar expressions. Called on scalars and numbers, it makes an expression."""

    name: str
    numpy: Callable[..., Array]
    """The same of arrays. No op's kernel: laws compare those with it."""
    operands: int
    bodies: tuple[FunctionBody, ...]
    inline: Callable[..., Scalar | None] | None
    """A function of the operands: the primitives that kernels have in place of a call, if any."""
    result: Callable[[DType], DType]
    floating: bool
    """Whether integers and bools are cast to float64 first."""
    divides: bool
    """Whether the last operand is a divisor: kernels refuse an integer that is 0."""
    linear: bool
    at_zero: float | None
    """What a function of one operand is at 0, if that is a number (TAN-8)."""
    units: int
    """How many times the rounding error of its dtype a kernel may differ from `numpy`."""

    @overload
    def __call__(self, first: Scalar, /, *others: Operand) -> Scalar: ...
    @overload
    def __call__(self, *operands: Operand) -> Operand: ...
    def __call__(self, *operands: Operand) -> Operand:
        """Returns the expression. Of numbers alone, it is a number."""
        if len(operands) != self.operands:
            raise ArgumentError(
                f"scalar.{self.name}: {len(operands)} operands, expected {self.operands}"
            )
        if not any(type(a) is Scalar for a in operands):
            with np.errstate(all="ignore"):
                value: Number = np.asarray(self.numpy(*map(np.asarray, operands))).item()
                return value
        same = alike(*operands)
        dtype = same[0].dtype
        if self.floating and dtype.kind <= dtypes.INTEGER:
            dtype = dtypes.float64
            same = tuple([cast(a, dtype) for a in same])
        return called(self.name, self.result(dtype), *same)


FUNCTIONS: dict[str, FunctionRow] = {}
"""Name -> the function."""


def function(
    name: str,
    numpy: Callable[..., Array] | None = None,
    operands: int = 1,
    *,
    bodies: Sequence[FunctionBody] = (),
    inline: Callable[..., Scalar | None] | None = None,
    result: Callable[[DType], DType] = lambda dtype: dtype,
    floating: bool = False,
    divides: bool = False,
    linear: bool = False,
    at_zero: float | None = None,
    units: int = 1,
) -> FunctionRow:
    """Enters a function. One that is a primitive has that one's `numpy`.

    A function without a body and an inline form for some dtypes, say complex ones, may be part of
    an op's expression, but not of a kernel: that op runs by its own kernel.
    """
    if name in FUNCTIONS:
        raise ArgumentError(f"scalar: the function {name!r} is declared twice, expected once")
    found = FunctionRow(
        name,
        numpy or PRIMITIVE[name].numpy,
        operands,
        tuple(bodies),
        inline,
        result,
        floating,
        divides,
        linear,
        at_zero,
        units,
    )
    FUNCTIONS[name] = found
    return found


@attrs.frozen(eq=False)
class FiniteVersion:
    """A shorter body of a function, without the rare cases: the same bits where the condition
    holds. Printers emit a fast loop with it for blocks in which it holds everywhere."""

    condition: Scalar
    body: Scalar


@attrs.frozen(eq=False)
class ScalarFunction:
    """A function whose `body` is a tree over `parameter(k, parameters[k])`.

    `ulp` bounds the error on `domain` in units in the last place, with contraction or without; 0
    means exact. `arithmetic` is the widest dtype in which the body computes.
    """

    op: str
    parameters: tuple[DType, ...]
    body: Scalar
    domain: str
    ulp: float
    arithmetic: DType
    usual: FiniteVersion | None = None

    @property
    def result(self) -> DType:
        """The dtype of the result."""
        return self.body.dtype

    @property
    def name(self) -> str:
        """An identifier that is unique in the library.

        >>> find("exp", (dtypes.float32,)).name
        'exp_f32'
        """
        return "_".join([self.op, *[dtype.short for dtype in self.parameters]])


USUAL = "_usual"
"""The suffix of a function's name that names its shorter body (`FiniteVersion`)."""


# ------------------------------------------------------------------------------------------ dtypes
def is_float(dtype: DType) -> bool:
    """Whether a dtype is float32 or float64. 16-bit floats are widened before any function."""
    return dtype in (dtypes.float32, dtypes.float64)


def is_f32(dtype: DType) -> bool:
    """Whether a dtype is float32."""
    return dtype is dtypes.float32


def is_f64(dtype: DType) -> bool:
    """Whether a dtype is float64."""
    return dtype is dtypes.float64


def is_integer(dtype: DType) -> bool:
    """Whether a dtype is an integer; bool is none."""
    return dtype.kind == dtypes.INTEGER


def is_signed(dtype: DType) -> bool:
    """Whether a dtype is a signed integer."""
    return is_integer(dtype) and dtype.is_signed


def is_unsigned(dtype: DType) -> bool:
    """Whether a dtype is an unsigned integer."""
    return is_integer(dtype) and not dtype.is_signed


def is_bool(dtype: DType) -> bool:
    """Whether a dtype is bool."""
    return dtype is dtypes.bool_


def is_ordered(dtype: DType) -> bool:
    """Whether a dtype has `lt`: bool, integers, float32 and float64."""
    return is_float(dtype) or dtype.kind <= dtypes.INTEGER


# ----------------------------------------------------------------------------------------- finding
def has(op: str, operands: Sequence[DType]) -> bool:
    """Whether the library has a function for operands of these dtypes.

    >>> has("exp", (dtypes.float32,)), has("exp", (dtypes.complex64,))
    (True, False)
    """
    return _body(op, tuple(operands)) is not None


def find(op: str, operands: Sequence[DType]) -> ScalarFunction:
    """Returns the library's function for operands of these dtypes. Raises GraphError if it has
    none."""
    return _found(op, tuple(operands))


@cache
def _found(op: str, operands: tuple[DType, ...]) -> ScalarFunction:
    if op.endswith(USUAL):
        whole = _found(op.removesuffix(USUAL), operands)
        assert whole.usual is not None
        return attrs.evolve(whole, op=op, body=whole.usual.body, usual=None)
    found = _body(op, operands)
    if found is None:
        given = ", ".join(map(str, operands))
        raise GraphError(
            f"functions: {op} is called with ({given}), expected one that the library has; "
            "ask has() before lowering an op to it"
        )
    parameters = [parameter(k, dtype) for k, dtype in enumerate(operands)]
    tree = found.build(*parameters)
    usual = None if found.usual is None else FiniteVersion(*[b(*parameters) for b in found.usual])
    return ScalarFunction(op, operands, tree, found.domain, found.ulp, _widest(expand(tree)), usual)


def _body(op: str, operands: tuple[DType, ...]) -> FunctionBody | None:
    row = FUNCTIONS.get(op)
    if row is None or len(operands) != row.operands or len(set(operands)) != 1:
        return None
    return next((each for each in row.bodies if each.accepts(operands[0])), None)


def _widest(body: Scalar) -> DType:
    found = [value.dtype for value in walk([body]) if value.dtype is not dtypes.bool_]
    floating = [dtype for dtype in found if dtype.is_floating_point]
    return max(floating or found or [body.dtype], key=lambda dtype: dtype.itemsize)


def declared() -> list[tuple[str, int, Accepts]]:
    """Returns (name, number of operands, test of dtypes) of each body."""
    return [(r.name, r.operands, each.accepts) for r in FUNCTIONS.values() for each in r.bodies]


# --------------------------------------------------------------------------------------- expanding
def expand(scalar: Scalar, memo: dict[Scalar, Scalar] | None = None) -> Scalar:
    """Returns the tree with all calls of functions inlined: primitives only.

    Trees that are expanded together may share a `memo`.
    """
    return rebuilt(scalar, _written_out, memo)


def _written_out(value: Scalar) -> Scalar | None:
    if value.op in PRIMITIVES:
        return None
    found = find(value.op, [operand.dtype for operand in value.args])
    return substituted(expanded_body(found), value.args)


@cache
def expanded_body(function: ScalarFunction) -> Scalar:
    """Returns a function's body with all calls inlined."""
    return expand(function.body)


def substituted(body: Scalar, operands: Sequence[Scalar]) -> Scalar:
    """Returns the body with operands in the place of its parameters."""

    def change(value: Scalar) -> Scalar | None:
        return operands[value.args[0]] if value.op == "parameter" else None

    return rebuilt(body, change)
