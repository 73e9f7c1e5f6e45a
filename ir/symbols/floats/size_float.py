"""`SizeFloat`: a float made of sizes, `1 / math.sqrt(x.shape[-1])`. Spec: `specs/size_floats.md`.

Ground floor. It is an expression of Python's operations over symbolic ints and numbers, which gets
its value wherever the symbols get theirs: in graphs and records as they do. A comparison has the
truth of the call that is traced, and is logged, as those of sizes are (DYN-2). What needs the value
takes it, and assumes the sizes in it. An int made of a float is an atom (`Computed`).

To the code of a captured function it is a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from aotlite.ir.symbols.assumption import Texts, concrete, marked
from aotlite.ir.symbols.calls import Computed
from aotlite.ir.symbols.floats.operations import BITS, OPERATIONS, Operation
from aotlite.ir.symbols.python_number import NEGATED, RELATIONS, PythonNumber
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.user_code import asked_outside

__all__ = ["SizeFloat", "applied", "bits_of", "depth_of", "is_bits", "sizes_in", "text_of"]


class Compared:
    """A comparison of numbers, as a function that a table may ask."""

    def __init__(self, relation: str) -> None:
        self.relation = relation
        self.__name__ = relation

    def __call__(self, left: Any, right: Any) -> bool:
        return bool(RELATIONS[self.relation](left, right))

    def said(self, operands: tuple[object, ...], value: object) -> str:
        """The fact in Python: `math.sqrt(s0) > 2.0`. A comparison that is false stays one, as both
        are for nan."""
        left, right = map(text_of, operands)
        text = f"{left} {self.relation} {right}"
        if value is True:
            return text
        if self.relation in ("==", "!="):
            return f"{left} {NEGATED[self.relation]} {right}"
        return f"not {text}"


COMPARED: Final = {relation: Compared(relation) for relation in RELATIONS}


class SizeFloat(PythonNumber):
    """A float that is an expression of sizes. `applied` makes them, one for each expression.

    >>> from aotlite.ir.symbols.floats.size_expressions import Computing
    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> table = SymbolTable()
    >>> table.computes = Computing(table)
    >>> s0 = table.size(6, "x.shape[0]")
    >>> scale = 1 / (s0 / 4)
    >>> scale, scale.hint, scale.concrete({"s0": 2})
    (1 / (s0 / 4), 0.6666666666666666, 2.0)
    >>> scale < 1, [each.text for each in table.log]
    (True, ['1 / (s0 / 4) < 1'])
    """

    __slots__ = ("__weakref__", "depth", "limit", "operands", "operation", "table")

    def __init__(
        self, table: Any, operation: Operation, operands: tuple[object, ...], limit: float
    ) -> None:
        self.table = table
        self.operation = operation
        self.operands = operands
        self.limit = limit
        """No absolute value is greater, for sizes that fit in 63 bits."""
        self.depth: int = 1 + sum(map(depth_of, operands))

    # --- values
    def concrete(self, values: Mapping[str, int]) -> Any:
        """The value where the symbols have these values, by name. Raises what Python raises."""
        return _valued(self, values, {})

    @property
    def hint(self) -> float:
        """The value in the call that is traced."""
        found: float = self.concrete(self.table.hints)
        return found

    @property
    def text(self) -> str:
        """The expression as Python writes it."""
        return self.operation.text([text_of(each) for each in self.operands])

    def plain(self) -> float:  # type: ignore[override]
        """The value for the hints; the sizes in it are assumed."""
        for size in sizes_in(self):
            size.plain()
        return self.hint

    # --- arithmetic
    def __neg__(self) -> Any:
        return self.computed("neg", OPERATIONS["neg"].function, (self,))

    def __abs__(self) -> Any:
        return self.computed("abs", abs, (self,))

    def __pos__(self) -> SizeFloat:
        return self

    def conjugate(self) -> SizeFloat:
        """The number itself."""
        return self

    real = property(conjugate)

    @property
    def imag(self) -> float:
        """0.0."""
        return 0.0

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def is_integer(self) -> bool:
        """Whether it has no fraction; the answer is assumed."""
        return bool(self.computed(".is_integer", float.is_integer, (self,)))

    # --- questions
    def __bool__(self) -> bool:
        return bool(self != 0)

    def __eq__(self, other: object) -> Any:
        return self.compared_with("==", other)

    def __ne__(self, other: object) -> Any:
        return self.compared_with("!=", other)

    def __lt__(self, other: object) -> Any:
        return self.compared_with("<", other)

    def __le__(self, other: object) -> Any:
        return self.compared_with("<=", other)

    def __gt__(self, other: object) -> Any:
        return self.compared_with(">", other)

    def __ge__(self, other: object) -> Any:
        return self.compared_with(">=", other)

    def __hash__(self) -> int:
        return hash(self.plain()) if self._is_shown(1) else object.__hash__(self)

    def __index__(self) -> int:
        raise TypeError("'float' object cannot be interpreted as an integer")

    __float__ = plain

    def hex(self) -> str:
        """The text of the value, which is assumed."""
        return self.plain().hex()

    # --- to the code of a function
    def _is_shown(self, depth: int) -> bool:
        return bool(self.table.shown_as_ints) and asked_outside(depth + 1)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float if self._is_shown(1) else SizeFloat

    def __repr__(self) -> str:
        return repr(self.plain()) if self._is_shown(1) else self._printed()

    def __format__(self, spec: str) -> str:
        return format(self.plain() if self._is_shown(1) else self._printed(), spec)

    def _printed(self) -> str:
        table = self.table
        if table.texts is not Texts.SYMBOLS:
            table.cache["printed", self] = self
        if table.texts is Texts.HINTS:
            return repr(self.hint)
        return marked(self.text) if table.texts is Texts.PLACES else self.text

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (self.plain(),)

    def __copy__(self) -> SizeFloat:
        return self

    def __deepcopy__(self, memo: object) -> SizeFloat:
        return self


def applied(
    table: Any,
    operation: Operation,
    operands: tuple[object, ...],
    limit: float,
    kind: type | None = None,
) -> Any:
    """The one expression of an operation on these operands: a `SizeFloat` where its value for the
    hints is a float, a symbolic int where it is an int. One of another table is of the `kind` that
    it is there: in a part of the sizes, in which hints need not be, these may have no value."""
    key = ("applied", operation, *map(_key, operands))
    found = table.cache.get(key)
    if found is None:
        if kind is None:
            kind = type(operation.function(*[_valued(each, table.hints, {}) for each in operands]))
        if kind is float:
            found = SizeFloat(table, operation, operands, limit)
        else:
            found = _computed(table, operation, operands, limit)
        table.cache[key] = found
    return found


def _computed(table: Any, operation: Operation, operands: tuple[object, ...], limit: float) -> Any:
    shape = 1 + sum(map(depth_of, operands)), limit
    is_rounding = operation.rounds and len(operands) == 1
    above = is_rounding and is_nonnegative(operands[0])
    least = 0 if above else operation.least
    atom = Computed(len(table.atoms), operation, operands, shape, least, value_of)
    table.atoms.append(atom)
    found = table.of({(atom,): 1})
    if least is not None:
        table.said("by cases", (_not_negative, (found,)), 0, True)
    return found


def _not_negative(value: int) -> bool:
    return value >= 0


def is_nonnegative(value: object) -> bool:
    """Whether no operation in a number gives negative ones, for the sizes that its symbols were
    declared with. Rounding keeps the order, so that what is at least 0 stays so."""
    if type(value) is SymInt:
        return all(c >= 0 and all(map(_is_atom_nonnegative, m)) for m, c in value.terms.items())
    if type(value) is not SizeFloat:
        return bool(value >= 0)  # type: ignore[operator]
    name, operands = value.operation.name, value.operands
    if name in ("math.sqrt", "abs", "math.exp", "math.fabs"):
        return True
    if name == "**" and type(operands[1]) is float:
        return is_nonnegative(operands[0])
    return name in ("+", "*", "/", "float", "//") and all(map(is_nonnegative, operands))


def _is_atom_nonnegative(atom: Any) -> bool:
    if hasattr(atom, "room"):
        return atom.room[0] is not None and atom.room[0] >= 0
    return atom.function in ("//", "max", "min") and all(
        map(is_nonnegative, (atom.left, atom.right))
    )


def bits_of(value: SizeFloat) -> Any:
    """The bits of a float as a symbolic int64, which a kernel takes."""
    return applied(value.table, BITS, (value,), float("inf"))


def is_bits(value: object) -> bool:
    """Whether a size is the bits of a float (`bits_of`)."""
    if type(value) is not SymInt:
        return False
    atoms = [atom for monomial in value.terms for atom in monomial]
    return any(isinstance(atom, Computed) and atom.operation is BITS for atom in atoms)


def _key(operand: object) -> object:
    """An operand in a key: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    kind = type(operand)
    return operand if kind is SymInt or kind is SizeFloat else (kind, repr(operand))


