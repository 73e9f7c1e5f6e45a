"""`SymFloat`: a float argument whose value is that of each call. Spec: `specs/float_inputs.md`.

Ground floor. It is an expression of Python's floats: a float argument, or arithmetic on one. Each
call computes it anew, with Python's own operators. What needs the value (a comparison, a function
of `math`, a text) takes that of the call that is traced, and becomes a fact that later calls check.

To the code of a captured function it is a float.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from aotlite.ir.errors import UnsupportedError
from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.size_float import SizeFloat, text_of
from aotlite.ir.symbols.python_number import RELATIONS, PythonNumber, plain
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.user_code import asked_outside, asking_place, symbols_in

__all__ = ["FloatFact", "FloatFacts", "SymFloat"]

_DEEPEST: Final = 100
"""The operations in an expression, as it is written: beyond it the value is taken."""
_LONGEST: Final = 1 << 64
"""Ints beyond it are no operands of expressions."""
Leaves = Sequence[object]
Function = Callable[..., object]
Method = Callable[..., object]


@attrs.frozen(eq=False, repr=False)
class FloatFact:
    """What was asked about a float argument, and answered by its value."""

    test: Callable[[Leaves], bool]
    """Whether it is so for the flat arguments of a call."""
    text: str
    number: SymFloat
    fixes: bool
    """Whether it holds for one value alone."""
    location: Location | None

    def __repr__(self) -> str:
        place = "" if self.location is None else f" ({place_of(self.location)})"
        return f"{self.text}{place}"


class FloatFacts(list[FloatFact]):
    """What was asked in one capture, and how each call finds the sizes in expressions."""

    sizes_of: Callable[[Leaves], Mapping[str, int]] | None = None
    """The values of symbols in the flat arguments of a call; None where there are no symbols."""
    names: Callable[[], Collection[str]] = frozenset
    """The names of these symbols."""
    is_closed = False
    """Whether calls check what was asked: nothing more can be."""

    def check_open(self, text: str) -> None:
        """Raises UnsupportedError if something new is asked when calls have been made."""
        if self.is_closed:
            raise UnsupportedError(
                f"compile: a derivative of a backward needs {text}, which the backward does not, "
                "expected one that computes with the same numbers"
            )


def _arithmetic(function: Function, sign: str) -> tuple[Method, Method]:
    """The methods of a binary operator, `self + other` and `other + self`."""

    def left(self: SymFloat, other: object) -> object:
        return self.combined(function, sign, (self, other))

    def right(self: SymFloat, other: object) -> object:
        return self.combined(function, sign, (other, self))

    return left, right


def _compared(relation: str) -> Callable[..., bool]:
    def method(self: SymFloat, other: object) -> bool:
        return self.compared(relation, other)

    return method


def _taken(name: str) -> Method:
    """The method of this name of the value."""

    def method(self: SymFloat, *args: object, **kwargs: object) -> object:
        return getattr(self.plain(), name)(*plain(args), **plain(kwargs))

    return method


class SymFloat(PythonNumber):
    """A float of each call: a float argument, or arithmetic on one.

    >>> facts = FloatFacts()
    >>> lr = SymFloat(facts, None, (1,), 0.5, "argument 1")
    >>> rate = 1 - lr * 4
    >>> rate.text, rate.value([None, 0.25]), rate < 0, facts[0].text
    ('1 - (argument 1 * 4)', 0.0, True, '1 - (argument 1 * 4) < 0 is True')
    """

    __slots__ = ("depth", "facts", "function", "hint", "operands", "text")

    def __init__(
        self,
        facts: FloatFacts,
        function: Function | None,
        operands: tuple[object, ...],
        hint: float,
        text: str,
    ) -> None:
        self.facts = facts
        """What is assumed is added to it."""
        self.function = function
        """None for an argument, whose number is the operand."""
        self.operands = operands
        self.hint = hint
        """The value in the call that is traced."""
        self.text = text
        depths: list[int] = [x.depth for x in operands if type(x) is SymFloat]
        self.depth: int = 1 + sum(depths)

    @property
    def argument(self) -> int:
        """The number of the flat argument that it is."""
        (number,) = self.operands
        assert type(number) is int
        return number

    def value(self, leaves: Leaves, known: dict[int, float] | None = None) -> float:
        """The value in a call, where `known` has those of other numbers by their ids. Raises
        TypeError where a float is none there, or whatever Python's operator does."""
        known = {} if known is None else known
        if id(self) in known:
            return known[id(self)]
        if self.function is None:
            found = leaves[self.argument]
        else:
            found = self.function(*[_value(x, leaves, self.facts, known) for x in self.operands])
        if type(found) is not float:
            raise TypeError(f"{self.text} is {found!r}, expected a float")
        known[id(self)] = found
        return found

    # --- arithmetic
    def combined(self, function: Function, sign: str, operands: tuple[object, ...]) -> object:
        """`function(*operands)`, of which one is this number; an expression if it is a float."""
        known = list(map(self._known, operands))
        if not all(map(_is_operand, known)):
            if operands[0] is self:
                return self.with_value(function, known[1])
            return self.with_value(lambda value, other: function(other, value), known[0])
        result = function(*map(_hint, known))
        is_short = all(type(x) is not int or abs(x) < _LONGEST for x in known)
        if type(result) is not float or self.depth >= _DEEPEST or not is_short:
            return function(*map(plain, known))
        words = [_operand_text(x) for x in known]
        last = known[-1]
        text = f" {sign} ".join(words) if len(words) == 2 else f"{sign}{words[0]}"
        if function is operator.pow or function in _DIVISIONS and type(last) in _SYMBOLIC:
            test = partial(_is_float, function, tuple(known), self.facts)
            self._assume(test, f"{text} is a float", fixes=False)
        return SymFloat(self.facts, function, tuple(known), result, text)

    def _known(self, operand: object) -> object:
        """An operand as it stands in an expression: a size, if each call finds it in arguments."""
        if type(operand) is not SymInt and type(operand) is not SizeFloat:
            return operand
        is_found = self.facts.sizes_of is not None
        is_found = is_found and symbols_in(operand) <= {*self.facts.names()}
        return operand if is_found else plain(operand)

    __add__, __radd__ = _arithmetic(operator.add, "+")
    __sub__, __rsub__ = _arithmetic(operator.sub, "-")
    __mul__, __rmul__ = _arithmetic(operator.mul, "*")
    __truediv__, __rtruediv__ = _arithmetic(operator.truediv, "/")
    __floordiv__, __rfloordiv__ = _arithmetic(operator.floordiv, "//")
    __mod__, __rmod__ = _arithmetic(operator.mod, "%")

    def __pow__(self, other: object, modulus: object = None) -> object:
        if modulus is not None:
            return super().__pow__(other, modulus)
        return self.combined(operator.pow, "**", (self, other))

    def __rpow__(self, other: object) -> object:
        return self.combined(operator.pow, "**", (other, self))

    def __neg__(self) -> object:
        return self.combined(operator.neg, "-", (self,))

    def __abs__(self) -> object:
        return self.combined(abs, "abs ", (self,))

    def __pos__(self) -> SymFloat:
        return self

    def conjugate(self) -> SymFloat:
        """The number itself."""
        return self

    # --- what takes the value
    def plain(self) -> float:  # type: ignore[override]
        """The value in the call that is traced; it is assumed to be that in each call."""
        return self.taken(fixes=True)

    def taken(self, *, fixes: bool) -> float:
        """`plain`; without `fixes` it is no fault of the function that it needs the value."""
        bits = self.hint.hex()
        for size in _sizes_in(self):
            plain(size)

        def test(leaves: Leaves) -> bool:
            return self.value(leaves).hex() == bits

        self._assume(test, f"{self.text} is {self.hint!r}", fixes=fixes)
        return self.hint

    def compared(self, relation: str, other: object) -> bool:
        """The truth of a comparison, which is assumed."""
        number = self._known(other)
        if not _is_operand(number):
            return self.with_value(RELATIONS[relation], other)
        of, compare = number, RELATIONS[relation]
        truth = compare(self.hint, _hint(of))  # type: ignore[arg-type]

        def test(leaves: Leaves) -> bool:
            right: Any = _value(of, leaves, self.facts)
            return compare(self.value(leaves), right) is truth  # type: ignore[arg-type]

        self._assume(test, f"{self.text} {relation} {_operand_text(of)} is {truth}", fixes=False)
        return truth

    def _assume(self, test: Callable[[Leaves], bool], text: str, *, fixes: bool) -> None:
        if all(text != known.text for known in self.facts):
            self.facts.check_open(text)
            self.facts.append(FloatFact(test, text, self, fixes, asking_place()))

    __eq__ = _compared("==")
    __ne__ = _compared("!=")
    __lt__ = _compared("<")
    __le__ = _compared("<=")
    __gt__ = _compared(">")
    __ge__ = _compared(">=")

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return hash(self.plain()) if asked_outside(1) else object.__hash__(self)

    def __index__(self) -> int:
        raise TypeError("'float' object cannot be interpreted as an integer")

    __float__ = plain
    hex = _taken("hex")
    is_integer = _taken("is_integer")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float if asked_outside(1) else SymFloat

    def __repr__(self) -> str:
        return repr(self.plain() if asked_outside(1) else self.hint)

    def __format__(self, spec: str) -> str:
        return format(self.plain() if asked_outside(1) else self.hint, spec)

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (self.plain(),)

    def __copy__(self) -> SymFloat:
        return self

    def __deepcopy__(self, memo: object) -> SymFloat:
        return self


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)


