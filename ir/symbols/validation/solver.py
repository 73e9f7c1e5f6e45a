"""z3: whether a claim follows from the premises, and where it fails if it does not.

Ground floor. z3 is the extra `verify`, imported here alone. Its `div` and `mod` of a negative
divisor are not Python's, so quotient and remainder are unknowns with Python's own definition
(DYN-13): left == right*q + r, and r between 0 and the divisor. A power whose exponent is no small
number is a function of which only true statements are said; so a proof with it is a proof, and a
counter-model is one only if Python's own arithmetic agrees, which is tried for each.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from aotlite.ir.symbols.assumption import Assumption
from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.validation.claims import (
    RELATIONS,
    Claim,
    Evaluation,
    Operand,
    Premises,
    Values,
)

__all__ = ["Solver", "is_installed"]

Formula: TypeAlias = Any
"""A term of z3, which has no types."""

_TRIES = 6
"""How many models are tried with Python's arithmetic before a question is given up."""
_STEPS = 2_000_000
"""The steps of z3 that stand for a second. A question takes as many on a machine that is busy."""
_PATIENCE = 10
"""By a clock, z3 may take so many times as long: a few steps with long numbers do."""


@functools.cache
def is_installed() -> bool:
    """Whether z3 can be imported."""
    return importlib.util.find_spec("z3") is not None


_OF_THREAD: Final = threading.local()


def _context() -> Formula:
    """The context of this thread, in which its terms are: z3 crashes where two threads use one."""
    import z3

    found: Any = getattr(_OF_THREAD, "context", None)
    if found is None:
        found = _OF_THREAD.context = z3.Context()
    return found


