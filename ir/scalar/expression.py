"""Typed scalar expressions: what a kernel computes at one point of its axes.

`(b0[8*i0 + i1] - v0)` is the tree make("sub", load(0, Affine((8, 1)), f32), name(0, f32)). Nodes
are interned: equal expressions are one object, so that common subexpressions need no search. A
`where` is lazy: the branch that is not taken is not computed, so that its loads may lie outside the
buffer. Operators promote their operands as NumPy's do. Spec: `specs/loops.md`.
"""

from __future__ import annotations

import cmath
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final, overload
from weakref import WeakValueDictionary

import attrs
import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType, Number
from aotlite.ir.errors import GraphError
from aotlite.ir.geometry.sizes import always_equal
from aotlite.ir.scalar.primitives import (
    ARITHMETIC,
    COMPARISONS,
    INTEGER,
    LEAVES,
    LOGICAL,
    PRIMITIVE,
)
from aotlite.ir.symbols.floats.size_float import SizeFloat, bits_of
from aotlite.ir.symbols.symint import SymInt


@final
@attrs.frozen(eq=False, slots=True, repr=False, weakref_slot=True)
class Scalar:
    """An operation on scalars, and the dtype of its result. Made by the functions below alone, and
    compared by `is`.

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
    """A cache: the loads, names and axes of the tree (`expression_facts.py`)."""
    linear: Any = attrs.field(default=None, init=False)
    """A cache: the affine form of the tree (`affine.py`)."""

    def __add__(self, other: Operand) -> Scalar:
        return operation("add", self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return operation("add", other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return operation("sub", self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return operation("sub", other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return operation("mul", self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return operation("mul", other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return operation("div", self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return operation("div", other, self)

    def __neg__(self) -> Scalar:
        return operation("neg", self)

    def __invert__(self) -> Scalar:
        return operation("bit_not", self)

    def __lt__(self, other: Operand) -> Scalar:
        return operation("lt", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return operation("le", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return operation("gt", self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return operation("ge", self, other)

    def __and__(self, other: Operand) -> Scalar:
        return operation("bit_and", self, other)

    def __or__(self, other: Operand) -> Scalar:
        return operation("bit_or", self, other)

    def __xor__(self, other: Operand) -> Scalar:
        return operation("bit_xor", self, other)

    def __lshift__(self, other: Operand) -> Scalar:
        return make("shl", self, other)

    def __rshift__(self, other: Operand) -> Scalar:
        return make("shr", self, other)

    def __bool__(self) -> bool:
        # No error of aotlite's: lowering takes those for what the op refuses when it runs.
        raise TypeError(
            f"the truth of {self} is asked, which differs from element to element; expected "
            "scalar.where(condition, then, other), or a decision by shapes"
        )

    def __str__(self) -> str:
        return text_of(self, {})

    __repr__ = __str__

    @property
    def operands(self) -> tuple[Scalar, ...]:
        """The scalars that it is computed from; of a load, the dynamic ones of its address."""
        if self.op == "load":
            dynamic = self.args[1].dynamic
            return tuple([value for value, _ in dynamic]) if dynamic else ()
        return () if self.op in _LEAVES else self.args


_LEAVES = frozenset(LEAVES)
Operand: TypeAlias = Scalar | Number
"""A Scalar, or a Python number that takes the dtype of the Scalar beside it."""


@attrs.frozen(slots=True)
class Affine:
    """An address in elements: start + sum of coefficient * axis + sum of value * step.

    `dynamic` has (integer Scalar, step) pairs for positions that are loaded or computed, as a
    gather's are. `b0[8*i0 + i1 + 4*b1[i1] + 2]` has coefficients (8, 1), start 2 and one pair.
    """

    coefficients: tuple[int, ...]
    start: int = 0
    dynamic: tuple[tuple[Scalar, int], ...] = ()

    def __str__(self) -> str:
        return self.text([str(value) for value, _ in self.dynamic])

    def text(self, dynamic: Sequence[str]) -> str:
        """Returns the sum as text, with these texts for the dynamic values."""
        used = [(k, c) for k, c in enumerate(self.coefficients) if not always_equal(c, 0)]
        parts = [f"i{k}" if always_equal(c, 1) else f"{_factor(c)}*i{k}" for k, c in used]
        steps = [_factor(step) for _, step in self.dynamic]
        parts += [f"{step}*{text}" for step, text in zip(steps, dynamic, strict=True)]
        if not always_equal(self.start, 0) or not parts:
            parts.append(str(self.start))
        return " + ".join(parts).replace("+ -", "- ")


def _factor(number: int) -> str:
    """The text of a number before a `*`; a symbolic sum is in parentheses."""
    text = str(number)
    return f"({text})" if " " in text else text


_SCALARS: WeakValueDictionary[tuple[object, ...], Scalar] = WeakValueDictionary()


def _intern(op: str, args: tuple[object, ...], dtype: DType, key: object = None) -> Scalar:
    key = (op, key or args, dtype)
    found = _SCALARS.get(key)
    return _SCALARS.setdefault(key, Scalar(op, args, dtype)) if found is None else found


# ----------------------------------------------------------------------------------------- leaves
def const(value: Any, dtype: DType) -> Scalar:
    """Returns the number as the dtype holds it. All NaNs are one constant; -0.0 and 0.0 are two.

    A symbolic size is an int64 constant, cast to the dtype; a float made of sizes is the bits of
    one (SIZ-21).
    """
    if type(value) is SymInt and dtype is not dtypes.int64:
        return cast(const(value, dtypes.int64), dtype)
    if type(value) is SizeFloat:
        return cast(bits(const(bits_of(value), dtypes.int64), dtypes.float64), dtype)
    if dtype is dtypes.bool_:
        value = bool(value)
    elif dtype.is_floating_point:
        # An int goes through float: extension dtypes take no int above 2**63.
        value = float(dtype.numpy.type(float(value) if type(value) is int else value))
        return _intern("const", (value,), dtype, struct.pack("d", value))
    elif dtype.is_complex:
        value = complex(dtype.numpy.type(value))
        return _intern("const", (value,), dtype, struct.pack("dd", value.real, value.imag))
    elif type(value) is not SymInt:
        value = int(value)
    return _intern("const", (value,), dtype)


def load(buffer: int, address: Affine, dtype: DType) -> Scalar:
    """Returns the element of a buffer at an address."""
    return _intern("load", (buffer, address), dtype)


def axis(k: int) -> Scalar:
    """Returns the position along axis k, an int64."""
    return _intern("axis", (k,), dtypes.int64)


def name(k: int, dtype: DType) -> Scalar:
    """Returns the value of the statement that defines name k."""
    return _intern("name", (k,), dtype)


def parameter(k: int, dtype: DType) -> Scalar:
    """Returns operand k of the body of a library function."""
    return _intern("parameter", (k,), dtype)


# ------------------------------------------------------------------------------------- operations
def make(op: str, *args: Operand) -> Scalar:
    """Returns the operation on operands. A number takes the dtype of the first Scalar."""
    like = next(a for a in args if type(a) is Scalar)
    operands = tuple([a if type(a) is Scalar else const(a, like.dtype) for a in args])
    if op in COMPARISONS:
        _check_alike(op, operands)
        return _intern(op, operands, dtypes.bool_)
    if op in ARITHMETIC or op in INTEGER or op in LOGICAL:
        _check_alike(op, operands)
    return _intern(op, operands, operands[0].dtype)


def operation(op: str, *args: Operand) -> Scalar:
    """Returns a primitive on operands that are promoted as by NumPy. Integers are divided as
    float64; of bools `+` is `or`, `*` and `&` are `and`."""
    operands = alike(*args)
    dtype = operands[0].dtype
    if dtype is dtypes.bool_:
        op = PRIMITIVE[op].bools or op
    if op == "div" and dtype.kind <= dtypes.INTEGER:
        dtype = dtypes.float64
        operands = tuple([cast(a, dtype) for a in operands])
    return _intern(op, operands, dtypes.bool_ if op in COMPARISONS else dtype)


def alike(*args: Operand) -> tuple[Scalar, ...]:
    """Returns the operands cast to the dtype to which NumPy promotes them. A number stays Python's
    until it meets a scalar, and takes that one's dtype, or float64 where that holds no fractions.

    Raises OverflowError for a number that the dtype does not hold.
    """
    found: DType | None = None
    for a in args:
        if type(a) is Scalar and a.dtype is not found:
            found = a.dtype if found is None else _promoted(found, a.dtype)
    assert found is not None, "only numbers"
    wanted = found
    for a in args:
        if type(a) is not Scalar:
            wanted = _with_number(wanted, type(a))
    return tuple([cast(a, wanted) if type(a) is Scalar else number(a, wanted) for a in args])


def _promoted(a: DType, b: DType) -> DType:
    return dtypes.from_numpy(np.promote_types(a.numpy, b.numpy))


def _with_number(dtype: DType, kind: type) -> DType:
    if kind is complex and not dtype.is_complex:
        return _promoted(dtype, dtypes.complex64)
    if kind is float and dtype.kind <= dtypes.INTEGER:
        return dtypes.float64
    return dtypes.int64 if kind is int and dtype is dtypes.bool_ else dtype


def number(value: object, dtype: DType) -> Scalar:
    """Returns a number as a scalar of a dtype. Raises OverflowError if the dtype does not hold it.

    >>> number(300, dtypes.uint8)
    Traceback (most recent call last):
    OverflowError: 300 as uint8, expected a number that the dtype holds
    """
    found = const(value, dtype)
    if dtype.kind == dtypes.INTEGER and type(value) is not SymInt:
        low, high = _range(dtype)
        if not low <= found.args[0] <= high or found.args[0] != value:
            raise OverflowError(f"{value} as {dtype}, expected a number that the dtype holds")
    return found


def _range(dtype: DType) -> tuple[int, int]:
    bits = 8 * dtype.itemsize - dtype.is_signed
    return -(1 << bits) if dtype.is_signed else 0, (1 << bits) - 1


def function(op: str, dtype: DType, *args: Scalar) -> Scalar:
    """Returns the call of a library function whose result has this dtype."""
    return _intern(op, args, dtype)


@overload
def where(condition: Scalar, then: Operand, other: Operand) -> Scalar: ...
@overload
def where(condition: Operand, then: Operand, other: Operand) -> Operand: ...
def where(condition: Operand, then: Operand, other: Operand) -> Operand:
    """Returns `then` where the condition holds, else `other`; the other branch is not computed.

    Of two numbers the result has the dtype of what the condition compares, if that holds them.
    """
    if type(condition) is not Scalar:
        return then if condition else other
    if type(then) is not Scalar and type(other) is not Scalar:
        dtype = _compared(condition)
        dtype = _with_number(_with_number(dtype, type(then)), type(other))
        first, second = number(then, dtype), number(other, dtype)
    else:
        first, second = alike(then, other)
    if first is second:
        return first
    condition = truth(condition)
    if condition.op == "const":
        return first if condition.args[0] else second
    return _intern("where", (condition, first, second), first.dtype)


def truth(value: Scalar) -> Scalar:
    """Returns whether the value is not 0; NaN is true."""
    return value if value.dtype is dtypes.bool_ else make("ne", value, 0)


def _compared(condition: Scalar) -> DType:
    """Returns the dtype of the first scalar that a condition compares; bool if it compares none."""
    stack = [condition]
    while stack:
        value = stack.pop()
        if value.dtype is not dtypes.bool_:
            return value.dtype
        stack += reversed(value.operands)
    return dtypes.bool_


def cast(value: Operand, dtype: DType) -> Scalar:
    """Returns the value in a dtype; the value itself if it has that dtype."""
    if type(value) is not Scalar:
        return number(value, dtype)
    return value if value.dtype is dtype else _intern("cast", (value,), dtype)


def bits(value: Scalar, dtype: DType) -> Scalar:
    """Returns the value's bits as another dtype of the same size."""
    if value.dtype.itemsize != dtype.itemsize:
        raise GraphError(f"loops: bits of {value.dtype} as {dtype}, expected dtypes of one size")
    return value if value.dtype is dtype else _intern("bits", (value,), dtype)