def _is_float(
    function: Function, operands: tuple[object, ...], facts: FloatFacts, leaves: Leaves
) -> bool:
    """Whether the result is a float in a call, too; it may raise what Python's operator does."""
    return type(function(*[_value(x, leaves, facts) for x in operands])) is float


_SYMBOLIC = (SymFloat, SizeFloat, SymInt)


def _value(
    operand: object, leaves: Leaves, facts: FloatFacts, known: dict[int, float] | None = None
) -> object:
    if type(operand) is SymFloat:
        return operand.value(leaves, known)
    if type(operand) not in _SYMBOLIC or facts.sizes_of is None:
        return operand
    return concrete(operand, facts.sizes_of(leaves))


def _hint(operand: Any) -> Any:
    return operand.hint if type(operand) in _SYMBOLIC else operand


def _sizes_in(number: SymFloat) -> Iterator[object]:
    """The sizes, and floats made of sizes, in an expression, each once."""
    waiting, seen = [number], set[int]()
    while waiting:
        for each in waiting.pop().operands:
            if id(each) not in seen and type(each) in _SYMBOLIC:
                seen.add(id(each))
                if type(each) is SymFloat:
                    waiting.append(each)
                else:
                    yield each


def _is_operand(value: object) -> bool:
    return type(value) in (*_SYMBOLIC, float, int, bool)


def _operand_text(value: object) -> str:
    if type(value) is SymInt or type(value) is SizeFloat:
        text = text_of(value)
        return f"({text})" if " " in text else text
    if type(value) is not SymFloat:
        return repr(value)
    return value.text if value.function is None or value.depth == 1 else f"({value.text})"