class Solver:
    """Questions about one trace, under its premises; about sizes up to `most` if it is given."""

    def __init__(
        self, premises: Premises, most: int | None = None, *, chooses: bool = False
    ) -> None:
        import z3

        self._z3: Any = z3
        self._context = context = _context()
        self._premises = premises
        self._atoms: dict[Atom, Formula] = {}
        self._names: dict[str, Formula] = {}
        self._solver = z3.Solver(ctx=context)
        self._quotients: dict[tuple[int, int], tuple[tuple[Formula, Formula], object]] = {}
        """By the ids of two terms, which are kept: their quotient and remainder."""
        self._switches: dict[int, Formula] = {}
        """By the id of a guard: what is true where it counts, for `implies`."""
        self._power = z3.Function("power", *[z3.IntSort(context)] * 3)
        for name, symbol in premises.symbols.items():
            self._names[name] = made = z3.Int(name, context)
            low, high = symbol.room
            self._solver.add(*([made >= low] if low is not None else []))
            self._solver.add(*([made <= high] if high is not None else []))
            self._solver.add(*([made <= most] if most is not None else []))
        for guard in premises.guards:
            if isinstance(guard.fact, SymBool):
                fact = self.fact(guard.fact)
                if chooses:
                    switch = self._switches[id(guard)] = z3.FreshBool("guard", context)
                    fact = z3.Implies(switch, fact)
                self._solver.add(fact)

    # --------------------------------------------------------------------------------- questions
    def refutes(
        self, claim: Claim, deadline: float, *, beyond: Sequence[Values] = ()
    ) -> Values | Literal[False] | None:
        """Values, other than those of `beyond`, that the premises admit and where it is false.

        False where there are none, which proves the claim; None where z3 does not know.
        `deadline` is of the thread's processor time: a busy machine proves what a quiet one does.
        """
        violated = None if claim.function == "assumed" else self._violated(claim)
        if violated is None:
            return None
        self._solver.push()  # definitions of atoms stay: making the formula has added them
        try:
            self._solver.add(violated, *map(self._other_than, beyond))
            for _ in range(_TRIES):
                if not self._may_ask(deadline):
                    return None
                answer = self._solver.check()
                if answer == self._z3.unsat:
                    return False
                if answer != self._z3.sat:
                    return None
                values = self._model()
                if self._is_counter(claim, values):
                    return values
                self._solver.add(self._other_than(values))
            return None
        finally:
            self._solver.pop()

    def implies(self, claim: Claim, guards: Sequence[Assumption], deadline: float) -> bool:
        """Whether these guards imply the claim: some of those that it was made to choose of."""
        violated = self._violated(claim)
        if violated is None or not self._may_ask(deadline):
            return False
        self._solver.push()
        try:
            self._solver.add(violated)
            chosen = [self._switches[id(each)] for each in guards if id(each) in self._switches]
            proved: bool = self._solver.check(*chosen) == self._z3.unsat
            return proved
        finally:
            self._solver.pop()

    def _may_ask(self, deadline: float) -> bool:
        """Limits the next question to what is left of the thread's time; False if nothing is."""
        left = int(1000 * (deadline - time.thread_time()))
        if left >= 1:
            self._solver.set("rlimit", left * _STEPS // 1000)
            self._solver.set("timeout", left * _PATIENCE)
        return left >= 1

    def _is_counter(self, claim: Claim, values: Values) -> bool:
        """Whether Python's arithmetic agrees."""
        try:
            return self._premises.admit(values) and not claim.holds(Evaluation(values))
        except OverflowError:
            return False

    def _other_than(self, values: Values) -> Formula:
        here = [made == values[name] for name, made in self._names.items()]
        return self._z3.Not(self._z3.And(here, self._context))

    def _model(self) -> dict[str, int]:
        model = self._solver.model()
        found = {}
        for name, made in self._names.items():
            value = model.eval(made, model_completion=True)
            found[name] = int(value.as_long())
        return found

    # ---------------------------------------------------------------------------------- formulas
    def fact(self, fact: SymBool) -> Formula:
        """A comparison, where no divisor in it is 0."""
        truth = RELATIONS[fact.relation](self.number(fact.left), self.number(fact.right))
        return self._z3.And(truth, *self._defined(fact.left), *self._defined(fact.right))

    def _violated(self, claim: Claim) -> Formula:
        z3 = self._z3
        defined = [*self._defined(claim.left), *self._defined(claim.right)]
        left, right = self.number(claim.left), self.number(claim.right)
        if not isinstance(claim.result, (int, SymInt)):  # such as 2**-1
            return None
        if claim.function in RELATIONS:
            truth = RELATIONS[claim.function](left, right)
            truth = z3.BoolVal(truth, self._context) if isinstance(truth, bool) else truth
            return z3.Not(z3.And(truth == bool(claim.result), *defined))
        if isinstance(claim.result, SymInt):
            defined += self._defined(claim.result)
        if claim.function in ("//", "%"):
            defined.append(right != 0)
        found = self._function(claim.function, left, right)
        return z3.Not(z3.And(found == self.number(claim.result), *defined))

    def number(self, operand: Operand) -> Formula:
        """A number or a polynomial."""
        if isinstance(operand, int):
            return self._whole(int(operand))
        terms = operand.terms if isinstance(operand, SymInt) else operand
        total = self._whole(0)
        for monomial, c in terms.items():
            product = self._whole(c)
            for atom in monomial:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _whole(self, number: int) -> Formula:
        return self._z3.IntVal(number, self._context)

    def _fresh(self, name: str) -> Formula:
        return self._z3.FreshInt(name, self._context)

    def _atom(self, atom: Formula) -> Formula:
        found = self._atoms.get(atom)
        if isinstance(atom, Computed):  # any number: what is known of it is a guard
            return self._computed(atom) if found is None else found
        if not isinstance(atom, Call):
            return self._names[atom.name]
        if found is None:
            left, right = self.number(atom.left), self.number(atom.right)
            found = self._atoms[atom] = self._function(atom.function, left, right)
        return found

    def _computed(self, atom: Computed) -> Formula:
        found = self._atoms[atom] = self._fresh("computed")
        if atom.room[0] is not None:
            self._solver.add(found >= atom.room[0])
        return found

    def _function(self, function: str, left: Formula, right: Formula) -> Formula:
        z3 = self._z3
        if function in ("<<", ">>"):
            power = self._raised(self._whole(2), right)
            return left * power if function == "<<" else self._divided(left, power)[0]
        if function == "&":  # the lowest bits: the right one is a power of 2, less 1
            return left % (right + 1)
        if function in ("//", "%"):
            return self._divided(left, right)[0 if function == "//" else 1]
        if function == "**":
            return self._raised(left, right)
        if function == "abs":
            return z3.If(left >= 0, left, -left)
        if function in ("max", "min"):
            return z3.If(left >= right if function == "max" else left <= right, left, right)
        return {"+": left + right, "-": left - right, "*": left * right}[function]

    def _divided(self, left: Formula, right: Formula) -> tuple[Formula, Formula]:
        """Quotient and remainder; nothing is said of them where the divisor is 0."""
        key = left.get_id(), right.get_id()
        if key not in self._quotients:  # one of both, by which `a % b == 0` says `a == b*(a//b)`
            self._quotients[key] = self._new_quotient(left, right), (left, right)
        return self._quotients[key][0]

    def _new_quotient(self, left: Formula, right: Formula) -> tuple[Formula, Formula]:
        z3 = self._z3
        divisor = z3.simplify(right)
        if z3.is_int_value(divisor) and divisor.as_long() > 0:  # z3's own are Python's then
            return left / divisor, left % divisor
        quotient, rest = self._fresh("quotient"), self._fresh("rest")
        self._solver.add(z3.Implies(right != 0, left == right * quotient + rest))
        self._solver.add(z3.Implies(right > 0, z3.And(rest >= 0, rest < right)))
        self._solver.add(z3.Implies(right < 0, z3.And(rest <= 0, rest > right)))
        return quotient, rest

    def _raised(self, base: Formula, exponent: Formula) -> Formula:
        z3 = self._z3
        number = z3.simplify(exponent)
        if z3.is_int_value(number) and 0 <= number.as_long() <= 64:
            product = self._whole(1)
            for _ in range(number.as_long()):
                product = product * base
            return product
        power = self._power(base, exponent)
        self._solver.add(z3.Implies(exponent == 0, power == 1))
        self._solver.add(z3.Implies(exponent == 1, power == base))
        self._solver.add(z3.Implies(z3.And(base >= 1, exponent >= 0), power >= 1))
        self._solver.add(z3.Implies(z3.And(base >= 2, exponent >= 0), power > exponent))
        return power

    def _defined(self, operand: Operand) -> list[Formula]:
        """What must not be 0 for the operand to have a value."""
        if isinstance(operand, int):
            return []
        terms = operand.terms if isinstance(operand, SymInt) else operand
        found: list[Formula] = []
        for atom in {atom for monomial in terms for atom in monomial}:
            if isinstance(atom, Call):
                found += [*self._defined(atom.left), *self._defined(atom.right)]
                if atom.function in ("//", "%"):
                    found.append(self.number(atom.right) != 0)
                elif atom.function == "**":
                    found.append(self.number(atom.right) >= 0)
        return found
