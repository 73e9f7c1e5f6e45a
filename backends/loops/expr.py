"""Typed scalar expressions: what a kernel computes for one point of its axes.

Ground floor of the loop IR. Nodes are interned: equal expressions are one object, so that common
subexpressions need no search. A `where` is lazy: what the branch not taken loads is not loaded.
Input: nothing; output: trees that printers and the interpreter walk. Spec: `specs/loops.md`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import attrs

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar import INFIX

LEAVES = ("const", "load", "axis", "name", "parameter")
"""const(value), load(buffer, address), axis(k), name(k) of a statement, parameter(k) of a function.
"""
ARITHMETIC = ("add", "sub", "mul", "div", "neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint")
"""Operands and result of one dtype, rounded once, as IEEE 754 says. `div` is of floats, `rint`
rounds halves to even, integers wrap."""
INTEGER = ("idiv", "irem", "shl", "shr", "bit_and", "bit_or", "bit_xor", "bit_not")
"""Of integers. `idiv` and `irem` round towards 0; the divisor is not 0. `shr` keeps the sign of
signed ones."""
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
"""Two operands of one dtype; bool."""
LOGICAL = ("and", "or", "xor", "not")
"""Of bools."""
PRIMITIVES = frozenset(
    (*LEAVES, *ARITHMETIC, *INTEGER, *COMPARISONS, *LOGICAL, "where", "cast", "bits")
)
"""What every printer knows. `cast(x)` converts as NumPy's `astype` does where that is defined,
`bits(x)` sees the same bits as another dtype of the size. All else is a function."""


@attrs.frozen(eq=False, slots=True, repr=False, weakref_slot=True)
class Scalar:
    """An operation on scalars and its dtype; made by the functions below, compared by `is`.

    >>> x = load(0, Affine((1,)), dtypes.float32)
    >>> str((x + 1.0) * x)
    '((b0[i0] + 1.0) * b0[i0])'
    >>> (x + 1.0) is (x + 1.0)
    True
    """

    op: str
    args: tuple[Any, ...]
    dtype: DType
    facts: Any = attrs.field(default=None, init=False)
    """What the tree is made of (`expression_facts.py`), once somebody asked."""
    linear: Any = attrs.field(default=None, init=False)
    """Its affine form (`affine.py`), once somebody asked."""

    def __add__(self, other: Operand) -> Scalar:
        return make("add", self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return make("add", other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return make("sub", self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return make("sub", other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return make("mul", self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return make("mul", other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return make("div", self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return make("div", other, self)

    def __neg__(self) -> Scalar:
        return make("neg", self)

    def __lt__(self, other: Operand) -> Scalar:
        return make("lt", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return make("le", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return make("gt", self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return make("ge", self, other)

    def __and__(self, other: Operand) -> Scalar:
        return make("and" if self.dtype is dtypes.bool_ else "bit_and", self, other)

    def __or__(self, other: Operand) -> Scalar:
        return make("or" if self.dtype is dtypes.bool_ else "bit_or", self, other)

    def __xor__(self, other: Operand) -> Scalar:
        return make("xor" if self.dtype is dtypes.bool_ else "bit_xor", self, other)

    def __lshift__(self, other: Operand) -> Scalar:
        return make("shl", self, other)

    def __rshift__(self, other: Operand) -> Scalar:
        return make("shr", self, other)

    def __bool__(self) -> bool:
        raise GraphError(f"loops: asked for the truth of {self}, expected a decision by shapes")

    def __str__(self) -> str:
        return text_of(self, {})

    __repr__ = __str__

    @property
    def operands(self) -> tuple[Scalar, ...]:
        """The scalars that it is computed from; a load's are those of its address."""
        if self.op == "load":
            dynamic = self.args[1].dynamic
            return tuple([value for value, _ in dynamic]) if dynamic else ()
        return () if self.op in _LEAVES else self.args


_LEAVES = frozenset(LEAVES)
Operand = Any
"""A Scalar, or a Python number that takes the dtype of the Scalar beside it."""


