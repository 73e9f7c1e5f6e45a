"""What a function of the library is, how modules declare one, and how it is found.

Input: an op's name and the dtypes of its operands; output: a `ScalarFunction`, whose body is a tree
over parameters. Bodies may call other functions; `expand` writes them out. Spec:
`specs/functions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import attrs

from aotlite.backends.loops.expr import PRIMITIVES, Scalar, parameter, rebuilt, walk
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError

Accepts = Callable[[DType], bool]


@attrs.frozen(eq=False)
class FiniteVersion:
    """A shorter body of a function, for most numbers: the same bits where the condition holds."""

    condition: Scalar
    body: Scalar


@attrs.frozen(eq=False)
class ScalarFunction:
    """An operation as a tree of primitives over `parameter(k, parameters[k])`.

    `ulp` bounds the error on `domain` in units of the result's last place, contraction on or off;
    0 says that the result is exact. `arithmetic` is the widest dtype that the body computes in.
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
        """The dtype of what it gives."""
        return self.body.dtype

    @property
    def name(self) -> str:
        """A name that is unique in the library, and an identifier.

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
"""Behind the name of a function: that of its shorter body."""

_RULES: dict[str, list[_Rule]] = {}
_USUAL: dict[tuple[str, Accepts], tuple[Callable[..., Scalar], Callable[..., Scalar]]] = {}


# --------------------------------------------------------------------------------------- declaring
def is_float(dtype: DType) -> bool:
    """float32 and float64: 16-bit floats are widened before anything is computed."""
    return dtype in (dtypes.float32, dtypes.float64)


def is_f32(dtype: DType) -> bool:
    """float32 alone."""
    return dtype is dtypes.float32


def is_f64(dtype: DType) -> bool:
    """float64 alone."""
    return dtype is dtypes.float64


def is_integer(dtype: DType) -> bool:
    """Integers of every width, without bool."""
    return dtype.kind == dtypes.INTEGER


def is_signed(dtype: DType) -> bool:
    """Integers with a sign."""
    return is_integer(dtype) and dtype.is_signed


def is_unsigned(dtype: DType) -> bool:
    """Integers without a sign."""
    return is_integer(dtype) and not dtype.is_signed


def is_bool(dtype: DType) -> bool:
    """bool alone."""
    return dtype is dtypes.bool_


def is_ordered(dtype: DType) -> bool:
    """What has `lt`: bool, integers, float32 and float64."""
    return is_float(dtype) or dtype.kind <= dtypes.INTEGER


def declare(
    op: str, accepts: Accepts, count: int = 1, *, ulp: float = 0.0, domain: str = "all"
) -> Callable[[Callable[..., Scalar]], Callable[..., Scalar]]:
    """Enters a builder of bodies: `count` operands, all of one dtype that `accepts` takes."""

    def enter(build: Callable[..., Scalar]) -> Callable[..., Scalar]:
        _RULES.setdefault(op, []).append(_Rule(accepts, count, build, ulp, domain))
        return build

    return enter


def declare_usual(
    op: str, accepts: Accepts, when: Callable[..., Scalar]
) -> Callable[[Callable[..., Scalar]], Callable[..., Scalar]]:
    """Enters a builder of the body that does where `when(*operands)` holds, of a declared one."""

    def enter(build: Callable[..., Scalar]) -> Callable[..., Scalar]:
        _USUAL[op, accepts] = (when, build)
        return build

    return enter


# ----------------------------------------------------------------------------------------- finding
def has(op: str, operands: Sequence[DType]) -> bool:
    """Whether `find` gives a function.

    >>> has("exp", (dtypes.float32,)), has("exp", (dtypes.complex64,))
    (True, False)
    """
    return _rule(op, tuple(operands)) is not None


def find(op: str, operands: Sequence[DType]) -> ScalarFunction:
    """The function of the library for operands of these dtypes. Raises GraphError for a missing
    one."""
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
    """Every op, number of operands and test of dtypes that some module has declared."""
    return [(op, rule.count, rule.accepts) for op, rules in _RULES.items() for rule in rules]


# --------------------------------------------------------------------------------------- expanding
def expand(scalar: Scalar, memo: dict[Scalar, Scalar] | None = None) -> Scalar:
    """The tree with every call of a function written out: primitives only.

    `memo` may be shared by trees that are expanded together.
    """
    return rebuilt(scalar, _written_out, memo)


def _written_out(value: Scalar) -> Scalar | None:
    if value.op in PRIMITIVES:
        return None
    function = find(value.op, [operand.dtype for operand in value.args])
    return substituted(expanded_body(function), value.args)


@cache
def expanded_body(function: ScalarFunction) -> Scalar:
    """The body of primitives alone."""
    return expand(function.body)


def substituted(body: Scalar, operands: Sequence[Scalar]) -> Scalar:
    """The body with its parameters replaced by operands."""

    def change(value: Scalar) -> Scalar | None:
        return operands[value.args[0]] if value.op == "parameter" else None

    return rebuilt(body, change)
