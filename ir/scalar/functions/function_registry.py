"""The registry of library functions: `declare` enters one, `find` returns it for operands' dtypes.

    @declare("sinh", is_f64, ulp=2.0)
    def sinh(x): return ...                   # builds the body, a tree over parameter(0)

    find("sinh", (float64,)).body

Bodies may call other functions of the library; `expand` inlines those. Spec: `specs/functions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import attrs

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import PRIMITIVES, Scalar, parameter, rebuilt, walk

Accepts = Callable[[DType], bool]


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


@attrs.frozen
class _Rule:
    accepts: Accepts
    count: int
    build: Callable[..., Scalar]
    ulp: float
    domain: str


USUAL = "_usual"
"""The suffix of a function's name that names its shorter body (`FiniteVersion`)."""

_RULES: dict[str, list[_Rule]] = {}
_USUAL: dict[tuple[str, Accepts], tuple[Callable[..., Scalar], Callable[..., Scalar]]] = {}


# --------------------------------------------------------------------------------------- declaring
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


def declare(
    op: str, accepts: Accepts, count: int = 1, *, ulp: float = 0.0, domain: str = "all"
) -> Callable[[Callable[..., Scalar]], Callable[..., Scalar]]:
    """Enters a builder of bodies, for `count` operands of one dtype that `accepts` takes."""

    def enter(build: Callable[..., Scalar]) -> Callable[..., Scalar]:
        _RULES.setdefault(op, []).append(_Rule(accepts, count, build, ulp, domain))
        return build

    return enter


def declare_usual(
    op: str, accepts: Accepts, when: Callable[..., Scalar]
) -> Callable[[Callable[..., Scalar]], Callable[..., Scalar]]:
    """Enters the builder of a declared function's shorter body, which has the same bits where
    `when(*operands)` holds."""

    def enter(build: Callable[..., Scalar]) -> Callable[..., Scalar]:
        _USUAL[op, accepts] = (when, build)
        return build

    return enter


# ----------------------------------------------------------------------------------------- finding
def has(op: str, operands: Sequence[DType]) -> bool:
    """Whether the library has a function for operands of these dtypes.

    >>> has("exp", (dtypes.float32,)), has("exp", (dtypes.complex64,))
    (True, False)
    """
    return _rule(op, tuple(operands)) is not None


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
    rule = _rule(op, operands)
    if rule is None:
        given = ", ".join(map(str, operands))
        raise GraphError(
            f"functions: {op} is called with ({given}), expected one that the library has; "
            "ask has() before lowering an op to it"
        )
    parameters = [parameter(k, dtype) for k, dtype in enumerate(operands)]
    body = rule.build(*parameters)
    builders = _USUAL.get((op, rule.accepts))
    usual = None if builders is None else FiniteVersion(*[make(*parameters) for make in builders])
    return ScalarFunction(op, operands, body, rule.domain, rule.ulp, _widest(expand(body)), usual)


def _rule(op: str, operands: tuple[DType, ...]) -> _Rule | None:
    if len(set(operands)) != 1:
        return None
    for rule in _RULES.get(op, ()):
        if rule.count == len(operands) and rule.accepts(operands[0]):
            return rule
    return None


def _widest(body: Scalar) -> DType:
    found = [value.dtype for value in walk([body]) if value.dtype is not dtypes.bool_]
    floating = [dtype for dtype in found if dtype.is_floating_point]
    return max(floating or found or [body.dtype], key=lambda dtype: dtype.itemsize)


def declared() -> list[tuple[str, int, Accepts]]:
    """Returns (op, number of operands, test of dtypes) of each declaration."""
    return [(op, rule.count, rule.accepts) for op, rules in _RULES.items() for rule in rules]


# --------------------------------------------------------------------------------------- expanding
def expand(scalar: Scalar, memo: dict[Scalar, Scalar] | None = None) -> Scalar:
    """Returns the tree with all calls of functions inlined: primitives only.

    Trees that are expanded together may share a `memo`.
    """
    return rebuilt(scalar, _written_out, memo)


def _written_out(value: Scalar) -> Scalar | None:
    if value.op in PRIMITIVES:
        return None
    function = find(value.op, [operand.dtype for operand in value.args])
    return substituted(expanded_body(function), value.args)


@cache
def expanded_body(function: ScalarFunction) -> Scalar:
    """Returns a function's body with all calls inlined."""
    return expand(function.body)


def substituted(body: Scalar, operands: Sequence[Scalar]) -> Scalar:
    """Returns the body with operands in the place of its parameters."""

    def change(value: Scalar) -> Scalar | None:
        return operands[value.args[0]] if value.op == "parameter" else None

    return rebuilt(body, change)