@attrs.frozen(slots=True)
class Affine:
    """An address in elements: start + sum of coefficient x axis + sum of value x step.

    `dynamic` holds (integer Scalar, step) pairs: positions that are read or computed.
    """

    coefficients: tuple[int, ...]
    start: int = 0
    dynamic: tuple[tuple[Scalar, int], ...] = ()

    def __str__(self) -> str:
        return self.text([str(value) for value, _ in self.dynamic])

    def text(self, dynamic: Sequence[str]) -> str:
        """The sum, with these texts for values that are no axes."""
        parts = [f"i{k}" if c == 1 else f"{c}*i{k}" for k, c in enumerate(self.coefficients) if c]
        parts += [f"{step}*{t}" for t, (_, step) in zip(dynamic, self.dynamic, strict=True)]
        if self.start or not parts:
            parts.append(str(self.start))
        return " + ".join(parts).replace("+ -", "- ")


_SCALARS: WeakValueDictionary[tuple[Any, ...], Scalar] = WeakValueDictionary()


def _intern(op: str, args: tuple[Any, ...], dtype: DType, key: Any = None) -> Scalar:
    key = (op, key or args, dtype)
    found = _SCALARS.get(key)
    return _SCALARS.setdefault(key, Scalar(op, args, dtype)) if found is None else found


# ----------------------------------------------------------------------------------------- leaves
def const(value: Any, dtype: DType) -> Scalar:
    """The number, as the dtype holds it: no payload of a nan, but -0.0 apart from 0.0."""
    if dtype is dtypes.bool_:
        value = bool(value)
    elif dtype.is_floating_point:
        # Of an int, as extension dtypes take none above 2**63.
        value = float(dtype.numpy.type(float(value) if type(value) is int else value))
        return _intern("const", (value,), dtype, struct.pack("d", value))
    else:
        value = int(value)
    return _intern("const", (value,), dtype)


def load(buffer: int, address: Affine, dtype: DType) -> Scalar:
    """The element of a buffer at an address."""
    return _intern("load", (buffer, address), dtype)


def axis(k: int) -> Scalar:
    """The position along axis k, an int64."""
    return _intern("axis", (k,), dtypes.int64)


def name(k: int, dtype: DType) -> Scalar:
    """What the statement that defines name k computed."""
    return _intern("name", (k,), dtype)


def parameter(k: int, dtype: DType) -> Scalar:
    """The operand k of a function's body."""
    return _intern("parameter", (k,), dtype)


# ------------------------------------------------------------------------------------- operations
def make(op: str, *args: Operand) -> Scalar:
    """The operation on operands; a number takes the dtype of the first Scalar among them."""
    like = next(a for a in args if type(a) is Scalar)
    operands = tuple([a if type(a) is Scalar else const(a, like.dtype) for a in args])
    if op in COMPARISONS:
        _check_alike(op, operands)
        return _intern(op, operands, dtypes.bool_)
    if op in ARITHMETIC or op in INTEGER or op in LOGICAL:
        _check_alike(op, operands)
    return _intern(op, operands, operands[0].dtype)


def function(op: str, dtype: DType, *args: Scalar) -> Scalar:
    """The call of a function of the library, which gives this dtype."""
    return _intern(op, args, dtype)


def where(condition: Scalar, then: Operand, other: Operand) -> Scalar:
    """`then` where the condition holds; only that branch is computed."""
    dtype = then.dtype if type(then) is Scalar else other.dtype
    operands = [a if type(a) is Scalar else const(a, dtype) for a in (then, other)]
    _check_alike("where", tuple(operands))
    if operands[0] is operands[1]:
        return operands[0]
    if condition.op == "const":
        return operands[0] if condition.args[0] else operands[1]
    return _intern("where", (condition, *operands), dtype)


def cast(value: Scalar, dtype: DType) -> Scalar:
    """The value in a dtype; itself if it has it."""
    return value if value.dtype is dtype else _intern("cast", (value,), dtype)


def bits(value: Scalar, dtype: DType) -> Scalar:
    """The same bits as another dtype of the same size."""
    if value.dtype.itemsize != dtype.itemsize:
        raise GraphError(f"loops: bits of {value.dtype} as {dtype}, expected dtypes of one size")
    return value if value.dtype is dtype else _intern("bits", (value,), dtype)


