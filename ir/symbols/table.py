"""`SymbolTable`: the symbols of one trace, their expressions, and the assumptions about them.

Ground floor. It corresponds to PyTorch's ShapeEnv. The table interns expressions and decides
comparisons: by a proof for all values where there is one, else by the hints, and then it logs the
answer as an assumption (DYN-2). It owns all that is cached for its symbols; no global cache holds
a symbol. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.ir.provenance.location import Location
from aotlite.ir.symbols import calls, sympy_forms
from aotlite.ir.symbols.assumption import Answer, Assumption, concrete
from aotlite.ir.symbols.calls import FUNCTIONS, Call
from aotlite.ir.symbols.polynomial import (
    Atom,
    Monomial,
    Range,
    Terms,
    add,
    evaluate,
    multiply,
    scaled,
    subtract,
)
from aotlite.ir.symbols.proofs import Facts, equation
from aotlite.ir.symbols.proving import Unproved, same_or_raise
from aotlite.ir.symbols.symint import (
    ABOVE,
    BELOW,
    RELATIONS,
    Combine,
    SymBool,
    SymInt,
    hash_by_value,
)
from aotlite.ir.symbols.user_code import asking_place

__all__ = ["Symbol", "SymbolTable", "is_proving", "table_of"]

Value: TypeAlias = "int | SymInt"


class Symbol(Atom):
    """An unknown size: its name, its hint (the value in the traced call), and its source.

    `hint` is None where no value is known before the graph runs (DYN-5).
    """

    __slots__ = ("hint", "name", "sources")

    def __init__(self, number: int, name: str, hint: int | None, room: Range) -> None:
        super().__init__(number, *room)
        self.name = name
        self.hint = hint
        self.sources: list[str] = []
        """The inputs with this size, such as `x.shape[0]`; several with `duck_shape`."""

    def __str__(self) -> str:
        return self.name


@attrs.define(eq=False, repr=False)
class SymbolTable:
    """Symbols, expressions and assumptions of one trace."""

    duck_shape: bool = False
    """Whether sizes with equal hints become one symbol; each call must have them equal (DYN-1)."""
    locate: Callable[[], Location | None] = asking_place
    """Returns the user's line that is running."""
    shown_as_ints: bool = attrs.field(default=False, init=False)
    """Whether code outside aotlite finds ints where the symbols are (DYN-23)."""
    log: list[Assumption] = attrs.field(factory=list, init=False)
    """Every assumption, in order, each once."""
    symbols: dict[str, Symbol] = attrs.field(factory=dict, init=False)
    """Every symbol by name."""
    interned: dict[int, SymInt] = attrs.field(factory=dict, init=False)
    """`SymInt.key` -> the number."""
    truths: dict[tuple[str, Any, Any], Any] = attrs.field(factory=dict, init=False)
    """Comparisons with the same answer for all values, and the answer."""
    open: dict[tuple[str, Any, Any], SymBool] = attrs.field(factory=dict, init=False)
    """Comparisons without one; emptied by each assumption, which may decide some."""
    cache: dict[Any, Any] = attrs.field(factory=dict, init=False)
    """A cache for other modules: metas with symbols, and results of meta rules for them."""
    op: str | None = attrs.field(default=None, init=False)
    """The op whose meta rule is running."""
    spelled: Callable[[SymInt], str] | None = attrs.field(default=None, init=False)
    """While code is made that must be right for all sizes: how it spells a size (`proving`)."""
    _facts: Facts = attrs.field(factory=Facts, init=False)
    _namesakes: dict[Any, SymInt] = attrs.field(factory=dict, init=False)
    """Terms -> the number, where another number has its key: a hash collision."""
    _results: dict[Any, Any] = attrs.field(factory=dict, init=False)
    """(operation, operands) -> the number, where that was interned before."""
    _calls: dict[Any, Any] = attrs.field(factory=dict, init=False)
    _answers: dict[Any, Any] = attrs.field(factory=dict, init=False)
    _by_hint: dict[int, SymInt] = attrs.field(factory=dict, init=False)
    _counts: dict[str, int] = attrs.field(factory=dict, init=False)
    _atoms: int = attrs.field(default=0, init=False)

    # ---------------------------------------------------------------------------------- symbols
    def show_as_ints(self) -> None:
        """Shows code outside aotlite ints from now on: for a table of a captured function."""
        self.shown_as_ints = True
        hash_by_value()

    def size(self, hint: int, source: str = "") -> Any:
        """A symbol for the size of a dimension; the hint itself for 0 and 1.

        Broadcasting and contiguity treat 0 and 1 specially, so that a symbol is known to be at
        least 2 (DYN-1): PyTorch's 0/1 specialization.
        """
        if hint < 2:
            return hint
        if not self.duck_shape:
            return self.symbol(hint, source, lower=2)
        found = self._by_hint.get(hint)
        if found is None:
            self._by_hint[hint] = found = self.symbol(hint, source, lower=2)
        elif source:
            self.symbols[str(found)].sources.append(source)
        return found

    def symbol(
        self,
        hint: int | None,
        source: str = "",
        *,
        lower: int | None = None,
        upper: int | None = None,
    ) -> SymInt:
        """A fresh symbol of this range: s0, s1, ...; u0, u1, ... for one without a hint."""
        letter = "u" if hint is None else "s"
        count = self._counts.get(letter, 0)
        self._counts[letter] = count + 1
        made = Symbol(self._atoms, f"{letter}{count}", hint, (lower, upper))
        if source:
            made.sources.append(source)
        self._atoms += 1
        self.symbols[made.name] = made
        return self.named(made.name)

    def named(self, name: str) -> SymInt:
        """The symbol of this name as a `SymInt`."""
        result: SymInt = self.of({(self.symbols[name],): 1})
        return result

    @property
    def hints(self) -> dict[str, int]:
        """The hint of each symbol that has one."""
        return {name: s.hint for name, s in self.symbols.items() if s.hint is not None}

    # ------------------------------------------------------------------------------ expressions
    def of(self, terms: Terms) -> Any:
        """The interned object of these terms; a plain int where they have no symbol."""
        if not terms:
            return 0
        constant = terms.get((), 0)
        if constant and len(terms) == 1:
            return constant
        key = evaluate(terms, _POINT)
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = self._by_terms(key, terms)
        elif found.terms != terms:  # a hash collision: hardly ever
            made = self._by_terms(key, terms)
            found = self._namesakes.setdefault(frozenset(terms.items()), made)
        return found

    def _by_terms(self, key: int, terms: Terms) -> SymInt:
        made = SymInt(self, key, terms.get((), 0), _least(terms), None, None, None)
        made._terms = terms
        return made

    def terms_of(self, value: Value) -> Terms:
        """The terms of an int or of a symbolic int of this table."""
        if isinstance(value, SymInt):
            if value.table is not self:
                self.refuse(value)
            return value.terms
        return {(): int(value)} if value else {}

    # Note [keys of symbolic ints]
    #     A model sums hundreds of sizes: ((s0 + s1) + s2) + ...
    # The terms of such a sum grow with its length, so that making them at each step is quadratic.
    # A number's key is its polynomial's value at a fixed point, so keys add and multiply like
    # numbers. A key that is not interned proves that the polynomial is new: the three methods below
    # then record the operation only, and `SymInt.terms` expands it if somebody asks. A key that
    # equals the constant is that of a plain int; `met` checks the terms for it and for known keys.
    def add(self, key: int, a: SymInt, b: Value) -> Any:
        """a + b, where no interned number has its key."""
        least = a.least
        if type(b) is SymInt:
            constant = a.constant + b.constant
            least = None if least is None or b.least is None else least + b.least
            if key == constant or b.table is not self:
                return self.met(key, add, a, b)
        else:
            constant = a.constant + b
            least = None if least is None else least + b
        made = self.interned[key] = SymInt(self, key, constant, least, add, a, b)
        return made

    def subtract(self, key: int, a: SymInt, b: Value) -> Any:
        """a - b, where no interned number has its key."""
        if type(b) is SymInt:
            constant, least = a.constant - b.constant, None
            if key == constant or b.table is not self:
                return self.met(key, subtract, a, b)
        else:
            constant = a.constant - b
            least = None if a.least is None else a.least - b
        made = self.interned[key] = SymInt(self, key, constant, least, subtract, a, b)
        return made

    def multiply(self, key: int, a: SymInt, b: Value) -> Any:
        """a * b, where no interned number has its key."""
        if type(b) is SymInt:
            constant, other = a.constant * b.constant, b.least
            if b.table is not self:
                self.refuse(b)
        elif b:
            constant, other = a.constant * b, int(b)
        else:
            return 0
        least = a.least
        if least is not None:
            least = None if other is None or other < 0 or least < 0 else least * other
        made = self.interned[key] = SymInt(self, key, constant, least, multiply, a, b)
        return made

    def met(self, key: int, function: Combine, a: SymInt, b: Value) -> Any:
        """function(a, b), where an interned number has its key: nearly always the same number."""
        if type(b) is int and b == _NEUTRAL[function]:
            return a
        found = self.interned.get(key)
        if found is not None and found.left is b and found.right is a:
            if found.function is function is not subtract:
                return found
        result = self._results.get((function, a, b))
        if result is None:
            terms = function(a.terms, self.terms_of(b))
            same = found is not None and found.terms == terms
            result = self._results[function, a, b] = found if same else self.of(terms)
        return result

    def call(self, function: str, left: Value, right: Value) -> Any:
        """`//`, `%`, `**`, `max` or `min` of two values, one of them symbolic."""
        key = (function, left, right)
        found = self._calls.get(key)
        if found is None:
            self.terms_of(left), self.terms_of(right)
            found = self._calls[key] = calls.call(self, function, left, right)
        return found

    def atom(self, function: str, left: Value, right: Value, room: Range) -> Any:
        """The interned int of a `Call` with the range `room`."""
        key = ("atom", function, left, right)
        found = self._calls.get(key)
        if found is None:
            made = Call(self._atoms, function, left, right, room)
            self._atoms += 1
            found = self._calls[key] = self.of({(made,): 1})
        return found

    def range(self, value: Value) -> Range:
        """(lower, upper) bounds for all values of the symbols; None for no bound."""
        return self._facts.range(self.terms_of(value))

    def sympy_quotient(self, dividend: Terms, divisor: Terms) -> tuple[Terms, Terms] | None:
        """(q, 0) where dividend = q * divisor over the integers, else None."""
        quotient = sympy_forms.quotient(dividend, divisor)
        return None if quotient is None else (quotient, {})

    def evaluate(self, value: Value, values: Mapping[str, int] | None = None) -> int:
        """The value where the symbols have these values, by name; by default their hints."""
        given = self.hints if values is None else values

        def of_atom(atom: Any) -> int:
            if isinstance(atom, Call):
                operands = [self.evaluate(v, given) for v in (atom.left, atom.right)]
                return FUNCTIONS[atom.function](*operands)
            if atom.name not in given:
                raise UnsupportedError(
                    f"symbols: the value of {atom.name} is asked for, expected a size that is "
                    "known before the graph runs"
                )
            return given[atom.name]

        return evaluate(self.terms_of(value), of_atom)

    # --------------------------------------------------------------------------------- questions
    def known(self, fact: SymBool) -> bool | None:
        """The truth of a comparison for all values; None where it depends on them."""
        answer = _known_by_bounds(fact.left, fact.relation, fact.right)
        if answer is not None:
            return answer
        difference = self.terms_of(fact.left - fact.right)
        if fact.relation == "==":
            return self._facts.zero(difference)
        if fact.relation == "!=":
            return _not(self._facts.zero(difference))
        return self._facts.nonnegative(_nonnegative_form(fact.relation, difference))

    def known_truth(self, left: Value, relation: str, right: Value) -> bool | None:
        """`known` for two values of which both may be ints."""
        truth: object = RELATIONS[relation](left, right)  # type: ignore[arg-type]
        return truth if isinstance(truth, bool) else None

    def decide(self, fact: SymBool) -> bool:
        """The truth of a comparison: for all values, or else for the hints, which is logged."""
        known = self.known(fact)
        if known is not None:
            return known
        if self.spelled is not None:
            return same_or_raise(fact, in_rule=self.op is not None)
        answer = fact.hint
        self._assume(_said_simply(fact if answer else fact.negated()))
        return answer

    def specialize(self, value: SymInt) -> int:
        """The hint; logs the assumption that the value equals it."""
        constant = self._facts.constant(value.terms)
        if constant is not None:
            return constant
        if self.spelled is not None:
            raise Unproved(f"the value of {self.expression(value)}")
        hint = value.hint
        self._assume(_said_simply(SymBool(value, "==", hint)))
        return hint

    def ask(self, function: Callable[..., Any], *operands: Any) -> Any:
        """The result of a function of plain ints for the hints; logs it as an assumption.

        For questions that no comparison expresses, such as whether two strided tensors overlap.
        """
        key = (function, operands)
        if key not in self._answers:
            if self.spelled is not None:
                raise Unproved(f"{function.__name__} of sizes")
            answer = function(*concrete(operands, self.hints))
            self._answers[key] = answer
            self.log.append(Assumption(Answer(function, operands, answer), self.op, self.locate()))
        return self._answers[key]

    def compare(self, fact: SymBool) -> bool | SymBool:
        """The comparison itself, or its truth where that is the same for all values."""
        known = self.known(fact)
        memo: dict[Any, Any] = self.open if known is None else self.truths
        truth = memo[fact.relation, fact.left, fact.right] = fact if known is None else known
        return truth

    def _assume(self, fact: SymBool) -> None:
        self.open.clear()
        self.log.append(Assumption(fact, self.op, self.locate()))
        difference = self.terms_of(fact.left - fact.right)
        if fact.relation == "==":
            self._facts.learn_zero(difference)
        elif fact.relation == "!=":
            self._facts.learn_nonzero(difference)
        else:
            self._facts.learn_nonnegative(_nonnegative_form(fact.relation, difference))

    @contextmanager
    def rule_of(self, op: str) -> Iterator[None]:
        """A block in which the meta rule of this op runs: assumptions name it."""
        outer, self.op = self.op, op
        try:
            yield
        finally:
            self.op = outer

    # ------------------------------------------------------------------------------------- text
    def text(self, value: SymInt) -> str:
        """The expression as Python writes it: `s0*s1 - 2*s0 + 3`; or as `spelled` says."""
        return self.expression(value) if self.spelled is None else self.spelled(value)

    def expression(self, value: SymInt) -> str:
        """The expression as Python writes it."""
        words: list[str] = []
        for monomial, c in sorted(value.terms.items(), key=_reading_order):
            words += ["-" if c < 0 else "+", _product(monomial, c)]
        return " ".join(words[1:]) if words[0] == "+" else f"-{' '.join(words[1:])}"

    def refuse(self, value: SymInt) -> NoReturn:
        """Raises ArgumentError for a size of another trace."""
        raise ArgumentError(f"symbols: {value} is of another trace, expected sizes of one trace")

    def __repr__(self) -> str:
        shown = ", ".join(f"{s}={s.hint}" for s in self.symbols.values())
        return f"SymbolTable({shown}; {len(self.log)} assumptions)"


