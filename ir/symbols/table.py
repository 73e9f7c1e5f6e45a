"""`SymbolTable`: the symbols of one trace, their expressions, and the assumptions about them.

Ground floor. It corresponds to PyTorch's ShapeEnv. The table interns expressions and decides
comparisons: by a proof for all values where there is one, else by the hints, and then it logs the
answer as an assumption (DYN-2). It owns all that is cached for its symbols; no global cache holds
a symbol. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import attrs

from aotlite.ir.errors import ArgumentError
from aotlite.ir.provenance.location import Location
from aotlite.ir.symbols import calls, sympy_forms
from aotlite.ir.symbols.assumption import Answer, Assumption, Texts, concrete, marked, printing
from aotlite.ir.symbols.calls import Call, evaluated, text_of
from aotlite.ir.symbols.events import Events, RuleRun
from aotlite.ir.symbols.polynomial import (
    Atom,
    Range,
    Symbol,
    Terms,
    add,
    evaluate,
    multiply,
    subtract,
)
from aotlite.ir.symbols.proofs import (
    Facts,
    answer_of_hints,
    difference_of,
    known_by_bounds,
    least_of,
    nonnegative_form,
    said_simply,
)
from aotlite.ir.symbols.proving import Proving, Unproved
from aotlite.ir.symbols.python_number import operation_key
from aotlite.ir.symbols.symint import RELATIONS, Combine, SymBool, SymInt, hash_by_value
from aotlite.ir.symbols.user_code import CountSymbols, asking_place

__all__ = ["SymbolTable", "table_of"]

Value: TypeAlias = "int | SymInt"
Result = TypeVar("Result")


@attrs.define(eq=False, repr=False)
class SymbolTable:
    """Symbols, expressions and assumptions of one trace."""

    duck_shape: bool = False
    """Whether sizes with equal hints become one symbol; each call must have them equal (DYN-1)."""
    locate: Callable[[], Location | None] = asking_place
    """Returns the user's line that is running."""
    shown_as_ints: bool = attrs.field(default=False, init=False)
    """Whether code outside aotlite finds ints where the symbols are (DYN-23)."""
    texts: Texts = attrs.field(default=Texts.SYMBOLS, init=False)
    """How sizes are printed."""
    closed: bool = attrs.field(default=False, init=False)
    """Whether the guards were made: hints answer what is asked from then on, without a log."""
    late: list[SymBool | Answer] = attrs.field(factory=list, init=False)
    """What was answered so: by who looks at a trace, and by no stage."""
    weakest: bool = False
    """Whether rules run by cases (`ir/symbols/cases`): set by a size whose range is given."""
    asked: Callable[[SymBool | Answer], object] | None = attrs.field(default=None, init=False)
    """Gets what the hints answer instead of the log; it may raise."""
    computes: Any = attrs.field(default=None, init=False)
    """Makes expressions of what no integers express (`floats`); None: these take values."""
    counts: CountSymbols | None = attrs.field(default=None, init=False)
    """The symbols that depend on values; None where there are none."""
    log: list[Assumption] = attrs.field(factory=list, init=False)
    """Every assumption, in order, each once."""
    symbols: dict[str, Symbol] = attrs.field(factory=dict, init=False)
    """Every symbol by name."""
    interned: dict[int, SymInt] = attrs.field(factory=dict, init=False)
    """`SymInt.key` -> the number."""
    truths: dict[tuple[object, ...], Any] = attrs.field(factory=dict, init=False)
    """Comparisons with the same answer for all values, and the answer: by `operation_key`."""
    open: dict[tuple[object, ...], SymBool] = attrs.field(factory=dict, init=False)
    """Comparisons without one; emptied by each assumption, which may decide some."""
    cache: dict[Any, Any] = attrs.field(factory=dict, init=False)
    """By any key: metas with symbols, results of meta rules for them, sizes by hint."""
    op: str | None = attrs.field(default=None, init=False)
    """The op whose meta rule is running."""
    spelled: Proving | None = attrs.field(default=None, init=False)
    """While code is made that must be right for all sizes: how to answer, and to spell a size."""
    events: Events = attrs.field(factory=Events, init=False)
    """Every fact that was used, each at least once (DYN-11)."""
    facts: Facts = attrs.field(init=False)
    namesakes: dict[Any, SymInt] = attrs.field(factory=dict, init=False)
    """Terms -> the number, where another number has its key: a hash collision."""
    _results: dict[Any, Any] = attrs.field(factory=dict, init=False)
    """(operation, operands) -> the number, where that was interned before."""
    _calls: dict[Any, Any] = attrs.field(factory=dict, init=False)
    """(function, operands) -> the result, of `call`, `atom` and `ask`."""
    atoms: list[Atom] = attrs.field(factory=list, init=False)
    """Every atom, in order of its number."""

    @facts.default
    def _nofacts(self) -> Facts:
        return Facts(self.events.append)

    # ---------------------------------------------------------------------------------- symbols
    def show_as_ints(self) -> None:
        """Shows code outside aotlite ints from now on."""
        self.shown_as_ints = True
        hash_by_value()

    def size(self, hint: int, source: str = "", *, lower: int = 2, upper: int | None = None) -> Any:
        """A symbol of this range for the size of a dimension; the hint itself if it is below.

        From 2 is PyTorch's 0/1 specialization; from 0 rules ask what they need (DYN-1)."""
        if hint < lower:
            return hint
        if lower != 2 or upper is not None:
            self.weakest = True
        if not self.duck_shape:
            return self.symbol(hint, source, lower=lower, upper=upper)
        key = ("size", hint, lower, upper)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = self.symbol(hint, source, lower=lower, upper=upper)
        elif source:
            self.symbols[self.expression(found)].sources.append(source)
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
        count = sum([name.startswith(letter) for name in self.symbols])
        name = f"{letter}{count}"
        made = self.named_symbol(name, hint, (lower, upper))
        if source:
            self.symbols[name].sources.append(source)
        return made

    def named_symbol(self, name: str, hint: int | None, room: Range) -> SymInt:
        """A fresh symbol of this name, which no other symbol of the table has."""
        made = self.symbols[name] = Symbol(len(self.atoms), name, hint, room)
        self.atoms.append(made)
        result = self.named(name)
        self.events.append(("==", {(made,): 1}, result, True))
        return result

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
            found = self.namesakes.setdefault(frozenset(terms.items()), made)
        return found

    def _by_terms(self, key: int, terms: Terms) -> SymInt:
        made = SymInt(self, key, terms.get((), 0), least_of(terms), None, None, None)
        made._terms = terms
        if made.least is not None:
            self.events.append((">=", made, made.least, True))
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
        return self._made(made)

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
        return self._made(made)

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
        return self._made(made)

    def _made(self, number: SymInt) -> SymInt:
        """The number itself, after its event."""
        events = self.events
        if self.op is None:  # the operator's line, as to find the user's costs as much as the rest
            frame = sys._getframe(3)
            events.lines[len(events)] = frame.f_code, frame.f_lasti
        events.append(number)
        return number

    def met(self, key: int, function: Combine, a: SymInt, b: Value) -> Any:
        """function(a, b), where an interned number has its key: nearly always the same number."""
        asked = operation_key(function, a, b)
        result = self._results.get(asked)
        if result is None:
            result = self._results[asked] = self._met(key, function, a, b)
            self.said(_SIGN[function], a, b, result)
        return result

    def _met(self, key: int, function: Combine, a: SymInt, b: Value) -> Any:
        if type(b) is int and b == _NEUTRAL[function]:
            return a
        found = self.interned.get(key)
        if found is not None and found.left is b and found.right is a:
            if found.function is function is not subtract:
                return found
        terms = function(a.terms, self.terms_of(b))
        return found if found is not None and found.terms == terms else self.of(terms)

    def derived(self, function: str, left: Value, right: Value, result: Result) -> Result:
        """The result itself, of an operator that is made of others; once it becomes an event."""
        key = (function, left, right)
        if key not in self._results:
            self._results[key] = self.said(function, left, right, result)
        return result

    def call(self, function: str, left: Value, right: Value) -> Any:
        """`//`, `%`, `**`, `max` or `min` of two values, one of them symbolic."""
        asked = left, right
        if type(left) is int and function in ("max", "min"):  # one key for both orders
            left, right = right, left
        key: object = (function, left, right)
        if type(left) is SymInt:
            key = operation_key(function, left, right)
        found = self._calls.get(key)
        if found is None:
            self.terms_of(left), self.terms_of(right)
            found = self._calls[key] = calls.call(self, function, left, right)
            self.said(function, *asked, found)
        return found

    def atom(self, function: str, left: Value, right: Value, room: Range) -> Any:
        """The interned int of a `Call` with the range `room`."""
        key = ("atom", function, left, right)
        found = self._calls.get(key)
        if found is None:
            made = Call(len(self.atoms), function, left, right, room)
            self.atoms.append(made)
            self.facts.watch(made)
            for relation, bound in zip((">=", "<="), room, strict=True):
                if bound is not None:
                    self.events.append((relation, {(made,): 1}, bound, True))
            found = self._calls[key] = self.of({(made,): 1})
        return found

    def range(self, value: Value) -> Range:
        """(lower, upper) bounds for all values of the symbols; None for no bound."""
        return self.facts.range(self.terms_of(value))

    def sympy_quotient(self, dividend: Terms, divisor: Terms) -> tuple[Terms, Terms] | None:
        """(q, 0) where dividend = q * divisor over the integers, else None."""
        quotient = sympy_forms.quotient(dividend, divisor)
        return None if quotient is None else (quotient, {})

    def evaluate(self, value: Value, values: Mapping[str, int] | None = None) -> int:
        """The value where the symbols have these values, by name; by default their hints."""
        given = self.hints if values is None else values
        return evaluated(self.terms_of(value), given)

    # --------------------------------------------------------------------------------- questions
    def known(self, fact: SymBool) -> bool | None:
        """The truth of a comparison for all values; None where it depends on them."""
        answer = known_by_bounds(fact.left, fact.relation, fact.right)
        if answer is not None:
            return answer
        difference = difference_of(fact)
        if fact.relation in ("==", "!="):
            zero = self.facts.zero(difference)
            return None if zero is None else zero == (fact.relation == "==")
        return self.facts.nonnegative(nonnegative_form(fact.relation, difference))

    def known_truth(self, left: Value, relation: str, right: Value) -> bool | None:
        """`known` for two values of which both may be ints."""
        truth: object = RELATIONS[relation](left, right)  # type: ignore[arg-type]
        return truth if isinstance(truth, bool) else None

    def decide(self, fact: SymBool) -> bool:
        """The truth of a comparison: for all values, or else for the hints, which is logged."""
        known = self.known(fact)
        if known is None and self.spelled is not None:
            return self.spelled.answer(fact, in_rule=self.op is not None)
        answer: bool = answer_of_hints(fact) if known is None else known
        taken = said_simply(fact if answer else fact.negated()) if known is None else None
        if taken is None or not self._is_told(taken):
            self.said(fact.relation, fact.left, fact.right, answer)
            if taken is not None and self.known(fact) is None:  # else it follows from its factors
                self.assume(taken)
        return answer

    def _is_told(self, fact: SymBool | Answer) -> bool:
        """Whether an answer of the hints is no assumption: those of `closed`, and for `asked`."""
        if self.counts is not None and self.op is None and self.shown_as_ints:
            self.counts.ask(fact)
        if self.closed:
            self.late.append(fact)
        elif self.asked is not None:
            self.asked(fact)
        return self.closed or self.asked is not None

    def specialize(self, value: SymInt) -> int:
        """The hint; logs the assumption that the value equals it."""
        constant = self.facts.constant(value.terms)
        if constant is None and self.spelled is not None:
            raise Unproved(f"the value of {self.expression(value)}")
        number: int = value.hint if constant is None else constant
        taken = said_simply(SymBool(value, "==", number)) if constant is None else None
        is_told = taken is not None and self._is_told(taken)
        if not self.closed:  # said of each number that is used, by what no guard depends on
            self.said("==", value, number, True)
        if taken is not None and not is_told:
            self.assume(taken)
        return number

    def ask(self, function: Callable[..., Any], *operands: Any) -> Any:
        """The result of a function of plain ints for the hints; logs it as an assumption.

        For questions that no comparison expresses, such as whether two strided tensors overlap.
        """
        key = (function, operands)
        if key not in self._calls:
            if self.spelled is not None:
                return self.spelled.ask(function, operands)
            answer = Answer(function, operands, function(*concrete(operands, self.hints)))
            if self._is_told(answer):
                return answer.value
            self.assume(answer)
        return self._calls[key]

    def compare(self, fact: SymBool) -> bool | SymBool:
        """The comparison itself, or its truth where that is the same for all values."""
        known = self.known(fact)
        memo: dict[Any, Any] = self.open if known is None else self.truths
        key = operation_key(fact.relation, fact.left, fact.right)
        truth = memo[key] = fact if known is None else known
        if type(truth) is not SymBool:
            self.said(fact.relation, fact.left, fact.right, truth)
        return truth

    def shown(self, truth: bool | SymBool) -> bool | SymBool:
        """A comparison for the code of a function: a bool, unless that needs a default (DYN-32)."""
        return truth if self.counts is not None and self.counts.is_open(truth) else bool(truth)

    def assume(self, fact: SymBool | Answer) -> None:
        """Logs a fact, and learns it."""
        found = Assumption(fact, self.op, self.locate())
        self.log.append(found)
        if isinstance(fact, Answer):
            self.said("assumed", found, None, True)
        self.learn(fact)

    def learn(self, fact: SymBool | Answer) -> None:
        """Makes a fact known; logs nothing."""
        if isinstance(fact, Answer):
            self._calls[fact.function, fact.operands] = fact.value
            return
        self.open.clear()
        difference = difference_of(fact)
        if fact.relation == "==":
            self.facts.learn_zero(difference)
        elif fact.relation == "!=":
            self.facts.learn_nonzero(difference)
        else:
            self.facts.learn_nonnegative(nonnegative_form(fact.relation, difference))

    # ----------------------------------------------------------------------------------- events
    def said(self, function: str, left: object, right: object, result: Result) -> Result:
        """The result itself, after the event that the function of these operands is this."""
        if self.op is None:
            self._asked()
        self.events.append((function, left, right, result))
        return result

    def _asked(self) -> None:
        """Says of the next event which line of the user asked; within a rule, `rule_of` does."""
        self.events.lines[len(self.events)] = self.locate()

    def rule_of(self, op: str) -> RuleRun:
        """A block in which the meta rule of this op runs: assumptions and events name it."""
        return RuleRun(self, op)

    @property
    def is_passing(self) -> bool:
        """Whether answers are not kept: proofs, or hints after the guards."""
        return self.spelled is not None or self.closed

    # ------------------------------------------------------------------------------------- text
    def text(self, value: SymInt) -> str:
        """The expression as Python writes it: `s0*s1 - 2*s0 + 3`; or as `spelled` says."""
        if self.spelled is not None:
            return self.spelled.spell(value)
        if self.texts is not Texts.SYMBOLS:
            self.cache["printed", value] = value
        if self.texts is Texts.HINTS:
            return str(value.hint)
        return (marked if self.texts is Texts.PLACES else str)(self.expression(value))

    @property
    def printed(self) -> list[SymInt]:
        """What was printed as numbers, in texts that the function may read."""
        return [found for key, found in self.cache.items() if key[0] == "printed"]

    def expression(self, value: SymInt) -> str:
        """The expression as Python writes it."""
        with printing(self, Texts.SYMBOLS):  # its calls print their operands
            return text_of(value.terms)

    def refuse(self, value: SymInt) -> NoReturn:
        """Raises ArgumentError for a size of another trace."""
        raise ArgumentError(f"symbols: {value} is of another trace, expected sizes of one trace")

    def __repr__(self) -> str:
        return f"SymbolTable({self.hints}; {len(self.log)} assumptions)"


_NEUTRAL: Final[dict[Combine, int]] = {add: 0, subtract: 0, multiply: 1}
_SIGN: Final[dict[Combine, str]] = {add: "+", subtract: "-", multiply: "*"}
_POINT = attrgetter("point")


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