def _check_alike(op: str, operands: tuple[Scalar, ...]) -> None:
    found = {operand.dtype for operand in operands}
    if len(found) > 1:
        given = ", ".join(map(str, found))
        raise GraphError(f"loops: {op} of {given}, expected operands of one dtype")


# ---------------------------------------------------------------------------------------- walking
def walk(roots: Iterable[Scalar], done: set[Scalar] | None = None) -> Iterator[Scalar]:
    """Every scalar of the trees once, operands first; none of those that are `done`, to which they
    are added."""
    done = set() if done is None else done
    stack = list(roots)
    stack.reverse()
    while stack:
        value = stack[-1]
        if value in done:
            stack.pop()
            continue
        missing = [operand for operand in value.operands if operand not in done]
        if missing:
            missing.reverse()
            stack += missing
        else:
            stack.pop()
            done.add(value)
            yield value


def operands_of(value: Scalar) -> tuple[Scalar, ...]:
    """The scalars that a value is computed from."""
    return value.operands


def unknown(
    root: Scalar,
    known: Container[Scalar],
    operands: Callable[[Scalar], Iterable[Scalar]] = operands_of,
) -> Iterator[Scalar]:
    """The scalars beneath one, and itself, that are not known, operands first; whoever asks makes
    each known before the next. What is known is not entered."""
    stack = [root]
    while stack:
        value = stack[-1]
        if value in known:
            stack.pop()
            continue
        missing = [operand for operand in operands(value) if operand not in known]
        if missing:
            missing.reverse()
            stack += missing
        else:
            yield stack.pop()


Change = Callable[[Scalar], Scalar | None]


def rebuilt(root: Scalar, change: Change, memo: dict[Scalar, Scalar] | None = None) -> Scalar:
    """The tree with those scalars replaced for which `change` gives another one.

    Operands are rebuilt first; `change` sees the rebuilt scalar. `memo` may be shared by trees that
    are changed alike.
    """
    memo = {} if memo is None else memo
    for value in unknown(root, memo):
        memo[value] = _changed(value, change, memo)
    return memo[root]


def _changed(
    value: Scalar, change: Callable[[Scalar], Scalar | None], memo: Mapping[Scalar, Scalar]
) -> Scalar:
    same = with_operands(value, tuple([memo[operand] for operand in value.operands]))
    new = change(same)
    return same if new is None else new


def with_operands(value: Scalar, operands: tuple[Scalar, ...]) -> Scalar:
    """The same operation on other operands."""
    if operands == value.operands:
        return value
    if value.op == "load":
        buffer, address = value.args
        steps = [step for _, step in address.dynamic]
        dynamic = tuple(zip(operands, steps, strict=True))
        return load(buffer, attrs.evolve(address, dynamic=dynamic), value.dtype)
    if value.op == "where":
        return where(*operands)
    return _intern(value.op, operands, value.dtype)


# --------------------------------------------------------------------------------------- printing
_INFIX = {
    **INFIX,
    "and": "&&",
    "or": "||",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shl": "<<",
    "shr": ">>",
}


_LONGEST = 2000
"""Characters of a scalar's text. What is shared is printed at each use, so that the text of a chain
in which each link uses the last one twice would grow without end."""


def text_of(root: Scalar, found: dict[Scalar, str]) -> str:
    """The text of a scalar. `found` has those of others already, and gets those beneath it."""
    for value in unknown(root, found):
        parts = [found[operand] for operand in value.operands]
        text = _own_text(value, parts)
        found[value] = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}..."
    return found[root]


def _own_text(value: Scalar, parts: list[str]) -> str:
    match value.op:
        case "const":
            number = value.args[0]
            return repr(number) if math.isfinite(number) else f"{number}"
        case "load":
            return f"b{value.args[0]}[{value.args[1].text(parts)}]"
        case "axis":
            return f"i{value.args[0]}"
        case "name":
            return f"v{value.args[0]}"
        case "parameter":
            return f"x{value.args[0]}"
        case "cast" | "bits":
            return f"{value.op}<{value.dtype.short}>({parts[0]})"
        case op if op in _INFIX:
            return f"({parts[0]} {_INFIX[op]} {parts[1]})"
        case op:
            return f"{op}({', '.join(parts)})"