_NEUTRAL: Final[dict[Combine, int]] = {add: 0, subtract: 0, multiply: 1}
_POINT = attrgetter("point")


def _least(terms: Terms) -> int | None:
    """A lower bound, where the terms are a single atom."""
    (monomial, c), *others = terms.items()
    return monomial[0].lower if len(monomial) == 1 and c == 1 and not others else None


def _known_by_bounds(left: SymInt, relation: str, right: Value) -> bool | None:
    """The truth of a comparison where lower bounds show it, without expanding polynomials."""
    for greater, less, where in ((left, right, ABOVE), (right, left, BELOW)):
        excess = _excess(greater, less)
        if excess is not None and excess > 0:
            return relation in where
    return None


def _excess(a: Value, b: Value) -> int | None:
    """A lower bound of a - b, if one is seen at once: a stride is a multiple of the next one."""
    if type(a) is not SymInt:
        return None
    if type(b) is not SymInt:
        return None if a.least is None else a.least - b
    if a.function is not multiply or b.least is None or b.least < 0:
        return None
    factor = a.right if a.left is b else a.left if a.right is b else None
    times = factor.least if type(factor) is SymInt else factor
    return None if times is None or times < 1 else (times - 1) * b.least


def _said_simply(fact: SymBool) -> SymBool:
    """An equivalent (in)equality, without common factors and constants on the left."""
    if fact.relation not in ("==", "!=") or isinstance(fact.right, SymInt):
        return fact
    table = fact.left.table
    left, right = equation(table.terms_of(fact.left - fact.right))
    return SymBool(table.of(left), fact.relation, right)