def is_affine(value: Scalar) -> bool:
    """Whether a value is a sum, difference, product or negation."""
    row = PRIMITIVE.get(value.op)
    return row is not None and row.affine


def _check_alike(op: str, operands: tuple[Scalar, ...]) -> None:
    found = {operand.dtype for operand in operands}
    if len(found) > 1:
        given = ", ".join(map(str, found))
        raise GraphError(f"loops: {op} of {given}, expected operands of one dtype")


# ---------------------------------------------------------------------------------------- walking
def walk(roots: Iterable[Scalar], done: set[Scalar] | None = None) -> Iterator[Scalar]:
    """Yields each scalar of the trees once, operands first, and adds it to `done`. Scalars that are
    in `done` already are left out."""
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
    """Returns the scalars that a value is computed from."""
    return value.operands


def unknown(
    root: Scalar,
    known: Container[Scalar],
    operands: Callable[[Scalar], Iterable[Scalar]] = operands_of,
) -> Iterator[Scalar]:
    """Yields the scalars of a tree that are not in `known`, operands first.

    The caller adds each to `known` before it asks for the next: a memoized walk over a tree in
    which subtrees are shared. Subtrees of known scalars are not entered.
    """
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
    """Returns the tree with each scalar replaced for which `change` returns another one.

    Operands are rebuilt first; `change` gets the rebuilt scalar. Trees that are changed alike may
    share a `memo`.
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
    """Returns the same operation on other operands."""
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
_LONGEST = 2000
"""Characters of a scalar's text. Shared subtrees are printed at each use, so that the text of a
chain in which each link uses the last one twice would double at each link."""


def text_of(root: Scalar, found: dict[Scalar, str]) -> str:
    """Returns the text of a scalar. `found` caches texts; those of its subtrees are added."""
    for value in unknown(root, found):
        parts = [found[operand] for operand in value.operands]
        text = _own_text(value, parts)
        found[value] = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}..."
    return found[root]


def _own_text(value: Scalar, parts: list[str]) -> str:
    match value.op:
        case "const":
            number = value.args[0]
            whole = type(number) is SymInt or cmath.isfinite(number)
            return repr(number) if whole else f"{number}"
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
        case op if op in PRIMITIVE and PRIMITIVE[op].infix:
            return f"({parts[0]} {PRIMITIVE[op].infix} {parts[1]})"
        case op:
            return f"{op}({', '.join(parts)})"