def _valued(value: object, values: Mapping[str, int], memo: dict[int, object]) -> Any:
    if type(value) is not SizeFloat:
        return concrete(value, values)
    found = memo.get(id(value))
    if found is None:
        operands = [_valued(each, values, memo) for each in value.operands]
        found = memo[id(value)] = value_of(value.operation, operands, value.limit, float)
    return found


def value_of(operation: Operation, operands: Iterable[Any], limit: float, kind: type = int) -> Any:
    """The value of an operation; an expression of another table where an operand is one.

    Raises ValueError where Python gives a complex number, or raises an OverflowError.
    """
    known = tuple(operands)
    for each in known:
        if type(each) is SymInt or type(each) is SizeFloat:
            return applied(each.table, operation, known, limit, kind)
    try:
        found = operation.function(*known)
    except OverflowError as error:
        text = operation.text(list(map(repr, known)))
        raise ValueError(f"symbols: {text} has no value: {error}") from None
    if type(found) is complex:
        text = operation.text(list(map(repr, known)))
        raise ValueError(f"symbols: {text} is complex, expected a float")
    return found


def depth_of(value: object) -> int:
    """How many operations on floats a number has, as it is written."""
    if type(value) is SizeFloat:
        return value.depth
    if type(value) is not SymInt:
        return 0
    atoms = [atom for monomial in value.terms for atom in monomial]
    return sum([atom.depth for atom in atoms if isinstance(atom, Computed)])


def sizes_in(value: SizeFloat) -> Iterator[SymInt]:
    """The symbolic ints of which a float is made, each once."""
    waiting, seen = [value], set[int]()
    while waiting:
        for each in waiting.pop().operands:
            if id(each) not in seen:
                seen.add(id(each))
                if type(each) is SymInt:
                    yield each
                elif type(each) is SizeFloat:
                    waiting.append(each)


def text_of(value: object) -> str:
    """A number or an expression as Python writes it."""
    if type(value) is SymInt:
        text: str = value.table.expression(value)  # type: ignore[attr-defined]
        return text
    return value.text if type(value) is SizeFloat else repr(value)