def _nonnegative_form(relation: str, difference: Terms) -> Terms:
    """The polynomial that is at least 0 exactly where `difference` has this relation to 0."""
    signed = scaled(difference, -1) if relation in ("<", "<=") else difference
    return signed if relation in ("<=", ">=") else add(signed, {(): 1}, -1)


def _not(known: bool | None) -> bool | None:
    return None if known is None else not known


def _reading_order(term: tuple[Monomial, int]) -> tuple[int, list[int]]:
    return -len(term[0]), [atom.number for atom in term[0]]


def _product(monomial: Monomial, c: int) -> str:
    """The term without its sign."""
    alone = len(monomial) == 1 and c == 1
    factors = [_factor(atom, alone=alone) for atom in monomial]
    number = [str(abs(c))] if abs(c) != 1 or not monomial else []
    return "*".join(number + factors)


def _factor(atom: Any, *, alone: bool) -> str:
    text = str(atom)
    plain = alone or not isinstance(atom, Call) or atom.function in ("max", "min")
    return text if plain else f"({text})"


def table_of(values: Iterable[Any]) -> SymbolTable | None:
    """The table of the first symbolic int among the values, nested in tuples too; None if none."""
    for value in values:
        kind = type(value)
        if kind is SymInt:
            found: SymbolTable | None = value.table
        elif kind is tuple:
            found = table_of(value)
        else:
            continue
        if found is not None:
            return found
    return None


def is_proving(values: Iterable[object]) -> bool:
    """Whether the table of these values answers by proofs alone now (`proving.py`)."""
    table = table_of(values)
    return table is not None and table.spelled is not None
